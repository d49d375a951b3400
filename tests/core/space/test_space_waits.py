"""A client's first context on a full device waits for space as an allocation does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn, TellSpaceAwaited
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.settings import TurnTaking
from tests.core.memory_desk import TOTAL, USABLE, MemoryDesk
from tests.core.test_needs import failed, fixed, silent

WAIT_S = 120.0
TOO_MUCH = 4500
"""Beside what the others of test_needs.py have."""


@pytest.fixture
def desk() -> MemoryDesk:
    return MemoryDesk(memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)


def answers_within(desk: MemoryDesk, seconds: float, *, used: int | None = None) -> dict[int, bool]:
    """What requests are answered in this time, while the device has so much in use."""
    until_s, found = desk.now_s + seconds, dict[int, bool]()
    while desk.now_s < until_s:
        if used is None:
            desk.do(ev.ClockTicked(), after_s=0.5)
        else:
            desk.measure(used, after_s=0.5)
        found |= desk.space_answers()
    return found


def waits(desk: MemoryDesk, count: int = TOO_MUCH) -> ClientId:
    client = desk.client("b", devices="")
    desk.ask_space(client, count)
    assert [told.wait_s for told in desk.all(TellSpaceAwaited)] == [
        WAIT_S + desk.scheduler.settings.park_timeout_s
    ]
    assert desk.space_answers() == {}
    assert desk.status("b").memory_wait_left_s == pytest.approx(WAIT_S)
    return client


@pytest.mark.promise(
    "accounts-12",
    "A first context that has no space because of memory that others cannot move, or work with, "
    "waits for `memory_wait_s`; the status says what for",
)
@pytest.mark.parametrize(
    ("in_the_way", "kind"), [(fixed, "fixed"), (failed, "failed"), (silent, "silent")]
)
def test_it_waits_for_what_others_cannot_move(
    desk: MemoryDesk, in_the_way: Callable[[MemoryDesk], int], kind: str
) -> None:
    """It gets it when the process is gone that has it."""
    in_the_way(desk)
    bob = waits(desk)
    assert answers_within(desk, 60) == {}
    assert desk.obstacle("b") == kind
    (alice,) = (each.id for each in desk.status("a").clients)
    desk.lose(alice)
    found = desk.space_answers() | answers_within(desk, 6, used=0)
    assert found == {bob: True}
    assert desk.status("b").memory_wait_left_s is None and desk.obstacle("b") is None


@pytest.mark.promise("accounts-12")
def test_it_waits_for_who_has_the_turn(desk: MemoryDesk) -> None:
    """It does not fit beside that memory, with the turn or without it, until some is freed."""
    alice = desk.with_memory("a", 6000, resting=False)
    bob = waits(desk)
    assert desk.obstacle("b") == "holder"
    assert alice not in desk.told()
    assert answers_within(desk, 30) == {}
    desk.drop(alice)
    assert desk.obstacle("b") == "needed"
    desk.ask(alice)
    desk.report(alice, allocated=3000)
    desk.report(alice)
    found = desk.space_answers() | answers_within(desk, 3, used=3000)
    assert found == {bob: True}


@pytest.mark.promise("accounts-12")
def test_it_waits_in_vain_once(desk: MemoryDesk) -> None:
    """The next try is answered as before, until there could be more."""
    fixed(desk)
    desk.measure(4000)
    bob = waits(desk)
    assert answers_within(desk, WAIT_S + 1, used=4000) == {bob: False}
    refusal = desk.status("b").obstacle
    assert refusal is not None and refusal.kind.value == "fixed"
    desk.ask_space(bob, TOO_MUCH)
    assert answers_within(desk, 2, used=4000) == {bob: False}
    (alice,) = (each.id for each in desk.status("a").clients)
    desk.report(alice, allocated=3900, fixed=3900)
    desk.ask_space(bob, TOO_MUCH)
    assert answers_within(desk, 10, used=3900) == {}


@pytest.mark.promise("accounts-12")
def test_a_wait_that_is_taken_back_leaves_nothing(desk: MemoryDesk) -> None:
    """It was interrupted."""
    fixed(desk)
    bob = waits(desk)
    desk.ask_space(bob, 0)
    assert desk.space_answers() == {} and desk.obstacle("b") is None
    assert desk.status("b").memory_wait_left_s is None
    assert answers_within(desk, WAIT_S + 1) == {}


@pytest.mark.promise("accounts-12")
def test_others_are_asked_for_nothing_meanwhile(desk: MemoryDesk) -> None:
    """They would park in vain."""
    fixed(desk)
    carol = desk.with_memory("c", 500)
    waits(desk)
    answers_within(desk, 5)
    assert desk.budget(carol) == 500
    dave = desk.client("d")
    desk.ask(dave)
    desk.need(dave, USABLE - 4000 - 500)
    assert desk.budget(dave) >= USABLE - 4000 - 500


@pytest.mark.promise("accounts-12")
def test_a_tenant_with_a_turn_gives_it_back(desk: MemoryDesk) -> None:
    """Others work meanwhile."""
    fixed(desk)
    one = desk.client("b", devices="")
    desk.open(desk.client("b"), "A")
    (_, two) = (each.id for each in desk.status("b").clients)
    desk.ask(two)
    assert desk.holders() == ["b"]
    desk.ask_space(one, TOO_MUCH)
    assert [each.reason for each in desk.all(RecallTurn)] == [RecallReason.NO_SPACE]
    desk.drop(two)
    assert desk.holders() == []


def test_a_further_context_does_not_wait(desk: MemoryDesk) -> None:
    """Nor a module: its process has the device already, and its next call waits for its turn."""
    fixed(desk)
    desk.measure(4000)
    bob = desk.client("b")
    desk.ask_space(bob, TOO_MUCH)
    assert all(told.wait_s < 3 for told in desk.all(TellSpaceAwaited))
    assert answers_within(desk, 1, used=4000) == {bob: False}


def test_strangers_are_not_waited_for(desk: MemoryDesk) -> None:
    """They have an answer of their own."""
    for _ in range(2):
        desk.measure(6000, after_s=1)
    bob = desk.client("b", devices="")
    desk.ask_space(bob, TOO_MUCH)
    assert answers_within(desk, 2, used=6000) == {bob: False}


@pytest.mark.parametrize("changes", [{"memory_wait_s": 0}, {"turns": TurnTaking.OFF}])
def test_nobody_waits_without_turns_or_where_waits_are_off(changes: dict[str, object]) -> None:
    """As for other memory."""
    desk = MemoryDesk()
    desk.set(**{"memory_wait_s": WAIT_S, **changes})
    desk.with_memory("a", 4000, fixed=4000)
    desk.measure(4000)
    bob = desk.client("b", devices="")
    desk.ask_space(bob, TOO_MUCH)
    assert not desk.all(TellSpaceAwaited)
    assert answers_within(desk, 1, used=4000) == {bob: False}


@pytest.mark.promise(
    "accounts-13",
    "A first context is given no space without which memory of somebody could not come back",
)
def test_a_context_locks_nobody_out(desk: MemoryDesk) -> None:
    """All of it could be parked, and then the notebook would wait for ever."""
    alice = desk.with_memory("a", USABLE)
    for _ in range(2):
        desk.measure(USABLE + 600, after_s=1)
    bob = waits(desk, 500)
    found = desk.status("b").obstacle
    assert found is not None
    assert (found.kind.value, found.tenant) == ("needed", "a")
    assert (found.bytes_in_the_way, found.bytes_short) == (USABLE, 100)
    assert answers_within(desk, 10, used=USABLE + 600) == {}
    assert desk.budget(alice) == USABLE - 600, "for the contexts that are there"
    desk.report(alice, allocated=USABLE - 100)
    assert desk.budget(alice) < USABLE - 600
    desk.park(alice)
    assert desk.space_answers() == {bob: True}


def test_who_cannot_come_back_anyway_is_in_nobodys_way(desk: MemoryDesk) -> None:
    """Others may work meanwhile."""
    alice = desk.with_memory("a", USABLE)
    for _ in range(2):
        desk.measure(USABLE + 900, after_s=1)
    for _ in range(2):
        desk.measure(TOTAL, after_s=1)
    desk.park(alice)
    for _ in range(2):
        desk.measure(desk.budget(alice) + 1500, after_s=1)
    bob = desk.client("b", devices="")
    desk.ask_space(bob, 300)
    desk.park(alice)
    assert desk.space_answers() | answers_within(desk, 2) == {bob: True}


def test_a_new_scheduler_waits_for_its_clients_first() -> None:
    """Their memory looks like strangers' until then."""
    desk = MemoryDesk(memory_wait_s=WAIT_S, recovering_until_s=200.0, park_timeout_s=5)
    bob = desk.client("b", devices="")
    desk.measure(7900)
    desk.ask_space(bob, 500)
    assert answers_within(desk, 20, used=7900) == {}


