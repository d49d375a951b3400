"""What is known of each device, each client and each tenant, one record for each. state.py has them
all, and keeps together what follows from them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .events import DeviceMode
from .ids import ClientId, DeviceId, ProcessId, Seconds, TenantId, TurnId
from .ledger import DeviceMemory, Share
from .shares.classes import DEFAULT, ORDINARY, TenantClass
from .shares.guarantees import Standing
from .space.requests import Obstacle, SpaceRequest
from .swap_budget import SwapBudget
from .transitions import ASKED_BACK, ClientState, TenantState

LAST_CELLS = 16
"""So many lengths of cells are kept of a tenant."""
CELLS_MAX = 256
"""And so many of all together."""
STORY_LINES_MAX = 24
NAMES_ALL_S: Seconds = 0.1
"""Who has named one of its devices names the others within this time."""
WORK_ENDS_S: Seconds = 1.0
"""Others wait so long for the work in flight of a process that lives and has lost its turn."""
SOMEBODY: ProcessId = (TenantId(""), 0)
"""Of a scheduler before this one, which has not said whom it had."""
_NONE: frozenset[DeviceId] = frozenset()


class PastCell(NamedTuple):
    """It has used these devices for so long."""

    used_s: Seconds
    devices: frozenset[DeviceId]
    ended_s: Seconds


@dataclass(frozen=True, slots=True)
class Places:
    """The devices on whose lines a tenant is."""

    uses: frozenset[DeviceId] = _NONE
    holds: frozenset[DeviceId] = _NONE
    lacks: frozenset[DeviceId] = _NONE
    queues: frozenset[DeviceId] = _NONE
    waits: frozenset[DeviceId] = _NONE
    """Those for which it queues, if it is not passed over."""


NOWHERE = Places()


@dataclass(frozen=True, slots=True)
class Placement:
    """What became of a wish: devices, or the reason why there are none."""

    devices: tuple[DeviceId, ...] = ()
    bytes_needed: int = 0
    visible: str = ""
    """The devices as CUDA_VISIBLE_DEVICES names them."""
    reason: str = ""
    """One sentence on what is wrong, one on what to do."""


@dataclass(slots=True, eq=False)
class Device:
    """A GPU or MIG instance."""

    id: DeviceId
    name: str
    bytes_total: int
    bytes_used: int = 0
    lost: bool = False
    mode: DeviceMode = DeviceMode.OPEN
    uuid: str = ""
    """As CUDA_VISIBLE_DEVICES names it; empty where NVML does not list it."""
    order: int = 0
    """Counts devices in the order in which they came."""
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    swap: SwapBudget = field(default_factory=SwapBudget)

    def without_clients(self) -> Device:
        """The same device, as it is known before anybody opens it: all that is used is foreign."""
        memory = DeviceMemory()
        if self.memory.is_measured:
            memory.measured(self.bytes_used, self.memory.measured_at_s)
        return replace(self, memory=memory, swap=SwapBudget())


@dataclass(slots=True, eq=False)
class Client:
    """One process."""

    id: ClientId
    tenant: TenantId
    pid: int
    process_name: str
    state: ClientState = ClientState.IDLE
    turn: TurnId | None = None
    """The turn that the process believes it has; what it says about another one is stale."""
    devices: dict[DeviceId, Share] = field(default_factory=dict)
    live_devices: frozenset[DeviceId] = frozenset()
    """What it can use: opened, not failed there, not lost. Kept by `State.note_devices`."""
    in_cell: bool = False
    asked_at_s: Seconds = 0.0
    recalled_at_s: Seconds | None = None
    """Since when it has been asked for its turn by somebody who wants it: the first time, if drains
    have stalled since."""
    overdue: bool = False
    """Reported, since it was asked."""
    drain_stalled: bool = False
    """It said so since it was recalled."""
    calls_wait_in_drain: bool = False
    """And that calls wait at its own gate."""
    frozen: bool = False
    """Its process was stopped from outside. It is granted no turn until it goes on; one that it has
    stays its own, because its gate is open."""
    budget_serial: int = 0
    """Of the last budget that it was told, for any device."""

    def overdue_at_s(self, overdue_s: Seconds) -> Seconds | None:
        """When it will have kept its turn for too long after somebody wanted it; None: never, as
        things are."""
        if self.state not in ASKED_BACK or self.overdue or self.recalled_at_s is None:
            return None
        return self.recalled_at_s + overdue_s


@dataclass(slots=True, eq=False)
class Grace:
    """After a scheduler that was lost: only clients that hold a turn from before have one."""

    until_s: Seconds
    awaited: set[ProcessId] = field(default_factory=set)
    """Processes that were connected when the core failed, and are not back; or `SOMEBODY`."""
    unnamed: set[ClientId] = field(default_factory=set)
    """Clients that hold a turn from before and have yet to name one of its devices."""
    heard_s: Seconds = -math.inf
    """When one that holds a turn from before last came, or named a device."""
    work_ends_s: Seconds = -math.inf
    """When work has ended of processes that had a turn and are refused."""

    def tenant_ends(self, tenant: TenantId, now_s: Seconds) -> None:
        """Its processes are refused when they come, and their work ends then."""
        self.awaited = {each for each in self.awaited if each[0] != tenant}
        self.work_ends_s = min(now_s, self.until_s) + WORK_ENDS_S

    def over_s(self) -> Seconds:
        """When it is over, if nobody comes before that."""
        all_said_s = math.inf if self.awaited or self.unnamed else self.heard_s + NAMES_ALL_S
        return max(self.work_ends_s, min(self.until_s, all_said_s))


@dataclass(slots=True, eq=False)
class Hold:
    """A user keeps the turn that a tenant has by hand."""

    began_s: Seconds
    """When the user asked, or when the turn began if that was later; asking again while others
    wait does not count as a beginning."""
    until_s: Seconds
    counts_until_s: Seconds
    """Until then its owner is not in debt. Afterwards that is looked at again, where the quantum is
    over and others wait."""


@dataclass(slots=True, eq=False)
class Turn:
    """A tenant's permission to use `devices` alone."""

    id: TurnId
    devices: set[DeviceId]
    granted_at_s: Seconds
    exclusive: bool
    """Granted while turns are on; others' turns may overlap one that was not."""
    quantum_s: Seconds = 0.0
    """How long it may last while others wait. Found when the first of them comes."""
    level: int = ORDINARY
    """As which it goes on while others wait (classes.py)."""
    limit_at_s: Seconds = math.inf
    """When its owner may have had its hard limit."""
    counted_from_s: Seconds = 0.0
    """Since when it counts as device time of the present cell."""
    contended_s: Seconds = 0.0
    """How much of the quantum is used: time while others waited, up to `contended_since_s`."""
    contended_since_s: Seconds | None = None
    """Since when others wait without a break; None while nobody waits."""
    cell_ended: bool = False
    """The kernel's server has seen the cell end for which it was granted."""
    retry_at_s: Seconds = 0.0
    """While the tenant is stalled: when the recall is tried again."""
    memory_progress_s: Seconds = 0.0
    """When memory of the tenant came back last, or was given leave to."""
    restores: bool = False
    """Memory of the tenant is coming back, and the quantum waits for it."""
    is_incomplete: bool = False
    """Memory of the tenant has still to come back, and its calls wait for it: also where it moves
    no more, so that the quantum goes on."""
    bytes_to_restore: int = 0
    """What of the tenant's memory was parked when it was granted."""
    gives_way: bool = False
    """It ends because a call of the tenant waits for memory that others cannot move."""
    new_from_s: Seconds = -math.inf
    """When its cell began to use the device, less its pauses, if it was new when the turn began."""
    has_rest: bool = False
    """Its quantum is what a sibling has left of one."""
    on_own_credit: bool = False
    """Its new cell goes before siblings that have had less, as far as its own credit lasts."""
    lets_pass: bool = False
    """It ends while its memory comes back, for a tenant whose memory is there."""
    lacks_memory_on: dict[DeviceId, Seconds] = field(default_factory=dict)
    """Devices to which its parked memory cannot come back yet: there is no space. And since when
    nobody can make any; in the time to come: somebody can."""

    def begin_quantum(self, quantum_s: Seconds, now_s: Seconds) -> None:
        """It goes on although its quantum is over, and others wait."""
        self.quantum_s, self.contended_s, self.contended_since_s = quantum_s, 0.0, now_s


