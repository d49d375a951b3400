"""A call that lacks memory which others have and cannot move gives its turn back and waits: once,
for a bounded time, and only where that can end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.needs import GRACE_S, LOOK_S_MAX

from .memory_desk import USABLE, MemoryDesk
from .test_needs import IN_THE_WAY, RESTING, TOO_MUCH, failed, fixed, foreign, silent

WAIT_S = 120.0
WAITED_FOR = (fixed, failed, silent)
"""What may be freed by whoever has it. The host's lack of memory, and programs that are not under
us, have answers of their own."""


@pytest.fixture
def desk() -> MemoryDesk:
    return MemoryDesk(memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)


def let_pass(desk: MemoryDesk, seconds: float) -> list[int]:
    """So much time; who is refused meanwhile."""
    until_s, refused = desk.now_s + seconds, list[int]()
    while desk.wake_at_s is not None and desk.wake_at_s < until_s:
        desk.sleep_until_woken()
        refused += desk.refused()
    desk.do(ev.ClockTicked(), after_s=max(0.0, until_s - desk.now_s))
    return refused + desk.refused()


def await_recall(desk: MemoryDesk, client: ClientId) -> None:
    """Its turn is asked for, for want of memory."""
    until_s = desk.now_s + LOOK_S_MAX + GRACE_S
    while client not in desk.recalled():
        assert desk.now_s <= until_s and not desk.refused()
        desk.sleep_until_woken()
    assert [each.reason for each in desk.all(RecallTurn)] == [RecallReason.NO_SPACE]


def begins_to_wait(
    desk: MemoryDesk, name: str = "b", client: ClientId | None = None, count: int = TOO_MUCH
) -> ClientId:
    """It has the turn, needs too much, and gives the turn back."""
    client = desk.client(name) if client is None else client
    desk.ask(client)
    assert name in desk.holders()
    desk.need(client, count)
    assert not desk.refused()
    await_recall(desk, client)
    desk.report(client)
    desk.drop(client)
    desk.ask(client)
    desk.report(client)  # it has heard what it may have now
    return client


@pytest.mark.promise(
    "accounts",
    "A call that does not fit because of memory that others cannot move gives its turn back and "
    "waits for `memory_wait_s`; it goes on when that is freed, and others have their turns "
    "meanwhile",
)
@pytest.mark.parametrize("in_the_way", WAITED_FOR)
def test_a_call_waits_for_what_others_cannot_move(
    desk: MemoryDesk, in_the_way: Callable[[MemoryDesk], int]
) -> None:
    """Without the turn, which somebody else can have."""
    in_the_way(desk)
    bob = begins_to_wait(desk)
    assert desk.holders() == [] and desk.queue() == ["b"]
    left_s = desk.status("b").memory_wait_left_s
    assert left_s is not None and WAIT_S - 3 < left_s <= WAIT_S
    carol = desk.with_memory("c", 100)
    assert let_pass(desk, 60) == []
    desk.ask(carol)
    assert desk.holders() == ["c"]
    desk.drop(carol)
    (alice,) = (each.id for each in desk.status("a").clients)
    desk.lose(alice)
    desk.measure(0, after_s=0.3)
    let_pass(desk, 1)
    assert desk.holders() == ["b"] and desk.budget(bob) >= TOO_MUCH
    assert desk.status("b").memory_wait_left_s is None


@pytest.mark.promise("A call that does not fit because of memory...")
def test_its_own_memory_makes_room_meanwhile(desk: MemoryDesk) -> None:
    """It is a victim as others are."""
    fixed(desk)
    bob = begins_to_wait(desk, client=desk.with_memory("b", 1000), count=TOO_MUCH - 1000)
    carol = desk.client("c")
    desk.ask(carol)
    desk.need(carol, USABLE - IN_THE_WAY)
    assert desk.budget(bob) == 0
    desk.park(bob)
    assert desk.budget(carol) >= USABLE - IN_THE_WAY


@pytest.mark.promise(
    "accounts",
    "All calls of a notebook together wait once for memory of others: who tries again is refused "
    "at once, until others have released something",
)
def test_it_waits_once(desk: MemoryDesk) -> None:
    """A framework empties its caches and tries again, or backs off and tries less."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    for _ in range(5):
        desk.need(bob, TOO_MUCH)
        assert desk.refused() == [bob] or let_pass(desk, GRACE_S) == [bob]


