"""How a turn ends while others wait: quantum, drain stall, overdue."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    CancelWait,
    KillClient,
    RecallReason,
    RecallTurn,
    ReportOverdue,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.settings import OverduePolicy

from .desk import TURNS_ALONE, Desk

SETTINGS = TURNS_ALONE.replace(quantum_s=10, recall_retry_s=0.5, overdue_s=30)


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


@pytest.mark.promise("scheduler-40", "The quantum counts only while others wait")
def test_a_turn_has_no_end_while_nobody_waits(desk: Desk) -> None:
    """Without waiters there is no deadline, and time changes nothing."""
    a = desk.client("a")
    desk.ask(a)
    assert desk.wake_at_s is None
    desk.do(ev.ClockTicked(), after_s=1_000_000)
    assert desk.last == []


@pytest.mark.promise("scheduler-40")
def test_the_quantum_counts_from_the_first_waiter(desk: Desk) -> None:
    """A holder that was alone for long has a whole quantum once the first other one comes."""
    desk.tenant("b", owner="ben")
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b, after_s=3600)
    assert desk.wake_at_s == desk.now_s + 10
    desk.sleep_until_woken()
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.turn) == (a, desk.turns[a])
    assert recall.reason is RecallReason.QUANTUM_OVER and recall.quantum_s == 10
    desk.drop(a, ev.DropReason.RECALL)
    assert desk.granted() == [b]


@pytest.mark.promise("scheduler-40")
def test_waiters_that_come_and_go_use_up_one_quantum(desk: Desk) -> None:
    """Time without waiters does not count, and time with them is not forgotten."""
    desk.tenant("b", owner="ben")
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.withdraw(b, after_s=6)
    desk.ask(b, after_s=100)
    assert desk.wake_at_s == desk.now_s + 4


def test_no_recall_when_the_waiter_has_gone(desk: Desk) -> None:
    """A wake-up for a quantum that no longer counts does nothing."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.withdraw(b)
    desk.sleep_until_woken()
    assert desk.recalled() == []


def test_waiters_for_other_devices_do_not_count(desk: Desk) -> None:
    """The quantum of a turn runs while somebody waits for one of its devices."""
    a, b, c = desk.client("a", "A"), desk.client("b", "B"), desk.client("c", "B")
    desk.ask(a)
    desk.ask(b)
    desk.ask(c)
    desk.sleep_until_woken()
    assert desk.recalled() == [b]


def test_a_recall_on_one_device_recalls_the_whole_turn(desk: Desk) -> None:
    """All processes of the tenant are asked, also those on devices that nobody waits for."""
    first, second, b = desk.client("a", "A"), desk.client("a", "B"), desk.client("b", "B")
    desk.ask(first)
    desk.ask(second)
    desk.ask(b)
    desk.sleep_until_woken()
    assert desk.recalled() == [first, second]
    assert desk.status("a").counters.recalls == 1


@pytest.mark.promise("scheduler-96")
def test_a_shorter_quantum_applies_at_once(desk: Desk) -> None:
    """A live change of the quantum holds for the turn that runs."""
    desk.tenant("b", owner="ben")
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.ClockTicked(), after_s=9)
    desk.set(quantum_s=2)
    assert desk.recalled() == [a]


