"""Needs that others' memory makes impossible: each ends, with or without the turn, and none is
refused for what is in the way for a moment only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import MeasureDevice
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.needs import GRACE_S, LOOK_S_MAX
from jupyter_gpushare.core.settings import MemoryMode
from jupyter_gpushare.core.snapshot import REFUSAL_SHOWN_S

from .memory_desk import USABLE, MemoryDesk

IN_THE_WAY = 4000
TOO_MUCH = USABLE - IN_THE_WAY + 1
JUST_FITS = TOO_MUCH - 1


def foreign(desk: MemoryDesk) -> int:
    """The device has so much in use, under no client."""
    desk.measure(IN_THE_WAY)
    return IN_THE_WAY


def fixed(desk: MemoryDesk) -> int:
    desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    return IN_THE_WAY


def failed(desk: MemoryDesk) -> int:
    desk.fail(desk.with_memory("a", IN_THE_WAY))
    return IN_THE_WAY


def without_host_room(desk: MemoryDesk) -> int:
    desk.with_memory("a", IN_THE_WAY, parkable=0)
    return IN_THE_WAY


def silent(desk: MemoryDesk) -> int:
    """It was to make room for somebody who has gone again, and never answered."""
    one = desk.with_memory("a", IN_THE_WAY)
    other = desk.client("x")
    desk.ask(other)
    desk.need(other, USABLE)
    desk.now_s += desk.scheduler.settings.park_timeout_s + 1
    desk.do(ev.ClockTicked())
    assert [client.devices[0].silent for client in desk.status("a").clients] == [True]
    desk.need(other, 0)
    desk.drop(other)
    desk.close(other, "A")
    assert desk.budget(one) <= IN_THE_WAY
    return IN_THE_WAY


def fixed_of_a_holder(desk: MemoryDesk) -> int:
    """It has the turn, and when it hands over this stays."""
    desk.with_memory("a", IN_THE_WAY + 1000, fixed=IN_THE_WAY, resting=False)
    return IN_THE_WAY + 1000


RESTING = {
    foreign: "foreign",
    fixed: "fixed",
    failed: "failed",
    without_host_room: "host",
    silent: "silent",
}
OBSTACLES = {**RESTING, fixed_of_a_holder: "fixed"}


@pytest.fixture(params=[False, True], ids=["not measured", "measured"])
def desk(request: pytest.FixtureRequest) -> MemoryDesk:
    desk = MemoryDesk(reclaim_s=0.2)
    if request.param:
        desk.measure(0)
    return desk


# ---- each kind of obstacle -------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-41",
    "A need that memory of others makes impossible (foreign, without room on the host; where "
    "`memory_wait_s` is 0 or over, also fixed, failed, silent, or fixed by who has the turn) is "
    "refused, with or without the turn, when that has been so for half a second and the device was "
    "looked at meanwhile; the status says whose it is",
)
@pytest.mark.parametrize(("in_the_way", "kind"), OBSTACLES.items())
@pytest.mark.parametrize("asks", ["before the need", "after the need", "never"])
def test_without_the_turn_a_need_is_refused(
    desk: MemoryDesk, in_the_way: Callable[[MemoryDesk], int], kind: str, asks: str
) -> None:
    """After a moment in which it might still turn out to be possible; the status says why."""
    used = in_the_way(desk)
    two = desk.client("b")
    if asks == "before the need" and in_the_way is not fixed_of_a_holder:
        other = desk.client("y")  # somebody has the turn: what it has not fixed does not count
        desk.ask(other)
    if asks == "before the need":
        desk.ask(two)
    desk.need(two, TOO_MUCH)
    assert not desk.refused()
    if asks == "after the need":
        desk.ask(two)
    assert desk.obstacle("b") in (None, kind) and "b" not in desk.holders()
    desk.await_refusal(two, used=used)
    desk.withdraw(two)
    obstacle = desk.status("b").obstacle
    assert obstacle is not None
    assert (obstacle.kind.value, obstacle.bytes_in_the_way) == (kind, IN_THE_WAY)
    assert obstacle.bytes_short == 1


@pytest.mark.promise("accounts-41")
@pytest.mark.parametrize(("in_the_way", "kind"), RESTING.items())
def test_with_the_turn_a_need_is_refused(
    desk: MemoryDesk, in_the_way: Callable[[MemoryDesk], int], kind: str
) -> None:
    """As without it."""
    used = in_the_way(desk)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, TOO_MUCH)
    assert not desk.refused() and desk.holders() == ["b"]
    desk.await_refusal(two, used=used)
    assert desk.obstacle("b") == kind


@pytest.mark.promise("accounts-42")
@pytest.mark.parametrize("in_the_way", RESTING)
def test_what_just_fits_beside_it_is_granted(
    desk: MemoryDesk, in_the_way: Callable[[MemoryDesk], int]
) -> None:
    """Without a moment's doubt."""
    in_the_way(desk)
    two = desk.client("b")
    desk.need(two, JUST_FITS)
    desk.ask(two)
    assert desk.granted() == [two]
    assert desk.budget(two) == JUST_FITS


