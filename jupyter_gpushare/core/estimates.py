"""When a tenant's turn will begin: a range of time. Questions only.

The line before the tenant is played to its end, in `_FUTURES` futures. In each, those before it use
what is drawn from the lengths of cells of late (habits.py), in turns as the rules of the line let
them. New cells come as often as they came of late; they go first, and end the turn under way. Its
holder goes on if its next turn still fits in before the tenant's. The range leaves out the earliest
and the latest future: more than the eight of ten starts that it is to hold, as people do what no
future knows. Nothing is said of a wait whose end hangs on a person or on a fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from .ids import DeviceId, Seconds
from .order.line import quantum_left_s, take_turns
from .order.precedence import restore_s, shortest_quantum_s, sibling_takes_over_s
from .policy import pressed_at_s, starves_at_s
from .records import Tenant
from .shares.classes import BY_SHARE, LAST, ends
from .shares.guarantees import Standing
from .space.requests import ObstacleKind
from .state import State
from .transitions import TenantState

LOOKED_AT = 16
"""So many of those before a tenant are looked at. A longer line takes longer in proportion."""
_FUTURES = 41
_TURNS_MAX = 32
"""So many turns of one before the tenant are played."""
_ENDLESS_S: Seconds = 4 * 86_400.0
"""What work uses of which nothing is known: so it has whole turns."""
_HELD = (0.25, 0.5, 0.75, 1.0)
"""The parts of a hold that are used: some users end it early."""


@dataclass(slots=True, kw_only=True)
class _Before:
    """Somebody before the tenant."""

    left_s: Sequence[Seconds]
    """What its work may still use; each is as likely."""
    turn_s: Seconds = math.inf
    """Its turn lasts no longer."""
    next_turn_s: Seconds = 0.0
    room_s: Seconds = 0.0
    """Turns that fit into so much use come before the tenant's too."""
    restore_s: Seconds = 0.0
    """How long its memory takes to come back."""


def start_range(state: State, tenant: Tenant, now_s: Seconds) -> tuple[Seconds, Seconds] | None:
    """The earliest and the latest start of a tenant in the queue, from now; None: unknown."""
    in_the_way = state.obstacles.get(tenant.id)
    if state.recovery is not None or tenant.standing is Standing.BLOCKED:
        return None
    if in_the_way is not None and in_the_way.kind is not ObstacleKind.RETRY:
        return None
    for device in tenant.places.queues:
        for holder in state.holders(device):
            if any(each.frozen or each.overdue for each in state.turn_clients(holder)):
                return None
    ranges = [_Line(state, tenant, device, now_s).range() for device in tenant.places.queues]
    earliest_s, latest_s = map(max, zip(*ranges, strict=True)) if ranges else (0.0, 0.0)
    if (starves_s := starves_at_s(state, tenant)) is None:
        return earliest_s, latest_s
    at_most_s = max(0.0, starves_s - now_s) + state.settings.quantum_max_s
    return min(earliest_s, at_most_s), min(latest_s, at_most_s)