@dataclass(frozen=True, slots=True)
class Succession:
    """A turn has ended for this tenant, a sibling of the one that had it."""

    devices: frozenset[DeviceId]
    """Of that turn."""
    ends_s: Seconds | None
    """When its quantum is over, where others wait too: they wait no longer for this."""
    on_own_credit: bool
    """Its new cell goes before a sibling that has had less."""


@dataclass(slots=True)
class Counters:
    """Turns and waits of a tenant that have ended."""

    turns: int = 0
    waits: int = 0
    waited_s_total: Seconds = 0.0
    held_s_total: Seconds = 0.0
    drain_stalls: int = 0
    recalls: int = 0


class WaitingCall(NamedTuple):
    """A call that waits for memory that others have and cannot move."""

    need_id: int
    bytes_needed: int
    short_on: DeviceId
    """That of the call, or another one to which memory of the tenant cannot come back."""
    bytes_short: int
    """When that was looked at last."""


@dataclass(slots=True, eq=False)
class Lack:
    """What the calls of a wait lack on a device."""

    room_bytes: int
    """The most that the tenant could have had there at any time since it began."""
    enough_bytes: int = 0
    """So much would have been enough for each of them."""
    elsewhere: bool = False
    """The calls are on another device: memory of the tenant cannot come back to this one."""