@pytest.mark.promise("All calls of a notebook together wait once...")
def test_processes_of_a_tenant_wait_together(desk: MemoryDesk) -> None:
    """The second of them does not begin anew."""
    fixed(desk)
    bob = begins_to_wait(desk)
    sibling = desk.client("b")
    assert let_pass(desk, WAIT_S / 2) == []
    desk.ask(sibling)
    desk.need(sibling, TOO_MUCH)
    assert sorted(let_pass(desk, WAIT_S / 2 + 2)) == sorted([bob, sibling])


@pytest.mark.promise("All calls of a notebook together wait once...")
def test_it_waits_anew_when_others_have_released_something(desk: MemoryDesk) -> None:
    """Although it is not enough yet."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    (alice,) = (each.id for each in desk.status("a").clients)
    desk.report(alice, allocated=IN_THE_WAY // 2, fixed=IN_THE_WAY // 2)
    desk.need(bob, USABLE)
    assert let_pass(desk, WAIT_S - 2) == []
    assert let_pass(desk, 5) == [bob]


@pytest.mark.promise(
    "accounts",
    "A call does not wait for memory of others where that cannot end: its work in flight waits for "
    "it, all who have the memory wait themselves, or the memory is not theirs to free",
)
def test_work_that_waits_for_the_call(desk: MemoryDesk) -> None:
    """A drain stall."""
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    desk.stall(bob, calls_waiting=1)
    assert bob in desk.reopened() and desk.refused() == [bob]
    assert desk.holders() == ["b"]
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [bob] or let_pass(desk, GRACE_S) == [bob]


@pytest.mark.promise("A call does not wait for memory of others where...")
def test_two_that_wait_for_each_other(desk: MemoryDesk) -> None:
    """The second one is refused, and the first one goes on when that one frees its memory."""
    one, two = (desk.with_memory(each, 3000, fixed=3000) for each in "ab")
    begins_to_wait(desk, "a", one, count=USABLE - 3000)
    desk.ask(two)
    desk.need(two, USABLE - 3000)
    assert let_pass(desk, GRACE_S + 3) == [two]
    desk.drop(two)
    desk.report(two, allocated=0, fixed=0)
    desk.report(two)
    assert desk.holders() == ["a"] and desk.budget(one) >= USABLE


@pytest.mark.promise("A call does not wait for memory of others where...")
@pytest.mark.parametrize("in_the_way", [each for each in RESTING if each not in WAITED_FOR])
def test_what_is_not_theirs_to_free(
    desk: MemoryDesk, in_the_way: Callable[[MemoryDesk], int]
) -> None:
    """Refused as if there were no wait."""
    used = in_the_way(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    desk.await_refusal(bob, used=used)


def test_what_others_could_free_is_not_enough(desk: MemoryDesk) -> None:
    """Beside what is under no client."""
    desk.measure(IN_THE_WAY)
    desk.with_memory("a", 1000, fixed=1000)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    desk.await_refusal(bob, used=IN_THE_WAY + 1000)


@pytest.mark.promise("Each need ends: it is met...")
def test_a_call_that_is_called_off_begins_anew(desk: MemoryDesk) -> None:
    """An interrupt: what was waited before does not count."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S - 10) == []
    desk.need(bob, 0)
    desk.withdraw(bob)
    desk.report(bob)
    assert desk.status("b").memory_wait_left_s is None
    begins_to_wait(desk, client=bob)
    assert let_pass(desk, WAIT_S - 10) == []


def test_without_a_time_nobody_waits() -> None:
    """`memory_wait_s` 0."""
    desk = MemoryDesk(memory_wait_s=0)
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    desk.await_refusal(bob)
    assert desk.recalled() == [] and desk.holders() == ["b"]


def test_a_need_that_comes_before_the_turn_waits_too(desk: MemoryDesk) -> None:
    """The first call of a cell."""
    fixed(desk)
    bob = desk.client("b")
    desk.need(bob, TOO_MUCH)
    desk.ask(bob)
    assert let_pass(desk, WAIT_S - 2) == [] and desk.holders() == []
    assert let_pass(desk, 5) == [bob]
    assert foreign not in WAITED_FOR
