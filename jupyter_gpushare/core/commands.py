"""What the scheduler core wants done: the only way out of `Scheduler.handle`.

A command that fails comes back as an event (usually `ClientLost`); it never changes state itself.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .ids import ClientId, DeviceId, Seconds, TenantId, TurnId
from .settings import SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Base of all commands; `cause` is carried over from the event that led to it."""

    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantTurn(Command):
    """Let the client's gated calls through. `quantum_s` counts only while others wait."""

    client: ClientId
    turn: TurnId
    quantum_s: Seconds
    waiters: int


class RecallReason(enum.Enum):
    """Why a turn is asked back."""

    ASKED = "asked"
    """Somebody asked for it; the cause says who."""
    DEVICE_TAKEN = "device_taken"
    """The tenant opened a device on which another one has a turn."""
    PAUSED = "paused"
    """An admin has paused a device of the turn."""
    NOT_FIRST = "not_first"
    """Turns were switched on, or clients came back, and another tenant was first."""
    NO_SPACE = "no_space"
    """Memory of the tenant cannot come back, or a call of it waits for memory of others."""
    CELL_ENDED = "cell_ended"
    """Others wait, and the cell has ended."""
    LIMIT = "limit"
    """Its owner has had the part of the device that the settings allow."""
    GOES_FIRST = "goes_first"
    """Another tenant waits whose class goes first."""
    CELL_WAITS = "cell_waits"
    """Another tenant has a new cell, which goes first."""
    LETS_PASS = "lets_pass"
    """Its memory still comes back, and another tenant with a new cell has all of its own there."""
    SIBLING = "sibling"
    """Another tenant of the same owner waits, which has had less of late."""
    QUANTUM_OVER = "quantum_over"
    """Others wait, and the quantum is used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTurn(Command):
    """Ask the client to shut its gate, drain and answer."""

    client: ClientId
    turn: TurnId
    reason: RecallReason
    device_name: str
    """The device that is taken, where that is the reason."""
    quantum_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenGate(Command):
    """Take a recall back: the client's work waits for a call at one of the tenant's gates."""

    client: ClientId
    turn: TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class TellContention(Command):
    """How many tenants wait for, and are registered on, the client's most crowded device.

    A client without the turn is told of the tenants only: how many wait, its grant will say."""

    client: ClientId
    waiters: int
    tenants: int
    idle_ms: int = 0
    """The turn ends after so long without work, whatever was learnt of the tenant's gaps; 0: as the
    settings say, and as that was learnt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellQueuePosition(Command):
    """Where the waiting client stands (1 is next) and the tenant before it, if there is one: its
    name, which not everybody may read, and who that is."""

    client: ClientId
    position: int
    holder: str
    holder_tenant: TenantId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TellHold(Command):
    """For how long from now the tenant's turn is kept by hand; 0: no longer."""

    client: ClientId
    left_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TellSettings(Command):
    """The settings that concern the hook, after ClientJoined and after each change."""

    client: ClientId
    settings: SchedulerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class TellMemoryLimit(Command):
    """The tenant's cap on a device (0: none) and what its other processes hold there."""

    client: ClientId
    device: DeviceId
    cap_bytes: int
    others_bytes: int


class Ahead(enum.Enum):
    """What moves ahead of need."""

    NOTHING = "nothing"
    COPIES = "copies"
    """Memory that would leave first is copied to the host."""
    RESTORE = "restore"
    """Parked memory comes back, as far as the budget reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellBudget(Command):
    """What the client may have on a device now; `refused_need`: the number of the need that cannot
    be met, 0 for none.

    `usable_bytes`: what its tenant could have at most. `park_hint_bytes`: what of its memory would
    have to leave if one other came back with all that it has. `ahead`: what moves ahead
    of need while the client has no turn."""

    client: ClientId
    device: DeviceId
    serial: int
    budget_bytes: int
    usable_bytes: int
    park_hint_bytes: int
    ahead: Ahead = Ahead.NOTHING
    refused_need: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TellSpace(Command):
    """Whether others have made the space that the client asked for."""

    client: ClientId
    device: DeviceId
    request_id: int
    made: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TellSpaceAwaited(Command):
    """The request for space may wait: it is answered within this time."""

    client: ClientId
    device: DeviceId
    request_id: int
    wait_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureDevice(Command):
    """Look at the device's used memory now; DeviceMemoryMeasured is to follow."""

    device: DeviceId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSilent(Command):
    """For the log: a client that was to release memory has not."""

    client: ClientId
    tenant_name: str
    process_name: str
    pid: int
    device_name: str
    bytes_held: int
    silent_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelWait(Command):
    """Fail the calls that wait at the client's gate."""

    client: ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseClient(Command):
    """End the connection, because its tenant was removed."""

    client: ClientId
    tenant_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewConnection(Command):
    """Close the connection without a word: the process keeps its turn, connects again at once and
    says what it has."""

    client: ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseClient(Command):
    """End the connection, because the core has failed at what the process said. It is told that it
    is admitted again at `until_s`, which is `lasts_s` after that; until then it has no turn."""

    client: ClientId
    until_s: Seconds
    lasts_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFailure(Command):
    """The core failed at an event, which is a bug, and starts anew. The event is dropped; `message`
    (with the traceback and the story of the tenant) goes to the log."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KillClient(Command):
    """The admin's overdue policy is `kill`: end the process behind this client."""

    client: ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOverdue(Command):
    """For the log: a recalled client has not answered for `overdue_s`."""

    client: ClientId
    tenant_name: str
    process_name: str
    pid: int
    asked_s_ago: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt(Command):
    """Send a ClockTicked at this time; a later WakeAt replaces an earlier one."""

    at_s: Seconds
