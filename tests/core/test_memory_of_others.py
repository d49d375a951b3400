"""Memory that no budget covers: strangers', of processes that are gone, and what contexts need."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import MeasureDevice
from jupyter_gpushare.core.ids import DeviceId

from .memory_desk import RESERVE, USABLE, MemoryDesk

# ---- strangers -------------------------------------------------------------------------------


@pytest.mark.promise(
    "accounts-35",
    "Memory of programs without the hook is never given out, and unreported growth of a "
    "client is not mistaken for it",
)
def test_what_strangers_have_is_not_given_out() -> None:
    """Bytes that the device has in use and no client has."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.measure(1500)
    desk.ask(one)
    assert desk.device().bytes_foreign == 1500
    assert desk.budget(one) == USABLE - 1500


@pytest.mark.promise("accounts-35")
def test_growth_that_was_not_reported_yet_is_no_strangers() -> None:
    """A client may have what it was given before it says so; a look between is not believed."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.measure(100)
    desk.ask(one)
    desk.measure(100, after_s=1)
    desk.measure(5100, after_s=1)
    assert desk.device().bytes_foreign == 100
    desk.report(one, allocated=5000)
    desk.measure(5100, after_s=1)
    assert desk.device().bytes_foreign == 100
    assert not desk.told()


@pytest.mark.promise("accounts-35")
def test_strangers_that_come_are_seen() -> None:
    """When two looks agree: then budgets that nobody uses go down."""
    desk = MemoryDesk()
    desk.measure(0)
    one = desk.with_memory("a", 3000, resting=False)
    desk.measure(3000, after_s=1)
    desk.measure(3700, after_s=1)
    desk.measure(3700, after_s=1)
    assert desk.device().bytes_foreign == 700
    assert desk.budget(one) == USABLE - 700


@pytest.mark.promise("accounts-35")
def test_strangers_that_leave_are_seen_at_once() -> None:
    """What they had is given out."""
    desk = MemoryDesk()
    desk.measure(2000)
    one = desk.client("a")
    desk.ask(one)
    desk.measure(0, after_s=1)
    assert desk.budget(one) == USABLE


@pytest.mark.promise("accounts-35")
def test_when_strangers_come_the_resting_make_room() -> None:
    """The reserve is there again as soon as they have parked."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 6000)
    desk.measure(6000)
    for _ in range(2):
        desk.measure(6000 + RESERVE + 500, after_s=1)
    assert desk.budget(one) == USABLE - RESERVE - 500


@pytest.mark.promise(
    "accounts-36",
    "If programs without the hook take memory that a client was promised, its budget shrinks "
    "and its need is kept",
)
def test_what_strangers_take_of_a_budget_that_is_out_is_taken_back() -> None:
    """It was given for a need that is met in part; who waits for the rest waits for that again."""
    desk = MemoryDesk()
    desk.measure(0)
    one = desk.with_memory("a", 5000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 6000)
    desk.report(one, parked=1000)
    assert desk.budget(two) == 3000
    desk.measure(8000)
    assert desk.device().bytes_foreign == 1000
    assert desk.budget(two) == 2000
    desk.report(two)
    desk.park(one)
    assert desk.budget(two) == 6000


@pytest.mark.promise("accounts-36")
def test_what_strangers_take_of_a_need_that_was_met_is_needed_again() -> None:
    """Its call had not gone on yet."""
    desk = MemoryDesk()
    desk.measure(0)
    one = desk.with_memory("a", 5000)
    two = desk.client("b")
    desk.ask(two)
    desk.need(two, 2000)
    assert desk.budget(two) == 2000
    desk.measure(8000)
    assert desk.budget(two) == 1000
    desk.report(two)
    desk.park(one)
    assert desk.budget(two) == 2000