def test_an_idle_drop_crossing_the_recall_counts(desk: Desk) -> None:
    """The answer to a recall may have been sent before it, with another reason."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.sleep_until_woken()
    desk.drop(a, ev.DropReason.IDLE)
    assert desk.granted() == [b]


class TestDrainStall:
    """Work in flight that waits for a call at one of the tenant's own gates."""

    def recalled_pair(self, desk: Desk) -> tuple[int, int, int]:
        """A tenant of two processes, one of which has the turn and is asked for it."""
        desk.tenant("b", owner="ben")
        holder, sibling, other = desk.client("a"), desk.client("a"), desk.client("b")
        desk.ask(holder)
        desk.ask(other)
        desk.sleep_until_woken()
        assert desk.recalled() == [holder]
        return holder, sibling, other

    @pytest.mark.promise("hook-2")
    def test_the_gate_reopens_for_the_whole_tenant(self, desk: Desk) -> None:
        """A waiting sibling is granted the turn, the holder's recall is taken back."""
        holder, sibling, _ = self.recalled_pair(desk)
        desk.ask(sibling)
        desk.stall(holder)
        assert desk.reopened() == [holder]
        assert desk.granted() == [sibling]
        assert desk.turns[holder] == desk.turns[sibling]
        assert desk.status("a").counters.drain_stalls == 1

    def test_own_waiting_calls_reopen_it_too(self, desk: Desk) -> None:
        """A call that waits at the stalled process's own gate is reason enough."""
        holder, _, _ = self.recalled_pair(desk)
        desk.stall(holder, calls_waiting=1)
        assert desk.reopened() == [holder]

    def test_a_call_that_comes_after_the_stall_reopens_it(self, desk: Desk) -> None:
        """The order of stall and call does not matter."""
        holder, sibling, _ = self.recalled_pair(desk)
        desk.stall(holder)
        assert desk.reopened() == []
        desk.ask(sibling)
        assert desk.reopened() == [holder]
        assert desk.granted() == [sibling]

    def test_a_request_during_the_drain_is_answered_by_reopening(self, desk: Desk) -> None:
        """The stalled process's own request needs no second grant."""
        holder, _, _ = self.recalled_pair(desk)
        desk.ask(holder)
        desk.stall(holder)
        assert desk.reopened() == [holder]
        assert desk.granted() == []
        desk.drop(holder)
        assert desk.status("a").state == "idle"

    def test_without_a_waiting_call_the_drain_goes_on(self, desk: Desk) -> None:
        """Nothing could help it: the recall stands, and may become overdue."""
        holder, _, _ = self.recalled_pair(desk)
        desk.stall(holder)
        assert desk.reopened() == []
        desk.sleep_until_woken()
        assert [report.client for report in desk.all(ReportOverdue)] == [holder]

    @pytest.mark.promise("hook-2")
    def test_the_recall_is_tried_again(self, desk: Desk) -> None:
        """After recall_retry_s all processes of the tenant are asked again."""
        holder, sibling, other = self.recalled_pair(desk)
        desk.ask(sibling)
        desk.stall(holder)
        assert desk.wake_at_s == desk.now_s + 0.5
        desk.sleep_until_woken()
        assert desk.recalled() == [holder, sibling]
        desk.drop(holder)
        desk.drop(sibling)
        assert desk.granted() == [other]

    def test_no_second_try_when_nobody_waits_any_more(self, desk: Desk) -> None:
        """If the waiter has gone, the turn goes on with a fresh quantum."""
        holder, _, other = self.recalled_pair(desk)
        desk.stall(holder, calls_waiting=1)
        desk.withdraw(other)
        desk.sleep_until_woken()
        assert desk.recalled() == []
        assert desk.status("a").state == "holding"
        desk.ask(other)
        assert desk.wake_at_s == desk.now_s + 10

    def test_siblings_join_while_the_recall_is_taken_back(self, desk: Desk) -> None:
        """A further process that asks meanwhile is let through at once."""
        holder, sibling, _ = self.recalled_pair(desk)
        desk.stall(holder, calls_waiting=1)
        desk.ask(sibling)
        assert desk.granted() == [sibling]

    def test_a_stale_stall_is_ignored(self, desk: Desk) -> None:
        """A stall of a turn that was dropped changes nothing."""
        holder, _, _ = self.recalled_pair(desk)
        desk.drop(holder)
        desk.stall(holder, calls_waiting=1)
        assert desk.reopened() == []

    @pytest.mark.promise(
        "hook-55", "Work in flight that waits for a gated call goes on, whatever has shut the gate"
    )
    def test_a_gate_that_was_shut_without_a_recall_opens_again(self, desk: Desk) -> None:
        """For a further device, say. It is asked back at once, for whatever the turn lacks, and the
        turn goes on where that is nothing."""
        holder = desk.client("a", "A")
        desk.ask(holder)
        desk.ask(holder)
        desk.stall(holder, calls_waiting=1)
        assert desk.recalled() == [holder]
        assert desk.reopened() == [holder]
        desk.sleep_until_woken()
        assert desk.status("a").state == "holding"

    @pytest.mark.promise("hook-55")
    @pytest.mark.parametrize("calls_waiting", [0, 1])
    def test_a_stall_that_crosses_the_end_of_its_recall_shuts_no_other_gate(
        self, desk: Desk, calls_waiting: int
    ) -> None:
        """Two processes of a tenant stall in the same moment, and the word of one opens both gates.
        Else they were shut again at once, each time, and the call that waits would never get in."""
        first, second, other = desk.client("a"), desk.client("a"), desk.client("b")
        for client in (first, second, other):
            desk.ask(client)
        desk.sleep_until_woken()
        desk.stall(first, calls_waiting=1)
        assert desk.reopened() == [first, second]
        retry_at_s = desk.wake_at_s
        desk.stall(second, calls_waiting=calls_waiting)
        assert first not in desk.recalled()
        assert desk.reopened() == desk.recalled()
        assert desk.status("a").state == "stalled"
        assert desk.wake_at_s == retry_at_s

    @pytest.mark.promise("hook-55")
    def test_a_stall_that_crosses_the_end_of_its_recall_costs_no_place(self, desk: Desk) -> None:
        """The tenant queues for the device that its turn lacks."""
        first, second, neighbour = (desk.client(*who) for who in ("aA", "aA", "nB"))
        for client in (first, second, neighbour):
            desk.ask(client)
        desk.ask(desk.client("a", "B"))
        desk.stall(first)
        desk.ask(desk.client("c", "B"))
        assert desk.queue("B") == ["a", "c"]
        desk.stall(second, calls_waiting=1)
        assert desk.queue("B") == ["a", "c"]

    def test_a_stall_without_a_recall_or_a_call_is_ignored(self, desk: Desk) -> None:
        """The call that waited has gone since: the drain goes on for nobody."""
        holder = desk.client("a")
        desk.ask(holder)
        desk.stall(holder)
        assert desk.recalled() == []
        assert desk.status("a").state == "holding"

    def test_a_stall_of_another_turn_is_ignored(self, desk: Desk) -> None:
        """Also while the client's own turn is under recall."""
        holder, _, _ = self.recalled_pair(desk)
        stale = TurnId(desk.turns[holder] + 1)
        desk.do(ev.DrainStalled(client=ClientId(holder), turn=stale, calls_waiting=1))
        assert desk.reopened() == []

    def test_a_stalled_tenant_queues_for_a_further_device(self, desk: Desk) -> None:
        """Work that waits for a process on a device in use keeps what it has, and is given that
        device when it is free: else neither could ever end."""
        holder, neighbour, sibling = desk.client("a", "A"), desk.client("n", "B"), None
        desk.ask(holder)
        desk.ask(neighbour)
        sibling = desk.client("a", "B")
        assert desk.recalled() == [holder]
        desk.ask(sibling)
        desk.stall(holder)
        assert desk.reopened() == [holder]
        assert desk.granted() == []
        assert desk.queue("B") == ["a"]
        desk.sleep_until_woken()
        assert desk.recalled() == []
        desk.drop(neighbour)
        assert desk.granted() == [sibling]
        desk.sleep_until_woken()
        assert desk.status("a").state == "holding"

    @pytest.mark.promise(
        "scheduler-41",
        "A turn that cannot end before it has a further device gets that before all who wait",
    )
    def test_a_stalled_tenant_goes_before_who_waits_for_its_turn(self, desk: Desk) -> None:
        """An earlier tenant wants both devices. If one of them idled for it, neither tenant could
        ever go on: each would wait for what the other is to have."""
        holder, neighbour = desk.client("a", "A"), desk.client("n", "B")
        desk.ask(holder)
        desk.ask(neighbour)
        both, one = desk.client("b", "AB"), desk.client("c", "B")
        desk.ask(both)
        desk.ask(one)
        sibling = desk.client("a", "B")
        desk.ask(sibling)
        desk.stall(holder)
        assert desk.queue("B") == ["b", "c", "a"]
        desk.drop(neighbour)
        assert desk.granted() == [sibling]
        assert desk.queue("B") == ["b", "c"]
        desk.drop(holder)
        desk.drop(sibling)
        assert desk.granted() == [both]

    def test_a_stalled_tenant_lets_earlier_ones_use_what_it_cannot_use_yet(
        self, desk: Desk
    ) -> None:
        """It lacks two devices, of which one is free."""
        desk.find_device(8000, "C")
        holder, second, third = (desk.client(*who) for who in ("aA", "nB", "mC"))
        for client in (holder, second, third):
            desk.ask(client)
        earlier, sibling = desk.client("b", "B"), desk.client("a", "BC")
        desk.ask(earlier)
        desk.ask(sibling)
        desk.stall(holder)
        desk.drop(second)
        assert desk.granted() == [earlier]
        desk.drop(third)
        assert desk.granted() == []
        desk.drop(earlier)
        assert desk.granted() == [sibling]

    def test_a_wait_that_goes_on_after_a_recall_is_counted_once(self, desk: Desk) -> None:
        """While a device of its turn is paused, the recall is tried again and again, and each time
        the tenant leaves the queue. Its call waits all the time."""
        holder, neighbour = desk.client("a", "A"), desk.client("n", "B")
        desk.ask(holder)
        desk.ask(neighbour)
        desk.ask(desk.client("a", "B"))
        asked_s = desk.now_s
        desk.stall(holder)
        desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.PAUSED))
        for _ in range(5):
            desk.sleep_until_woken()
            assert desk.recalled() == [holder]
            assert desk.queue("B") == []
            desk.do(ev.ClockTicked(), after_s=0.2)
            desk.stall(holder)
            assert desk.queue("B") == ["a"]
        desk.drop(neighbour, after_s=1)
        assert desk.queue("B") == []
        counters = desk.status("a").counters
        assert counters.waited_s_total == pytest.approx(desk.now_s - asked_s)

    def test_what_was_kept_for_a_stalled_tenant_is_given_out_when_it_is_recalled(
        self, desk: Desk
    ) -> None:
        """It lacks two devices, and the one that is free is kept for it while it queues. Under a
        recall it queues no more, however long its drain takes."""
        desk.find_device(8000, "C")
        holder, second, third = (desk.client(*who) for who in ("aA", "nB", "mC"))
        for client in (holder, second, third):
            desk.ask(client)
        desk.ask(desk.client("a", "BC"))
        desk.stall(holder)
        desk.drop(second)
        later, waiter = desk.client("b", "B"), desk.client("c", "A")
        desk.ask(later)
        desk.ask(waiter)
        assert desk.queue("B") == ["a", "b"]
        while holder not in desk.recalled():
            desk.sleep_until_woken()
        assert desk.granted() == [later]


