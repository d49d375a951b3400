"""One user's notebooks take turns while something else happens: another user comes, a cell ends, a
sibling goes, a device is opened."""

from __future__ import annotations

import math

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn, RecallReason, RecallTurn
from jupyter_gpushare.core.ids import ClientId, TenantId

from .desk import Desk
from .own_notebooks import SETTINGS, comes, hand_over, later

LEAST = pytest.mark.promise("scheduler-98")
OWN_CREDIT = pytest.mark.promise("scheduler-99")
OTHERS = pytest.mark.promise("scheduler-100")


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


def has_had_more(desk: Desk) -> tuple[ClientId, ClientId]:
    """A notebook that has worked for a minute in a cell and rests, and a training that works."""
    explore = comes(desk, "explore", cell=True)
    later(desk, 60)
    desk.do(ev.CellEnded(client=explore))
    desk.drop(explore)
    train = comes(desk, "train")
    later(desk, 10)
    return explore, train


@OTHERS
def test_an_heir_has_nothing_left_once_another_user_has_had_the_device(desk: Desk) -> None:
    """A new cell came while the turn went back: whoever waited before is next."""
    train = comes(desk, "train")
    later(desk, 60)
    comes(desk, "carl", "carl")
    later(desk, 2)
    comes(desk, "explore")
    assert desk.recalled() == [train]
    ben = comes(desk, "ben", "ben", cell=True)
    desk.drop(train, ev.DropReason.RECALL, after_s=1)
    assert desk.holders() == ["ben"]
    desk.do(ev.CellEnded(client=ben), after_s=0.3)
    desk.drop(ben)
    assert desk.holders() == ["carl"]
    (grant,) = desk.all(GrantTurn)
    assert grant.quantum_s == SETTINGS.quantum_min_s


@OWN_CREDIT
def test_a_cell_that_makes_way_for_another_user_goes_on_with_its_own_credit(desk: Desk) -> None:
    explore, train = has_had_more(desk)
    desk.do(ev.CellBegan(client=explore))
    desk.ask(explore)
    hand_over(desk, train)
    assert desk.granted() == [explore]
    desk.do(ev.ClockTicked(), after_s=0.6)
    ben = comes(desk, "ben", "ben", cell=True)
    assert desk.recalled() == [explore]
    hand_over(desk, explore)
    desk.do(ev.CellEnded(client=ben), after_s=0.2)
    desk.drop(ben)
    assert desk.holders() == ["explore"]


@LEAST
def test_a_cell_that_a_sibling_has_ended_does_not_come_again_at_once(desk: Desk) -> None:
    """Its own credit is for a cell that has had more before it began."""
    explore = comes(desk, "explore", cell=True)
    desk.do(ev.ClockTicked(), after_s=0.1)
    comes(desk, "train")
    while desk.recalled() != [explore]:
        desk.sleep_until_woken()
    hand_over(desk, explore)
    assert desk.holders() == ["train"]
    granted_s = desk.now_s
    later(desk, 60)
    assert desk.now_s - granted_s > SETTINGS.quantum_min_s


@OWN_CREDIT
@pytest.mark.parametrize("said_by", ["the hook", "the server"])
def test_a_cell_is_new_whoever_says_that_it_begins(desk: Desk, said_by: str) -> None:
    """Work before it was recalled for a sibling."""
    explore = comes(desk, "explore")
    later(desk, 60)
    train = comes(desk, "train")
    assert desk.recalled() == [explore]
    desk.drop(explore, ev.DropReason.RECALL)
    later(desk, 10)
    if said_by == "the hook":
        desk.do(ev.CellBegan(client=explore))
    else:
        desk.do(ev.TenantBusy(tenant=TenantId("explore"), busy=True))
    desk.ask(explore)
    assert desk.recalled() == [train]


@LEAST
def test_the_end_of_a_cell_is_looked_at_while_its_notebook_waits() -> None:
    """A thread of it waits on: it has come, and takes over at once."""
    desk = Desk(SETTINGS.replace(quantum_s=10))
    one = comes(desk, "one")
    later(desk, 60)
    two = comes(desk, "two", cell=True)
    hand_over(desk, one)
    while desk.recalled() != [two]:
        desk.sleep_until_woken()
    hand_over(desk, two)
    assert desk.granted() == [one]
    desk.do(ev.ClockTicked(), after_s=5)
    desk.do(ev.CellEnded(client=two))
    (recall,) = desk.all(RecallTurn)
    assert (recall.client, recall.reason) == (one, RecallReason.SIBLING)


@LEAST
def test_what_a_holder_has_had_on_another_device_counts_up_to_now(desk: Desk) -> None:
    desk.tenant("holds", owner="ann")
    holds = desk.client("holds", "B")
    desk.ask(holds)
    desk.do(ev.ClockTicked(), after_s=80)
    waits = comes(desk, "waits")
    desk.drop(waits, after_s=20)
    desk.open(holds, "A")
    desk.do(ev.ClockTicked(), after_s=0.5)
    desk.ask(waits)
    assert desk.recalled() == [holds]


@OTHERS
def test_a_new_cell_goes_first_again_when_the_sibling_is_gone_behind_which_it_was(
    desk: Desk,
) -> None:
    explore = comes(desk, "explore", cell=True)
    later(desk, 20)
    desk.do(ev.CellEnded(client=explore))
    desk.drop(explore)
    ben = comes(desk, "ben", "ben")
    later(desk, 60)
    train = comes(desk, "train")
    desk.do(ev.CellBegan(client=explore))
    desk.scheduler._machine._state.accounts.recent.of[TenantId("explore")].credit_s = -500.0
    desk.ask(explore)
    assert desk.recalled() == []
    desk.withdraw(train, after_s=0.01)
    assert desk.recalled() == [ben]


@OWN_CREDIT
def test_a_turn_that_is_kept_by_hand_costs_no_more_than_a_whole_credit(desk: Desk) -> None:
    explore, train = has_had_more(desk)
    desk.do(ev.CellBegan(client=explore))
    desk.ask(explore)
    hand_over(desk, train)
    desk.hold(explore, 300)
    desk.do(ev.ClockTicked(), after_s=299)
    own = desk.scheduler._machine._state.accounts.recent.of[TenantId("explore")]
    desk.do(ev.CellEnded(client=explore))
    desk.drop(explore)
    assert own.credit_s == -SETTINGS.credit_s


@OWN_CREDIT
def test_credit_of_an_ended_notebook_is_not_older_than_ones_own(desk: Desk) -> None:
    """It would fill up for time that has passed already."""
    desk.tenant("ended", owner="ann")
    ended = desk.client("ended", "B")
    desk.ask(ended)
    desk.drop(ended, after_s=2)
    recent = desk.scheduler._machine._state.accounts.recent
    spends = comes(desk, "spends")
    left = recent.of[TenantId("ended")]
    left.credit_s, left.credit_at_s = -0.1, desk.now_s
    desk.do(ev.TenantRemoved(tenant=TenantId("ended")))
    desk.drop(spends, after_s=60)
    own = recent.of[TenantId("spends")]
    own.credit_s, own.credit_at_s = 0.0, desk.now_s
    desk.do(ev.CellBegan(client=spends))
    desk.open(spends, "B")
    desk.ask(spends)
    assert own.credit_s == -0.1 and own.credit_at_s < math.inf
