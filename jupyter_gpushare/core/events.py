"""What can happen to the scheduler: the only way into it (`Scheduler.handle`).

Every event carries its `cause` in a few words; it travels on into commands and the journal.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .ids import ClientId, DeviceId, Seconds, TenantId, TurnId
from .settings import SchedulerSettings


class DropReason(enum.Enum):
    """Why a client gave its turn back."""

    RECALL = "recall"
    CELL_END = "cell_end"
    IDLE = "idle"
    CONTEXT_FAILED = "context_failed"
    CLOSING = "closing"
    MEMORY_SHORT = "memory_short"


class DeviceMode(enum.Enum):
    """Whether new turns begin on a device."""

    OPEN = "open"
    PAUSED = "paused"
    """None does, and present turns are asked back."""
    DRAINED = "drained"
    """As `PAUSED`, and tenants park their memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events; `cause` says in a few words what brought it about."""

    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEvent(Event):
    """Base of all events that one client brings about."""

    client: ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestEvent(Event):
    """Base of all events that somebody asks for and is answered: where the core fails, they can ask
    again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFound(Event):
    """A device is there (seen by NVML at start or later, or named by a client)."""

    device: DeviceId
    name: str
    bytes_total: int
    uuid: str = ""
    """As NVML writes it, and CUDA_VISIBLE_DEVICES takes it; empty where NVML does not list it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemoryMeasured(Event):
    """NVML's count of used bytes on a device."""

    device: DeviceId
    bytes_used: int
    bytes_of_clients: tuple[tuple[ClientId, int], ...] = ()
    """What processes of clients have there in all, with their contexts; those alone of which NVML
    has not said this before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLost(Event):
    """A device fell off the bus or its MIG instance is gone."""

    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWithdrawn(Event):
    """A device that only its clients knew of is not open in any of them any more."""

    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRemembered(Event):
    """What an owner owed, and what was left of its credit, under a scheduler before this one."""

    owner: str
    credit_s: Seconds
    debts: tuple[tuple[DeviceId, Seconds], ...] = ()
    """Device time by which it was ahead of its share."""
    used: tuple[tuple[TenantId, DeviceId, Seconds], ...] = ()
    """What its tenants have had of late (accounts.py); without a tenant: those that have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRegistered(RequestEvent):
    """A kernel or a `run` command asked for a place. `cap_bytes` 0 means no cap."""

    tenant: TenantId
    name: str
    owner: str
    kind: str
    cap_bytes: int = 0
    asked_class: str = ""
    """A name in classes.py; empty: none."""
    groups: tuple[str, ...] | None = None
    """Of the owner, as a hub or the system knows them; None: nobody was asked."""
    need: str = ""
    """What it wants free on its devices, as a person writes it; see placement.py."""
    need_devices: str = ""
    placed_on: tuple[DeviceId, ...] = ()
    """Where a scheduler before this one has put it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRemoved(Event):
    """The kernel was shut down or restarted; its remaining clients are to be closed."""

    tenant: TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientJoined(ClientEvent):
    """A process was authenticated.

    `held_turn` is set when it reconnects holding a turn. It names the devices that it has opened
    next, and asks for a turn only then: a turn covers those that are named when it is granted.
    """

    tenant: TenantId
    pid: int
    process_name: str
    held_turn: TurnId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLost(ClientEvent):
    """The process ended or its connection closed, whichever was first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFrozen(ClientEvent):
    """The process was stopped from outside and does nothing, or it goes on."""

    frozen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOpened(ClientEvent):
    """The client has its first context on a device."""

    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClosed(ClientEvent):
    """The client's last context on a device is gone."""

    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequested(ClientEvent):
    """A gated call waits at the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWithdrawn(ClientEvent):
    """No call waits at the client any more, without its having had a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDropped(ClientEvent):
    """The client's gate is shut and its work has drained."""

    turn: TurnId
    reason: DropReason


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStalled(ClientEvent):
    """A recalled client's work makes no progress; `calls_waiting` at its own gate."""

    turn: TurnId
    calls_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellBegan(ClientEvent):
    """A notebook cell runs in the client's process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnded(ClientEvent):
    """No notebook cell runs in the client's process any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusUsed(ClientEvent):
    """The client's program copies much between host and device, while it has the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequested(ClientEvent):
    """The user keeps the turn of the client's tenant by hand for `hold_s`; 0 ends that."""

    hold_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnGivenAway(ClientEvent):
    """The user gives the turn of the client's tenant away, and a hold with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReported(ClientEvent):
    """Device memory of the client: all of it, what of it is in host memory, what of the rest cannot
    be moved. It could park `bytes_parkable` more, by a limit with the number `host_limit` (0: the
    machine's own), and has heard the budget of this serial. Of what is parked, at most `bytes_kept`
    are on the device until others need them. Of what is there and can be moved, the host has a copy
    of `bytes_copied`; the client would copy `bytes_to_copy` more ahead of need."""

    device: DeviceId
    bytes_allocated: int
    bytes_fixed: int
    bytes_parked: int = 0
    bytes_parkable: int = 0
    host_limit: int = 0
    budget_serial: int = 0
    bytes_kept: int = 0
    bytes_copied: int = 0
    bytes_to_copy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeded(ClientEvent):
    """A call of the client waits for more memory; 0 bytes: no longer. `need_id` is the client's
    own number for it."""

    device: DeviceId
    bytes_needed: int
    need_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceRequested(ClientEvent):
    """The driver is out of memory at the client, in something that no budget covers. 0 bytes: what
    was asked for before is not wanted any more."""

    device: DeviceId
    bytes_wanted: int
    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFailed(ClientEvent):
    """A context of the client has a sticky error (a CUresult); it counts as drained."""

    device: DeviceId
    cu_result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRequested(RequestEvent):
    """The kernel was interrupted: fail what waits at its gates."""

    tenant: TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequested(RequestEvent):
    """Its user wants the tenant to give its turn back now, although the quantum is not over."""

    tenant: TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModeChanged(RequestEvent):
    """An admin pauses, drains or opens a device."""

    device: DeviceId
    mode: DeviceMode


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantHeld(RequestEvent):
    """The tenant keeps its turn for `hold_s`, as if its user had said so; 0 ends that."""

    tenant: TenantId
    hold_s: Seconds
    by_admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostRequested(RequestEvent):
    """The tenant is to be served next, once."""

    tenant: TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictRequested(RequestEvent):
    """The tenant is to give its turn back and to park its memory; both come back with its next
    turn."""

    tenant: TenantId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassAsked(RequestEvent):
    """The tenant asks for another class than it was registered with; see shares/classes.py."""

    tenant: TenantId
    asked_class: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedAsked(RequestEvent):
    """The tenant needs another amount on the devices that it has; see placement.py."""

    tenant: TenantId
    need: str
    """As in TenantRegistered. Empty: it needs no more than it has."""
    need_devices: str = ""
    """Empty: those that it has. They cannot be more or fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantBusy(RequestEvent):
    """Whether a cell of the kernel runs, as its server sees it: for kernels whose processes cannot
    say so themselves."""

    tenant: TenantId
    busy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged(RequestEvent):
    """An admin changed settings while the scheduler runs."""

    settings: SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryComplete(Event):
    """All clients that a scheduler before this one had are back, or have had the time to come:
    grant again."""

    in_time: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTicked(Event):
    """A time that the core had asked for (`WakeAt`) has come, or passed."""
