"""What a status page may know: a frozen copy of the scheduler's state at one moment.

Who may see what of it is decided by the HTTP side, not here. `dataclasses.asdict` makes plain
data of it; every value is a str, int, float, bool, None, tuple or dict of these.
"""

from __future__ import annotations

from dataclasses import dataclass

from .ids import ClientId, DeviceId, Seconds, TenantId, TurnId
from .obstacles import Obstacle
from .settings import SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderSnapshot:
    """A tenant that has a turn on a device."""

    tenant: TenantId
    name: str
    turn: TurnId
    held_for_s: Seconds
    recalled: bool
    """It has been asked to give the turn back."""
    overdue: bool
    """It was asked, and has not answered for `overdue_s`."""
    hold_left_s: Seconds = 0.0
    """Its user keeps it by hand for so much longer; 0: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiterSnapshot:
    """A tenant in the queue of a device."""

    tenant: TenantId
    name: str
    waited_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSnapshot:
    """A device, who has it and who wants it."""

    id: DeviceId
    name: str
    bytes_total: int
    bytes_used: int
    """As NVML counts: everybody's, also what is not under our hook."""
    bytes_allocated: int
    """As the clients report: what is under our hook, also what of it is in host memory."""
    bytes_foreign: int
    """On the device, and not under our hook."""
    bytes_reserved: int
    """For what no budget covers. Nobody gets new memory there; what was on the device before
    contexts grew may come back into it."""
    bytes_usable: int
    """What tenants may have on the device together."""
    bytes_staying: int
    """What of theirs stays there, whoever has the turn."""
    lost: bool
    holders: tuple[HolderSnapshot, ...]
    """One, unless `anti_thrash` is off or was a moment ago."""
    queue: tuple[WaiterSnapshot, ...]
    """In the order in which they will be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDeviceSnapshot:
    """A device that a client has opened."""

    device: DeviceId
    bytes_allocated: int
    bytes_parked: int
    """Of these, in host memory."""
    bytes_fixed: int
    """Of the rest, what cannot be moved."""
    failed: bool
    """A context of the client has a sticky error here; only a restart of the process cures it."""
    silent: bool = False
    """It was asked to release memory, and has made no progress for `park_timeout_s`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantMemorySnapshot:
    """What a tenant has on a device, all its processes together."""

    device: DeviceId
    bytes_resident: int
    bytes_parked: int
    bytes_fixed: int
    bytes_staying: int
    """Of what is on the device, what stays there, whoever has the turn."""
    cap_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSnapshot:
    """One process of a tenant."""

    id: ClientId
    pid: int
    process_name: str
    state: str
    """A value of `transitions.ClientState`."""
    in_cell: bool
    overdue: bool
    devices: tuple[ClientDeviceSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCounters:
    """What a tenant has had so far."""

    turns: int = 0
    waits: int = 0
    """Turns that it had to wait for (and got)."""
    waited_s_total: Seconds = 0.0
    held_s_total: Seconds = 0.0
    drain_stalls: int = 0
    recalls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSnapshot:
    """A kernel or a `run` command."""

    id: TenantId
    name: str
    owner: str
    kind: str
    state: str
    """A value of `transitions.TenantState`."""
    cap_bytes: int
    clients: tuple[ClientSnapshot, ...]
    counters: TenantCounters
    """Turns and waits that are under way are counted up to this moment."""
    memory: tuple[TenantMemorySnapshot, ...] = ()
    obstacle: Obstacle | None = None
    """Why it has no turn although its devices are free, or why it was refused memory lately."""
    hold_left_s: Seconds = 0.0
    """Its user keeps the turn that it has by hand for so much longer; 0: not at all."""
    hold_to_come_s: Seconds = 0.0
    """It has no turn, and its user keeps the next one by hand for so long; 0: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    at_s: Seconds
    recovering: bool
    """The scheduler was restarted and still waits for its clients before it grants."""
    devices: tuple[DeviceSnapshot, ...]
    tenants: tuple[TenantSnapshot, ...]
    settings: SchedulerSettings
