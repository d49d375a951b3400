"""When a tenant's turn will begin: its place, a range of time, and why it waits. Questions only.

The range is meant to hold in eight of ten cases: one in ten begins earlier, one in ten later. It is
the sum of what those before the tenant use, each judged by the lengths of cells lately (habits.py):

- Somebody before it uses what is left of its cell, but no more than the rules of the line let it
  have before this one: its quantum, and further ones while its owner stays behind. Memory that has
  to come back for it takes its time. A notebook of the same owner lets this one take over when it
  has had more of late (precedence.py).
- New cells come, as often as they came lately. They go before an ordinary turn, and end one that is
  under way. Its holder then has to queue again, perhaps behind this tenant.

The ends of the range of a sum are found as if the parts were independent: distances from the mean
add up by their squares. Of a long line the first `LOOKED_AT` are looked at, and the range is
carried on from them; so a tenant costs the same however many wait.

Nothing is said of a wait whose end hangs on a person or on a fault: a paused device, memory that no
turn sets free, a process that was stopped or does not answer.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from .accounts import has_less_after_s
from .events import DeviceMode
from .habits import LEVELS, UNKNOWN_LENGTHS, Quantiles, remaining
from .ids import DeviceId, Seconds, TenantId
from .order.line import quantum_ends_s, take_turns
from .order.precedence import shortest_quantum_s, sibling_takes_over_s
from .policy import pressed_at_s, starves_at_s
from .records import Obstacle, ObstacleKind, Tenant, Turn
from .shares.classes import BY_SHARE, LAST, ORDINARY, STARVED, URGENT, TenantClass, ends
from .shares.guarantees import Standing
from .state import State
from .transitions import TenantState

LOOKED_AT = 16
"""So many of those before a tenant are looked at."""
_QUANTA_MAX = 8
"""So many turns of somebody before it are looked at one by one."""
_BUSY_MAX = 0.8
"""New cells take no more than this of a device, as far as estimates go."""
_SPREAD = 1.2816
"""Standard deviations from the middle to each end, of a range that eight of ten are in."""
_WIDER = 1.02
_WIDER_OF_SEVERAL = 1.35
_WIDER_WHEN_OVERTAKEN = 1.45
"""Several before it are not quite independent, and a range that hangs on what owners have had is
less sure. Chosen with seeds of the simulator that the benchmark does not use."""
_EXPONENTIAL = tuple(-math.log1p(-level) for level in LEVELS)
"""When the first of events comes that come once in a unit of time."""


class Reason(enum.Enum):
    """Why a tenant waits."""

    TURN = "turn"
    """Others are before it."""
    MEMORY = "memory"
    """Somebody's memory is in the way, or its own may not move yet."""
    OWN = "own"
    """A notebook of the same owner has the device, until it has had more of late."""
    SHARE = "share"
    """Others that came later are before it, because its owner has had more of its share."""
    CLASS = "class"
    """Others are before it for what they are: `realtime`, or no `batch` as this one is."""
    LIMIT = "limit"
    """Its owner has had what the settings allow."""
    HELD = "held"
    """A user keeps a turn by hand."""
    PAUSED = "paused"
    """An admin has paused a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of a tenant that waits. Times are from now."""

    position: int
    """1: it is next."""
    earliest_s: Seconds
    latest_s: Seconds
    known: bool
    """Otherwise the times say nothing, and are 0."""
    reason: Reason
    full_s: Seconds = 0.0
    """When it would begin if all before it used their whole quanta, and nobody came: what estimates
    are compared with."""
    used_s: Seconds = 0.0
    """What its cell has had of devices: above 0, it was stopped in the middle."""
    own: str = ""
    """The name of that notebook, where the reason is OWN."""
    share: float = 1.0
    """The part of the device that is its owner's while all stay that are there now."""