@dataclass(slots=True, eq=False)
class MemoryWait:
    """A tenant's wait for memory that others have and cannot move. All its calls together wait
    once: it lasts until none of them is left."""

    begun_s: Seconds
    calls: dict[tuple[DeviceId, ClientId], WaitingCall] = field(default_factory=dict)
    lacks: dict[DeviceId, Lack] = field(default_factory=dict)
    room_since_s: Seconds | None = None
    """From then on no call has lacked anything; None: one does."""
    spared: bool = False
    """The scheduler stood still, and the wait got a moment more."""
    has_given_way: bool = False
    """A turn of the tenant goes back for it, or has. Further ones end as any turn."""
    stalls: int = 0
    """How often the drain of that turn has stalled."""

    def note_lack(self, at_s: Seconds, moment_s: Seconds) -> None:
        """A call lacks something. Before, for some time perhaps, none did."""
        if self.room_since_s is not None and at_s - self.room_since_s > moment_s:
            self.begun_s += at_s - self.room_since_s
        self.room_since_s = None

    def stood_still(self, for_s: Seconds, spared_s: Seconds, now_s: Seconds) -> None:
        """The scheduler did: nobody has waited meanwhile. A moment more is given once."""
        self.begun_s = min(now_s, self.begun_s + for_s + (0.0 if self.spared else spared_s))
        self.spared = True
        if self.room_since_s is not None:
            self.room_since_s += for_s


class WaitInVain(NamedTuple):
    """Calls are refused at once from now on."""

    room_bytes: int
    """Until the tenant could have more than this there, which is the most that it could have while
    it waited."""
    enough_bytes: int
    """Or until it has its turn and could have as much as the refused call lacked."""
    stalled: bool
    """Or until the cell ends: the drain of its turn stalled."""
    turns: int | None
    """Or until it has had more turns than so many: its memory could not come back to the device."""


