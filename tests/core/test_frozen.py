"""Tenants whose processes were stopped from outside."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import KillClient, ReportOverdue
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.settings import OverduePolicy

from .desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


def freeze(desk: Desk, client: ClientId, frozen: bool = True) -> None:
    desk.do(ev.ClientFrozen(client=client, frozen=frozen))


@pytest.mark.promise(
    "scheduler-25",
    "A process that was stopped from outside is told as frozen, and gets no turn until it goes on; "
    "a turn that it has stays its own, and the policy for overdue processes applies",
)
def test_a_frozen_waiter_is_passed_over(desk: Desk) -> None:
    """Others are served; it queues again when it goes on."""
    a, b, c = (desk.client(name) for name in "abc")
    for client in (a, b, c):
        desk.ask(client)
    freeze(desk, b)
    assert desk.queue() == ["c"]
    assert desk.status("b").clients[0].frozen
    desk.drop(a)
    assert desk.granted() == [c]
    freeze(desk, b, False)
    assert desk.queue() == ["b"]
    desk.drop(c)
    assert desk.granted() == [b]


@pytest.mark.promise("scheduler-25")
def test_a_frozen_holder_keeps_its_turn(desk: Desk) -> None:
    """Its gate is open: when it goes on, it would use the device before it heard anything."""
    desk.set(overdue_policy=OverduePolicy.KILL)
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    freeze(desk, a)
    desk.ask(b)
    assert (desk.holders(), desk.queue(), desk.device().holders[0].frozen) == (["a"], ["b"], True)
    desk.do(ev.ClockTicked(), after_s=desk.scheduler.settings.quantum_s)
    assert desk.recalled() == [a]
    desk.do(ev.ClockTicked(), after_s=desk.scheduler.settings.overdue_s)
    assert [each.client for each in desk.all(ReportOverdue)] == [a]
    assert [each.client for each in desk.all(KillClient)] == [a]


@pytest.mark.promise("scheduler-25")
def test_who_had_dropped_its_turn_before_is_passed_over(desk: Desk) -> None:
    """A cell that asks and is stopped then would have kept the device for ever."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.drop(a)
    freeze(desk, a)
    desk.ask(a)
    assert desk.granted() == []
    desk.ask(b)
    assert desk.granted() == [b]


def test_siblings_of_a_frozen_process_go_on(desk: Desk) -> None:
    """The tenant is served for those that can use it; the other one joins when it goes on."""
    one, two = desk.client("a"), desk.client("a")
    freeze(desk, one)
    desk.ask(one)
    desk.ask(two)
    assert desk.granted() == [two]
    freeze(desk, one, False)
    assert desk.granted() == [one]


def test_a_client_that_has_gone_is_not_frozen(desk: Desk) -> None:
    """The words cross."""
    a = desk.client("a")
    desk.lose(a)
    freeze(desk, a)
    assert desk.last == []