class Waiter(NamedTuple):
    """A tenant that queues for a device, for who keeps a record of it. Of why it waits, this is
    what is its own; the rest hangs on who has the device (`reason_of_order`). It costs nothing that
    grows with the queue."""

    tenant: TenantId
    owner: str
    waited_s: Seconds
    used_s: Seconds
    """What its cell has had of devices."""
    level: int
    """How soon it is served (classes.py)."""
    place: int
    """The number of its arrival."""
    is_batch: bool
    reason: Reason | None
    """PAUSED, LIMIT or MEMORY."""
    obstacle: Obstacle | None
    """Where it waits for MEMORY and this is None, that ends with the present turn."""

    @staticmethod
    def of(state: State, tenant: Tenant, device: DeviceId) -> Waiter:
        now_s, line = state.accounts.now_s, state.lines.of[device]
        found = state.obstacles.get(tenant.id)
        reason = None
        if _is_paused(state, tenant):
            reason = Reason.PAUSED
        elif tenant.standing in (Standing.BLOCKED, Standing.OVER):
            reason = Reason.LIMIT
        elif found is not None or (
            line.presses and _Line(state, device, now_s).waits_for_a_move(tenant)
        ):
            reason = Reason.MEMORY
        return Waiter(
            tenant=tenant.id,
            owner=tenant.owner,
            waited_s=now_s - tenant.waited_since_s,
            used_s=state.cell_used_s(tenant) if tenant.turn is None else 0.0,
            level=line.rank_of[tenant.id][0],
            place=tenant.place,
            is_batch=tenant.runs_as is TenantClass.BATCH,
            reason=reason,
            obstacle=found,
        )


def reason_of_order(
    own: int, place: int, before: Iterable[tuple[int, int]], *, is_batch: bool
) -> Reason:
    """Why a tenant of this level and arrival waits for others, of which these are before it."""
    levels = list(before)
    if any(_outclasses(level, own, is_batch=is_batch) for level, _ in levels):
        return Reason.CLASS
    return Reason.SHARE if _is_overtaken(own, place, levels) else Reason.TURN


def _outclasses(level: int, own: int, *, is_batch: bool) -> bool:
    classes = (URGENT, STARVED, ORDINARY) if is_batch else (URGENT, STARVED)
    return level < own and level in classes


def _is_overtaken(own: int, place: int, before: Iterable[tuple[int, int]]) -> bool:
    if own not in BY_SHARE:
        return False
    return any(level in BY_SHARE and other > place for level, other in before)


@dataclass(slots=True)
class _Sum:
    """Of times that hang on chance, with the squares of the distances to the ends of the range."""

    mean_s: Seconds = 0.0
    below: float = 0.0
    above: float = 0.0

    def add(self, times_s: Quantiles) -> None:
        mean_s = sum(times_s) / len(times_s)
        self.mean_s += mean_s
        self.below += (mean_s - times_s[0]) ** 2
        self.above += (times_s[-1] - mean_s) ** 2

    def times(self, factor: float) -> _Sum:
        return _Sum(self.mean_s * factor, self.below * factor, self.above * factor)


class Estimates:
    """Of one moment. What is asked for of the same line shares what has been found of it."""

    def __init__(self, state: State, now_s: Seconds) -> None:
        self._state = state
        self._now_s = now_s
        self._lines: dict[DeviceId, _Line] = {}

    def find(self, tenant: Tenant) -> Estimate:
        """Of a tenant in the queue."""
        state = self._state
        lines = [self._line(device) for device in tenant.places.queues]
        paused = _is_paused(state, tenant)
        known = not paused and _is_known(state, tenant)
        ranges = [line.range_of(tenant) for line in lines] if known else []
        reason = Reason.PAUSED if paused else self._reason(tenant, lines)
        own = next((s.name for line in lines for s in line.siblings_with_turn(tenant)), "")
        return Estimate(
            position=1 + max((line.index(tenant) for line in lines), default=0),
            earliest_s=max((earliest_s for earliest_s, _ in ranges), default=0.0),
            latest_s=max((latest_s for _, latest_s in ranges), default=0.0),
            known=known,
            reason=reason,
            own=own if reason is Reason.OWN else "",
            full_s=max((line.full_s(tenant) for line in lines), default=0.0),
            used_s=state.cell_used_s(tenant) if tenant.turn is None else 0.0,
            share=min(
                (state.accounts.share(each.device, tenant.owner) for each in lines), default=1.0
            ),
        )

    def _line(self, device: DeviceId) -> _Line:
        found = self._lines.get(device)
        if found is None:
            found = self._lines[device] = _Line(self._state, device, self._now_s)
        return found

    def _reason(self, tenant: Tenant, lines: list[_Line]) -> Reason:
        state = self._state
        if tenant.standing in (Standing.BLOCKED, Standing.OVER):
            return Reason.LIMIT
        if any(holder.id in state.holds for line in lines for holder in line.holders(tenant)):
            return Reason.HELD
        if tenant.id in state.obstacles or any(line.waits_for_a_move(tenant) for line in lines):
            return Reason.MEMORY
        if any(line.is_outclassed(tenant) for line in lines):
            return Reason.CLASS
        if any(line.waits_for_siblings(tenant) for line in lines):
            return Reason.OWN
        if any(line.is_overtaken(tenant) for line in lines):
            return Reason.SHARE
        return Reason.TURN


