"""Who is next, what is in the way of a tenant's memory, and when a turn must end. Questions only:
nothing here changes the state.

The rules, in short:

- Each device has a line (lines.py): new cells go first, as far as the credit of their owners goes
  and requests leave time for them; the others follow by weighted fair sharing among owners
  (accounts.py). An owner's tenants take turns among themselves, the least recent use first.
- A tenant is served when each device that it lacks is free, and nobody before it on one of its
  lines can be served (gangs.py). So one that wants several devices gets them all or none.
- A turn whose drain has stalled for a further device gets that device before all who wait without a
  turn: until it has it, the turn cannot end, and an earlier tenant may wait for just that end.
- The quantum is used up by time during which others wait for a device of the turn, and by that
  alone. A holder that was alone for an hour still has a whole quantum when the first other one
  comes; and one whose waiters come and go (interrupted cells) does not begin anew each time.
- A turn whose quantum is over goes on for another one where its owner would be served next all the
  same: nothing is won by handing the device over to the one who has it.
- Quanta are between owners. A turn ends for a sibling which has had less of late (accounts.py), or
  whose new cell can pay for that from its own credit. The sibling has what is left of the quantum.
- Quanta grow with the cell: a turn is as long as the cell has used the device so far, within the
  settings, and long enough that memory which moves for it costs `swap_percent` of it.
- A turn ends at once for a new cell that goes first, if nothing has to move. Else it ends when the
  device's swap budget covers the way in and out, or after `swap_wait_max_s`.
- A tenant whose memory cannot fit, for a reason that waiting for a turn will not fix, is skipped
  until it fits: those behind it go first. No turn ends for a tenant that is skipped.
- The quantum waits while memory of the turn's holder is still coming back. Such a turn ends, once,
  for a new cell that is next and has all of its memory there; the rest comes ahead of its next one.
- A turn that its user keeps by hand outlasts its quantum until the hold is over, or until its owner
  is in debt by `credit_s`. It ends for `realtime`, and after its quantum for one that an admin has
  boosted.
- Guarantees and limits go before shares (limits.py). Who has had its hard limit waits.
- Classes go before others (classes.py), as far as their owners are within their shares.
- No turn begins on a device that an admin has paused, and a turn there is asked back at once, also
  one that is kept by hand. Tenants that need such a device are skipped. A turn that has stalled for
  one still gets it: it cannot end without.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .commands import RecallReason
from .gangs import GangLook
from .ids import DeviceId, Seconds, TenantId
from .limits import elastic_left_s
from .needs import GRACE_S, is_waiting
from .order.line import quantum_ends_s, take_turns
from .order.precedence import (
    has_had_more,
    restore_s,
    shortest_quantum_s,
    sibling_takes_over,
    swap_may_begin_s,
)
from .records import Tenant, Turn
from .shares.classes import BOOSTED, BY_SHARE, FIRST, GUARANTEED, URGENT, TenantClass, ends
from .space.ahead import may_come_ahead
from .space.obstacles import Largest, obstacle, obstacle_on
from .space.requests import Obstacle, ObstacleKind
from .state import State
from .transitions import ASKED_BACK, WITH_TURN, TenantState

_PROGRESS_STEPS = 16
_WORTH_PASSING_S: Seconds = 0.02
"""A turn whose memory comes back within this time ends for nobody: two hand-overs take some ms."""


Served = tuple[list[Tenant], dict[TenantId, Obstacle]]
"""Tenants that can be served now, in the order of the queue; and what is in the way of those that
could, but for somebody's memory."""


def grantable(state: State, devices: Iterable[DeviceId], now_s: Seconds) -> Served:
    """Of the tenants that queue for one of these devices. Where turns are off, of all."""
    if not state.turns_are_on:
        return _served_beside_others(state, now_s)
    if state.recovery is not None:
        return [], {}
    looked_at = set(devices)
    served, obstacles = _served_first(state, looked_at, _free_together(state, looked_at), now_s)
    return served, still_in_the_way(state, served, obstacles, now_s)


