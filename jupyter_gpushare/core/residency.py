"""Memory on devices: budgets are told so that tenants with a turn have theirs there.

Events change what is known of a client's memory (the methods on top); `settle` looks at each device
as it is and does what follows, so that no rule depends on which event came last: what time has
changed, then what budgets.py decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .budgets import (
    MEASURE_PERIOD_S,
    BudgetChange,
    Decision,
    Measuring,
    decide,
    noticed_bytes,
)
from .commands import Ahead, MeasureDevice, ReportSilent, TellBudget, TellSpace
from .events import DeviceMemoryMeasured, DeviceMode, DropReason, MemoryReported
from .ids import ClientId, DeviceId, Seconds, TenantId
from .ledger import UNLIMITED_BYTES, Share
from .needs import Needs
from .policy import progress_time_s
from .records import Client, Device, Tenant
from .space.ahead import line_matters, may_copy, shares_ahead
from .space.figures import Figures
from .space.obstacles import comes_back_no_more, obstacle
from .space.requests import ObstacleKind
from .space.waits import Space
from .state import State
from .told import Outbox
from .transitions import WITH_TURN


class Residency:
    """Changes budgets; the only one who does."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self.space = Space(state, outbox)
        self._somebody_is_passed_over = False
        """As it was at the last look at all devices."""

    # ---- what events bring -------------------------------------------------------------------

    def opened(self, client: Client, device: Device) -> None:
        """The client begins with nothing, and may have nothing."""
        if device.id not in client.devices:
            client.devices[device.id] = device.memory.open(
                client.id, client.tenant, self._state.tenants[client.tenant].last_turn_end_s
            )
            self._state.changes.of_memory(device.id)

    def closed(self, client: Client, device: Device) -> None:
        """The driver has freed all of it."""
        device.memory.close(client.devices.pop(device.id))
        self._siblings_are_looked_at(client, device)
        self._state.changes.of_memory(device.id)

    def lost(self, client: Client, now_s: Seconds) -> None:
        """The client is gone; its memory may not be yet."""
        self._state.note_memory(client)
        for device_id, share in client.devices.items():
            device = self._state.devices[device_id]
            device.memory.lose(share, now_s)
            self._siblings_are_looked_at(client, device)
        for device in self._state.devices.values():
            self.space.forget(client.id, device)

    def _siblings_are_looked_at(self, client: Client, device: Device) -> None:
        """What stays of one client's memory is room that only its siblings can count on."""
        for share in self._state.shares_of(self._state.tenants[client.tenant], device.id):
            if share.client != client.id:
                device.memory.attention.note(share)

    def reported(self, client: Client, share: Share, event: MemoryReported, now_s: Seconds) -> bool:
        """Take in what the client has now; bytes that left the device are space for others. Answers
        whether anything may follow from it."""
        memory = self._state.devices[event.device].memory
        allocated, parked, fixed = share.bytes_allocated, share.bytes_parked, share.bytes_fixed
        parkable, heard, owed = share.bytes_parkable, share.heard_serial, share.owes
        resident, charged, staying = share.bytes_resident, share.bytes_charged, share.bytes_staying
        copied, limit, share.host_limit = share.copies.bytes, share.host_limit, event.host_limit
        share.copies.bytes = (event.bytes_copied, event.bytes_to_copy)
        memory.note()  # it may have had all that it could believe in
        share.reported(
            allocated=event.bytes_allocated,
            parked=event.bytes_parked,
            fixed=event.bytes_fixed,
            parkable=event.bytes_parkable,
            serial=event.budget_serial,
            kept=event.bytes_kept,
        )
        same = allocated == share.bytes_allocated and parked == share.bytes_parked
        same &= fixed == share.bytes_fixed and heard == share.heard_serial
        same &= copied == share.copies.bytes
        if same and (parkable, limit) == (share.bytes_parkable, share.host_limit):
            return False
        if client.state not in WITH_TURN:
            came = min(parked - share.bytes_parked, share.bytes_resident - resident)
            share.came_ahead(came)  # what was freed while it was parked has not
        memory.note()
        memory.contexts.moved(share)
        self._state.changes.of_memory(event.device)
        if share.bytes_resident > charged:
            memory.own_up(share.bytes_resident - charged)
        tenant = self._state.tenants[client.tenant]
        # Without a turn it is to release memory, and an answer alone releases none.
        answered = share.heard_serial > heard and client.state in WITH_TURN
        progressed = share.bytes_charged < charged or answered
        if progressed or (share.owes and not owed):
            share.progress_at_s = progress_time_s(self._state, now_s)
            share.falls_silent(False)
        if share.bytes_parked < parked and tenant.turn is not None:
            tenant.turn.memory_progress_s = progress_time_s(self._state, now_s)
        if share.bytes_parked != parked:
            self._state.changes.of_tenant(tenant)
        released = share.bytes_resident < resident or share.bytes_charged < charged
        if released and now_s >= tenant.short_until_s:
            memory.releases += 1
        for request in memory.space_requests.values():
            left = resident - share.bytes_resident
            if request.client != client.id and request.made_at_s is None and left > 0:
                request.bytes_released += left
                request.looks_awaited = 2
        drift = abs(share.bytes_allocated - allocated) + abs(share.bytes_staying - staying)
        within_budget = client.state in WITH_TURN and not (owed or share.owes)
        moved = share.bytes_parked != parked or (
            share.bytes_resident != resident and not within_budget
        )
        if moved or share.bytes_charged != charged or self._state.obstacles:
            return True
        if copied != share.copies.bytes or event.device in self._state.changes.pressed:
            return True
        if drift > memory.drift_left:
            return True
        memory.drift_left -= drift
        return False

    def dropped(self, tenant: Tenant, client: Client, reason: DropReason, now_s: Seconds) -> None:
        """Its budgets are what it has, wherever it had heard of others."""
        for share in client.devices.values():
            share.dropped()
        self._state.note_memory(client)
        if reason is DropReason.MEMORY_SHORT:
            memories = [self._state.devices[each].memory for each in tenant.wanted_devices]
            tenant.short_until_s = now_s + 1.0
            tenant.short_releases = sum(memory.releases for memory in memories)

    def evict(self, tenant: Tenant) -> None:
        """The tenant's memory leaves its devices until its next turn, as far as it can move."""
        self._state.evicted.add(tenant.id)
        for client in tenant.clients.values():
            self._state.note_memory(client)

    def limits_begin(self) -> None:
        """Memory moves from now on: what clients were to have without a limit and have not reported
        yet, they need again."""
        for device in self._state.devices.values():
            for share in device.memory.shares.values():
                share.need_anew()

    def measured(self, device: Device, event: DeviceMemoryMeasured, now_s: Seconds) -> None:
        """Take in how many bytes the device itself counts, and who has them."""
        memory, foreign = device.memory, device.memory.bytes_foreign
        self._state.changes.of_memory(device.id)
        memory.measured(event.bytes_used, now_s)
        memory.contexts.measured(memory.shares, event.bytes_of_clients, now_s)
        memory.bytes_to_come = memory.contexts.bytes_each * self.space.contexts_to_come(device)
        device.bytes_used = event.bytes_used
        self.space.measured(device, event.bytes_used, memory.bytes_foreign - foreign)

    # ---- what follows ------------------------------------------------------------------------

    def may_wait(self, granted: list[ClientId]) -> bool:
        """Whether a look would change nothing for these clients, whose turn has just begun, but
        that they may have more: all that they have is on their devices, where nobody lacks memory.
        A client that has nothing yet is about to allocate, and hears first how much it may."""
        state = self._state
        if state.obstacles or state.recovery is not None:
            return False
        for client in granted:
            for device, share in state.clients[client].devices.items():
                memory = state.devices[device].memory
                if share.bytes_parked or not share.bytes_allocated:
                    return False
                if memory.space_requests or memory.somebody_is_short:
                    return False
        return True

    def look_ahead(self, lines: Iterable[DeviceId]) -> None:
        """Somebody has come to these lines or left them, or has changed: others are next."""
        state, stirred = self._state, self._state.changes.to_tell.tenants.values()
        opened = (client.devices for tenant in stirred for client in tenant.clients.values())
        named = state.devices.keys() & set(lines).union(*opened)
        for device_id in named - state.changes.for_budgets.keys():
            device, memory = state.devices[device_id], state.devices[device_id].memory
            ahead = _ahead(state, device, state.holding_shares(device_id))
            listed = memory.attention.owing or memory.attention.to_copy
            others = memory.ahead_of != tuple(share.client for share in ahead)
            if others or (listed and line_matters(state, device)):
                state.changes.of_memory(device_id)

    def settle(self, now_s: Seconds, only: DeviceId | None = None) -> bool:
        """All that the state asks for at this moment, on each device where something has changed
        or is due, or on one. Whether turns are to be looked at again.

        A look that has changed something is repeated, until one changes nothing."""
        state, changes = self._state, self._state.changes
        if only is None and self._somebody_is_passed_over != bool(state.obstacles):
            self._somebody_is_passed_over = bool(state.obstacles)
            changes.for_budgets.update(dict.fromkeys(state.devices))
        listed = changes.for_budgets if only is None else (only,)
        devices = [state.devices[each] for each in listed if each in state.devices]
        news = False
        for device in sorted(devices, key=lambda each: each.order):
            changes.for_budgets.pop(device.id, None)
            news |= self._look_at(device, now_s)
        return news

    def _look_at(self, device: Device, now_s: Seconds) -> bool:
        state = self._state
        state.changes.devices_for_alarm[device.id] = None
        device.memory.due_s = None
        _bus_may_be_free(device, now_s)
        lacked = _lacks_taken_back(state, device)
        news = False
        if state.memory_moves and not device.lost:
            news = self._rebalance(device, now_s)
        else:
            self._let_be(device, now_s)
            device.memory.drift_left = 0
        for holder in state.holders(device.id):
            if _note_lack(state, holder, device, lacked.get(holder.id), now_s):
                state.changes.of_tenant(holder)
        return news

    def _rebalance(self, device: Device, now_s: Seconds) -> bool:
        """Brings the budgets of the device into line with the state. Whether turns are to be looked
        at again: somebody who waits may have one now, or memory moves again that the quantum waits
        for."""
        holding = self._state.holding_shares(device.id)
        ghosts_ended = self._ghosts_end(device, now_s)
        asked = bool(device.memory.space_requests)
        if asked:
            self.space.kept_is_given_up(device, now_s)
        self._silence_is_noticed(device, holding, now_s)
        gives_way = asked and self.space.look(device, holding, now_s)
        refused, in_doubt, turns_follow = self._hopeless_needs_end(device, holding, now_s)
        figures = _look(self._state, device, now_s, refused, in_doubt)
        device.memory.ahead_of = tuple(share.client for share in figures.ahead)
        self._find_outdated(device, figures)
        decision = decide(figures)
        moves_again = self._apply(device, decision, in_doubt, now_s)
        return ghosts_ended or gives_way or bool(refused) or turns_follow or moves_again

    def _find_outdated(self, device: Device, figures: Figures) -> None:
        """What a client could have depends on its own memory and its siblings'."""
        memory = device.memory
        noticed = noticed_bytes(figures.bytes_total)
        if memory.news.noticed_bytes != noticed:
            memory.news.noticed_bytes = noticed
            memory.look_at_all()
        changed = memory.attention.changed
        for tenant in {share.tenant for share in changed.values()}:
            changed.update((share.client, share) for share in figures.shares_of(tenant))
        level = figures.bytes_usable - figures.bytes_staying
        memory.news.look(memory.shares, changed, level, figures.usable_bytes_for)
        changed.clear()

    def _let_be(self, device: Device, now_s: Seconds) -> None:
        """Memory stays where it is, and nobody has a limit but those whose contexts have failed; or
        the device is lost, and nobody gets more of it. No space is made."""
        self.space.refuse_all(device)
        attention = device.memory.attention
        listed = {**attention.changed, **attention.asking}.values()
        for share in sorted(listed, key=lambda each: each.number):
            needs = share.needed_bytes > 0
            share.note_shortage(None)
            gets_none = device.lost or share.failed
            if gets_none:
                needs = share.asked_bytes > 0
                share.note_need(0)
            else:
                share.grant_need()
            if needs or not (gets_none or share.budget_bytes == UNLIMITED_BYTES):
                change = BudgetChange(
                    client=share.client,
                    budget_bytes=share.budget_bytes if gets_none else UNLIMITED_BYTES,
                    usable_bytes=self._state.total_bytes(device),
                    park_hint_bytes=0,
                    refused=gets_none,
                )
                self._tell_budget(device, share, change, now_s)
        attention.changed.clear()

    # ---- what time has changed ---------------------------------------------------------------

    def _ghosts_end(self, device: Device, now_s: Seconds) -> bool:
        """Memory of clients that have ended counts as free after `reclaim_s`."""
        memory = device.memory
        if not memory.bytes_ghost or memory.ghost_confirmed:
            return False
        gone_s = memory.ghost_since_s + self._state.settings.reclaim_s
        if now_s < gone_s:
            memory.ask_for_look(gone_s)
            return False
        memory.bytes_ghost, memory.ghost_confirmed = 0, True
        self._state.changes.of_memory(device.id)
        memory.releases += 1
        return True

    def _silence_is_noticed(self, device: Device, holding: list[Share], now_s: Seconds) -> None:
        """A client that was to release memory and makes no progress is silent."""
        with_turn = {share.client for share in holding}
        for share in sorted(device.memory.attention.owing.values(), key=lambda each: each.number):
            late_s = share.progress_at_s + self._state.settings.park_timeout_s
            if now_s >= late_s and share.is_awaited(holds=share.client in with_turn):
                share.falls_silent(True)
                self._state.changes.of_memory(device.id)
                self._report_silence(device, share)

    def _report_silence(self, device: Device, share: Share) -> None:
        client = self._state.clients[share.client]
        self._outbox.put(
            ReportSilent(
                client=share.client,
                tenant_name=self._state.tenants[share.tenant].name,
                process_name=client.process_name,
                pid=client.pid,
                device_name=device.name,
                bytes_held=share.bytes_charged - share.budget_bytes,
                silent_s=self._state.settings.park_timeout_s,
            )
        )

    def _hopeless_needs_end(
        self, device: Device, holding: list[Share], now_s: Seconds
    ) -> tuple[frozenset[ClientId], frozenset[DeviceId], bool]:
        """The clients whose needs are refused, the devices to look at before the next refusal, and
        whether turns are to be looked at again."""
        if not (device.memory.somebody_is_short or device.memory.attention.in_vain):
            return frozenset(), frozenset(), False
        needs = Needs(self._state, device, holding, now_s)
        refused: set[ClientId] = set()
        for share in needs.hopeless():
            self._note_refusal(share, now_s, overlap=share in holding)
            share.note_need(0)
            self._state.changes.of_memory(device.id)
            refused.add(share.client)
        if needs.depend_on_other_devices:
            self._state.changes.of_memory(device.id)
        return frozenset(refused), frozenset(needs.in_doubt), needs.turns_follow

    def _note_refusal(self, share: Share, now_s: Seconds, *, overlap: bool) -> None:
        """Keep the obstacle for the status, unless it is the tenant itself."""
        tenant = self._state.tenants[share.tenant]
        found = obstacle(self._state, tenant, now_s, holders_stay=overlap)
        if found is not None and found.kind not in (ObstacleKind.ITSELF, ObstacleKind.RETRY):
            self._state.note_refusal(tenant, found, now_s)

    # ---- what was decided --------------------------------------------------------------------

    def _apply(
        self,
        device: Device,
        decision: Decision,
        in_doubt: frozenset[DeviceId],
        now_s: Seconds,
    ) -> bool:
        """Whether turns are to be looked at again."""
        memory = device.memory
        if decision.changes or decision.space or decision.needs_again:
            self._state.changes.of_memory(device.id)
        for client in decision.needs_again:
            memory.shares[client].need_anew()
        moves_again = False
        for change in decision.changes:
            moves_again |= self._apply_change(device, change, now_s)
        for client in decision.needs_met:
            share = memory.shares[client]
            if share.needed_bytes:
                self._state.changes.of_memory(device.id)
                self._state.note_refusal(self._state.tenants[share.tenant], None, now_s)
            share.grant_need()
        for tenant in decision.lacks_memory:
            turn = self._state.tenants[tenant].turn
            if turn is not None:
                turn.lacks_memory_on[device.id] = math.inf
        for client, made in decision.space.items():
            request = memory.space_requests[client]
            if made:
                request.made_at_s = now_s
            else:
                del memory.space_requests[client]
            self._outbox.put(
                TellSpace(client=client, device=device.id, request_id=request.request_id, made=made)
            )
        if decision.measuring is Measuring.NO:
            memory.measure_at_s = None
        elif decision.measuring is Measuring.NOW:
            memory.measure_at_s = now_s + MEASURE_PERIOD_S
            for each in sorted({device.id, *in_doubt}):
                self._outbox.put(MeasureDevice(device=each))
        for due_s in decision.due_s:
            memory.ask_for_look(due_s)
        memory.drift_left = decision.drift_bytes
        return moves_again

    def _apply_change(self, device: Device, change: BudgetChange, now_s: Seconds) -> bool:
        """Whether turns are to be looked at again."""
        share = device.memory.shares[change.client]
        raised, was_silent = change.budget_bytes > share.budget_bytes, share.silent
        self._tell_budget(device, share, change, now_s)
        turn = self._state.tenants[share.tenant].turn
        # Without debts it is not silent any more, and nobody is passed over for it.
        looks_again = was_silent and not share.silent
        if not raised or share.bytes_parked == 0 or turn is None:
            return looks_again
        turn.memory_progress_s = progress_time_s(self._state, now_s)
        self._state.changes.of_tenant(self._state.tenants[share.tenant])
        # A turn that restores nothing: its quantum had begun, since nothing moved for long.
        return looks_again or not turn.restores

    def _tell_budget(
        self,
        device: Device,
        share: Share,
        change: BudgetChange,
        now_s: Seconds,
    ) -> None:
        """Note what the client is told, and tell it."""
        client = self._state.clients[share.client]
        was_awaited = share.is_awaited(holds=client.state in WITH_TURN)
        client.budget_serial += 1
        self._state.changes.of_memory(device.id)
        share.copies.told = change.ahead is Ahead.COPIES
        share.told(client.budget_serial, change.budget_bytes)
        if share.owes and not was_awaited:
            share.progress_at_s = progress_time_s(self._state, now_s)
        share.told_usable_bytes, share.told_hint_bytes = change.usable_bytes, change.park_hint_bytes
        share.told_at_s = now_s
        self._outbox.put_before_grant(
            share.client,
            TellBudget(
                client=share.client,
                device=device.id,
                serial=client.budget_serial,
                budget_bytes=change.budget_bytes,
                usable_bytes=change.usable_bytes,
                park_hint_bytes=change.park_hint_bytes,
                ahead=change.ahead,
                refused_need=share.need_id if change.refused else 0,
            ),
        )


