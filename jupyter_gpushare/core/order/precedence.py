"""Who goes before whom for what its work is, or for what it has had.

*New work* is a cell or a burst that has used hardly any device time yet. Its owner's credit lets it
go before other owners, its own credit before siblings that have had less. Memory may move for it
when the device's swap budget covers that.

*Siblings*, the tenants of one owner, take turns among themselves: the least recent use first
(accounts.py, decision 0037). What concerns them are questions: none changes the state."""

from __future__ import annotations

import math

from ..accounts import has_less_after_s
from ..ids import DeviceId, Seconds
from ..records import Succession, Tenant, Turn
from ..settings import SchedulerSettings
from ..space.obstacles import obstacle_on
from ..state import State
from .line import quantum_ends_s, take_turns

_CREDIT_LEAST_S: Seconds = 0.05
"""With less credit than this, a new cell does not go first: it would be over at once."""
_CREDIT_OF_CELLS = 0.5
"""This part of the credit is for cells alone."""
_BURST_GAP_S: Seconds = 0.5
"""Work outside a cell is new when its tenant has had no turn for so long."""
_DIGITS = 4
"""Of a moment: it is the same however the time was divided that was charged."""


# ---- new work ------------------------------------------------------------------------------------


def shortest_quantum_s(settings: SchedulerSettings) -> Seconds:
    """A cell is new until it has used a device for so long."""
    return settings.quantum_s or settings.quantum_min_s


def begins_burst(state: State, tenant: Tenant) -> bool:
    """Whether the tenant, which asks for a turn, works again outside a cell after a moment without
    work: it has given the device back by itself."""
    if state.in_cell(tenant) or not (tenant.came and tenant.counters.turns):
        return False
    return state.accounts.now_s - tenant.last_turn_end_s >= _BURST_GAP_S


def is_new_cell(state: State, tenant: Tenant) -> bool:
    """Whether a cell of the tenant runs, or a burst, that has used hardly any device time yet."""
    works = state.in_cell(tenant) or tenant.in_burst
    if not (state.turns_are_on and state.settings.credit_s and works):
        return False
    if tenant.gave_way:
        return False
    return state.cell_used_s(tenant) < shortest_quantum_s(state.settings)


def may_go_first(state: State, tenant: Tenant) -> bool:
    """Whether the tenant wants a turn for a new cell or a burst, and its owner can pay for that.
    Cells are paid for before bursts."""
    if tenant.turn is not None or not is_new_cell(state, tenant):
        return False
    most_s = state.settings.credit_s
    left_s = state.accounts.owners[tenant.owner].credit_s
    return left_s >= (_CREDIT_LEAST_S if state.in_cell(tenant) else most_s * _CREDIT_OF_CELLS)


def may_go_before_siblings(state: State, tenant: Tenant) -> bool:
    """Whether the tenant has come in a cell that its own credit can pay for: in a new one, or again
    after a gap in one that has used less than a whole credit."""
    if not _comes_in_a_cell(state, tenant):
        return False
    return state.accounts.recent.of[tenant.id].credit_s >= _CREDIT_LEAST_S


def _comes_in_a_cell(state: State, tenant: Tenant) -> bool:
    if tenant.turn is not None or tenant.gave_way or not (tenant.came and state.turns_are_on):
        return False
    return state.in_cell(tenant) and state.cell_used_s(tenant) < state.settings.credit_s


def fill_credits(state: State, tenant: Tenant) -> None:
    """The credits that the tenant's call could be paid from are what they are at this moment."""
    most_s, lines = state.settings.credit_s, state.lines.of
    if tenant.turn is None and is_new_cell(state, tenant):
        state.accounts.fill_credit(tenant.owner, state.devices, most_s)
    if _comes_in_a_cell(state, tenant):
        here = {each: lines[each].owners[tenant.owner] for each in sorted(tenant.wanted_devices)}
        state.accounts.fill_own_credit(tenant.id, tenant.owner, here, most_s)


def find_who_it_goes_before(state: State, tenant: Tenant) -> None:
    """Whether the tenant, which is about to queue or does, goes before other owners, and before
    siblings that have had less."""
    fill_credits(state, tenant)
    tenant.goes_before_siblings = may_go_before_siblings(state, tenant)
    tenant.asks_to_go_first = may_go_first(state, tenant)


def note_work_that_waits(state: State, tenant: Tenant) -> bool:
    """A cell has begun, whose first call may have come before the word of that: it is new all the
    same. Answers whether its place is another one by that."""
    if tenant.turn is not None or tenant.id not in state.queue:
        return False
    before = (tenant.came, tenant.goes_before_siblings, tenant.asks_to_go_first)
    tenant.came = True
    find_who_it_goes_before(state, tenant)
    if before == (True, tenant.goes_before_siblings, tenant.asks_to_go_first):
        return False
    state.lines.look_at_place(tenant)
    return True


def restore_s(state: State, tenant: Tenant, device: DeviceId) -> Seconds:
    """How long the tenant's memory takes to come back to the device."""
    parked = sum(share.bytes_parked for share in state.shares_of(tenant, device))
    return parked / state.devices[device].swap.bytes_per_s if state.memory_moves else 0.0