class TestOverdue:
    """A client that does not answer a recall."""

    def overdue(self, desk: Desk) -> int:
        a, b = desk.client("a"), desk.client("b")
        desk.ask(a)
        desk.ask(b)
        desk.sleep_until_woken()
        assert desk.wake_at_s == desk.now_s + 30
        desk.sleep_until_woken()
        return a

    def test_it_is_reported_once(self, desk: Desk) -> None:
        """One report for each recall, shown in the status, and nothing is taken away."""
        a = self.overdue(desk)
        (report,) = desk.all(ReportOverdue)
        assert report.client == a
        assert (report.tenant_name, report.asked_s_ago) == ("notebook a", 30)
        assert desk.all(KillClient) == []
        assert desk.device().holders[0].overdue
        desk.do(ev.ClockTicked(), after_s=1000)
        assert desk.last == []
        desk.drop(a)
        assert desk.holders() == ["b"]
        assert not desk.status("a").clients[0].overdue

    @pytest.mark.promise("scheduler-70")
    def test_policy_kill(self, desk: Desk) -> None:
        """With overdue_policy `kill` the process is to be ended; its loss frees the turn."""
        desk.set(overdue_policy=OverduePolicy.KILL)
        a = self.overdue(desk)
        assert [kill.client for kill in desk.all(KillClient)] == [a]
        desk.lose(a)
        assert desk.holders() == ["b"]

    def test_who_stalls_again_and_again_is_overdue_once(self, desk: Desk) -> None:
        """Taking recalls back does not put the time off; it is reported, and shown meanwhile."""
        a, a2, b = desk.client("a"), desk.client("a"), desk.client("b")
        for client in (a, a2, b):
            desk.ask(client)
        desk.drop(a2)
        desk.sleep_until_woken()
        first_s, reported_at_s = desk.now_s, []
        while desk.now_s < first_s + 60:
            desk.stall(a, calls_waiting=1)
            assert desk.reopened() == [a]
            desk.sleep_until_woken()
            reported_at_s += [desk.now_s for _ in desk.all(ReportOverdue)]
        assert len(reported_at_s) == 1
        assert 30 <= reported_at_s[0] - first_s <= 31
        desk.stall(a, calls_waiting=1)
        assert desk.device().holders[0].overdue
        desk.lose(b)
        desk.sleep_until_woken()
        assert desk.status("a").state == "holding"
        assert not desk.device().holders[0].overdue

    def test_a_stalled_process_that_loses_its_device_owes_nothing(self, desk: Desk) -> None:
        """Its gate stays open for the driver's own errors; a later turn begins anew."""
        a, b = desk.client("a"), desk.client("b")
        for client in (a, b):
            desk.ask(client)
        desk.sleep_until_woken()
        desk.stall(a, calls_waiting=1)
        desk.do(ev.DeviceLost(device=DeviceId("A")))
        assert not desk.status("a").clients[0].overdue
        assert desk.status("a").state == "idle"

    def test_two_that_stall_for_each_others_device_are_overdue(self, desk: Desk) -> None:
        """Neither can drain before the other has: both are shown, so that a person can end one."""
        a, b = desk.client("a", "A"), desk.client("b", "B")
        for client in (a, b):
            desk.ask(client)
        for tenant, device in (("a", "B"), ("b", "A")):
            desk.ask(desk.client(tenant, device))
        overdue: set[int] = set()
        for _ in range(200):
            for client in (a, b):
                desk.stall(client)
            desk.sleep_until_woken()
            overdue |= {command.client for command in desk.all(ReportOverdue)}
        assert overdue == {a, b}

    def test_only_who_has_not_answered_is_overdue(self, desk: Desk) -> None:
        """A process that gave its part back is not blamed for its sibling."""
        first, second, b = desk.client("a"), desk.client("a"), desk.client("b")
        desk.ask(first)
        desk.ask(second)
        desk.ask(b)
        desk.sleep_until_woken()
        desk.drop(first)
        desk.sleep_until_woken()
        assert [report.client for report in desk.all(ReportOverdue)] == [second]