def _in_the_way(
    state: State,
    tenant: Tenant,
    now_s: Seconds,
    *,
    holders_stay: bool = True,
    largest: Largest | None = None,
) -> Obstacle | None:
    """The obstacle of a tenant; none, at once, where all of its memory is there."""
    if now_s >= tenant.short_until_s and not _lacks_memory(state, tenant):
        return None
    return obstacle(state, tenant, now_s, holders_stay=holders_stay, largest=largest)


def _lacks_memory(state: State, tenant: Tenant) -> bool:
    """Whether some of its memory is parked, or a call of it waits for more."""
    shares = (each for device in tenant.wanted_devices for each in state.shares_of(tenant, device))
    return any(each.bytes_parked + each.needed_bytes for each in shares)


def _served_beside_others(state: State, now_s: Seconds) -> Served:
    served: list[Tenant] = []
    obstacles: dict[TenantId, Obstacle] = {}
    largest = Largest()
    for tenant in sorted(state.queue.values(), key=lambda each: each.turn is None):
        in_the_way = _in_the_way(state, tenant, now_s, largest=largest)
        if in_the_way is None:
            served.append(tenant)
        else:
            obstacles[tenant.id] = in_the_way
    return served, obstacles


def _free_together(state: State, devices: Iterable[DeviceId]) -> set[DeviceId]:
    """Those of the devices that are free; and free ones for which a tenant queues that queues for
    one of these too: whether they are kept for it may have changed."""
    to_see, seen = list(devices), set(devices)
    while to_see:
        for tenant in state.lines.of[to_see.pop()].gangs.values():
            more = {each for each in tenant.places.queues - seen if not state.holders(each)}
            to_see += more
            seen |= more
    return {device for device in seen if not state.holders(device)}


def _served_first(
    state: State, devices: set[DeviceId], free: set[DeviceId], now_s: Seconds
) -> Served:
    with_turn = _with_turn_in_line(state, devices | free)
    if with_turn or any(state.lines.of[device].gangs for device in free):
        lines = {device: line.queue for device, line in state.lines.of.items()}
        return served_among_gangs(state, lines, with_turn, free, now_s)
    served: list[Tenant] = []
    obstacles: dict[TenantId, Obstacle] = {}
    largest = Largest()
    for device in sorted(free):
        for tenant in state.lines.of[device].queue:
            if state.is_kept_waiting(tenant):
                continue
            in_the_way = _in_the_way(state, tenant, now_s, largest=largest)
            if in_the_way is None:
                served.append(tenant)
                break
            obstacles[tenant.id] = in_the_way
    return sorted(served, key=_place), obstacles


def _place(tenant: Tenant) -> int:
    return tenant.place


def served_among_gangs(
    state: State,
    lines: Mapping[DeviceId, Sequence[Tenant]],
    with_turn: Iterable[Tenant],
    free: set[DeviceId],
    now_s: Seconds,
) -> Served:
    """Where some queue for several devices. `lines` has the queues."""
    look = GangLook(
        state=state,
        lines=lines,
        free=free,
        in_the_way=lambda tenant: _in_the_way(state, tenant, now_s),
        stays_in_the_way=lambda tenant: _in_the_way(state, tenant, now_s, holders_stay=False),
    )
    for tenant in with_turn:
        look.serve_if_free(tenant)  # else it has its own place in the queue
    look.go_through()
    return sorted(look.served.values(), key=_place), look.obstacles


def still_in_the_way(
    state: State, served: list[Tenant], obstacles: dict[TenantId, Obstacle], now_s: Seconds
) -> dict[TenantId, Obstacle]:
    """`obstacles`, and those of before that a look did not come to now, since others have the
    devices, and that would be in the way if these gave them back."""
    found, largest = dict(obstacles), Largest()
    for tenant_id in state.obstacles:
        tenant = state.queue.get(tenant_id)
        if tenant is None or tenant_id in found or tenant in served:
            continue
        if not state.is_kept_waiting(tenant):
            in_the_way = _in_the_way(state, tenant, now_s, holders_stay=False, largest=largest)
            if in_the_way is not None:
                found[tenant_id] = in_the_way
    return found


def _with_turn_in_line(state: State, devices: Iterable[DeviceId]) -> list[Tenant]:
    """Tenants with a turn that queue for one of these devices besides, first come first."""
    lacking = (each for device in devices for each in state.lines.of[device].lacking.values())
    waiting = {each.id: each for each in lacking if each.id in state.queue}
    return sorted(waiting.values(), key=lambda each: each.place)