@pytest.mark.promise("accounts-42")
def test_what_a_holder_can_move_is_waited_for() -> None:
    """Who needs all but its fixed bytes gets that when it hands over."""
    desk = MemoryDesk()
    one = desk.with_memory("a", USABLE, fixed=IN_THE_WAY, resting=False)
    two = desk.client("b")
    desk.need(two, JUST_FITS)
    desk.ask(two)
    for _ in range(10):
        desk.do(ev.ClockTicked(), after_s=GRACE_S)
        assert not desk.refused()
    desk.drop(one)
    desk.park(one)
    assert desk.budget(two) == JUST_FITS


def test_beyond_the_device_alone_is_refused_at_once() -> None:
    """Nobody else is to blame, so nobody is named."""
    desk = MemoryDesk()
    two = desk.client("b")
    desk.need(two, USABLE + 1)
    assert desk.refused() == [two]
    assert desk.obstacle("b") is None


def test_beyond_the_device_with_the_rest_of_the_tenant_is_refused() -> None:
    """Nobody else is to blame here either."""
    desk = MemoryDesk()
    desk.with_memory("b", 3000)
    two = desk.client("b")
    desk.need(two, USABLE - 3000 + 1)
    desk.await_refusal(two, used=3000)
    assert desk.obstacle("b") is None


@pytest.mark.promise("accounts-42")
@pytest.mark.parametrize("waits_first", [True, False])
def test_what_another_process_of_the_tenant_has_freed_is_there(waits_first: bool) -> None:
    """It reports that a moment later; what needs it waits for the report."""
    desk = MemoryDesk()
    one = desk.with_memory("b", 3000, resting=False)
    two = desk.client("b")
    if waits_first:
        desk.ask(two)
    desk.need(two, USABLE)
    assert not desk.refused()
    desk.report(one, allocated=0, after_s=0.1)
    if not waits_first:
        desk.ask(two)
    desk.report(one)  # it has heard of the budget that is taken back
    assert desk.budget(two) == USABLE


@pytest.mark.promise("together-3")
def test_a_need_in_a_context_that_fails_is_refused() -> None:
    """At once, and nobody is named; also one that has been met and not been taken."""
    desk = MemoryDesk()
    desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two, three = desk.client("b"), desk.client("c")
    desk.need(two, TOO_MUCH)
    desk.fail(two)
    assert desk.refused() == [two] and desk.obstacle("b") is None
    desk.ask(three)
    desk.need(three, JUST_FITS)
    desk.fail(three)
    assert desk.refused() == [three]


# ---- what is in the way for a moment ---------------------------------------------------------


@pytest.mark.promise(
    "accounts-42",
    "Nothing is refused for what is in the way for a moment, for memory of processes that have "
    "just ended, or for that of tenants which are not back after a restart",
)
def test_a_need_that_becomes_possible_is_granted() -> None:
    """What was in the way is gone before the moment is over."""
    desk = MemoryDesk()
    one = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two = desk.client("b")
    desk.need(two, TOO_MUCH)
    desk.ask(two)
    assert desk.obstacle("b") == "fixed"
    desk.report(one, allocated=3000, fixed=3000, after_s=GRACE_S * 0.9)
    assert desk.granted() == [two]
    desk.report(one)
    assert desk.budget(two) >= TOO_MUCH


