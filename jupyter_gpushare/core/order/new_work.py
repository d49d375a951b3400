"""Which work is new: a cell or a burst that has used hardly any device time yet. Its owner's credit
lets it go before other owners, its own credit before siblings that have had less. And when memory
may move for it."""

from __future__ import annotations

from ..ids import DeviceId, Seconds
from ..records import Tenant
from ..settings import SchedulerSettings
from ..state import State

_CREDIT_LEAST_S: Seconds = 0.05
"""With less credit than this, a new cell does not go first: it would be over at once."""
_CREDIT_OF_CELLS = 0.5
"""This part of the credit is for cells alone."""
_BURST_GAP_S: Seconds = 0.5
"""Work outside a cell is new when its tenant has had no turn for so long."""


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