class TestInterrupt:
    """The user interrupts a kernel."""

    def test_waiting_calls_are_cancelled(self, desk: Desk) -> None:
        """Each process of the tenant is told, for one may have a waiting call that is not known."""
        holder, a, a2, a3 = desk.client("b"), desk.client("a"), desk.client("a"), desk.client("a")
        desk.ask(holder)
        desk.ask(a)
        desk.ask(a2)
        desk.do(ev.InterruptRequested(tenant=TenantId("a")))
        assert [cancel.client for cancel in desk.all(CancelWait)] == [a, a2, a3]
        desk.withdraw(a)
        desk.withdraw(a2)
        assert desk.queue() == []

    def test_a_process_under_recall_may_have_a_waiting_call(self, desk: Desk) -> None:
        """Its gate is shut, so a call may wait there before we hear of it."""
        a, b = desk.client("a"), desk.client("b")
        desk.ask(a)
        desk.ask(b)
        desk.sleep_until_woken()
        desk.do(ev.InterruptRequested(tenant=TenantId("a")))
        assert [cancel.client for cancel in desk.all(CancelWait)] == [a]

    def test_a_holder_goes_on(self, desk: Desk) -> None:
        """An interrupt takes no turn away."""
        a = desk.client("a")
        desk.ask(a)
        desk.do(ev.InterruptRequested(tenant=TenantId("a")))
        assert [type(command) for command in desk.last] == [CancelWait]
        assert desk.holders() == ["a"]


