"""Memory that comes back ahead of its tenant's turn, into space that nobody with a turn uses
(decision 0017).

Without a turn, a budget beyond what a client has lets its parked memory come back. The tenant that
is next gets such budgets while another one computes. The holder keeps some slack, so that its next
allocations need not wait; idle tenants park for the rest, as they would at the next grant. As soon
as somebody with a turn is short, nothing more comes ahead, and what has come leaves first: the host
still has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ids import ClientId, Seconds
from ..ledger import Share
from ..records import Client, Device, Tenant
from ..settings import RestoreAhead
from ..state import State
from ..transitions import WITH_TURN
from .exchange import host_is_short
from .figures import Budgets, Figures

STEP_BYTES = 64 << 20
"""The smallest raise of a budget, unless less is wanted."""
BUS_QUIET_S: Seconds = 0.25
"""A process that copies much says so at least every 150 ms."""
UNDER_WAY_BYTES_MAX = 1 << 30
"""The most that a client may have ahead beyond what it has. If it stops in the middle, a holder
lacks no more than this."""


def shares_ahead(state: State, device: Device, holding: Sequence[Share]) -> tuple[Share, ...]:
    """What may come back to the device now although its tenant has no turn: of clients that will
    have the next one. `holding`: with a turn there. While memory of the holder comes back itself,
    or its program copies much, it has the bus."""
    if state.settings.restore_ahead is RestoreAhead.OFF or not state.turns_are_on:
        return ()
    if state.recovery is not None or any(each.bytes_parked for each in holding):
        return ()
    if device.memory.bus_used_until_s is not None:
        return ()
    tenant = next(state.lines.of[device.id].in_order(), None)
    if tenant is None or tenant.turn is not None or tenant.id in state.evicted:
        return ()
    if len({share.tenant for share in holding}) != 1:
        return ()
    clients = state.ready_clients(tenant)
    shares = [each.devices[device.id] for each in clients if device.id in each.devices]
    if host_is_short(device.memory, tenant.id, shares):
        return ()  # what comes ahead keeps its host memory until the turn
    return tuple(each for each in shares if each.bytes_parked and not (each.failed or each.silent))


def may_come_ahead(state: State, device: Device, tenant: Tenant) -> bool:
    """Whether the tenant's memory would come back without a turn, if it were next."""
    if state.settings.restore_ahead is RestoreAhead.OFF or device.memory.bus_used_until_s:
        return False
    shares = list(state.shares_of(tenant, device.id))
    if any(each.failed or each.silent for each in shares):
        return False
    return not host_is_short(device.memory, tenant.id, shares)


def may_copy(state: State, device: Device) -> bool:
    """Whether the bus may be used ahead of need."""
    return (
        state.settings.restore_ahead is RestoreAhead.ON
        and state.turns_are_on
        and device.memory.bus_used_until_s is None
    )


def line_matters(state: State, device: Device) -> bool:
    """Whether a tenant that has changed may be asked to park sooner or later than before, since who
    waits is asked last; or may copy now, or not any more. While one client copies, others that were
    not told to change nothing."""
    attention = device.memory.attention
    for tenant in state.changes.to_tell.tenants.values():
        for share in state.shares_of(tenant, device.id):
            if attention.owing and share.bytes_movable > 0:
                return True
            if share.client in attention.to_copy and (share.copies.told or not attention.copying):
                return True
    return False


def bus_is_used(state: State, client: Client, now_s: Seconds) -> None:
    """The process copies much between host and device."""
    if client.state not in WITH_TURN:
        return
    for device_id in client.live_devices:
        state.devices[device_id].memory.bus_used_until_s = now_s + BUS_QUIET_S
        state.changes.of_memory(device_id)


def less_goes_ahead(figures: Figures, budgets: Budgets, lacking: int) -> Budgets:
    """Of what may come back ahead of a turn and has not, only as much as those with a turn leave
    (`lacking`, as a negative number)."""
    left = max(0, -lacking)
    told: dict[ClientId, int] = {}
    for share in figures.ahead:
        beyond = budgets.beyond(share, share.bytes_resident)
        kept = min(beyond, left)
        left -= kept
        if kept < beyond:
            told[share.client] = share.bytes_resident + kept
    return budgets.with_told(told)


def slack_goes_ahead(figures: Figures, budgets: Budgets) -> tuple[Budgets, int]:
    """From those with a turn, what they may have beyond their slack and do not use, for what is to
    come back ahead; and how much of that lacks space then."""
    kept = sum(figures.kept_bytes(share) for share in figures.holding)
    others = figures.bytes_without_turn + sum(share.bytes_parked for share in figures.ahead)
    asked = sum(request.bytes_wanted for request in figures.pending)
    lacking = kept + others + asked - figures.bytes_usable - figures.bytes_ghost
    unused = sum(budgets.beyond(share, figures.kept_bytes(share)) for share in figures.holding)
    left = min(unused, lacking + unused)
    told: dict[ClientId, int] = {}
    for share in figures.holding:
        taken = min(left, budgets.beyond(share, figures.kept_bytes(share)))
        if taken > 0 and taken >= min(STEP_BYTES, left):
            told[share.client] = budgets.of(share) - taken
            left -= taken
    return budgets.with_told(told), max(0, lacking)


def free_goes_ahead(figures: Figures, budgets: Budgets, free: int) -> tuple[Budgets, int]:
    """To the next one, as far as those with a turn have their slack. Answers also with what is free
    for these then."""
    spared = sum(
        max(0, figures.kept_bytes(share) - budgets.charged(share)) for share in figures.holding
    )
    told: dict[ClientId, int] = {}
    is_complete = True
    for share in figures.ahead:
        had, charged = budgets.of(share), budgets.charged(share)
        lacking = share.bytes_allocated - had
        if lacking and had - share.bytes_resident > UNDER_WAY_BYTES_MAX // 2:
            is_complete = False
            continue
        most = min(share.bytes_allocated, share.bytes_resident + UNDER_WAY_BYTES_MAX)
        budget = max(had, min(most, charged + free - spared))
        is_complete &= budget == share.bytes_allocated
        if budget == share.bytes_allocated or budget - had >= min(STEP_BYTES, (lacking + 3) // 4):
            if budget > had:
                told[share.client] = budget
            free -= max(0, budget - charged)
    return budgets.with_told(told), free if is_complete else min(free, spared)