class _Line:
    """Of one device, as the tenant sees it that waits there."""

    def __init__(self, state: State, tenant: Tenant, device: DeviceId, now_s: Seconds) -> None:
        self._state, self._tenant, self._device, self._now_s = state, tenant, device, now_s
        self._line = state.lines.of[device]
        self._level, self._finish_s, *_ = self._line.rank_of[tenant.id]
        self._drain_s = state.settings.window_ms / 1000
        self._shortest_s = shortest_quantum_s(state.settings)
        self._number = 1
        self._new_s = [min(each, self._shortest_s) for each in state.habits.lengths_s]
        self._new_per_s = self._new_cells_per_s()

    def range(self) -> tuple[Seconds, Seconds]:
        has = [self._of_holder(each) for each in self._line.other_holders(self._tenant)]
        before = islice(self._line.before(self._tenant), LOOKED_AT)
        waits = [self._of_waiter(each) for each in before]
        longer = max(1.0, self._line.index(self._tenant) / LOOKED_AT)
        found = sorted(self._play(has) + longer * self._play(waits) for _ in range(_FUTURES))
        return found[1], found[-2]

    def _play(self, line: Sequence[_Before]) -> Seconds:
        """How long these use the device, in one future."""
        now_s, comes_s = 0.0, self._next_new_s()
        for each in line:
            left_s, had_s, turn_s = self._drawn(each.left_s), 0.0, each.turn_s
            now_s += each.restore_s
            for _ in range(_TURNS_MAX):
                used_s = min(left_s, turn_s, max(0.0, comes_s - now_s))
                now_s, left_s, had_s = now_s + used_s, left_s - used_s, had_s + used_s
                if comes_s <= now_s:
                    now_s += self._drawn(self._new_s)
                    comes_s += self._next_new_s()
                turn_s = each.next_turn_s
                if left_s > 0:
                    now_s += self._drain_s
                if left_s <= 0 or had_s + turn_s >= each.room_s:
                    break
        return now_s

    def _draw(self) -> float:
        """From 0 to 1, the same ones each time: a linear congruential generator."""
        self._number = (1_664_525 * self._number + 1_013_904_223) % 2**32
        return self._number / 2**32

    def _drawn(self, times_s: Sequence[Seconds]) -> Seconds:
        return times_s[int(self._draw() * len(times_s))]

    def _next_new_s(self) -> Seconds:
        """After how long a new cell comes."""
        return -math.log1p(-self._draw()) / self._new_per_s if self._new_per_s else math.inf

    def _new_cells_per_s(self) -> float:
        """Those that go before the tenant. Notebooks whose cells run or wait send none, nor do
        those that have had none yet."""
        if self._level not in BY_SHARE:
            return 0.0
        senders = [each for each in self._line.users.values() if each.last_cells_s]
        free = sum(each.turn is None and each.id not in self._state.queue for each in senders)
        per_s = self._state.habits.cells_per_s(self._device, self._now_s)
        return per_s * free / max(1, len(senders))

    def _of_waiter(self, other: Tenant) -> _Before:
        found = _Before(left_s=self._left_s(other), turn_s=other.next_quantum_s)
        found.restore_s = restore_s(self._state, other, self._device)
        self._add_turns(found, other, self._line.rank_of[other.id][0])
        return found

    def _of_holder(self, holder: Tenant) -> _Before:
        state, turn = self._state, holder.turn
        assert turn is not None
        if holder.state is TenantState.RECALLED:
            return _Before(left_s=[self._drain_s])
        if (hold := state.holds.get(holder.id)) is not None:
            return _Before(left_s=[max(0.0, hold.until_s - self._now_s) * each for each in _HELD])
        found = _Before(left_s=self._left_s(holder), turn_s=quantum_left_s(turn, self._now_s))
        found.restore_s = restore_s(state, holder, self._device) if turn.restores else 0.0
        if take_turns(holder, self._tenant):
            until_s = sibling_takes_over_s(state, holder, turn, self._tenant, self._device)
            if until_s < math.inf:  # else its quantum ends sooner
                found.turn_s = max(0.0, until_s - self._now_s)
        elif not ends(self._level, turn.level):
            self._add_turns(found, holder, turn.level)
        elif (pressed_s := pressed_at_s(state, holder)) is not None:
            found.turn_s = min(found.turn_s, max(0.0, pressed_s - self._now_s))
        return found

    def _add_turns(self, found: _Before, other: Tenant, level: int) -> None:
        """Another tenant, which is served at this level, has further turns until its owner has had
        as much as the one who waits."""
        accounts = self._state.accounts
        here = accounts.of[self._device]
        account = here.accounts.get(other.owner)
        if self._level not in BY_SHARE or level > self._level or account is None:
            return
        longest_s = self._state.settings.quantum_longest_s
        found.next_turn_s = max(self._shortest_s, min(self._used_s(other), longest_s))
        if level < self._level == LAST:
            found.turn_s = found.room_s = math.inf
        elif other.owner != self._tenant.owner:
            uses = self._line.uses
            charged_s = self._now_s - here.charged_to_s if other.id in uses else 0.0
            behind_s = self._finish_s - account.virtual_s
            found.room_s = behind_s * accounts.owners[other.owner].weight
            found.room_s -= charged_s / max(1, len(uses))

    def _left_s(self, other: Tenant) -> Sequence[Seconds]:
        habits, in_cell = self._state.habits, self._state.in_cell(other)
        left_s = habits.left_s(other.last_cells_s, self._used_s(other), in_cell=in_cell)
        return left_s or [_ENDLESS_S]

    def _used_s(self, other: Tenant) -> Seconds:
        since_s = 0.0 if other.turn is None else self._now_s - self._state.accounts.now_s
        return self._state.cell_used_s(other) + since_s
