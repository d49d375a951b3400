"""Turns that are given away by their user, or whose cell has ended for all that its server sees."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import errors
from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import TenantId

from .desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


def release(desk: Desk, tenant: str) -> None:
    desk.do(ev.ReleaseRequested(tenant=TenantId(tenant), cause="released by me"))


def busy(desk: Desk, tenant: str, is_busy: bool) -> None:
    desk.do(ev.TenantBusy(tenant=TenantId(tenant), busy=is_busy))


def test_a_release_is_a_recall(desk: Desk) -> None:
    """All clients of the holder are asked once, whether others wait or not."""
    one, two = desk.client("a"), desk.client("a")
    desk.ask(one)
    desk.ask(two)
    release(desk, "a")
    assert desk.recalled() == [one, two]
    assert {recall.cause for recall in desk.all(RecallTurn)} == {"released by me"}
    release(desk, "a")
    assert desk.recalled() == []


def test_who_still_works_queues_behind_the_others(desk: Desk) -> None:
    """A release does not end the holder's cell: it gets its next turn after those who wait."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    release(desk, "a")
    desk.ask(a)
    desk.drop(a, ev.DropReason.RECALL)
    assert desk.granted() == [b]
    assert desk.queue() == ["a"]


def test_who_has_no_turn_releases_none(desk: Desk) -> None:
    """For an idle tenant, one that waits, and with turns off, nothing happens."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    release(desk, "b")
    assert desk.recalled() == []
    desk.turns_on(False)
    release(desk, "a")
    assert desk.recalled() == []


def test_a_release_that_stalls_is_taken_back(desk: Desk) -> None:
    """Work that waits for a call at the tenant's own gate goes on, and keeps the turn."""
    a = desk.client("a")
    desk.ask(a)
    release(desk, "a")
    desk.stall(a, calls_waiting=1)
    assert desk.reopened() == [a]
    desk.sleep_until_woken()
    assert desk.status("a").state == "holding"


@pytest.mark.parametrize(
    "event",
    [ev.ReleaseRequested(tenant=TenantId("z")), ev.TenantBusy(tenant=TenantId("z"), busy=True)],
)
def test_an_unknown_tenant_is_the_requests_fault(desk: Desk, event: ev.Event) -> None:
    """It is named, and nothing changes."""
    with pytest.raises(errors.UnknownTenant):
        desk.do(event)


def test_an_ended_cell_gives_way_to_the_first_who_waits(desk: Desk) -> None:
    """While nobody waits the turn stays; then it is asked back without a quantum."""
    a, b = desk.client("a"), desk.client("b")
    busy(desk, "a", True)
    desk.ask(a)
    busy(desk, "a", False)
    assert desk.recalled() == []
    desk.ask(b, after_s=100)
    assert desk.recalled() == [a]
    assert desk.all(RecallTurn)[0].reason is RecallReason.CELL_ENDED


def test_the_end_of_a_cell_while_others_wait(desk: Desk) -> None:
    """It is asked back at once."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    busy(desk, "a", False)
    assert desk.recalled() == [a]


def test_work_without_a_cell_has_whole_turns(desk: Desk) -> None:
    """What goes on after the cell (a thread) queues like everybody, and then has its quantum."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    busy(desk, "a", False)
    desk.ask(a)
    desk.drop(a, ev.DropReason.RECALL)
    desk.drop(b)
    assert desk.granted() == [a]
    desk.ask(b)
    assert desk.recalled() == []


def test_the_next_cell_keeps_the_turn(desk: Desk) -> None:
    """A cell that begins before anybody waits has the turn as its own."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    busy(desk, "a", False)
    busy(desk, "a", True)
    desk.ask(b)
    assert desk.recalled() == []


def test_a_stalled_holder_that_gets_what_it_queues_for_leaves_the_queue(desk: Desk) -> None:
    """It gets the device when the other tenant gives it up, by an event that is not its own."""
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    desk.open(a, "B")
    assert desk.recalled() == [a]
    sibling = desk.client("a", "AB")
    desk.ask(sibling)
    desk.stall(a, calls_waiting=1)
    assert desk.queue("B") == ["a"]
    desk.drop(b)
    assert desk.granted() == [sibling]
    assert desk.queue("B") == []


def test_a_process_that_uses_no_device_owes_nothing(desk: Desk) -> None:
    """Its gate is open, and no turn of it is asked for when the notebook's is released twice."""
    alice = desk.client("a")
    desk.client("a", devices="", held_turn=1)
    desk.ask(alice)
    for _ in range(2):
        release(desk, "a")
    desk.drop(alice)
    assert desk.holders() == []