@pytest.mark.promise("accounts-42")
def test_what_is_in_the_way_again_has_a_new_moment() -> None:
    """A host whose room comes and goes is not taken for one that has none."""
    desk = MemoryDesk()
    one = desk.with_memory("a", IN_THE_WAY, parkable=0)
    two = desk.client("b")
    holder = desk.client("c")
    desk.ask(holder)
    desk.need(two, TOO_MUCH)
    desk.ask(two)
    for _ in range(10):
        desk.report(one, parkable=5000, after_s=GRACE_S * 0.9)
        desk.report(one, parkable=0)
        assert not desk.refused()
    desk.await_refusal(two)


@pytest.mark.promise("accounts-42")
def test_foreign_bytes_that_a_look_takes_back_refuse_nothing() -> None:
    """The device is looked at meanwhile."""
    desk = MemoryDesk()
    desk.measure(IN_THE_WAY)
    two = desk.client("b")
    desk.need(two, TOO_MUCH)
    assert desk.all(MeasureDevice)
    desk.ask(two)
    assert desk.obstacle("b") == "foreign"
    desk.measure(100, after_s=0.02)
    assert desk.granted() == [two] and desk.budget(two) >= TOO_MUCH


@pytest.mark.promise("accounts-41")
def test_nothing_is_refused_before_the_device_was_looked_at() -> None:
    """A look that takes long is waited for, but one that never comes is not."""
    desk = MemoryDesk()
    desk.measure(IN_THE_WAY)
    two = desk.client("b")
    desk.need(two, TOO_MUCH)
    asked_s = desk.now_s
    while not desk.refused():
        desk.sleep_until_woken()
    assert desk.now_s == pytest.approx(asked_s + LOOK_S_MAX)
    assert desk.obstacle("b") == "foreign"


@pytest.mark.promise("accounts-34")
def test_a_need_that_is_withdrawn_ends() -> None:
    """It is neither refused later, nor is the device looked at any more."""
    desk = MemoryDesk()
    desk.measure(IN_THE_WAY)
    two = desk.client("b")
    desk.need(two, TOO_MUCH)
    desk.need(two, 0)
    for _ in range(5):
        desk.do(ev.ClockTicked(), after_s=GRACE_S)
        assert not desk.refused() and not desk.all(MeasureDevice)
    assert desk.obstacle("b") is None


@pytest.mark.promise("accounts-42")
def test_memory_of_the_dead_is_waited_for_without_a_turn() -> None:
    """For `reclaim_s`, as with one; however many others die meanwhile."""
    desk = MemoryDesk(reclaim_s=5)
    desk.measure(0)
    desk.lose(desk.with_memory("a", IN_THE_WAY))
    for _ in range(3):
        desk.measure(IN_THE_WAY, after_s=0.2)
    two = desk.client("b")
    desk.need(two, TOO_MUCH)
    for _ in range(9):
        desk.lose(desk.with_memory("c", 10, resting=False))
        for used in (IN_THE_WAY + 10, IN_THE_WAY):
            desk.measure(used, after_s=0.25)
            assert not desk.refused()
    desk.measure(IN_THE_WAY, after_s=0.5)
    assert desk.refused() == [two]


@pytest.mark.promise("accounts-42")
def test_clients_that_are_not_back_yet_refuse_nothing() -> None:
    """A new scheduler takes their memory for strangers' until they have come."""
    desk = MemoryDesk(recovering_until_s=102.0)
    desk.measure(IN_THE_WAY)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, TOO_MUCH)
    for _ in range(19):
        desk.measure(IN_THE_WAY, after_s=0.1)
        assert not desk.refused()
    one = desk.client("a")
    desk.report(one, allocated=IN_THE_WAY)
    desk.do(ev.RecoveryComplete())
    for _ in range(10):
        desk.measure(IN_THE_WAY, after_s=0.1)
        assert not desk.refused()
    desk.park(one)
    assert desk.budget(two) >= TOO_MUCH


# ---- needs one after the other ---------------------------------------------------------------