def progress_time_s(state: State, now_s: Seconds) -> Seconds:
    """The next of the moments from which `park_timeout_s` counts: progress that goes on thus moves
    alarms seldom."""
    step_s = state.settings.park_timeout_s / _PROGRESS_STEPS
    return math.ceil(now_s / step_s) * step_s


def bytes_to_come(tenant: Tenant) -> int:
    """What of the memory of those of its clients that have the turn has still to come back."""
    return sum(
        client.devices[device].bytes_parked
        for client in tenant.clients.values()
        if client.state in WITH_TURN
        for device in client.live_devices
    )


def waits_for_its_memory(state: State, tenant: Tenant, now_s: Seconds) -> bool:
    """Whether memory of the tenant is coming back, or is about to. One that has made no progress
    for long need not be waited for."""
    turn = tenant.turn
    if turn is None or not bytes_to_come(tenant):
        return False
    return now_s < turn.memory_progress_s + state.settings.park_timeout_s


def turn_ends_s(state: State, tenant: Tenant, turn: Turn) -> Seconds | None:
    """When the turn has used its quantum, and no hold keeps it; None while nobody waits. One that
    came before others is looked at then, for it is as any other from then on."""
    ends_s, hold = quantum_ends_s(turn), state.holds.get(tenant.id)
    came_before = turn.level in (BOOSTED, FIRST)
    if ends_s is None or hold is None or came_before or admin_wants_another(state, turn):
        return ends_s
    return max(ends_s, hold.counts_until_s)


def admin_wants_another(state: State, turn: Turn) -> bool:
    """Whether a tenant waits for the turn's devices that an admin has boosted."""
    return BOOSTED in _heads(state, turn)


def _heads(state: State, turn: Turn) -> set[int | None]:
    """How soon those are served that wait first for the turn's devices."""
    return {state.lines.of[device].head for device in turn.devices}


def starves_at_s(state: State, tenant: Tenant) -> Seconds | None:
    """When a tenant without a turn has waited for as long as its class may make it wait."""
    if tenant.id not in state.queue or tenant.runs_as is not TenantClass.BATCH or tenant.starved:
        return None
    return tenant.starves_from_s + state.settings.starvation_s


def judged_at_s(state: State, tenant: Tenant) -> Seconds | None:
    """When time alone changes as what the tenant waits, or that it may go on."""
    if tenant.turn is not None:
        at_s = tenant.turn.limit_at_s
    else:
        starves_s = starves_at_s(state, tenant)
        at_s = tenant.judged_until_s if tenant.id in state.queue else math.inf
        at_s = at_s if starves_s is None else min(at_s, starves_s)
    return at_s if at_s < math.inf else None


def to_judge(state: State, now_s: Seconds) -> list[Tenant]:
    """Of those that have changed, the tenants for which that time has come."""
    changed = state.changes.in_settling.tenants.values()
    moments = ((judged_at_s(state, tenant), tenant) for tenant in changed)
    return [tenant for at_s, tenant in moments if at_s is not None and now_s >= at_s]


def quantum_of_s(state: State, tenant: Tenant) -> Seconds:
    """How long the next turn of the tenant may last, or the rest of the present one if others come
    now."""
    quantum_s = _quantum_without_limit_s(state, tenant)
    if state.lines.rules is None:
        return quantum_s
    return min(quantum_s, elastic_left_s(state.lines, tenant))


def _quantum_without_limit_s(state: State, tenant: Tenant) -> Seconds:
    settings = state.settings
    if settings.quantum_s:
        return settings.quantum_s
    back_s = max((restore_s(state, tenant, each) for each in tenant.wanted_devices), default=0)
    pays_s = back_s * (100 - settings.swap_percent) / settings.swap_percent
    wanted_s = max(state.cell_used_s(tenant), pays_s)
    return min(max(wanted_s, settings.quantum_min_s), settings.quantum_max_s)


