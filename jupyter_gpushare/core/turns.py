"""Brings turns and queue into line with what clients have said: grants, recalls, ends.

Events change clients; `Turns.settle` then looks at what has changed (changes.py) and at what is
due, so that no rule depends on which event came last. What it says to clients goes to the outbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .commands import KillClient, RecallReason, ReopenGate, ReportOverdue
from .holds import Holds
from .ids import Seconds, TurnId
from .needs import stalls
from .order.lines import turn_of
from .order.precedence import (
    begins_burst,
    find_who_it_goes_before,
    goes_on_own_credit,
    is_new_cell,
    note_work_that_waits,
    rest_of_quantum_s,
    succession,
)
from .policy import (
    Recall,
    bytes_to_come,
    grantable,
    is_cut_short,
    is_next_again,
    progress_time_s,
    quantum_of_s,
    recall_due,
    to_judge,
    waits_for_its_memory,
    wanted_for,
)
from .records import NAMES_ALL_S, SOMEBODY, Client, Tenant, Turn
from .settings import OverduePolicy
from .shares.classes import BOOSTED, FIRST, ORDINARY
from .space.obstacles import obstacle
from .state import State
from .told import Outbox, put_grant, put_recall
from .transitions import (
    ASKED_BACK,
    WANTING,
    WITH_TURN,
    ClientState,
    ClientTrigger,
    TenantState,
    TenantTrigger,
)

KEEPS_PLACE_S: Seconds = 1.0
"""A turn that has let another one pass is asked for again at once: a call waits for it."""
_TURN_COUNTED_MAX = 2**63
"""A client that claims a higher one is not believed: turns are counted on from it, in 64 bits."""

_Ask = Callable[[State, Tenant, Seconds], Recall | None]


class Turns:
    """Changes turns and the queue; the only one who does."""

    def __init__(self, state: State, outbox: Outbox, holds: Holds) -> None:
        self._state = state
        self._holds = holds
        self._outbox = outbox
        self.last_turn = 0
        self._listed, self._listed_at = list[Tenant](), -1
        """What `_stirred_with_turn` has found, and at which count of changes."""

    # ---- what events ask for -----------------------------------------------------------------

    def ask(self, client: Client, now_s: Seconds) -> None:
        """A call waits at the client's gate. One that has its turn already is told again."""
        if client.state not in WANTING:
            client.asked_at_s = now_s
        self._state.move_client(client, ClientTrigger.ASK)
        if client.state in (ClientState.HOLDING, ClientState.PASSING):
            put_grant(self._outbox, self._state, client)

    def rejoin(self, client: Client, held_turn: TurnId, now_s: Seconds) -> None:
        """The client comes back with an open gate; its turn is taken up when it names devices."""
        if held_turn <= _TURN_COUNTED_MAX:
            self.last_turn = max(self.last_turn, held_turn)
        client.turn = held_turn
        self._state.move_client(client, ClientTrigger.PASS)
        if (recovery := self._state.recovery) is not None:
            recovery.unnamed.add(client.id)
            recovery.heard_s = now_s

    def names_device(self, client: Client, now_s: Seconds) -> None:
        """It has more of them to name, perhaps."""
        recovery = self._state.recovery
        if recovery is not None and client.turn is not None:
            recovery.unnamed.discard(client.id)
            recovery.heard_s = now_s

    def drop(self, client: Client) -> None:
        """The client's gate is shut and nothing of it is in flight (any more)."""
        self._state.move_client(client, ClientTrigger.DROP)
        client.turn = None
        if self._state.recovery is not None:
            self._state.recovery.unnamed.discard(client.id)
        _forget_recall(client)

    def release(self, tenant: Tenant, now_s: Seconds) -> None:
        """Its user gives its turn away. One that is asked already need not be again."""
        self._holds.end(tenant, now_s)
        if tenant.turn is not None:
            tenant.gave_way, tenant.gave_turn = True, tenant.turn.id
            tenant.gave_on = frozenset(tenant.turn.devices)
        if tenant.state in (TenantState.RECALLED, TenantState.STALLED):
            for client in tenant.clients.values():
                _note_wanted(client, now_s)
        if tenant.state is TenantState.HOLDING and self._state.turns_are_on:
            self._recall(tenant, Recall(RecallReason.ASKED), now_s)

    def stalled(self, tenant: Tenant, client: Client, calls_wait: bool, now_s: Seconds) -> None:
        """Its drain makes no progress. A gate that was shut without a recall, for a further device
        say, opens as after one. Or its word has crossed that its recall is taken back."""
        if client.state is ClientState.HOLDING:
            if not calls_wait:
                return
            if tenant.state is TenantState.HOLDING:
                self._recall(tenant, Recall(RecallReason.ASKED, own_sake=True), now_s)
            else:
                # The others' gates are open, and the tenant keeps its place in the queue.
                assert client.turn is not None
                put_recall(self._outbox, client, tenant, RecallReason.ASKED)
                self._outbox.put(ReopenGate(client=client.id, turn=client.turn))
                return
        client.drain_stalled = True
        client.calls_wait_in_drain = calls_wait

    def tenant_busy(self, tenant: Tenant, busy: bool) -> None:
        """A cell began or ended. Its mark is on this turn: work that runs on gets others."""
        begins = busy and not self._state.in_cell(tenant)
        if begins:
            self._state.work_begins(tenant)
        tenant.busy = busy
        if begins:
            note_work_that_waits(self._state, tenant)
        if tenant.turn is not None:
            tenant.turn.cell_ended = not busy
            self._state.changes.of_tenant(tenant)

    def quanta_have_changed(self) -> None:
        """Turns under way are as long as they would be if they began now."""
        for tenant in self._state.turn_holders.values():
            if tenant.turn is not None:
                tenant.turn.quantum_s = self._find_quantum_s(tenant)

    def report_anew(self) -> None:
        """From now on overdue processes are ended: those too that have been reported, where the
        settings say so now."""
        for client in self._state.clients.values():
            if client.overdue:
                client.overdue = False
                self._state.changes.of_tenant(self._state.tenants[client.tenant])

    def turns_switched_off(self) -> None:
        """Recalls under way are taken back; from now on turns may overlap."""
        for tenant in self._state.turn_holders.values():
            if tenant.state is TenantState.RECALLED:
                self._reopen(tenant)
            if tenant.state is not TenantState.HOLDING:
                self._state.move_tenant(tenant, TenantTrigger.RESUME)
            if tenant.turn is not None:
                tenant.turn.exclusive = False
            for client in tenant.clients.values():
                _forget_recall(client)

    def forget(self, client: Client, now_s: Seconds) -> None:
        """The client is gone: what it had is free at once."""
        tenant = self._state.tenants[client.tenant]
        del tenant.clients[client.id]
        del self._state.clients[client.id]
        if self._state.recovery is not None:
            self._state.recovery.unnamed.discard(client.id)
        self._state.note_clients(tenant)
        self._end_turn_without_clients(tenant, now_s)
        if tenant.id in self._state.queue and not self._state.ready_clients(tenant):
            self._leave_queue(tenant, now_s)

    def everybody_is_back(self, in_time: bool, now_s: Seconds) -> None:
        """All clients of a scheduler before this one have named a device, or had the time to."""
        if (recovery := self._state.recovery) is not None:
            recovery.awaited.discard(SOMEBODY)
            if not in_time:
                # Those who came before had the time; those who have just come say what they have.
                recovery.unnamed.clear()
                recovery.heard_s = now_s
                recovery.until_s = now_s + self._state.settings.reconnect_grace_s + NAMES_ALL_S

    def recovery_ends(self, now_s: Seconds) -> bool:
        """Whether the time has just ended in which only holders from before have turns."""
        recovery = self._state.recovery
        if recovery is None or now_s < recovery.over_s():
            return False
        self._state.end_recovery()
        return True

    # ---- what follows from the state ---------------------------------------------------------

    def settle(self, now_s: Seconds) -> None:
        """Do everything that the state asks for at this moment.

        Looked at are tenants whose own affairs have changed, and those that hold or lack a device
        that has changed hands, or for which somebody else has begun or ceased to queue."""
        state = self._state
        state.changes.begin_settling()
        for tenant_id in [id for id, hold in state.holds.items() if now_s >= hold.until_s]:
            self._holds.end(state.tenants[tenant_id], now_s)
        for tenant in to_judge(state, now_s):
            state.judge_again(tenant)
        for tenant in state.touched.values():
            self._settle_gates(tenant, now_s)
            self._end_turn_without_clients(tenant, now_s)
        for tenant in self._stirred_holders():
            self._settle_turn(tenant, now_s)
        arrived = self._settle_queue(now_s)
        self._serve_queue(now_s)
        for tenant in self._stirred_holders():
            self._count_contention(tenant, now_s)
        counted, queued = state.changes.count, len(state.queue)
        for tenant in self._stirred_holders():
            self._recall_when_due(tenant, now_s)
            if tenant.state is TenantState.RECALLED:
                self._report_overdue(tenant, now_s)
        if len(state.queue) < queued:
            self._serve_queue(now_s)  # devices were kept for a stalled tenant, which has left it
        if state.changes.count != counted:
            # A recalled tenant leaves the queue, so that another holder's clock may stop.
            for tenant in self._stirred_holders():
                self._count_contention(tenant, now_s)
        for tenant in arrived:
            tenant.has_waited = tenant.id in state.queue

    def _stirred_holders(self) -> Iterator[Tenant]:
        """Tenants with a turn that are to be looked at, the earliest turn first; also those that a
        look at an earlier one has stirred."""
        changes, last_turn = self._state.changes, 0
        while True:
            stirred, count = self._stirred_with_turn(), changes.count
            for holder in stirred:
                if holder.turn is None or holder.turn.id <= last_turn:
                    continue
                last_turn = holder.turn.id
                changes.for_alarm[holder.id] = holder
                yield holder
                if changes.count != count:
                    break
            else:
                return

    def _stirred_with_turn(self) -> list[Tenant]:
        """The list depends on nothing that changes without being counted."""
        changes, lines = self._state.changes, self._state.lines.of
        if self._listed_at != changes.count:
            stirred = changes.in_settling
            found = {id: each for id, each in stirred.tenants.items() if each.turn is not None}
            for device in stirred.lines:
                if device in lines:
                    found.update((each.id, each) for each in lines[device].holders)
                    found.update(lines[device].lacking)
            self._listed_at, self._listed = changes.count, sorted(found.values(), key=turn_of)
        return self._listed

    def _serve_queue(self, now_s: Seconds) -> None:
        """Those for whom a line has moved, and those that are passed over for somebody's memory:
        that changes with every word about it."""
        state = self._state
        devices = {each for each in state.changes.in_settling.lines if each in state.lines.of}
        for tenant_id in (*state.changes.in_settling.tenants, *state.obstacles):
            if (tenant := state.queue.get(tenant_id)) is not None:
                devices |= tenant.places.queues
        served, obstacles = grantable(state, devices, now_s)
        state.note_obstacles(obstacles)
        for tenant in served:
            # Where turns overlap, a tenant served a moment ago may be in the way of the next one.
            if state.turns_are_on or (found := obstacle(state, tenant, now_s)) is None:
                self._grant(tenant, now_s)
            else:
                state.note_obstacles({**state.obstacles, tenant.id: found})

    def _settle_gates(self, tenant: Tenant, now_s: Seconds) -> None:
        """Clients without a live device pass; a passing one with a live device has the turn."""
        for client in tenant.clients.values():
            live = bool(client.live_devices)
            if client.state is ClientState.PASSING and live:
                self._claim(tenant, client, now_s)
            elif not live and client.state in ASKED_BACK:
                self.drop(client)
            if live:
                continue
            if client.state is ClientState.WAITING:
                self._state.move_client(client, ClientTrigger.PASS)
                client.turn = self._new_turn_id()
                put_grant(self._outbox, self._state, client)
            elif client.state is ClientState.HOLDING:
                self._state.move_client(client, ClientTrigger.PASS)
                _forget_recall(client)

    def _claim(self, tenant: Tenant, client: Client, now_s: Seconds) -> None:
        """The client's gate is open and it has a device now: it is part of the tenant's turn.

        It goes on speaking of its turn by the id that it knows."""
        self._state.move_client(client, ClientTrigger.JOIN)
        if tenant.turn is not None:
            return
        if tenant.state is TenantState.WAITING:
            self._leave_queue(tenant, now_s, TenantTrigger.CLAIM)
        else:
            self._state.move_tenant(tenant, TenantTrigger.CLAIM)
        self._begin_turn(tenant, now_s, self._state.lines.level_of_turn(tenant, ORDINARY))
        self._state.note_turn(tenant)
        self._holds.turn_begins(tenant, now_s)

    def _settle_turn(self, tenant: Tenant, now_s: Seconds) -> None:
        turn = tenant.turn
        if turn is None:
            return
        state = self._state
        wanted = tenant.wanted_devices
        turn.lacks_memory_on = {d: s for d, s in turn.lacks_memory_on.items() if d in wanted}
        others = {each for each in wanted if state.lines.held_by_others(tenant, each)}
        others = others if state.turns_are_on else set()
        devices = turn.devices & wanted
        for client in state.turn_clients(tenant):
            devices |= client.live_devices - others
        missing = wanted - devices
        if tenant.state is TenantState.HOLDING and not missing & others:
            devices |= missing
            missing = frozenset()
        if state.set_devices(tenant, turn, devices):
            state.note_turn(tenant)
        if tenant.state is TenantState.RECALLED:
            self._recall_clients(tenant, Recall(RecallReason.ASKED, own_sake=True), now_s)
            self._stall_when_due(tenant, now_s)
        if tenant.state is TenantState.STALLED or (
            tenant.state is TenantState.HOLDING and not missing
        ):
            for client in state.ready_clients(tenant):
                if client.live_devices <= turn.devices:
                    self._grant_client(client, turn)

    def _settle_queue(self, now_s: Seconds) -> list[Tenant]:
        """Tenants whose calls wait are in the queue; those whose calls no longer do are not.
        Answers with those that came."""
        state = self._state
        arriving = []
        # A holder that queues for more may just have got it, without an event of its own.
        queued_holders = {
            holder.id: holder for holder in self._stirred_with_turn() if holder.id in state.queue
        }
        for tenant in {**state.touched, **queued_holders}.values():
            may_queue = tenant.state in (TenantState.IDLE, TenantState.STALLED)
            waits = tenant.state is not TenantState.RECALLED and state.ready_clients(tenant)
            if tenant.id in state.queue:
                if not waits:
                    self._leave_queue(tenant, now_s)
            elif waits and may_queue:
                arriving.append((min(client.asked_at_s for client in waits), tenant))
        for waited_since_s, tenant in sorted(arriving, key=lambda arrival: arrival[0]):
            if tenant.state is TenantState.IDLE:
                state.move_tenant(tenant, TenantTrigger.QUEUE)
            if now_s > tenant.keeps_place_until_s:
                tenant.queued_at_s = now_s
            tenant.waited_since_s, tenant.has_waited = waited_since_s, False
            if begins_burst(state, tenant):
                state.work_begins(tenant, in_burst=True)
            tenant.next_quantum_s = self._find_quantum_s(tenant)
            state.accounts.recent.asks(tenant.id, sorted(tenant.wanted_devices))
            find_who_it_goes_before(state, tenant)
            state.join_queue(tenant)
        return [tenant for _, tenant in arriving]

    def _grant(self, tenant: Tenant, now_s: Seconds) -> None:
        state = self._state
        level = state.lines.level_at_grant(tenant)
        if tenant.has_waited:
            tenant.counters.waits += 1
        begins = tenant.turn is None
        if begins:
            self._begin_turn(tenant, now_s, level)
        assert tenant.turn is not None
        devices = tenant.turn.devices | tenant.wanted_devices
        state.set_devices(tenant, tenant.turn, devices)
        # It has the devices and is in no queue at once: else its owner would be away for a moment.
        self._leave_queue(tenant, now_s, TenantTrigger.GRANT)
        if begins and tenant.id in state.holds_to_come:
            self._holds.turn_begins(tenant, now_s)
        for client in state.ready_clients(tenant):
            self._grant_client(client, tenant.turn)

    def _count_contention(self, tenant: Tenant, now_s: Seconds) -> None:
        """Starts or stops the clock of the quantum. Without turns nobody has one, although somebody
        may wait for memory."""
        turn = tenant.turn
        assert turn is not None
        restored, is_incomplete = turn.restores, bytes_to_come(tenant) > 0
        if is_incomplete != turn.is_incomplete:
            turn.is_incomplete = is_incomplete
            self._state.lines.stir_turn(tenant)
        turn.restores = is_incomplete and waits_for_its_memory(self._state, tenant, now_s)
        if restored and not turn.restores:
            self._state.learn_swap_rate(tenant, turn)
        compete = self._state.lines.compete(tenant, turn.devices)
        turn.has_rest &= compete  # nobody is left whose place was passed on
        contended = self._state.turns_are_on and compete and not turn.restores
        if contended and turn.contended_since_s is None:
            turn.contended_since_s = now_s
            self._set_quantum(tenant, turn)
            if not self._state.lines.compete(tenant, turn.devices):
                turn.contended_since_s = None  # the boost is over, and with it what they waited for
        elif not contended and turn.contended_since_s is not None:
            turn.contended_s += now_s - turn.contended_since_s
            turn.contended_since_s = None

    def _set_quantum(self, tenant: Tenant, turn: Turn) -> None:
        """Others wait from now on: how long they do depends on what the cell has used so far."""
        if turn.contended_s == 0 and not turn.has_rest:
            turn.quantum_s = self._find_quantum_s(tenant)
        had_s = self._state.accounts.now_s - turn.granted_at_s
        boost_is_over = turn.level == BOOSTED and had_s >= turn.quantum_s
        if boost_is_over or (turn.level == FIRST and not is_new_cell(self._state, tenant)):
            self._state.lines.level_turn(tenant)

    def _recall_when_due(self, tenant: Tenant, now_s: Seconds) -> None:
        turn = tenant.turn
        assert turn is not None
        if tenant.state is TenantState.RECALLED:
            return
        if tenant.state is TenantState.STALLED and now_s < turn.retry_at_s:
            return
        recall = self._due(tenant, turn, recall_due, now_s)
        if recall is not None:
            self._recall(tenant, recall, now_s)
        elif tenant.id in self._state.queue:
            # Its work in flight cannot end before it has the device too for which it queues.
            turn.retry_at_s = now_s + self._state.settings.recall_retry_s
        elif tenant.state is TenantState.STALLED:
            self._state.move_tenant(tenant, TenantTrigger.RESUME)
            # Nobody else has what it lacked, but an admin may have paused it.
            if self._state.set_devices(tenant, turn, turn.devices | tenant.wanted_devices):
                self._state.note_turn(tenant)
            turn.contended_s = 0.0
            for client in tenant.clients.values():
                _forget_recall(client)
            self._recall_when_due(tenant, now_s)

    def _due(self, tenant: Tenant, turn: Turn, ask: _Ask, now_s: Seconds) -> Recall | None:
        """Why the turn is to end. It may go on although its quantum is over."""
        recall = ask(self._state, tenant, now_s)
        if recall is None or recall.reason is not RecallReason.QUANTUM_OVER:
            return recall
        if self._holds.outlasts(tenant, turn, now_s):
            if turn.level in (BOOSTED, FIRST):
                self._state.lines.level_turn(tenant)
            return ask(self._state, tenant, now_s)
        if tenant.state is TenantState.HOLDING:
            self._state.lines.level_turn(tenant)
            quantum_s = self._find_quantum_s(tenant)
            if is_next_again(self._state, tenant, quantum_s):
                turn.begin_quantum(quantum_s, now_s)
                return ask(self._state, tenant, now_s)
        return recall

    def _stall_when_due(self, tenant: Tenant, now_s: Seconds) -> None:
        """A drain that stalls while a call of the tenant waits takes the recall back."""
        clients = tenant.clients.values()
        stalled = any(c.drain_stalled for c in clients)
        waits = any(c.calls_wait_in_drain or c.state in WANTING for c in clients)
        if not (stalled and waits) or tenant.turn is None:
            return
        stalls(self._state, tenant)
        self._state.move_tenant(tenant, TenantTrigger.STALL)
        tenant.counters.drain_stalls += 1
        tenant.turn.retry_at_s = now_s + self._state.settings.recall_retry_s
        self._reopen(tenant)

    def _report_overdue(self, tenant: Tenant, now_s: Seconds) -> None:
        settings, turn = self._state.settings, tenant.turn
        wanted = turn is not None and self._due(tenant, turn, wanted_for, now_s) is not None
        for client in tenant.clients.values():
            if wanted:
                _note_wanted(client, now_s)
            at_s = client.overdue_at_s(settings.overdue_s)
            if at_s is None or now_s < at_s:
                continue
            client.overdue = True
            self._state.changes.of_tenant(tenant)
            self._outbox.put(
                ReportOverdue(
                    client=client.id,
                    tenant_name=tenant.name,
                    process_name=client.process_name,
                    pid=client.pid,
                    asked_s_ago=now_s - at_s + settings.overdue_s,
                )
            )
            if settings.overdue_policy is OverduePolicy.KILL:
                self._outbox.put(KillClient(client=client.id))

    # ---- single steps ------------------------------------------------------------------------

    def _find_quantum_s(self, tenant: Tenant) -> Seconds:
        """What its limit leaves of a turn hangs on what it has had up to now."""
        if self._state.lines.rules is not None:
            self._state.lines.charge_all(tenant.wanted_devices)
        return quantum_of_s(self._state, tenant)

    def _new_turn_id(self) -> TurnId:
        self.last_turn += 1
        return TurnId(self.last_turn)

    def _begin_turn(self, tenant: Tenant, now_s: Seconds, level: int) -> None:
        tenant.turn = Turn(
            quantum_s=self._find_quantum_s(tenant),
            level=level,
            counted_from_s=now_s,
            id=self._new_turn_id(),
            devices=set(),
            granted_at_s=now_s,
            exclusive=self._state.turns_are_on,
            memory_progress_s=progress_time_s(self._state, now_s),
            on_own_credit=goes_on_own_credit(self._state, tenant),
        )
        if is_new_cell(self._state, tenant):
            tenant.turn.new_from_s = now_s - tenant.cell_used_s
        if (rest_s := rest_of_quantum_s(self._state, tenant)) is not None:
            tenant.turn.quantum_s, tenant.turn.has_rest = rest_s, True
        tenant.counters.turns += 1
        self._state.turn_holders[tenant.id] = tenant
        self._state.evicted.discard(tenant.id)
        tenant.boosted = False

    def _end_turn_without_clients(self, tenant: Tenant, now_s: Seconds) -> None:
        turn = tenant.turn
        if turn is None or self._state.turn_clients(tenant):
            return
        tenant.counters.held_s_total += now_s - turn.granted_at_s
        if turn.lets_pass:
            tenant.let_pass, tenant.keeps_place_until_s = True, now_s + KEEPS_PLACE_S
        else:
            tenant.cell_used_s += now_s - turn.counted_from_s
            tenant.let_pass &= turn.is_incomplete
        tenant.turn = None
        tenant.came |= tenant.state is TenantState.HOLDING
        if (hold := self._state.holds.pop(tenant.id, None)) is not None:
            # The turn ended before its time: the rest of the hold is for the next one.
            self._holds.keep(tenant, hold.until_s - now_s, now_s)
        self._state.end_use(tenant, now_s)
        del self._state.turn_holders[tenant.id]
        self._state.note_turn(tenant)
        self._state.move_tenant(tenant, TenantTrigger.END)
        if tenant.id in self._state.queue:
            # It queued for a device that its turn lacked (a drain stall), and keeps that place.
            self._state.move_tenant(tenant, TenantTrigger.QUEUE)
            self._state.judge_again(tenant)

    def _leave_queue(
        self, tenant: Tenant, now_s: Seconds, trigger: TenantTrigger = TenantTrigger.LEAVE
    ) -> None:
        """Out of the queue; `trigger` applies to a tenant that has no turn besides."""
        self._state.leave_queue(tenant)
        if tenant.has_waited:
            tenant.counters.waited_s_total += now_s - max(
                tenant.waited_since_s, tenant.waits_counted_to_s
            )
            tenant.waits_counted_to_s = now_s
        if tenant.state is TenantState.WAITING:
            self._state.move_tenant(tenant, trigger)

    def _grant_client(self, client: Client, turn: Turn) -> None:
        self._state.move_client(client, ClientTrigger.GRANT)
        client.turn = turn.id
        put_grant(self._outbox, self._state, client)

    def _recall(self, tenant: Tenant, recall: Recall, now_s: Seconds) -> None:
        tenant.cut_short = is_cut_short(self._state, tenant, recall)
        # A cell that makes way for somebody else goes on before siblings, with what it has left.
        for_sibling = recall.heir is not None or self._siblings_alone_end(tenant, recall)
        tenant.came = self._state.in_cell(tenant) and not for_sibling
        if tenant.turn is not None:
            self._state.lines.forget_heirs(tenant)
            if (heir := recall.heir) is not None:
                self._state.lines.charge_all(tenant.wanted_devices | heir.wanted_devices)
                heir.succeeds = succession(self._state, tenant, heir)
                self._state.lines.renew(tenant.owner, sorted(tenant.places.holds))
            tenant.turn.lets_pass = recall.reason is RecallReason.LETS_PASS
        self._state.move_tenant(tenant, TenantTrigger.RECALL)
        tenant.counters.recalls += 1
        if tenant.id in self._state.queue:
            self._leave_queue(tenant, now_s)
        self._recall_clients(tenant, recall, now_s)

    def _siblings_alone_end(self, tenant: Tenant, recall: Recall) -> bool:
        """Whether a quantum is over for which siblings alone have waited."""
        lines = (self._state.lines.of[each] for each in tenant.places.holds)
        return recall.reason is RecallReason.QUANTUM_OVER and not any(
            len(line.waiting) > line.waits_of[tenant.owner] for line in lines
        )

    def _recall_clients(self, tenant: Tenant, recall: Recall, now_s: Seconds) -> None:
        clients = tenant.clients.values()
        wanted = not recall.own_sake or any(each.recalled_at_s is not None for each in clients)
        for client in clients:
            if client.state is ClientState.HOLDING and client.turn is not None:
                self._state.move_client(client, ClientTrigger.RECALL)
                if wanted:
                    _note_wanted(client, now_s)
                put_recall(self._outbox, client, tenant, recall.reason, recall.device_name)

    def _reopen(self, tenant: Tenant) -> None:
        for client in tenant.clients.values():
            if client.state in ASKED_BACK and client.turn is not None:
                self._state.move_client(client, ClientTrigger.REOPEN)
                # The recall goes on: one that stalls again and again is overdue in the end.
                client.drain_stalled = client.calls_wait_in_drain = False
                self._outbox.put(ReopenGate(client=client.id, turn=client.turn))


def _note_wanted(client: Client, now_s: Seconds) -> None:
    """Somebody wants the turn for which the client was asked."""
    if client.state in WITH_TURN and client.recalled_at_s is None:
        client.recalled_at_s = now_s


def _forget_recall(client: Client) -> None:
    """Nobody wants its turn any more; what it owed is forgiven."""
    client.recalled_at_s, client.overdue = None, False
    client.drain_stalled = client.calls_wait_in_drain = False