@dataclass(slots=True, eq=False)
class Tenant:
    """A notebook kernel or a `run` command, with its processes."""

    id: TenantId
    name: str
    owner: str
    kind: str
    own_cap_bytes: int
    """As it was registered; 0: none."""
    cap_bytes: int = 0
    """How much it may allocate on a device, by all that is said of it; 0: all. Kept by
    `State.classify`."""
    asked_class: str = ""
    """What it asked for, by name; empty: nothing."""
    runs_as: TenantClass = DEFAULT
    """What it asked for as far as its owner may use that. Kept by `State.classify`."""
    placement: Placement | None = None
    """What became of its wish for a place; None if it has said none."""
    state: TenantState = TenantState.IDLE
    clients: dict[ClientId, Client] = field(default_factory=dict)
    wanted_devices: frozenset[DeviceId] = frozenset()
    """Its device set: what its clients together can use. Kept by `State.note_clients`."""
    turn: Turn | None = None
    order: int = 0
    """Counts tenants in the order in which they came."""
    places: Places = NOWHERE
    """The devices on whose lines it is. Kept by `Lines`."""
    busy: bool = False
    """A cell of it runs, as the kernel's server sees it."""
    cell_used_s: Seconds = 0.0
    """How long turns of the present cell have lasted, those apart that have not ended."""
    came: bool = True
    """It has given the device back by itself since its last turn was asked for, or a cell of it has
    ended: its next call is a new one."""
    gave_turn: int = 0
    """The turn that its user has given away, on `gave_on`. It gets no other one there before a
    sibling has had one."""
    gave_on: frozenset[DeviceId] = _NONE
    goes_before_siblings: bool = False
    """It queues for a new cell that it can pay for from its own credit."""
    is_behind_a_sibling: bool = False
    """One that had the device, or waited for it, had had less when this one began to wait."""
    waits_with_parked: bool = False
    """Some of its memory was parked when it began to wait, or since."""
    succeeds: Succession | None = None
    """Where it waits for a turn that ends for it."""
    in_burst: bool = False
    """It works outside a cell since it asked for a turn, after a moment without work."""
    gave_way: bool = False
    """Its user has given a turn of the present cell away: that cell does not go first again."""
    next_quantum_s: Seconds = 0.0
    """How long its next turn may last. Kept while it is in the queue."""
    asks_to_go_first: bool = False
    """It queues for a new cell; the credit of its owner decides."""
    starved: bool = False
    """It is in the queue, and has waited for as long as its class may make it wait."""
    starves_from_s: Seconds = 0.0
    """Since when it has waited because of its class. A turn that was cut short does not count."""
    standing: Standing = Standing.FREE
    """How it stands to guarantees and limits of its owner, while it waits."""
    judged_until_s: Seconds = math.inf
    """Until then that is so."""
    cut_short: bool = False
    """Its last turn ended for one that goes first, before the shortest quantum was over, and it has
    not queued since."""
    let_pass: bool = False
    """A turn of it has ended for one whose memory was there, while its own came back. No turn with
    all of its memory has ended since."""
    keeps_place_until_s: Seconds = -math.inf
    """If it queues again by then, it queues where it was: that turn has just ended."""
    last_cells_s: deque[Seconds] = field(default_factory=lambda: deque(maxlen=LAST_CELLS))
    """The device time of its last cells and bursts."""
    place: int = 0
    """Of those who have ever queued, the number of this one, if it is in the queue."""
    queued_at_s: Seconds = 0.0
    """When it took its place in the queue."""
    waited_since_s: Seconds = 0.0
    """When the first of its calls began to wait; earlier than `queued_at_s` after a recall."""
    waits_counted_to_s: Seconds = 0.0
    """Of its waits, what is before has been counted. Its calls may go on waiting when it has left
    the queue, and are in it again later."""
    has_waited: bool = False
    """It did not get what it queues for at once."""
    boosted: bool = False
    """An admin lets it be served next, once: it stands at the head of the queue until its turn."""
    hold_refused: bool = False
    """Its user wanted to keep its turn by hand, or did so, but is in debt."""
    hold_by_admin: bool = False
    """An admin wants it to keep its turn: debts do not matter."""
    last_turn_end_s: Seconds = 0.0
    short_until_s: Seconds = 0.0
    """It gave its turn back because memory was short, and is not granted another one before, or
    before something has been released (`short_releases` counts until then)."""
    short_releases: int = 0
    refused_for: Obstacle | None = None
    """The obstacle when it was last refused memory; None if it got some since."""
    refused_at_s: Seconds = 0.0
    memory_wait: MemoryWait | None = None
    """Its last one, whether or not it lasts (needs.py)."""
    waits_in_vain: dict[tuple[DeviceId, int], WaitInVain] = field(default_factory=dict)
    """By device and number of the share."""
    space_waits: dict[tuple[DeviceId, ClientId], SpaceRequest] = field(default_factory=dict)
    """Its processes that wait for space for their first context on a device (space/waits.py)."""
    space_in_vain: dict[DeviceId, int] = field(default_factory=dict)
    """Where such a wait ended in vain, and how much space there could have been then."""
    counters: Counters = field(default_factory=Counters)
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY_LINES_MAX))

    def without_clients(self) -> Tenant:
        """The same tenant, as it is known before its processes connect (again)."""
        tenant = Tenant(self.id, self.name, self.owner, self.kind, self.own_cap_bytes)
        tenant.asked_class = self.asked_class
        tenant.counters = replace(self.counters)
        tenant.boosted, tenant.placement = self.boosted, self.placement
        tenant.hold_by_admin = self.hold_by_admin
        tenant.last_cells_s = self.last_cells_s
        return tenant


def bytes_while_held(share: Share) -> int:
    """What a client with a turn needs of the device."""
    return max(share.bytes_resident, share.bytes_allocated + share.asked_bytes)