def is_next_again(state: State, tenant: Tenant, quantum_s: Seconds) -> bool:
    """Whether a holder that gave its turn back now, and asked again for such a quantum, would be
    the first of each of its lines. Its devices are charged up to now."""
    assert tenant.turn is not None
    for device in tenant.turn.devices:
        line = state.lines.of[device]
        own_level = state.lines.level_again(device, tenant)
        for waiter in line.in_order():
            if waiter is tenant or has_had_more(state, tenant, waiter):
                continue
            level, finish_s, _, _ = line.rank_of[waiter.id]
            own_s = state.accounts.finish_s(device, tenant.owner, quantum_s)
            is_later = level in BY_SHARE and finish_s > own_s and waiter.owner != tenant.owner
            if level < own_level or (level == own_level and not is_later):
                return False
            break
    return True


def pressed_at_s(state: State, tenant: Tenant) -> Seconds | None:
    """When the tenant's turn ends for one that goes first, by its class or for a new cell; None if
    there is none. A turn that is kept by hand ends for `realtime` alone."""
    turn = tenant.turn
    if turn is None:
        return None
    moments = []
    for device in sorted(turn.devices):
        line, for_urgent_alone = state.lines.of[device], tenant.id in state.holds
        for waiter in line.in_order():
            level = line.rank_of[waiter.id][0]
            if level == BOOSTED:  # it waits for the end of the quantum, and hides nobody
                if len(waiter.wanted_devices) > 1:
                    break  # the device would be kept for it, and idle
                for_urgent_alone = True
                continue
            if not ends(level, turn.level) or (for_urgent_alone and level != URGENT):
                break
            if take_turns(tenant, waiter):
                continue  # it takes over by what it has had
            if level == GUARANTEED and waiter.owner == tenant.owner:
                break
            if waiter is tenant or len(waiter.wanted_devices) > 1:
                break  # whether it could be served hangs on devices that nobody looks at here
            if obstacle_on(state, waiter, state.devices[device], holders_stay=False) is None:
                moments.append(max(waiter.short_until_s, swap_may_begin_s(state, waiter, device)))
                break
    return min(moments, default=None)


@dataclass(frozen=True, slots=True)
class Recall:
    """Why a turn must be given back. It names no other tenant: that may be another user's."""

    reason: RecallReason
    device_name: str = ""
    """The device that is taken."""
    own_sake: bool = False
    heir: Tenant | None = None
    """The sibling for which it ends."""


def recall_due(
    state: State, tenant: Tenant, now_s: Seconds, *, own_sake: bool = True
) -> Recall | None:
    """Why the tenant's turn must be given back now; None if it need not. Without `own_sake`: for
    others."""
    turn = tenant.turn
    if turn is None or not state.turns_are_on:
        return None
    if tenant.state is TenantState.HOLDING or tenant.id not in state.queue:
        for device in sorted(state.missing_devices(tenant)):
            if state.holders(device):
                return Recall(RecallReason.DEVICE_TAKEN, state.devices[device].name)
    if (paused := state.paused_device(turn.devices)) is not None:
        return Recall(RecallReason.PAUSED, paused.name)
    if now_s >= turn.limit_at_s:
        return Recall(RecallReason.LIMIT)
    if any(state.holders(device)[0] is not tenant for device in turn.devices):
        return Recall(RecallReason.NOT_FIRST)
    if turn.lacks_memory_on and not waits_for_its_memory(state, tenant, now_s):
        return Recall(RecallReason.NO_SPACE)
    if now_s >= _lacks_for_long_at_s(turn):
        return Recall(RecallReason.NO_SPACE)
    if own_sake and turn.gives_way and (tenant.space_waits or is_waiting(tenant)):
        return Recall(RecallReason.NO_SPACE, own_sake=True)
    if _lets_pass(state, tenant, turn):
        return Recall(RecallReason.LETS_PASS)
    others_wait = state.others_queue(tenant, turn.devices)
    if others_wait and turn.cell_ended and tenant.id not in state.holds and not turn.restores:
        return Recall(RecallReason.CELL_ENDED)
    ends_s = turn_ends_s(state, tenant, turn)
    if ends_s is not None and now_s >= ends_s:
        return Recall(RecallReason.QUANTUM_OVER)
    pressed_s = pressed_at_s(state, tenant)
    if pressed_s is not None and now_s >= pressed_s:
        heads = _heads(state, turn)
        for_cell = FIRST in heads and URGENT not in heads
        return Recall(RecallReason.CELL_WAITS if for_cell else RecallReason.GOES_FIRST)
    sibling = sibling_takes_over(state, tenant)
    if sibling is not None and now_s >= sibling[0]:
        return Recall(RecallReason.SIBLING, heir=sibling[1])
    return None