@pytest.mark.promise("accounts-41")
def test_smaller_needs_are_refused_faster() -> None:
    """Frameworks try less and less: what is known need not be found out again, if the device was
    looked at."""
    desk = MemoryDesk()
    desk.measure(IN_THE_WAY)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, USABLE)
    desk.await_refusal(two, used=IN_THE_WAY)
    for needed in (USABLE - 500, USABLE - 1000, TOO_MUCH):
        desk.need(two, 0)
        desk.need(two, needed, "A")
        assert desk.all(MeasureDevice) and not desk.refused()
        desk.measure(IN_THE_WAY, after_s=0.02)
        assert desk.refused() == [two]
    desk.need(two, JUST_FITS)
    assert not desk.refused() and desk.budget(two) >= JUST_FITS


def test_what_was_possible_meanwhile_has_its_moment() -> None:
    """More room was there after a need had been refused; that it has gone again may be an error."""
    desk = MemoryDesk()
    one = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, TOO_MUCH)
    desk.await_refusal(two)
    desk.report(one, fixed=0, after_s=10)
    desk.report(one, fixed=IN_THE_WAY)
    desk.need(two, TOO_MUCH)
    assert not desk.refused()
    desk.await_refusal(two)


@pytest.mark.promise("accounts-41")
def test_the_status_forgets_a_refusal() -> None:
    """When the tenant is given what it needs, or after ten minutes: whoever reads that he was
    refused is sent to the status, and may have been away meanwhile."""
    desk = MemoryDesk()
    desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, TOO_MUCH)
    desk.await_refusal(two)
    assert desk.obstacle("b") == "fixed"
    desk.need(two, JUST_FITS)
    assert desk.obstacle("b") is None
    desk.need(two, TOO_MUCH)
    desk.await_refusal(two)
    desk.now_s += 590
    assert desk.obstacle("b") == "fixed"
    desk.now_s += REFUSAL_SHOWN_S - 590
    assert desk.obstacle("b") is None


@pytest.mark.promise("accounts-34")
def test_a_need_that_was_met_in_vain_is_still_there() -> None:
    """The turn ended before the call could go on: the next turn begins with what it needs, though
    the process does not say so again."""
    desk = MemoryDesk()
    one, two = desk.client("a"), desk.with_memory("b", 5000)
    desk.ask(one)
    desk.need(one, 4000)
    desk.park(two)
    assert desk.budget(one) == 4000
    desk.drop(one, ev.DropReason.RECALL)
    desk.ask(two)
    desk.report(two, parked=0)
    desk.drop(two)
    desk.ask(one)
    desk.park(two)
    assert desk.budget(one) == 4000
    desk.report(one, allocated=4000)
    desk.drop(one)
    desk.ask(two)
    assert desk.budget(two) == 3000