def swap_may_begin_s(state: State, waiter: Tenant, device: DeviceId) -> Seconds:
    """When the device's swap budget covers the way of the waiter's memory in, and of somebody's
    out and back; at the latest when the waiter has waited for long enough."""
    both_ways_s = 2 * restore_s(state, waiter, device)
    latest_s = waiter.queued_at_s + state.settings.swap_wait_max_s
    swap = state.devices[device].swap
    return min(latest_s, swap.covers_at_s(both_ways_s, state.settings.swap_percent / 100))


# ---- siblings ------------------------------------------------------------------------------------


def sibling_takes_over(state: State, tenant: Tenant) -> tuple[Seconds, Tenant] | None:
    """When the tenant's turn ends for a sibling, and for which; None if none waits that could be
    served then. Of those, the one that is first."""
    turn = tenant.turn
    if turn is None or turn.restores or tenant.id in state.holds or not state.turns_are_on:
        return None
    found: list[tuple[Seconds, Tenant]] = []
    for device in sorted(turn.devices):
        line = state.lines.of[device]
        for waiter in line.siblings(tenant):
            if not take_turns(tenant, waiter):
                continue
            if obstacle_on(state, waiter, state.devices[device], holders_stay=False) is None:
                found.append((sibling_takes_over_s(state, tenant, turn, waiter, device), waiter))
                break
    found = [each for each in found if each[0] < math.inf]
    return min(found, key=lambda each: each[0], default=None)


def sibling_takes_over_s(
    state: State, tenant: Tenant, turn: Turn, waiter: Tenant, device: DeviceId
) -> Seconds:
    """When the holder has had more, or at once for a new cell that its own credit pays for. A cell
    that is new itself ends for no other one. A turn on its own credit lasts as long as that, one
    whose memory had to come back as long as is worth it.
    Endless where too little is left of the quantum."""
    accounts = state.accounts
    charged_s, recent = accounts.of[device].charged_to_s, accounts.recent
    bounds = [waiter.short_until_s, swap_may_begin_s(state, waiter, device)]
    if back_s := restore_s(state, waiter, device):
        bounds.append(turn.granted_at_s + _turn_pays_s(state, turn, device))
    bounds.append(turn.new_from_s + shortest_quantum_s(state.settings))
    if turn.on_own_credit:
        bounds.append(charged_s + recent.of[tenant.id].credit_s)
    if not waiter.goes_before_siblings:
        has_s = recent.left_s(tenant.id, turn.devices, charged_s)
        waits_s = recent.left_s(waiter.id, waiter.wanted_devices, charged_s)
        bounds.append(charged_s + has_less_after_s(has_s, waits_s, recent.half_s))
        if not waiter.came:
            bounds.append(turn.granted_at_s + shortest_quantum_s(state.settings))
    at_s = round(max(bounds), _DIGITS)
    ends_s = quantum_ends_s(turn)
    begins_s = max(at_s, accounts.now_s)
    least_s = max(shortest_quantum_s(state.settings), _pays_s(state, back_s))
    return at_s if ends_s is None or ends_s - begins_s >= least_s else math.inf


def _turn_pays_s(state: State, turn: Turn, device: DeviceId) -> Seconds:
    """How long the turn lasts at least, for what its memory took to come back."""
    if not turn.bytes_to_restore or turn.cell_ended:
        return 0.0
    return _pays_s(state, turn.bytes_to_restore / state.devices[device].swap.bytes_per_s)


def _pays_s(state: State, back_s: Seconds) -> Seconds:
    """How long a turn lasts at least whose memory took so long to come back, that included."""
    pays_s = back_s * (100 / state.settings.swap_percent - 1)
    return back_s + min(pays_s, state.settings.quantum_longest_s)


def succession(state: State, tenant: Tenant, heir: Tenant) -> Succession:
    """What a sibling takes over with the tenant's turn, whose devices are charged up to now."""
    assert tenant.turn is not None
    recent = state.accounts.recent
    own, its = (recent.key(each.id, each.wanted_devices) for each in (tenant, heir))
    return Succession(
        devices=frozenset(tenant.turn.devices),
        ends_s=quantum_ends_s(tenant.turn),
        on_own_credit=heir.goes_before_siblings and own < its,
    )


def rest_of_quantum_s(state: State, tenant: Tenant) -> Seconds | None:
    """Of the turn that the tenant takes over; where it ended late, the shortest quantum. None: it
    takes none over, or nobody else waited."""
    if tenant.succeeds is None or tenant.succeeds.ends_s is None:
        return None
    left_s = tenant.succeeds.ends_s - state.accounts.now_s
    return max(shortest_quantum_s(state.settings), left_s)


def has_had_more(state: State, tenant: Tenant, waiter: Tenant) -> bool:
    """Whether a sibling waits that is served after the tenant."""
    if waiter.owner != tenant.owner or waiter.succeeds is not None:
        return False
    if waiter.goes_before_siblings or not take_turns(tenant, waiter):
        return False
    recent = state.accounts.recent
    own, other = (recent.key(each.id, each.wanted_devices) for each in (tenant, waiter))
    return own < other


def goes_on_own_credit(state: State, tenant: Tenant) -> bool:
    """Whether a sibling that has had less waits, while the tenant is about to get a turn."""
    if not tenant.goes_before_siblings:
        return False
    if tenant.succeeds is not None and tenant.succeeds.on_own_credit:
        return True
    own = state.accounts.recent.key(tenant.id, tenant.wanted_devices)
    return any(
        state.accounts.recent.key(each.id, each.wanted_devices) < own
        for device in tenant.places.queues
        for each in state.lines.of[device].siblings(tenant)
    )
