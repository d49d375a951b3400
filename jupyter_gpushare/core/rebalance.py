"""Brings the budgets of one device into line with the state: what time has changed, then what
budgets.py decides. The only place that changes budgets while memory moves."""

from __future__ import annotations

from .budgets import (
    MEASURE_PERIOD_S,
    SPACE_KEPT_S,
    BudgetChange,
    Decision,
    Measuring,
    decide,
)
from .capacity import holding_shares, obstacle
from .commands import MeasureDevice, ReportSilent, TellBudget, TellSpace
from .figures import look
from .ids import ClientId, DeviceId, Seconds
from .ledger import Share
from .needs import Needs
from .obstacles import ObstacleKind
from .outbox import Outbox
from .policy import progress_time_s
from .state import Device, State


def rebalance(state: State, outbox: Outbox, device: Device, now_s: Seconds) -> bool:
    """Whether turns are to be looked at again: somebody who waits may have one now, or memory moves
    again that the quantum waits for."""
    holding = holding_shares(state, device.id)
    ghosts_ended = _ghosts_end(state, device, now_s)
    _kept_space_is_given_up(device, now_s)
    _silence_is_noticed(state, outbox, device, holding, now_s)
    refused, in_doubt = _hopeless_needs_end(state, device, holding, now_s)
    figures = look(state, device, now_s, refused=refused, in_doubt=in_doubt)
    decision = decide(figures)
    moves_again = _apply(state, outbox, device, decision, in_doubt, now_s)
    return ghosts_ended or bool(refused) or moves_again


def tell_budget(
    state: State,
    outbox: Outbox,
    device: Device,
    share: Share,
    change: BudgetChange,
    now_s: Seconds,
) -> None:
    """Note what the client is told, and tell it."""
    client = state.clients[share.client]
    was_awaited = share.owes and not share.has_heard
    client.budget_serial += 1
    share.told(client.budget_serial, change.budget_bytes)
    if share.owes and not was_awaited:
        share.progress_at_s = progress_time_s(state, now_s)
    share.told_usable_bytes = change.usable_bytes
    share.told_hint_bytes = change.park_hint_bytes
    share.told_at_s = now_s
    outbox.put_before_grant(
        share.client,
        TellBudget(
            client=share.client,
            device=device.id,
            serial=client.budget_serial,
            budget_bytes=change.budget_bytes,
            usable_bytes=change.usable_bytes,
            park_hint_bytes=change.park_hint_bytes,
            refused_need=share.need_id if change.refused else 0,
        ),
    )


# ---- what time has changed ------------------------------------------------------------------


def _ghosts_end(state: State, device: Device, now_s: Seconds) -> bool:
    """Memory of clients that have ended counts as free after `reclaim_s`."""
    memory = device.memory
    if not memory.bytes_ghost or memory.ghost_confirmed:
        return False
    gone_s = memory.ghost_since_s + state.settings.reclaim_s
    if now_s < gone_s:
        memory.is_due_at(gone_s)
        return False
    memory.bytes_ghost, memory.ghost_confirmed = 0, True
    memory.releases += 1
    return True


def _kept_space_is_given_up(device: Device, now_s: Seconds) -> None:
    """Space that was made and has been taken, or that nobody has taken in time."""
    requests = device.memory.space_requests
    for request in list(requests.values()):
        if request.made_at_s is None:
            continue
        if now_s >= request.made_at_s + SPACE_KEPT_S or request.bytes_wanted <= 0:
            del requests[request.client]
        else:
            device.memory.is_due_at(request.made_at_s + SPACE_KEPT_S)


def _silence_is_noticed(
    state: State, outbox: Outbox, device: Device, holding: list[Share], now_s: Seconds
) -> None:
    """A client that was to release memory and makes no progress is silent; one that has done what
    it was asked for no longer is."""
    with_turn = {share.client for share in holding}
    for share in device.memory.shares.values():
        if share.silent and not share.owes:
            share.falls_silent(False)
        late_s = share.progress_at_s + state.settings.park_timeout_s
        if now_s >= late_s and share.is_awaited(holds=share.client in with_turn):
            share.falls_silent(True)
            _report_silence(state, outbox, device, share)