def _lacks_for_long_at_s(turn: Turn) -> Seconds:
    """When it is believed that parked memory of the turn cannot come back."""
    return min(turn.lacks_memory_on.values(), default=math.inf) + GRACE_S


def is_cut_short(state: State, tenant: Tenant, recall: Recall) -> bool:
    """Whether the tenant's turn ends for one that goes first, and has hardly begun."""
    goes_first = recall.reason in (RecallReason.GOES_FIRST, RecallReason.CELL_WAITS)
    return (
        goes_first
        and tenant.turn is not None
        and (state.accounts.now_s - tenant.turn.granted_at_s < shortest_quantum_s(state.settings))
    )


def _lets_pass(state: State, tenant: Tenant, turn: Turn) -> bool:
    """Whether a turn whose memory still comes back ends for a new cell whose memory is there: else
    the device has nothing to do. The memory goes on coming, ahead of the next turn. A turn does so
    once, so that it begins later by one short cell."""
    if not turn.restores or tenant.let_pass or tenant.id in state.holds or len(turn.devices) != 1:
        return False
    device = state.devices[next(iter(turn.devices))]
    line = state.lines.of[device.id]
    waiter = next(line.in_order(), None)
    if waiter is None or waiter.wanted_devices != turn.devices or turn.level < FIRST:
        return False
    if line.rank_of[waiter.id][0] != FIRST or _lacks_memory(state, waiter):
        return False
    if restore_s(state, tenant, device.id) < _WORTH_PASSING_S:
        return False
    return may_come_ahead(state, device, tenant)


def deadline_of_tenant_s(state: State, tenant: Tenant) -> Seconds | None:
    """When something happens to the tenant's turn by itself, if nothing else does before."""
    turn = tenant.turn
    if turn is None:
        return judged_at_s(state, tenant)
    hold = state.holds.get(tenant.id)
    deadlines: list[Seconds | None] = [] if hold is None else [hold.until_s]
    if turn.restores:
        deadlines.append(turn.memory_progress_s + state.settings.park_timeout_s)
    if tenant.state is TenantState.HOLDING and turn.lacks_memory_on and state.turns_are_on:
        at_s = _lacks_for_long_at_s(turn)
        deadlines.append(at_s if at_s < math.inf else None)
    if tenant.state is TenantState.STALLED:
        deadlines.append(turn.retry_at_s)
    elif tenant.state is not TenantState.HOLDING:
        overdue_s = state.settings.overdue_s
        deadlines += [each.overdue_at_s(overdue_s) for each in tenant.clients.values()]
    if tenant.state is TenantState.HOLDING or _goes_unwanted(tenant):
        ends_s = turn_ends_s(state, tenant, turn)
        pressed_s, sibling = pressed_at_s(state, tenant), sibling_takes_over(state, tenant)
        deadlines += [ends_s, pressed_s, judged_at_s(state, tenant)]
        deadlines.append(None if sibling is None else sibling[0])
    return min((each for each in deadlines if each is not None), default=None)


def wanted_for(state: State, tenant: Tenant, now_s: Seconds) -> Recall | None:
    """Why others want a turn now that goes back for the tenant's own sake. Until they do, it may be
    kept as long as any other."""
    return recall_due(state, tenant, now_s, own_sake=False) if _goes_unwanted(tenant) else None


def _goes_unwanted(tenant: Tenant) -> bool:
    clients = tenant.clients.values()
    return any(each.state in ASKED_BACK and each.recalled_at_s is None for each in clients)


def deadline_of_waiters_s(state: State) -> Seconds | None:
    """When something happens by itself to tenants without a turn."""
    deadlines = [] if state.recovery is None else [state.recovery.over_s()]
    for tenant_id, in_the_way in state.obstacles.items():
        if in_the_way.kind is ObstacleKind.RETRY:
            deadlines.append(state.tenants[tenant_id].short_until_s)
    return min(deadlines, default=None)