@pytest.mark.promise("accounts-13")
def test_a_context_does_not_lock_out_the_second_largest(desk: MemoryDesk) -> None:
    """The largest is locked out already; the next one is not, and would be."""
    carol, alice = desk.with_memory("c", 6300), desk.client("a")
    desk.ask(alice)
    desk.need(alice, USABLE)
    desk.park(carol)
    desk.report(alice, allocated=USABLE)
    desk.drop(alice, after_s=1)
    for used in (USABLE + 900, TOTAL, TOTAL):
        desk.measure(used, after_s=1)
    desk.ask(carol)
    desk.park(alice)
    for used in (1500, 1500):
        desk.measure(used + desk.memory("a").bytes_resident, after_s=1)
    desk.park(alice)
    desk.report(carol, parked=0)
    desk.drop(carol, after_s=1)
    for _ in range(4):
        desk.park(carol)  # for what strangers have beyond the reserve
        desk.measure(desk.memory("c").bytes_resident + 1500, after_s=1)
    bob = desk.client("b", devices="")
    desk.ask_space(bob, 400)
    assert answers_within(desk, 10, used=desk.memory("c").bytes_resident + 1400) == {}
    found = desk.status("b").obstacle
    assert found is not None
    assert (found.kind.value, found.tenant, found.bytes_short) == ("needed", "c", 100)


@pytest.mark.promise("accounts-12")
def test_a_scheduler_that_stood_still_has_not_waited(desk: MemoryDesk) -> None:
    """As with calls that wait: what others have said meanwhile is heard first."""
    fixed(desk)
    bob = waits(desk)
    assert answers_within(desk, 10) == {}
    desk.do(ev.ClockTicked(), after_s=2 * WAIT_S)
    assert desk.space_answers() == {}
    left_s = desk.status("b").memory_wait_left_s
    assert left_s == 1.0
    (alice,) = (each.id for each in desk.status("a").clients)
    desk.lose(alice)
    assert (desk.space_answers() | answers_within(desk, 6, used=0)) == {bob: True}