class TestFailures:
    """Contexts that fail, devices that go, kernels that are shut down."""

    def test_a_failed_context_ends_its_part_of_the_turn(self, desk: Desk) -> None:
        """A sticky error counts as drained: the next one comes at once."""
        a, b = desk.client("a"), desk.client("b")
        desk.ask(a)
        desk.ask(b)
        desk.do(ev.ContextFailed(client=a, device=DeviceId("A"), cu_result=710))
        assert desk.granted() == [b]
        assert desk.status("a").clients[0].devices[0].failed

    def test_one_failed_context_of_two_frees_its_device(self, desk: Desk) -> None:
        """The failed one's device is free at once; the other one's when the process drops the
        turn, since it may be running there."""
        a, b, c = desk.client("a", "AB"), desk.client("b", "A"), desk.client("c", "B")
        for client in (a, b, c):
            desk.ask(client)
        desk.do(ev.ContextFailed(client=a, device=DeviceId("A"), cu_result=710))
        assert desk.granted() == [b]
        desk.drop(a, ev.DropReason.CONTEXT_FAILED)
        assert desk.granted() == [c]
        desk.ask(a)
        assert desk.queue("B") == ["a"]
        assert desk.queue("A") == []

    def test_a_failure_that_crosses_a_grant_overlaps_nobody(self, desk: Desk) -> None:
        """A context fails while a grant is on its way: the process then runs on its other device,
        so that one is not given away before it drops the turn."""
        a, b = desk.client("a", "AB"), desk.client("b", "B")
        desk.ask(a)
        desk.do(ev.ContextFailed(client=a, device=DeviceId("A"), cu_result=710))
        desk.ask(b)
        assert desk.granted() == []

    def test_a_recall_of_a_lost_device_needs_no_answer(self, desk: Desk) -> None:
        """A process that drains on a device that falls off is not waited for."""
        a, b = desk.client("a"), desk.client("b")
        desk.ask(a)
        desk.ask(b)
        desk.sleep_until_woken()
        desk.do(ev.DeviceLost(device=DeviceId("A")))
        assert desk.granted() == [b]
        assert desk.status("a").state == "idle"
        desk.drop(a)
        assert desk.status("a").clients[0].state == "idle"

    def test_a_failed_client_never_waits_again(self, desk: Desk) -> None:
        """Its calls are let through to meet the driver's error, beside any holder."""
        a, b = desk.client("a"), desk.client("b")
        desk.ask(b)
        desk.do(ev.ContextFailed(client=a, device=DeviceId("A"), cu_result=710))
        desk.ask(a)
        assert desk.granted() == [a]
        assert desk.holders() == ["b"]
        desk.drop(a)
        assert desk.status("a").clients[0].state == "idle"

    def test_a_failure_while_waiting_ends_the_wait(self, desk: Desk) -> None:
        """A waiting client whose only context fails is let through."""
        a, b = desk.client("a"), desk.client("b")
        desk.ask(b)
        desk.ask(a)
        desk.do(ev.ContextFailed(client=a, device=DeviceId("A"), cu_result=710))
        assert desk.granted() == [a]
        assert desk.queue() == []

    @pytest.mark.promise("bad-input-4")
    def test_a_lost_device_lets_its_waiters_through(self, desk: Desk) -> None:
        """Turns on a lost device end; who needs it is granted, to meet the driver's error."""
        a, b, c = desk.client("a", "A"), desk.client("b", "A"), desk.client("c", "B")
        desk.ask(a)
        desk.ask(b)
        desk.ask(c)
        desk.do(ev.DeviceLost(device=DeviceId("A")))
        assert desk.granted() == [b]
        assert desk.device("A").lost
        assert desk.holders("A") == []
        assert desk.holders("B") == ["c"]

    def test_a_lost_device_leaves_the_other_ones_turn(self, desk: Desk) -> None:
        """A tenant on two devices goes on with the one that is left."""
        both, b = desk.client("m", "AB"), desk.client("b", "B")
        desk.ask(both)
        desk.ask(b)
        desk.do(ev.DeviceLost(device=DeviceId("A")))
        assert desk.holders("B") == ["m"]
        desk.drop(both)
        assert desk.granted() == [b]

    def test_a_device_that_is_back_is_shared_again(self, desk: Desk) -> None:
        """Who was let through on a lost device is asked back if somebody else was first."""
        a, b = desk.client("a"), desk.client("b")
        desk.ask(a)
        desk.ask(b)
        desk.do(ev.DeviceLost(device=DeviceId("A")))
        desk.do(ev.DeviceFound(device=DeviceId("A"), name="GPU A", bytes_total=8000))
        assert desk.holders() == ["a"]
        assert desk.recalled() == [b]

    def test_a_removed_tenant_is_closed(self, desk: Desk) -> None:
        """All its processes are closed, its turn is free, and what they still say is ignored."""
        a, a2, b = desk.client("a"), desk.client("a"), desk.client("b")
        desk.ask(a)
        desk.ask(b)
        desk.do(ev.TenantRemoved(tenant=TenantId("a")))
        closed = [type(c).__name__ for c in desk.last if getattr(c, "client", None) in (a, a2)]
        assert closed == ["CloseClient", "CloseClient"]
        assert desk.granted() == [b]
        desk.drop(a)
        desk.ask(a2)
        desk.lose(a)
        desk.lose(a2)
        assert desk.holders() == ["b"]

    def test_a_removed_tenant_leaves_the_queue(self, desk: Desk) -> None:
        """A kernel that is shut down while it waits is passed over."""
        a, b, c = (desk.client(name) for name in "abc")
        for client in (a, b, c):
            desk.ask(client)
        desk.do(ev.TenantRemoved(tenant=TenantId("b")))
        assert desk.queue() == ["c"]
        desk.drop(a)
        assert desk.granted() == [c]


def test_two_stalled_tenants_do_not_keep_each_other_from_their_devices() -> None:
    """Each has opened the other's device and runs again after a drain stall, with no call at its
    gate: nobody queues, so the recall is tried again."""
    desk = Desk()
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    desk.open(b, "A")
    desk.open(a, "B")
    for client in (a, b):
        desk.stall(client, calls_waiting=1)
    assert desk.status("a").state == desk.status("b").state == "stalled"
    desk.sleep_until_woken()
    assert desk.recalled()
    for client in (a, b):
        desk.drop(client)
        desk.ask(client)
    assert desk.holders("A") == desk.holders("B") == ["a"]
