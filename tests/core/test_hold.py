"""Turns that users keep by hand, and give away."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import TenantId

from .desk import TURNS_ALONE, Desk

SETTINGS = TURNS_ALONE.replace(quantum_s=10, hold_max_s=60)


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


@pytest.mark.promise("jupyter-21")
def test_a_hold_outlasts_the_quantum(desk: Desk) -> None:
    """Others wait, the quantum passes, and the recall comes when the hold is over."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 30)
    desk.ask(b)
    while desk.now_s < 130:
        assert desk.recalled() == []
        desk.sleep_until_woken()
    assert desk.now_s == 130
    assert desk.holds_told() == {a: 0}
    (recall,) = desk.all(RecallTurn)
    assert recall.client == a
    assert recall.reason is RecallReason.SIBLING


def test_after_a_short_hold_the_rest_of_the_quantum_is_left(desk: Desk) -> None:
    """The quantum is used up during a hold as ever, not faster and not from anew."""
    desk.tenant("b", owner="ben")
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 4)
    desk.ask(b)
    desk.sleep_until_woken()
    assert desk.recalled() == []
    assert desk.wake_at_s == desk.now_s + 6


def test_a_hold_is_bounded(desk: Desk) -> None:
    """Whatever is asked for, hold_max_s is the most, and every process of the tenant hears it."""
    first, second = desk.client("a"), desk.client("a")
    desk.ask(first)
    desk.hold(first, 9999)
    assert desk.holds_told() == {first: 60, second: 60}
    assert desk.status("a").hold_left_s == 60


def test_where_holds_are_not_allowed(desk: Desk) -> None:
    """With hold_max_s 0 a request is answered by 0."""
    a = desk.client("a")
    desk.set(hold_max_s=0)
    desk.hold(a, 30)
    assert desk.holds_told() == {a: 0}
    assert desk.status("a").hold_left_s == 0


@pytest.mark.promise("jupyter-21")
def test_nobody_holds_for_ever_while_others_wait(desk: Desk) -> None:
    """Asking again while somebody waits ends no later than the longest hold from the first."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 60)
    desk.ask(b)
    desk.hold(a, 60, after_s=50)
    assert desk.holds_told() == {a: pytest.approx(10)}
    desk.hold(a, 60, after_s=9)
    desk.sleep_until_woken()
    assert desk.recalled() == [a]


def test_alone_a_hold_may_be_prolonged(desk: Desk) -> None:
    """While nobody waits, a further hold begins when it is asked for."""
    a = desk.client("a")
    desk.ask(a)
    desk.hold(a, 60)
    desk.hold(a, 60, after_s=50)
    assert desk.holds_told() == {a: 60}


def test_ending_a_hold_by_hand(desk: Desk) -> None:
    """`hold 0` ends it at once; a quantum that was used up meanwhile brings the recall."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 60)
    desk.ask(b)
    desk.hold(a, 0, after_s=11)
    assert desk.holds_told() == {a: 0}
    assert desk.recalled() == [a]