def _report_silence(state: State, outbox: Outbox, device: Device, share: Share) -> None:
    client = state.clients[share.client]
    outbox.put(
        ReportSilent(
            client=share.client,
            tenant_name=state.tenants[share.tenant].name,
            process_name=client.process_name,
            pid=client.pid,
            device_name=device.name,
            bytes_held=share.bytes_charged - share.budget_bytes,
            silent_s=state.settings.park_timeout_s,
        )
    )


def _hopeless_needs_end(
    state: State, device: Device, holding: list[Share], now_s: Seconds
) -> tuple[frozenset[ClientId], frozenset[DeviceId]]:
    """The clients whose needs are refused, and the devices to look at before the next refusal."""
    needs = Needs(state, device, holding, now_s)
    refused: set[ClientId] = set()
    for share in needs.hopeless():
        _note_refusal(state, share, now_s, overlap=share in holding)
        share.needs(0)
        refused.add(share.client)
    if needs.due_s is not None:
        device.memory.is_due_at(needs.due_s)
    return frozenset(refused), frozenset(needs.in_doubt)


def _note_refusal(state: State, share: Share, now_s: Seconds, *, overlap: bool) -> None:
    """Keep the obstacle for the status, unless it is the tenant itself."""
    tenant = state.tenants[share.tenant]
    found = obstacle(state, tenant, now_s, holders_stay=overlap)
    if found is not None and found.kind not in (ObstacleKind.ITSELF, ObstacleKind.RETRY):
        tenant.refused_for, tenant.refused_at_s = found, now_s


# ---- what was decided -----------------------------------------------------------------------


def _apply(
    state: State,
    outbox: Outbox,
    device: Device,
    decision: Decision,
    in_doubt: frozenset[DeviceId],
    now_s: Seconds,
) -> bool:
    """Whether memory moves again that the quantum waits for."""
    memory = device.memory
    for client in decision.needs_again:
        memory.shares[client].needs_again()
    moves_again = False
    for change in decision.changes:
        moves_again |= _apply_change(state, outbox, device, change, now_s)
    for client in decision.needs_met:
        share = memory.shares[client]
        if share.needed_bytes:
            state.tenants[share.tenant].refused_for = None
        share.may_have_what_it_needs()
    for tenant in decision.lacks_memory:
        turn = state.tenants[tenant].turn
        if turn is not None:
            turn.lacks_memory_on.add(device.id)
    for client, made in decision.space.items():
        request = memory.space_requests[client]
        if made:
            request.made_at_s = now_s
        else:
            del memory.space_requests[client]
        outbox.put(
            TellSpace(client=client, device=device.id, request_id=request.request_id, made=made)
        )
    if decision.measuring is Measuring.NO:
        memory.measure_at_s = None
    elif decision.measuring is Measuring.NOW:
        memory.measure_at_s = now_s + MEASURE_PERIOD_S
        for each in sorted({device.id, *in_doubt}):
            outbox.put(MeasureDevice(device=each))
    for due_s in decision.due_s:
        memory.is_due_at(due_s)
    memory.drift_left = decision.drift_bytes
    return moves_again


def _apply_change(
    state: State, outbox: Outbox, device: Device, change: BudgetChange, now_s: Seconds
) -> bool:
    share = device.memory.shares[change.client]
    raised = change.budget_bytes > share.budget_bytes
    tell_budget(state, outbox, device, share, change, now_s)
    turn = state.tenants[share.tenant].turn
    if not raised or share.bytes_parked == 0 or turn is None:
        return False
    turn.memory_progress_s = progress_time_s(state, now_s)
    return not turn.restores  # its quantum had begun, since nothing moved for long