@pytest.mark.promise("accounts-34")
def test_a_need_that_was_met_in_vain_ends_with_the_device() -> None:
    """The device is lost before the call could go on."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.ask(one)
    desk.need(one, 4000)
    desk.do(ev.DeviceLost(device=DeviceId("A")))
    assert desk.refused() == [one]


# ---- several processes, several devices ------------------------------------------------------


@pytest.mark.promise("accounts-34")
def test_needs_of_two_processes_that_do_not_fit_together() -> None:
    """Neither waits for ever: the first is served, the other refused."""
    desk = MemoryDesk()
    desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two, three = desk.client("b"), desk.client("b")
    holder = desk.client("c")
    desk.ask(holder)
    for client in (two, three):
        desk.need(client, JUST_FITS - 500)
        desk.ask(client)
    desk.await_refusal(three)
    assert two not in desk.refused()
    desk.withdraw(three)
    desk.report(holder)
    desk.drop(holder)
    assert desk.granted() == [two] and desk.budget(two) >= JUST_FITS - 500


@pytest.mark.promise("accounts-34")
def test_who_is_refused_leaves_room_for_its_siblings() -> None:
    """A need that cannot be met takes nothing from the next process of the tenant."""
    desk = MemoryDesk()
    desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two, three = desk.client("b"), desk.client("b")
    desk.need(two, TOO_MUCH)
    desk.need(three, JUST_FITS)
    desk.ask(three)
    desk.await_refusal(two)
    assert desk.granted() == [three] and desk.budget(three) >= JUST_FITS


def parked_and_kept_away(desk: MemoryDesk, device: str) -> ClientId:
    """`a` has parked memory on the device, and `b`, which rests, has fixed what took its place."""
    one = desk.with_memory("a", 5000, device)
    two = desk.client("b", device)
    desk.ask(two)
    desk.need(two, 5000, device)
    desk.park(one, device)
    desk.report(two, device, allocated=5000, fixed=5000)
    desk.need(two, 0, device)
    desk.drop(two)
    return one


@pytest.mark.promise("accounts-34")
def test_own_memory_that_is_kept_away_is_waited_for() -> None:
    """A launch waits with the sentence. An allocation is refused, and the launch waits on."""
    desk = MemoryDesk()
    one = parked_and_kept_away(desk, "A")
    desk.ask(one)
    desk.need(one, 10)
    desk.await_refusal(one)
    for _ in range(5):
        desk.do(ev.ClockTicked(), after_s=GRACE_S)
        assert desk.obstacle("a") == "fixed" and desk.queue() == ["a"]


@pytest.mark.promise("accounts-34")
def test_memory_that_is_kept_away_from_another_device() -> None:
    """There is room on the one device, but no turn without the memory on the other: a need ends."""
    desk = MemoryDesk(devices="AB")
    one = parked_and_kept_away(desk, "B")
    desk.open(one, "A")
    desk.ask(one)
    desk.need(one, 10, "A")
    assert desk.obstacle("a") == "fixed"
    desk.await_refusal(one)
    found = desk.status("a").obstacle
    assert found is not None and (found.device, found.tenant) == ("B", "b")


def test_on_each_device_its_own_need_is_refused() -> None:
    """A need on a device with room is not refused because of another one that has none."""
    desk = MemoryDesk(devices="AB")
    desk.with_memory("a", IN_THE_WAY, "B", fixed=IN_THE_WAY)
    two, three = desk.client("b", "A"), desk.client("b", "B")
    desk.need(two, USABLE, "A")
    desk.need(three, TOO_MUCH, "B")
    desk.ask(two)
    desk.await_refusal(three)
    assert desk.granted() == [two] and desk.budget(two, "A") == USABLE


# ---- what is tried again ---------------------------------------------------------------------


def test_memory_that_was_short_delays_a_need_and_does_not_lose_it() -> None:
    """The turn is tried again after a second; then the need is met."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.ask(one)
    desk.need(one, 3000)
    desk.drop(one, ev.DropReason.MEMORY_SHORT)
    desk.need(one, 3000)
    desk.ask(one)
    assert desk.obstacle("a") == "retry"
    while not desk.granted():
        desk.sleep_until_woken()
        assert not desk.refused()
    assert desk.budget(one) >= 3000


def test_where_memory_stays_nothing_is_kept_in_mind() -> None:
    """Switched off and on again, each need has its moment."""
    desk = MemoryDesk()
    desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    two = desk.client("b")
    desk.need(two, TOO_MUCH)
    desk.await_refusal(two)
    desk.set(memory_mode=MemoryMode.OFF)
    desk.need(two, TOO_MUCH)
    assert not desk.refused()
    desk.set(memory_mode=MemoryMode.SWAP)
    desk.need(two, TOO_MUCH)
    assert not desk.refused()
    desk.await_refusal(two)


def test_a_need_outlasts_a_time_without_limits() -> None:
    """Its process had no turn then, and hears only afterwards that it might have had all it wants.
    It does not say it again."""
    desk = MemoryDesk()
    a, b = desk.with_memory("a", 1000, resting=False), desk.client("b")
    desk.ask(b)
    desk.need(b, USABLE - 500)
    desk.set(memory_mode=MemoryMode.OFF)
    desk.set(memory_mode=MemoryMode.SWAP)
    desk.report(a)
    desk.report(b)
    desk.drop(a)
    assert desk.granted() == [b]
    assert desk.told()[a] == 500
    desk.park(a)
    assert desk.budget(b) == USABLE - 500
