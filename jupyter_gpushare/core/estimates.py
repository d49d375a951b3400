"""When a tenant's turn will begin: a range of time. Questions only.

The line before the tenant is played to its end, in `_FUTURES` futures. In each, those before it use
what is drawn from the lengths of cells of late, in turns as the rules of the line let them. A
tenant may say what it likes about its cells: that moves what is said of itself, and of others by
some cells of many. New cells come as often as they came of late; they go first, and end the turn
under way. Its holder goes on if its next turn still fits in before the tenant's. The range leaves
out the earliest and the latest future: more than the eight of ten starts that it is to hold, as
people do what no future knows. Nothing is said of a wait whose end hangs on a person or a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random

from .ids import DeviceId, Seconds
from .order.line import quantum_left_s, take_turns
from .order.precedence import restore_s, shortest_quantum_s, sibling_takes_over_s
from .policy import pressed_at_s, starves_at_s
from .records import PastCell, Tenant
from .shares.classes import BY_SHARE, LAST, ends
from .shares.guarantees import Standing
from .space.requests import ObstacleKind
from .state import State
from .transitions import TenantState

LOOKED_AT = 16
"""So many of those before a tenant are looked at. A longer line takes longer in proportion."""
_NEAR = 32
"""So many cells of all together tell what the next ones are like."""
_FUTURES = 41
_TURNS_MAX = 32
"""So many turns of one before the tenant are played."""
_ENDLESS_S: Seconds = 4 * 86_400.0
"""What work uses of which nothing is known: so it has whole turns."""


@dataclass(slots=True)
class _Before:
    """Somebody before the tenant. What its work may still use (each is as likely); how long its
    turn lasts at most; how long its memory takes to come back; how long a further turn is, and into
    how much use it has to fit."""

    left_s: Sequence[Seconds]
    turn_s: Seconds = math.inf
    restore_s: Seconds = 0.0
    next_turn_s: Seconds = 0.0
    room_s: Seconds = 0.0


def start_range(state: State, tenant: Tenant, now_s: Seconds) -> tuple[Seconds, Seconds] | None:
    """The earliest and the latest start of a tenant in the queue, from now; None: unknown."""
    in_the_way, queues = state.obstacles.get(tenant.id), tenant.places.queues
    holders = (each for device in queues for each in state.holders(device))
    clients = (client for each in holders for client in state.turn_clients(each))
    if (
        state.recovery is not None
        or tenant.standing is Standing.BLOCKED
        or (in_the_way is not None and in_the_way.kind is not ObstacleKind.RETRY)
        or any(each.frozen or each.overdue for each in clients)
    ):
        return None
    ranges = [_Line(state, tenant, device, now_s).range() for device in queues] or [(0.0, 0.0)]
    earliest_s, latest_s = map(max, zip(*ranges, strict=True))
    starves_s = starves_at_s(state, tenant)
    most_s = math.inf if starves_s is None else max(0.0, starves_s - now_s)
    most_s += state.settings.quantum_max_s
    return min(earliest_s, most_s), min(latest_s, most_s)


def left_s(own_s: Iterable[Seconds], all_s: Sequence[Seconds], used_s: Seconds) -> list[Seconds]:
    """How much longer work goes on that has used so much; each is as likely. It is what was left
    then of these cells. It may also end like none before it: so a third, once and three times what
    it has used are added. Empty: nothing is known."""
    known = [*own_s, *all_s]
    left = [each - used_s for each in known if each > used_s]
    return [*left, used_s / 3, used_s, 3 * used_s] if known and used_s > 0 else left


def cells_per_s(cells: Iterable[PastCell], device: DeviceId, now_s: Seconds) -> float:
    """How many cells the device has had in a second, of late."""
    ends_s = [each.ended_s for each in cells if device in each.devices][-_NEAR:]
    lasts_s = now_s - ends_s[0] if ends_s else 0.0
    return (len(ends_s) - 1) / lasts_s if lasts_s > 0 else 0.0


class _Line:
    """Of one device, as the tenant sees it that waits there."""

    def __init__(self, state: State, tenant: Tenant, device: DeviceId, now_s: Seconds) -> None:
        self._state, self._tenant, self._device, self._now_s = state, tenant, device, now_s
        self._line = state.lines.of[device]
        self._level, self._finish_s, *_ = self._line.rank_of[tenant.id]
        self._drain_s = state.settings.window_ms / 1000
        self._shortest_s = shortest_quantum_s(state.settings)
        self._all_s = [each.used_s for each in state.cells]
        self._new_s = [min(each, self._shortest_s) for each in self._all_s]
        per_s = cells_per_s(state.cells, device, now_s)
        self._new_per_s = per_s if self._level in BY_SHARE else 0.0

    def range(self) -> tuple[Seconds, Seconds]:
        random, before = Random(0), islice(self._line.before(self._tenant), LOOKED_AT)
        has = [self._of_holder(each) for each in self._line.other_holders(self._tenant)]
        waits = []
        for each in before:
            back_s = restore_s(self._state, each, self._device)
            found = _Before(self._left_s(each), each.next_quantum_s, back_s)
            waits.append(self._with_turns(found, each, self._line.rank_of[each.id][0]))
        longer = max(1.0, self._line.index(self._tenant) / LOOKED_AT)
        plays = (
            self._play(has, random) + longer * self._play(waits, random) for _ in range(_FUTURES)
        )
        _, earliest_s, *_, latest_s, _ = sorted(plays)
        return earliest_s, latest_s

    def _play(self, line: Sequence[_Before], random: Random) -> Seconds:
        """How long these use the device, in one future."""
        lasts_s = 0.0
        for each in line:
            left_s, had_s, turn_s = random.choice(each.left_s), 0.0, each.turn_s
            lasts_s += each.restore_s
            for _ in range(_TURNS_MAX):
                comes_s = random.expovariate(self._new_per_s) if self._new_per_s else math.inf
                used_s = min(left_s, turn_s, comes_s)
                lasts_s += used_s + (random.choice(self._new_s) if used_s == comes_s else 0.0)
                left_s, had_s, turn_s = left_s - used_s, had_s + used_s, each.next_turn_s
                lasts_s += self._drain_s if left_s > 0 else 0.0
                if left_s <= 0 or had_s + turn_s >= each.room_s:
                    break
        return lasts_s

    def _of_holder(self, holder: Tenant) -> _Before:
        state, turn = self._state, holder.turn
        assert turn is not None
        if holder.state is TenantState.RECALLED:
            return _Before([self._drain_s])
        if (hold := state.holds.get(holder.id)) is not None:  # some users end it early
            return _Before([max(0.0, hold.until_s - self._now_s) * n / 4 for n in (1, 2, 3, 4)])
        back_s = restore_s(state, holder, self._device) if turn.restores else 0.0
        found = _Before(self._left_s(holder), quantum_left_s(turn, self._now_s), back_s)
        ends_s: Seconds | None = None
        if take_turns(holder, self._tenant):
            at_s = sibling_takes_over_s(state, holder, turn, self._tenant, self._device)
            ends_s = at_s if at_s < math.inf else None  # its quantum ends sooner
        elif not ends(self._level, turn.level):
            return self._with_turns(found, holder, turn.level)
        elif (pressed_s := pressed_at_s(state, holder)) is not None:
            ends_s = min(pressed_s, self._now_s + found.turn_s)
        if ends_s is not None:
            found.turn_s = max(0.0, ends_s - self._now_s)
        return found

    def _with_turns(self, found: _Before, other: Tenant, level: int) -> _Before:
        """Another tenant, which is served at this level, has further turns until its owner has had
        as much as the one who waits."""
        accounts, here = self._state.accounts, self._state.accounts.of[self._device]
        account = here.accounts.get(other.owner)
        if self._level in BY_SHARE and level <= self._level and account is not None:
            longest_s = self._state.settings.quantum_longest_s
            found.next_turn_s = max(self._shortest_s, min(self._used_s(other), longest_s))
            if level < self._level == LAST:
                found.turn_s = found.room_s = math.inf
            elif other.owner != self._tenant.owner:
                behind_s = self._finish_s - account.virtual_s
                found.room_s = behind_s * accounts.owners[other.owner].weight
                if other.id in self._line.uses:  # it was charged up to then
                    found.room_s -= (self._now_s - here.charged_to_s) / len(self._line.uses)
        return found

    def _left_s(self, other: Tenant) -> Sequence[Seconds]:
        all_s = self._all_s[-_NEAR:] if self._state.in_cell(other) else []
        return left_s(other.last_cells_s, all_s, self._used_s(other)) or [_ENDLESS_S]

    def _used_s(self, other: Tenant) -> Seconds:
        since_s = 0.0 if other.turn is None else self._now_s - self._state.accounts.now_s
        return self._state.cell_used_s(other) + since_s
