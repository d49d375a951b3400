"""How the tenants of one owner take turns among themselves: the least recent use first (recent.py,
decision 0037). Questions only: nothing here changes the state."""

from __future__ import annotations

import math

from ..ids import DeviceId, Seconds
from ..records import Succession, Tenant, Turn
from ..space.obstacles import obstacle_on
from ..state import State
from .line import quantum_ends_s, take_turns
from .new_work import restore_s, shortest_quantum_s, swap_may_begin_s
from .recent import has_less_after_s

_DIGITS = 4
"""Of a moment: it is the same however the time was divided that was charged."""


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