def _lacks_taken_back(state: State, device: Device) -> dict[TenantId, Seconds]:
    """Before a look: tenants with a turn whose memory cannot come back to the device yet."""
    turns = ((each.id, each.turn) for each in state.holders(device.id))
    lacked = {id: turn.lacks_memory_on.pop(device.id, None) for id, turn in turns if turn}
    return {id: since_s for id, since_s in lacked.items() if since_s is not None}


def _note_lack(
    state: State, tenant: Tenant, device: Device, before_s: Seconds | None, now_s: Seconds
) -> bool:
    """After it: since when nobody can make space for what comes back. Whether that is news."""
    turn = tenant.turn
    if turn is None or device.id not in turn.lacks_memory_on:
        return before_s is not None
    hopeless = state.recovery is None and comes_back_no_more(state, tenant, device)
    since_s = math.inf
    if hopeless:
        since_s = now_s if before_s is None else min(before_s, now_s)
    turn.lacks_memory_on[device.id] = since_s
    return since_s != before_s


def _to_evict(state: State, device: Device, holding: list[Share]) -> tuple[Share, ...]:
    """The shares whose memory leaves the device although nobody needs the space."""
    if device.mode is DeviceMode.DRAINED:
        tenants = {share.tenant for share in device.memory.shares.values()}
    else:
        tenants = state.evicted & state.lines.of[device.id].users.keys()
    tenants -= {share.tenant for share in holding}
    shares = (
        share for each in tenants for share in state.shares_of(state.tenants[each], device.id)
    )
    return tuple(sorted(shares, key=lambda each: each.number))


