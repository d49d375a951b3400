"""What an admin does to a tenant: it is served next, and its turn is kept."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import errors
from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import KillClient, ReportOverdue
from jupyter_gpushare.core.ids import TenantId
from jupyter_gpushare.core.settings import MemoryMode, OverduePolicy, SchedulerSettings

from .desk import Desk

BY_CLASS = SchedulerSettings(
    memory_mode=MemoryMode.OFF, quantum_s=5.0, allowed_classes="ben=realtime"
)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def boost(desk: Desk, tenant: str) -> None:
    desk.do(ev.BoostRequested(tenant=TenantId(tenant), cause="boosted by root"))


@pytest.mark.promise(
    "scheduler-2", "A tenant that an admin boosts is served next, and then in its turn as before"
)
def test_a_boost_serves_next_once(desk: Desk) -> None:
    """The present turn goes on until its quantum ends."""
    a, b, c = (desk.client(name) for name in "abc")
    for client in (a, b, c):
        desk.ask(client)
    boost(desk, "c")
    assert (desk.queue(), desk.recalled(), desk.status("c").boosted) == (["c", "b"], [], True)
    assert desk.positions() == {c: (1, "notebook a"), b: (2, "notebook a")}
    desk.drop(a)
    assert desk.granted() == [c]
    assert not desk.status("c").boosted
    desk.ask(a)
    desk.drop(c)
    desk.ask(c)
    assert (desk.holders(), desk.queue()) == (["b"], ["a", "c"])


@pytest.mark.promise("scheduler-2")
def test_a_boost_waits_for_who_does_not_wait_yet(desk: Desk) -> None:
    """Of several the one that was boosted last and comes last is first."""
    a, b, c, d = (desk.client(name) for name in "abcd")
    for client in (a, b):
        desk.ask(client)
    for name in "cd":
        boost(desk, name)
    desk.ask(c)
    desk.ask(d)
    assert desk.queue() == ["d", "c", "b"]


@pytest.mark.promise("scheduler-2")
@pytest.mark.parametrize("waits_as", ["interactive", "a new cell", "realtime"])
def test_a_boosted_batch_notebook_has_its_quantum(waits_as: str) -> None:
    """Nobody ends it before: it has the next turn, once."""
    desk = Desk(BY_CLASS)
    holder = desk.client("holder")
    desk.ask(holder)
    desk.tenant("night", asked_class="batch")
    night = desk.client("night")
    desk.ask(night)
    desk.tenant("ben", owner="ben", asked_class="realtime" if waits_as == "realtime" else "")
    boost(desk, "night")
    desk.drop(holder)
    assert desk.granted() == [night]
    ben = desk.client("ben")
    if waits_as == "a new cell":
        desk.do(ev.CellBegan(client=ben))
    desk.ask(ben)
    assert desk.recalled() == []
    desk.do(ev.ClockTicked(), after_s=BY_CLASS.quantum_s - 0.1)
    assert desk.recalled() == []
    desk.do(ev.ClockTicked(), after_s=0.1)
    assert desk.recalled() == [night]


@pytest.mark.promise("scheduler-2")
def test_a_boost_hides_nobody_for_whom_the_turn_ends() -> None:
    """A new cell behind it ends nothing, a `realtime` notebook ends the turn at once. The boosted
    one is served next all the same."""
    desk = Desk(BY_CLASS)
    desk.tenant("boosted", owner="ann")
    holder, boosted = desk.client("holder"), desk.client("boosted")
    desk.ask(holder)
    desk.ask(boosted)
    boost(desk, "boosted")
    desk.tenant("eve", owner="eve")
    eve = desk.client("eve")
    desk.do(ev.CellBegan(client=eve))
    desk.ask(eve)
    assert desk.recalled() == []
    desk.tenant("ben", owner="ben", asked_class="realtime")
    desk.ask(desk.client("ben"))
    assert desk.recalled() == [holder]
    desk.drop(holder)
    assert desk.granted() == [boosted]


@pytest.mark.promise(
    "scheduler-104", "From when overdue processes are ended, those are that were only reported"
)
def test_who_was_reported_as_overdue_is_ended_when_that_is_the_policy(desk: Desk) -> None:
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    settings = desk.scheduler.settings
    desk.do(ev.ClockTicked(), after_s=settings.quantum_s)
    desk.do(ev.ClockTicked(), after_s=settings.overdue_s)
    assert desk.all(ReportOverdue) and not desk.all(KillClient)
    desk.set(overdue_policy=OverduePolicy.KILL)
    assert [each.client for each in desk.all(KillClient)] == [a]
    desk.set(hold_max_s=30)
    assert not desk.all(KillClient)


def test_who_was_boosted_is_told_of_the_next_holder(desk: Desk) -> None:
    """The head of a queue hears of its holders, too."""
    first, second = desk.client("a", "A"), desk.client("b", "B")
    both = desk.client("c", "AB")
    for client in (first, second, both):
        desk.ask(client)
    boost(desk, "c")
    desk.drop(first)
    assert desk.positions() == {both: (1, "notebook b")}


def test_a_boost_outlives_a_failure_of_the_core(desk: Desk) -> None:
    """Nobody would say it again."""
    desk.tenant("a")
    boost(desk, "a")
    machine = desk.scheduler._machine
    after = type(machine).in_place_of(machine, desk.scheduler.settings, (), 5.0)
    assert after._state.tenants[TenantId("a")].boosted


def test_an_admin_holds_as_the_user_does(desk: Desk) -> None:
    """For hold_max_s at most, and 0 ends it; a tenant without a turn keeps its next one."""
    desk.set(hold_max_s=30)
    a = desk.client("a")
    desk.ask(a)
    desk.do(ev.TenantHeld(tenant=TenantId("a"), hold_s=99))
    assert desk.holds_told() == {a: 30}
    desk.do(ev.TenantHeld(tenant=TenantId("a"), hold_s=0))
    assert desk.holds_told() == {a: 0}
    desk.drop(a)
    desk.do(ev.TenantHeld(tenant=TenantId("a"), hold_s=10))
    assert desk.status("a").hold_to_come_s == 10


@pytest.mark.parametrize(
    "event",
    [
        ev.BoostRequested(tenant=TenantId("z")),
        ev.TenantHeld(tenant=TenantId("z"), hold_s=1),
        ev.EvictRequested(tenant=TenantId("z")),
    ],
)
def test_a_tenant_that_does_not_exist(desk: Desk, event: ev.Event) -> None:
    """It is the request's fault."""
    with pytest.raises(errors.UnknownTenant):
        desk.do(event)
