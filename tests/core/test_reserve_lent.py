"""Contexts grow while notebooks work. What was on the device before may come back beside them."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.settings import TurnTaking

from .memory_desk import RESERVE, USABLE, MemoryDesk


def with_little_to_move(desk: MemoryDesk) -> tuple[int, int]:
    """`a` fills the device, and 1000 bytes of it can be moved; they are parked for `b`, which has
    the turn."""
    desk.measure(0)
    one = desk.with_memory("a", USABLE, fixed=USABLE - 1000)
    two = desk.with_memory("b", 0, resting=False)
    desk.need(two, 1000)
    desk.park(one)
    desk.report(two, allocated=1000)
    return one, two


def contexts_grow(desk: MemoryDesk, count: int, *, used: int = USABLE) -> None:
    for _ in range(2):
        desk.measure(used + count, after_s=1)
    assert desk.device().bytes_foreign == count


@pytest.mark.promise(
    "accounts-44",
    "Memory that was on a device before contexts grew comes back into the reserve, once "
    "others have parked all they can; new memory does not",
)
def test_what_was_there_before_contexts_grew_comes_back() -> None:
    """Into the reserve, which is there for them."""
    desk = MemoryDesk()
    one, two = with_little_to_move(desk)
    desk.ask(one)
    contexts_grow(desk, 600)
    desk.drop(two)
    assert desk.granted() == [one]
    desk.park(two)
    assert desk.budget(one) == USABLE
    desk.report(one, parked=0)
    assert desk.obstacle("a") is None
    assert not desk.told()


@pytest.mark.promise("accounts-44")
def test_what_others_can_park_comes_first() -> None:
    """The reserve is lent for what nobody can give."""
    desk = MemoryDesk()
    one, two = with_little_to_move(desk)
    desk.ask(one)
    contexts_grow(desk, 600)
    desk.drop(two)
    assert desk.budget(two) == 0
    assert desk.budget(one) == USABLE - 1000


@pytest.mark.promise("accounts-44")
def test_beyond_the_reserve_nothing_comes_back() -> None:
    """Nothing would be left for the driver: the tenant is passed over, and told why."""
    desk = MemoryDesk()
    one, two = with_little_to_move(desk)
    desk.ask(one)
    contexts_grow(desk, RESERVE + 1)
    desk.drop(two)
    assert desk.granted() == []
    obstacle = desk.status("a").obstacle
    assert obstacle is not None
    assert (obstacle.kind.value, obstacle.bytes_short) == ("foreign", 1)


@pytest.mark.promise("accounts-44")
def test_nothing_new_is_lent() -> None:
    """A need is refused as before; then the turn comes, and with it what was there."""
    desk = MemoryDesk()
    one, two = with_little_to_move(desk)
    desk.report(one, allocated=USABLE - 100, parked=900)
    contexts_grow(desk, 600)
    desk.ask(one)
    desk.need(one, 50)
    desk.drop(two)
    assert desk.granted() == []
    desk.await_refusal(one, used=USABLE + 600)
    assert desk.granted() == [one]
    desk.park(two)
    assert desk.budget(one) == USABLE - 100


@pytest.mark.promise("accounts-44")
def test_what_is_coming_back_is_not_taken_back() -> None:
    """Contexts grow in the middle of a restore: it goes on."""
    desk = MemoryDesk()
    one, two = with_little_to_move(desk)
    desk.ask(one)
    desk.drop(two)
    desk.park(two)
    assert desk.budget(one) == USABLE
    desk.report(one, parked=600)
    for _ in range(3):
        desk.measure(USABLE - 600 + 500, after_s=1)
    assert desk.device().bytes_foreign == 500
    assert desk.budget(one) == USABLE


def test_a_need_that_was_met_and_not_used_yet_is_in_the_way() -> None:
    """Without turns, others' calls are let through beside it only if they fit."""
    desk = MemoryDesk(turns=TurnTaking.OFF)
    one = desk.with_memory("a", 0, resting=False)
    desk.report(one)
    desk.need(one, 4000)
    assert desk.budget(one) >= 4000
    two = desk.client("b")
    desk.need(two, 4000)
    desk.ask(two)
    assert desk.granted() == []
    assert desk.obstacle("b") == "holder"
    desk.need(one, 0)
    assert desk.granted() == [two]


@pytest.mark.promise("accounts-44")
def test_it_is_taken_back_where_it_would_not_be_there() -> None:
    """What comes back is lent; strangers beyond the reserve are believed all the same."""
    desk = MemoryDesk()
    one, two = with_little_to_move(desk)
    desk.ask(one)
    desk.drop(two)
    desk.park(two)
    desk.report(one, parked=600)
    for _ in range(3):
        desk.measure(USABLE - 600 + RESERVE + 200, after_s=1)
    assert desk.budget(one) == USABLE - 200
    desk.do(ev.DeviceMemoryMeasured(device=desk.device().id, bytes_used=USABLE - 600))
    assert desk.budget(one) == USABLE


@pytest.mark.promise("accounts-44")
@pytest.mark.parametrize("foreign", [500, 1100, 1300])
def test_new_memory_is_not_lent_beside_memory_that_comes_back(foreign: int) -> None:
    """One process was given new bytes and has not used them, another one's are coming back, when
    contexts grow: the new ones must not come out of the reserve."""
    desk = MemoryDesk()
    desk.measure(0)
    one, two = desk.with_memory("a", 1000), desk.with_memory("a", 4000)
    three = desk.with_memory("b", 0, resting=False)
    desk.need(three, USABLE)
    desk.park(one)
    desk.park(two)
    desk.report(three, allocated=USABLE)
    desk.ask(one)
    desk.ask(two)
    desk.drop(three)
    desk.park(three)
    desk.report(three, allocated=0, parked=0)
    desk.report(three)
    desk.report(one, parked=0)
    desk.report(two, parked=500)
    desk.need(one, 2000)
    desk.report(one)
    desk.report(two)
    assert (desk.budget(one), desk.budget(two)) == (3000, 4000)
    for _ in range(5):  # the rules of invariants.py hold after each
        desk.measure(4500 + foreign, after_s=0.2)
    assert desk.device().bytes_foreign == foreign
    assert desk.budget(one) <= 1000 + max(0, USABLE - 4500 - foreign)