def _bus_may_be_free(device: Device, now_s: Seconds) -> None:
    """Whether the bus is still used, and when to look again."""
    until_s = device.memory.bus_used_until_s
    if until_s is not None and now_s < until_s:
        device.memory.ask_for_look(until_s)
    else:
        device.memory.bus_used_until_s = None


def _ahead(state: State, device: Device, holding: list[Share]) -> tuple[Share, ...]:
    parked = device.memory.totals.bytes_allocated - device.memory.totals.bytes_resident
    return shares_ahead(state, device, holding) if parked else ()


def _look(
    state: State,
    device: Device,
    now_s: Seconds,
    refused: frozenset[ClientId],
    in_doubt: frozenset[DeviceId],
) -> Figures:
    """The figures of the device. needs.py says which needs are refused or in doubt."""
    memory, settings = device.memory, state.settings
    holding = state.holding_shares(device.id)
    usable, totals, total = state.usable_bytes(device), memory.totals, state.total_bytes(device)
    return Figures(
        now_s=now_s,
        device=device.id,
        shares=memory.shares,
        holding=tuple(holding),
        ahead=_ahead(state, device, holding),
        attention=memory.attention,
        outdated=memory.news.outdated,
        refused=refused,
        requests=tuple(each for each in memory.space_requests.values() if each.obstacle is None),
        tenants=state.tenants,
        ranks=state.lines.of[device.id].rank_of,
        to_evict=_to_evict(state, device, holding),
        bytes_total=total,
        bytes_usable=usable,
        bytes_to_lend=state.reserve_to_lend_bytes(device),
        bytes_ghost=0 if memory.ghost_confirmed else memory.bytes_ghost,
        bytes_resident=totals.bytes_resident,
        bytes_charged=totals.bytes_charged,
        bytes_without_turn=totals.bytes_taken
        - sum(share.bytes_charged if share.silent else share.bytes_resident for share in holding),
        bytes_beyond=totals.bytes_allocated - usable,
        bytes_staying=totals.bytes_staying,
        bytes_free_on_device=device.bytes_total - device.bytes_used if memory.is_measured else None,
        recovering=state.recovery is not None,
        somebody_is_passed_over=bool(state.obstacles),
        in_doubt=in_doubt,
        ghosts_are_there=memory.bytes_ghost > 0,
        measure_at_s=memory.measure_at_s,
        next_progress_s=progress_time_s(state, now_s),
        park_timeout_s=settings.park_timeout_s,
        is_due=memory.due_s is not None,
        may_copy=bool(memory.attention.to_copy) and may_copy(state, device),
    )