def _is_paused(state: State, tenant: Tenant) -> bool:
    """Whether a device that it needs is paused. A turn that lacks one gets it all the same."""
    needed = tenant.wanted_devices if tenant.turn is None else ()
    return any(state.devices[device].mode is not DeviceMode.OPEN for device in needed)


def _is_known(state: State, tenant: Tenant) -> bool:
    """Whether the wait ends by itself, in time."""
    if state.recovery is not None or tenant.standing is Standing.BLOCKED:
        return False
    in_the_way = state.obstacles.get(tenant.id)
    if in_the_way is not None and in_the_way.kind is not ObstacleKind.RETRY:
        return False
    return not any(
        client.frozen or client.overdue
        for device in tenant.places.queues
        for holder in state.holders(device)
        for client in state.turn_clients(holder)
    )


@dataclass(slots=True)
class _Line:
    """The line of one device, as those see it who wait there."""

    state: State
    device: DeviceId
    now_s: Seconds
    _left: dict[TenantId, Quantiles] = field(default_factory=dict)
    _new_s: Quantiles | None = None
    _new_per_s_found: float | None = None

    def index(self, tenant: Tenant) -> int:
        return self.state.lines.of[self.device].index(tenant)

    def holders(self, tenant: Tenant) -> list[Tenant]:
        return [each for each in self.state.holders(self.device) if each is not tenant]

    def siblings_with_turn(self, tenant: Tenant) -> list[Tenant]:
        """From which the tenant takes over by recent use."""
        return [each for each in self.holders(tenant) if take_turns(each, tenant)]

    def waits_for_siblings(self, tenant: Tenant) -> bool:
        """And for nobody else."""
        before = islice(self._before(tenant), LOOKED_AT)
        return bool(self.siblings_with_turn(tenant)) and all(
            take_turns(other, tenant) for other in before
        )

    def level(self, tenant: Tenant) -> int:
        """How soon it is served."""
        return self.state.lines.of[self.device].rank_of[tenant.id][0]

    def _before(self, tenant: Tenant) -> Iterator[Tenant]:
        """Those that wait before it. Tenants that are passed over do not."""
        line = self.state.lines.of[self.device]
        before = islice(line.queue, line.index(tenant))
        return (other for other in before if other.id in line.waiting)

    def _levels_before(self, tenant: Tenant) -> Iterator[tuple[int, int]]:
        """How soon those before it are served, and the numbers of their arrivals."""
        for holder in self.holders(tenant):
            if holder.turn is not None:
                yield holder.turn.level, holder.place
        rank_of = self.state.lines.of[self.device].rank_of
        for other in islice(self._before(tenant), LOOKED_AT):
            yield rank_of[other.id][0], other.place

    def is_overtaken(self, tenant: Tenant) -> bool:
        """Whether somebody that came later is before it by its share."""
        return _is_overtaken(self.level(tenant), tenant.place, self._levels_before(tenant))

    def is_outclassed(self, tenant: Tenant) -> bool:
        """Whether somebody is before it by its class."""
        own, is_batch = self.level(tenant), tenant.runs_as is TenantClass.BATCH
        before = self._levels_before(tenant)
        return any(_outclasses(level, own, is_batch=is_batch) for level, _ in before)

    def waits_for_a_move(self, tenant: Tenant) -> bool:
        """Whether a turn would end for it at once, but for the memory that would have to move."""
        line = self.state.lines.of[self.device]
        if not line.presses or next(line.in_order(), None) is not tenant:
            return False
        pressed = (pressed_at_s(self.state, holder) for holder in self.holders(tenant))
        return any(at_s is not None and at_s > self.now_s for at_s in pressed)

    def full_s(self, tenant: Tenant) -> Seconds:
        """What is left of the quanta of all before it."""
        turns = [holder.turn for holder in self.holders(tenant)]
        held_s = sum(self._quantum_left_s(turn) for turn in turns if turn is not None)
        return held_s + sum(other.next_quantum_s for other in self._before(tenant))

    # ---- the range ---------------------------------------------------------------------------

    def range_of(self, tenant: Tenant) -> tuple[Seconds, Seconds]:
        index = self.index(tenant)
        total = _Sum()
        for other in islice(self._before(tenant), LOOKED_AT):
            total.add(self._of_waiter(other, tenant))
        if index > LOOKED_AT:
            total = total.times(index / LOOKED_AT)
        for holder in self.holders(tenant):
            total.add(self._of_holder(holder, tenant))
        if self.level(tenant) not in BY_SHARE:
            return _ends(total, 0.0, 0.0, 0.0)
        wider = _WIDER_OF_SEVERAL if index else _WIDER
        if self.is_overtaken(tenant):
            wider = _WIDER_WHEN_OVERTAKEN
        total = _Sum(total.mean_s, total.below * wider**2, total.above * wider**2)
        earliest_s, latest_s = self._with_new_cells(total, tenant)
        if (starves_s := starves_at_s(self.state, tenant)) is not None:
            at_most_s = max(0.0, starves_s - self.now_s) + self.state.settings.quantum_max_s
            return min(earliest_s, at_most_s), min(latest_s, at_most_s)
        return earliest_s, latest_s

    def _with_new_cells(self, total: _Sum, tenant: Tenant) -> tuple[Seconds, Seconds]:
        """Those that come meanwhile go before it, and take their part of that time too."""
        state, finish_s = self.state, self.state.lines.of[self.device].rank_of[tenant.id][1]
        room_s = finish_s - state.accounts.of[self.device].virtual_s
        if self.level(tenant) == LAST:
            room_s = math.inf
        allowed_s = self._allowed_s(0.0, state.settings.quantum_min_s, room_s)
        if self._new_s is None:
            self._new_s = remaining(state.habits.counts(), 0.0)
        each = [min(length_s, allowed_s) for length_s in self._new_s]
        mean_s = sum(each) / len(each)
        busy = min(_BUSY_MAX, self._new_per_s() * mean_s)
        more_s = total.mean_s * busy / (1 - busy)
        cells = more_s / mean_s if mean_s > 0 else 0.0
        least_s = more_s if cells > _EXPONENTIAL[-1] else 0.0  # else none comes, in one of ten
        return _ends(total, least_s, more_s, cells * sum(s * s for s in each) / len(each))

    def _new_per_s(self) -> float:
        """How often new cells come now. Notebooks whose cells run or wait send none."""
        if self._new_per_s_found is None:
            line = self.state.lines.of[self.device]
            free = len(line.users) - len(line.queue) - len(line.holders)
            per_s = self.state.habits.new_cells_per_s(self.device, self.now_s)
            self._new_per_s_found = per_s * max(0, free) / max(1, len(line.users))
        return self._new_per_s_found

    # ---- what somebody before it uses --------------------------------------------------------

    def _of_waiter(self, other: Tenant, tenant: Tenant) -> Quantiles:
        if take_turns(other, tenant):
            recent = self.state.accounts.recent
            has_s, waits_s = (
                recent.left_s(each.id, {self.device}, self.now_s) for each in (other, tenant)
            )
            lasts_s = has_less_after_s(has_s, waits_s, recent.half_s)
            least_s = shortest_quantum_s(self.state.settings)
            return self._used(other, max(least_s, lasts_s), 0.0, 0.0, self._restore_s(other))
        room_s = self._room_s(other, tenant, self.level(other))
        allowed_s = self._allowed_s(self._cell_used_s(other), other.next_quantum_s, room_s)
        return self._used(other, allowed_s, room_s, self._new_per_s(), self._restore_s(other))

    def _of_holder(self, holder: Tenant, tenant: Tenant) -> Quantiles:
        state, turn = self.state, holder.turn
        assert turn is not None
        if holder.state is TenantState.RECALLED:
            return (state.settings.window_ms / 1000,) * len(LEVELS)
        if (hold := state.holds.get(holder.id)) is not None:
            left_s = max(0.0, hold.until_s - self.now_s)
            return tuple(left_s * part for part in _HELD)
        quantum_s = self._quantum_left_s(turn)
        restore_s = self._restore_s(holder) if turn.restores else 0.0
        if take_turns(holder, tenant):
            until_s = sibling_takes_over_s(state, holder, turn, tenant, self.device)
            return self._used(holder, max(0.0, until_s - self.now_s), 0.0, 0.0, restore_s)
        own = self.level(tenant)
        if own in BY_SHARE and not ends(own, turn.level):
            room_s = self._room_s(holder, tenant, turn.level)
            allowed_s = self._allowed_s(self._cell_used_s(holder), quantum_s, room_s)
            return self._used(holder, allowed_s, room_s, self._new_per_s(), restore_s)
        pressed_s = pressed_at_s(state, holder)
        if pressed_s is not None and ends(own, turn.level):
            quantum_s = min(quantum_s, max(0.0, pressed_s - self.now_s))
        return self._used(holder, quantum_s, 0.0, 0.0, restore_s)

    def _quantum_left_s(self, turn: Turn) -> Seconds:
        ends_s = quantum_ends_s(turn)
        left_s = turn.quantum_s - turn.contended_s if ends_s is None else ends_s - self.now_s
        return max(0.0, left_s)

    def _room_s(self, other: Tenant, tenant: Tenant, level: int) -> Seconds:
        """How much the owner of another tenant, which is served at this level, may still use before
        this one is next."""
        own, finish_s, _, _ = self.state.lines.of[self.device].rank_of[tenant.id]
        accounts = self.state.accounts
        here = accounts.of[self.device]
        account = here.accounts.get(other.owner)
        if own not in BY_SHARE or level > own or account is None:
            return 0.0
        if level < own == LAST:
            return math.inf
        if other.owner == tenant.owner:
            return 0.0
        uses = self.state.lines.of[self.device].uses
        not_charged_s = (self.now_s - here.charged_to_s) / len(uses) if other.id in uses else 0.0
        return (finish_s - account.virtual_s) * accounts.owners[other.owner].weight - not_charged_s

    def _allowed_s(self, used_s: Seconds, quantum_s: Seconds, room_s: Seconds) -> Seconds:
        """A turn that lasts so long, and those after it that begin before the room is used up."""
        settings = self.state.settings
        lasts_s = quantum_s
        for _ in range(_QUANTA_MAX):
            grown_s = max(used_s + lasts_s, settings.quantum_min_s)
            next_s = settings.quantum_s or min(grown_s, settings.quantum_max_s)
            if lasts_s + next_s >= room_s:
                return lasts_s
            lasts_s += next_s
        return max(lasts_s, room_s)

    def _used(
        self,
        other: Tenant,
        allowed_s: Seconds,
        room_s: Seconds,
        new_per_s: float,
        restore_s: Seconds,
    ) -> Quantiles:
        """What is left of its cell, as far as that is allowed. A new cell of somebody else ends its
        turn early; it gets another one before the tenant where that still fits into the room. Where
        a turn ends, work in flight goes on for a moment."""
        drain_s = self.state.settings.window_ms / 1000
        used = []
        for left_s, unit in zip(self._cell_left_s(other), _EXPONENTIAL, strict=True):
            until_s = unit / new_per_s if new_per_s > 0 else math.inf
            may_s = allowed_s
            if until_s < allowed_s:
                may_s = until_s + (allowed_s if until_s + allowed_s < room_s else 0.0)
            used.append(min(left_s, may_s + drain_s) + restore_s)
        return tuple(used if new_per_s <= 0 else sorted(used))

    def _cell_left_s(self, other: Tenant) -> Quantiles:
        found = self._left.get(other.id)
        if found is None:
            state = self.state
            counts = UNKNOWN_LENGTHS
            if state.in_cell(other):
                counts = state.habits.counts(other.owner, other.last_cells)
            found = self._left[other.id] = remaining(counts, self._cell_used_s(other))
        return found

    def _cell_used_s(self, other: Tenant) -> Seconds:
        since_s = 0.0 if other.turn is None else self.now_s - self.state.accounts.now_s
        return self.state.cell_used_s(other) + since_s

    def _restore_s(self, other: Tenant) -> Seconds:
        """How long its memory takes to come back."""
        if not self.state.memory_moves:
            return 0.0
        parked = sum(share.bytes_parked for share in self.state.shares_of(other, self.device))
        return parked / self.state.devices[self.device].swap.bytes_per_s


_HELD = (0.25, 0.75, 1.0, 1.0, 1.0)
"""The parts of a hold that are used up: some users end it early."""


def _ends(
    total: _Sum, least_s: Seconds, more_s: Seconds, variance: float
) -> tuple[Seconds, Seconds]:
    """Of a sum and of what comes to it: at least, on average, with this variance."""
    spread = _SPREAD**2 * variance
    earliest_s = total.mean_s + least_s - math.sqrt(total.below + (spread if least_s else 0.0))
    latest_s = total.mean_s + more_s + math.sqrt(total.above + spread)
    return max(0.0, earliest_s), max(0.0, earliest_s, latest_s)