def test_a_hold_covers_the_next_turn(desk: Desk) -> None:
    """Asked for without a turn, it begins with the next one, however long that takes."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(b)
    desk.hold(a, 30)
    assert desk.holds_told() == {a: 30}
    assert (desk.status("a").hold_left_s, desk.status("a").hold_to_come_s) == (0, 30)
    desk.do(ev.ClockTicked(), after_s=45)
    desk.ask(a)
    desk.drop(b)
    assert desk.granted() == [a]
    assert desk.holds_told() == {a: 30}
    assert (desk.status("a").hold_left_s, desk.status("a").hold_to_come_s) == (30, 0)
    desk.ask(b)
    desk.do(ev.ClockTicked(), after_s=29)
    assert desk.recalled() == []
    assert desk.device().holders[0].hold_left_s == 1


@pytest.mark.promise("jupyter-22")
def test_a_hold_to_come_is_taken_back(desk: Desk) -> None:
    """A release ends a hold that has not begun; the next turn is one as any other."""
    a = desk.client("a")
    desk.hold(a, 30)
    desk.give_away(a)
    assert desk.holds_told() == {a: 0}
    desk.ask(a)
    assert desk.holds_told() == {}
    assert desk.device().holders[0].hold_left_s == 0


def test_a_smaller_limit_shortens_holds_to_come(desk: Desk) -> None:
    """As it does those that have begun; without holds there is none to come either."""
    a = desk.client("a")
    desk.hold(a, 60)
    desk.set(hold_max_s=20)
    assert desk.holds_told() == {a: 20}
    desk.set(hold_max_s=0)
    assert desk.holds_told() == {a: 0}
    assert desk.status("a").hold_to_come_s == 0


def test_the_rest_of_a_hold_waits_for_the_next_turn(desk: Desk) -> None:
    """A turn that ends before its hold (here: a context that failed) takes no time from it."""
    a = desk.client("a")
    desk.ask(a)
    desk.hold(a, 30)
    desk.do(ev.ClockTicked(), after_s=10)
    desk.drop(a)
    assert (desk.status("a").hold_left_s, desk.status("a").hold_to_come_s) == (0, 20)
    desk.do(ev.ClockTicked(), after_s=100)
    desk.ask(a)
    assert desk.device().holders[0].hold_left_s == 20


@pytest.mark.promise("jupyter-23")
def test_giving_a_turn_away(desk: Desk) -> None:
    """It is recalled at once from every process, with nobody waiting, and a hold ends with it."""
    first, second = desk.client("a"), desk.client("a")
    desk.ask(first)
    desk.ask(second)
    desk.hold(first, 30)
    desk.give_away(second)
    assert desk.holds_told() == {first: 0, second: 0}
    assert desk.recalled() == [first, second]
    assert {c.cause for c in desk.all(RecallTurn)} == {"released in the notebook"}


def test_a_release_by_the_server_ends_a_hold(desk: Desk) -> None:
    """So does the button of the panel."""
    a = desk.client("a")
    desk.ask(a)
    desk.hold(a, 30)
    desk.do(ev.ReleaseRequested(tenant=TenantId("a")))
    assert desk.holds_told() == {a: 0}
    assert desk.recalled() == [a]


def test_the_end_of_a_cell_that_the_server_sees_ends_no_hold(desk: Desk) -> None:
    """For kernels of other languages, too, a held turn outlasts the cell."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 5)
    desk.ask(b)
    desk.do(ev.TenantBusy(tenant=TenantId("a"), busy=False))
    assert desk.recalled() == []
    desk.sleep_until_woken()
    assert desk.recalled() == [a]


def test_giving_away_what_one_does_not_have(desk: Desk) -> None:
    """Without a turn nothing happens."""
    a = desk.client("a")
    desk.give_away(a)
    assert desk.recalled() == []


def test_a_new_process_hears_of_the_hold(desk: Desk) -> None:
    """A child that opens the device during a hold keeps the turn, too."""
    a = desk.client("a")
    desk.ask(a)
    desk.hold(a, 30)
    desk.do(
        ev.ClientJoined(client=type(a)(99), tenant=TenantId("a"), pid=1, process_name="child"),
        after_s=10,
    )
    assert desk.holds_told() == {99: 20}


def test_a_smaller_limit_shortens_holds(desk: Desk) -> None:
    """An admin's smaller hold_max_s holds at once, from each hold's beginning."""
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 60)
    desk.ask(b)
    desk.do(ev.ClockTicked(), after_s=15)
    desk.set(hold_max_s=20)
    assert desk.holds_told() == {a: 5}
    desk.set(hold_max_s=1)
    assert desk.holds_told() == {a: 0}
    assert desk.recalled() == [a]


def test_a_conflict_is_not_held_up_by_a_hold(desk: Desk) -> None:
    """A device that is somebody else's is not kept by hand: opening it recalls the turn."""
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    desk.hold(a, 30)
    desk.open(a, "B")
    assert desk.recalled() == [a]


def test_a_hold_ends_with_its_tenant(desk: Desk) -> None:
    """A kernel that is shut down keeps nothing."""
    a = desk.client("a")
    desk.hold(a, 30)
    desk.do(ev.TenantRemoved(tenant=TenantId("a")))
    desk.do(ev.ClockTicked(), after_s=31)
    assert desk.last == []
