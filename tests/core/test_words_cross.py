"""What one rule means while another one is at work: boosts beside siblings, classes and holds, a
policy that is set live, words that come in another order than usual."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import KillClient, RecallReason, RecallTurn, ReportOverdue
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId
from jupyter_gpushare.core.settings import OverduePolicy, SchedulerSettings, TurnTaking

from .desk import Desk
from .own_notebooks import SETTINGS, comes, hand_over, later
from .test_admin_verbs import boost
from .test_siblings_meet_others import has_had_more

BOOSTS = pytest.mark.promise("scheduler-2")
KILLS = pytest.mark.promise("scheduler-104")
OWN_CREDIT = pytest.mark.promise("scheduler-99")
OTHERS = pytest.mark.promise("scheduler-100")
BEN_FIRST = SETTINGS.replace(allowed_classes="ben=realtime")


def recalled_within(desk: Desk, seconds: Seconds) -> Seconds:
    """After how long the next recall comes; `seconds` where none does."""
    began_s = desk.now_s
    if not desk.recalled():
        later(desk, seconds)
    return desk.now_s - began_s


def realtime_comes(desk: Desk) -> ClientId:
    desk.tenant("ben", owner="ben", asked_class="realtime")
    return comes(desk, "ben")


# ---- boosts ----------------------------------------------------------------------------------


@BOOSTS
def test_no_device_idles_for_a_boosted_one_that_needs_another_too() -> None:
    """A turn ends for nobody who could not be served then."""
    desk = Desk(BEN_FIRST)
    comes(desk, "one", "one")
    desk.tenant("two", owner="two")
    desk.ask(desk.client("two", "B"))
    later(desk, 60)
    desk.tenant("gang", owner="gang")
    boost(desk, "gang")
    desk.ask(desk.client("gang", "AB"))
    desk.do(ev.ClockTicked(), after_s=1)
    realtime_comes(desk)
    assert desk.recalled() == [] and desk.holders("A") == ["one"]


@BOOSTS
def test_a_sibling_ends_no_boosted_turn_before_its_quantum() -> None:
    desk = Desk(SETTINGS)
    train = comes(desk, "train", cell=True)
    later(desk, 60)
    ben = comes(desk, "ben", "ben")
    later(desk, 100)
    assert desk.recalled() == [train]
    hand_over(desk, train)
    boost(desk, "train")
    later(desk, 60)
    assert desk.recalled() == [ben]
    desk.drop(ben, ev.DropReason.RECALL)
    assert desk.granted() == [train]
    desk.do(ev.ClockTicked(), after_s=1)
    comes(desk, "explore", cell=True)
    assert recalled_within(desk, 60) == pytest.approx(SETTINGS.quantum_max_s)
    assert [each.reason for each in desk.all(RecallTurn)] == [RecallReason.QUANTUM_OVER]


@BOOSTS
@pytest.mark.parametrize("held", [False, True])
def test_a_boost_shields_no_turn_beyond_its_quantum(held: bool) -> None:
    """Neither one that has worked alone for an hour, nor one that its user keeps by hand."""
    desk = Desk(BEN_FIRST)
    desk.tenant("night", owner="ann", asked_class="" if held else "batch")
    first, night = comes(desk, "first", "first"), desk.client("night")
    desk.ask(night)
    boost(desk, "night")
    desk.drop(first)
    assert desk.holders() == ["night"]
    if held:
        desk.hold(night, 600)
        realtime_comes(desk)
        assert recalled_within(desk, 600) <= SETTINGS.quantum_min_s + 0.1
    else:
        desk.do(ev.ClockTicked(), after_s=3600)
        realtime_comes(desk)
        assert desk.recalled() == [night]


# ---- who is ended as overdue -----------------------------------------------------------------


def overdue(settings: SchedulerSettings) -> tuple[Desk, ClientId, ClientId]:
    """The first was asked for its turn and has been reported; the other one waits."""
    desk = Desk(settings)
    first, other = comes(desk, "first", "first"), comes(desk, "other", "other")
    desk.do(ev.ClockTicked(), after_s=settings.quantum_s)
    assert desk.recalled() == [first]
    desk.do(ev.ClockTicked(), after_s=settings.overdue_s)
    assert desk.all(ReportOverdue)
    return desk, first, other


@KILLS
@pytest.mark.parametrize("also", [{"overdue_s": 600.0}, {"turns": TurnTaking.OFF}])
def test_nobody_is_ended_whom_the_new_settings_spare(also: dict[str, object]) -> None:
    desk, _, _ = overdue(SETTINGS.replace(quantum_s=10, overdue_s=5))
    desk.set(overdue_policy=OverduePolicy.KILL, **also)
    assert desk.all(KillClient) == []


@KILLS
def test_who_stalls_when_the_policy_is_set_is_ended_at_its_next_recall() -> None:
    """The time that it has been overdue for goes on."""
    desk, first, _ = overdue(SETTINGS.replace(quantum_s=10, overdue_s=20))
    desk.ask(first)
    desk.stall(first, calls_waiting=1)
    desk.set(overdue_policy=OverduePolicy.KILL)
    assert desk.all(KillClient) == []
    desk.sleep_until_woken()
    assert [each.client for each in desk.all(KillClient)] == [first]


# ---- cells -----------------------------------------------------------------------------------


@OWN_CREDIT
@pytest.mark.parametrize("said_by", ["the hook", "the server"])
def test_a_cell_is_new_that_is_announced_after_its_first_call(said_by: str) -> None:
    """The word of it and the call come by two ways."""
    desk = Desk(SETTINGS)
    explore, train = has_had_more(desk)
    desk.ask(explore)
    assert desk.recalled() == []
    if said_by == "the hook":
        desk.do(ev.CellBegan(client=explore), after_s=0.002)
    else:
        desk.do(ev.TenantBusy(tenant=TenantId("explore"), busy=True), after_s=0.002)
    assert desk.recalled() == [train]


@pytest.mark.promise("scheduler-98")
@pytest.mark.parametrize("why", ["needs two devices", "was boosted"])
def test_a_cell_that_a_siblings_quantum_has_ended_does_not_come_again_at_once(why: str) -> None:
    desk = Desk(SETTINGS)
    explore = comes(desk, "explore", cell=True)
    desk.tenant("train", owner="ann")
    train = desk.client("train", "AB" if why == "needs two devices" else "A")
    desk.ask(train)
    if why == "was boosted":
        boost(desk, "train")
    later(desk, 60)
    assert desk.recalled() == [explore]
    desk.drop(explore, ev.DropReason.RECALL)
    assert desk.granted() == [train]
    desk.ask(explore, after_s=0.001)
    assert desk.recalled() == []
    assert recalled_within(desk, 60) >= SETTINGS.quantum_min_s - 0.001


@OTHERS
@pytest.mark.parametrize("how", ["withdraws", "is paused on its other device"])
def test_a_new_cell_goes_first_again_when_a_sibling_can_be_served_no_more(how: str) -> None:
    desk = Desk(SETTINGS)
    explore = comes(desk, "explore", cell=True)
    later(desk, 20)
    desk.do(ev.CellEnded(client=explore))
    desk.drop(explore)
    ben = comes(desk, "ben", "ben")
    later(desk, 60)
    desk.tenant("train", owner="ann")
    train = desk.client("train", "AB")
    desk.ask(train)
    desk.do(ev.CellBegan(client=explore))
    desk.scheduler._machine._state.accounts.recent.of[TenantId("explore")].credit_s = -500.0
    desk.ask(explore)
    assert desk.recalled() == []
    if how == "withdraws":
        desk.withdraw(train, after_s=0.01)
    else:
        paused = ev.DeviceModeChanged(device=DeviceId("B"), mode=ev.DeviceMode.PAUSED)
        desk.do(paused, after_s=0.01)
    assert desk.recalled() == [ben]


@pytest.mark.promise("scheduler-98")
def test_the_end_of_a_process_is_the_end_of_its_cell() -> None:
    """Another process of the notebook waits: what comes of it is new."""
    desk = Desk(SETTINGS.replace(quantum_s=10))
    one = comes(desk, "one")
    later(desk, 60)
    two = comes(desk, "two", cell=True)
    waits = desk.client("two")
    hand_over(desk, one)
    while desk.recalled() != [two]:
        desk.sleep_until_woken()
    hand_over(desk, two)
    desk.ask(waits)
    assert desk.holders() == ["one"]
    desk.do(ev.ClockTicked(), after_s=5)
    desk.lose(two)
    assert desk.recalled() == [one]


@BOOSTS
@pytest.mark.parametrize("by_admin", [True, False])
@pytest.mark.parametrize("boosted", [True, False])
def test_a_boost_shields_no_turn_that_is_held(boosted: bool, by_admin: bool) -> None:
    """Longer than its quantum, whoever holds it."""
    desk = Desk(BEN_FIRST)
    desk.tenant("night", owner="ann")
    first, night = comes(desk, "first", "first"), desk.client("night")
    desk.ask(night)
    if boosted:
        boost(desk, "night")
    desk.drop(first)
    desk.do(ev.TenantHeld(tenant=TenantId("night"), hold_s=600, by_admin=by_admin))
    realtime_comes(desk)
    assert recalled_within(desk, 700) <= SETTINGS.quantum_min_s + 0.1


@BOOSTS
def test_a_sibling_waits_no_longer_for_a_turn_whose_boost_is_over() -> None:
    """Nobody competes for it any more, so its quantum does not count."""
    desk = Desk(SETTINGS.replace(quantum_s=10))
    explore = comes(desk, "explore")
    desk.do(ev.ClockTicked(), after_s=14)
    desk.drop(explore)
    first = comes(desk, "first", "first")
    desk.tenant("night", owner="ann")
    night = desk.client("night")
    desk.ask(night)
    boost(desk, "night")
    desk.drop(first)
    desk.do(ev.ClockTicked(), after_s=10.5)
    desk.ask(explore)
    assert recalled_within(desk, 60) < 5


@OTHERS
@pytest.mark.parametrize("cell", [True, False])
def test_an_admins_hold_costs_no_credit_of_new_cells(cell: bool) -> None:
    """The turn goes before others as long as its cell is new, and then it is kept by hand."""
    desk = Desk(SETTINGS)
    ben = comes(desk, "ben", "ben")
    later(desk, 5)
    comes(desk, "a", "ann", cell=cell)
    while not desk.recalled():
        desk.sleep_until_woken()
    hand_over(desk, ben)
    desk.do(ev.TenantHeld(tenant=TenantId("a"), hold_s=60, by_admin=True))
    later(desk, 200)
    owners = desk.scheduler._machine._state.accounts.owners
    assert owners["ann"].credit_s > -SETTINGS.credit_s


@pytest.mark.parametrize("word", ["hold", "mode", ""])
def test_a_word_about_one_device_does_not_hurry_a_turn_on_two(word: str) -> None:
    """What its holder has had is judged by both devices, up to the same moment."""
    desk = Desk(SETTINGS)
    explore = comes(desk, "explore")
    desk.do(ev.ClockTicked(), after_s=30)
    desk.drop(explore)
    desk.tenant("train", owner="ann")
    train = desk.client("train", "AB")
    desk.tenant("carl", owner="carl")
    carl = desk.client("carl", "B")
    desk.ask(train)
    desk.do(ev.ClockTicked(), after_s=1)
    desk.ask(explore)
    began_s = desk.now_s
    desk.do(ev.ClockTicked(), after_s=10)
    if word == "hold":
        desk.hold(carl, 0)
    elif word == "mode":
        desk.do(ev.DeviceModeChanged(device=DeviceId("B"), mode=ev.DeviceMode.OPEN))
    desk.do(ev.TenantBusy(tenant=TenantId("train"), busy=True))
    recalled_within(desk, 60)
    assert desk.now_s - began_s == pytest.approx(18.12, abs=0.1)