@pytest.mark.promise("accounts-35")
def test_a_look_that_crossed_a_park_sees_no_strangers() -> None:
    """What a victim has just released was in use when the device was looked at."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 6000)
    two = desk.client("b")
    desk.measure(6000)
    desk.ask(two)
    desk.need(two, 5000)
    desk.park(one)
    desk.report(two, allocated=5000)
    desk.measure(6000, after_s=0.1)
    assert desk.device().bytes_foreign == 0


# ---- processes that are gone -----------------------------------------------------------------


@pytest.mark.promise(
    "accounts-37",
    "Memory of a dead process is free when the device shows it, and the device is asked at once",
)
def test_memory_of_the_dead_is_free_when_the_device_shows_it() -> None:
    """The device is asked at once, and until it answers nobody gets what may still be there."""
    desk = MemoryDesk()
    desk.measure(0)
    one = desk.with_memory("a", 6000, resting=False)
    two = desk.client("b")
    desk.ask(two)
    desk.lose(one)
    assert desk.all(MeasureDevice)
    assert desk.budget(two) == 0
    desk.measure(6000)
    desk.measure(6000, after_s=0.05)
    assert desk.budget(two) == USABLE - 6000
    desk.measure(0, after_s=0.05)
    assert desk.budget(two) == USABLE
    assert desk.device().bytes_foreign == 0


@pytest.mark.promise("accounts-37")
def test_a_look_from_before_a_death_proves_nothing() -> None:
    """It may have begun before the process created what it had leave to create."""
    desk = MemoryDesk()
    desk.measure(0)
    one = desk.client("a")
    desk.ask(one)
    two = desk.client("b")
    desk.ask(two)
    desk.lose(one)
    desk.measure(0)
    assert desk.budget(two) == 0
    desk.measure(0, after_s=0.05)
    assert desk.budget(two) == USABLE


@pytest.mark.promise("accounts-37")
def test_where_no_device_can_be_looked_at_the_dead_are_believed_gone() -> None:
    """After `reclaim_s`."""
    desk = MemoryDesk(reclaim_s=5)
    one = desk.with_memory("a", 6000)
    desk.lose(one)
    two = desk.client("b")
    desk.ask(two)
    assert desk.budget(two) == USABLE - 6000
    lost_s = desk.now_s
    while desk.now_s < lost_s + 5:
        desk.sleep_until_woken()
    assert desk.budget(two) == USABLE


@pytest.mark.promise("accounts-37")
def test_a_need_waits_for_the_memory_of_the_dead() -> None:
    """It is refused only if that has not come back after `reclaim_s`."""
    desk = MemoryDesk(reclaim_s=5)
    desk.measure(0)
    one = desk.with_memory("a", 6000)
    two = desk.client("b")
    desk.ask(two)
    desk.lose(one)
    desk.need(two, 3000)
    for _ in range(10):
        desk.measure(6000, after_s=0.1)
        assert not desk.refused()
    desk.measure(6000, after_s=5)
    assert desk.refused() == [two]


@pytest.mark.promise("accounts-37")
def test_the_looks_end_when_nobody_is_short() -> None:
    """Every 50 ms while somebody is; afterwards the device is left alone."""
    desk = MemoryDesk()
    desk.measure(0)
    one = desk.with_memory("a", 3000)
    desk.lose(one)
    looks = 0
    for _ in range(4):
        desk.sleep_until_woken()
        looks += len(desk.all(MeasureDevice))
    assert looks == 4
    desk.measure(0)
    desk.measure(0, after_s=0.05)
    assert not desk.all(MeasureDevice)
    desk.now_s += 1
    desk.do(ev.ClockTicked())
    assert not desk.all(MeasureDevice)


# ---- room for contexts and modules -----------------------------------------------------------


@pytest.mark.promise("accounts-59")
def test_room_is_made_by_those_without_a_turn() -> None:
    """So much leaves the device, and then the one who asked is told."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 6000)
    two = desk.client("b", devices="")
    desk.measure(6000)
    desk.ask_space(two, 500)
    assert desk.budget(one) == 5500
    assert not desk.space_answers()
    desk.report(one, parked=500)
    assert desk.space_answers() == {two: True}


@pytest.mark.promise("accounts-59")
def test_room_is_kept_for_who_asked() -> None:
    """A holder does not get it as budget before a second has passed."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 6000)
    two = desk.with_memory("b", 1000, resting=False)
    three = desk.client("c", devices="")
    desk.ask_space(three, 500)
    desk.park(one)
    assert desk.space_answers() == {three: True}
    assert two not in desk.told()
    desk.sleep_until_woken()
    assert desk.budget(two) == 1500


@pytest.mark.promise("accounts-59")
def test_room_takes_budgets_that_nobody_uses() -> None:
    """Also a holder's, so that it does not grow into the room."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 1000, resting=False)
    two = desk.client("b", devices="")
    desk.ask_space(two, 500)
    assert 1000 <= desk.budget(one) <= USABLE - 500


@pytest.mark.promise("accounts-59")
def test_room_that_nobody_can_make_is_not_there() -> None:
    """When nobody is left who could park, and the device shows no room."""
    desk = MemoryDesk()
    desk.with_memory("a", 6000, fixed=6000)
    two = desk.client("b", devices="")
    desk.measure(7900)
    desk.ask_space(two, 500)
    assert not desk.space_answers()
    desk.measure(7900)
    assert desk.space_answers() == {two: False}


@pytest.mark.promise("accounts-59")
def test_room_that_the_device_shows_is_there() -> None:
    """Somebody who is no client has left meanwhile."""
    desk = MemoryDesk()
    desk.with_memory("a", 6000, fixed=6000)
    two = desk.client("b", devices="")
    desk.measure(7900)
    desk.ask_space(two, 500)
    desk.measure(7300)
    assert desk.space_answers() == {two: True}


@pytest.mark.promise("together-3")
def test_room_is_not_denied_by_a_look_from_before_it_was_made() -> None:
    """The device was looked at while somebody still parked: what it shows once that is over counts,
    and a look that ends right after the release may have begun before."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 6000, fixed=5700)
    two = desk.client("b", devices="")
    desk.measure(7900)
    desk.ask_space(two, 350)
    desk.measure(7900)
    desk.report(one, parked=300)
    assert not desk.space_answers()
    desk.measure(7900)
    assert not desk.space_answers()
    desk.measure(7600)
    assert desk.space_answers() == {two: True}


@pytest.mark.promise("accounts-59")
def test_room_is_waited_for_park_timeout_s_at_most() -> None:
    """A victim that does not answer keeps nobody waiting for longer."""
    desk = MemoryDesk(park_timeout_s=2)
    desk.with_memory("a", 6000)
    desk.measure(7900)
    two = desk.client("b", devices="")
    asked_s = desk.now_s
    desk.ask_space(two, 500)
    while not desk.space_answers():
        desk.sleep_until_woken()
    assert desk.space_answers() == {two: False}
    assert asked_s + 2 <= desk.now_s < asked_s + 2.5


@pytest.mark.promise("accounts-59")
def test_room_on_an_unknown_or_lost_device_is_not_there() -> None:
    """Nor where memory stays where it is."""
    desk = MemoryDesk()
    one = desk.client("a", devices="")
    desk.ask_space(one, 10, "Z")
    assert desk.space_answers() == {one: False}
    desk.do(ev.DeviceLost(device=DeviceId("A")))
    desk.ask_space(one, 10)
    assert desk.space_answers() == {one: False}
