"""A call that lacks memory which others have and cannot move gives its turn back and waits: once,
for a bounded time, and only where that can end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.needs import GRACE_S, LOOK_S_MAX, STALLS_MAX

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


def process_of(desk: MemoryDesk, tenant: str) -> ClientId:
    (client,) = (each.id for each in desk.status(tenant).clients)
    return client


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


def stalls_until_it_is_refused(desk: MemoryDesk, client: ClientId) -> None:
    """In a cell of its own, whose work waits for the call."""
    desk.do(ev.CellBegan(client=client))
    desk.ask(client)
    desk.need(client, TOO_MUCH)
    await_recall(desk, client)
    for stalls in range(1, STALLS_MAX + 1):
        desk.stall(client, calls_waiting=1)
        if stalls < STALLS_MAX:
            await_recall(desk, client)
    assert desk.refused() == [client]


@pytest.mark.promise(
    "accounts-38",
    "A call that does not fit because of memory that other clients cannot move (fixed, failed or "
    "silent) gives its turn back and waits for `memory_wait_s`; it goes on when that is freed, and "
    "others have their turns meanwhile",
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
    alice = process_of(desk, "a")
    desk.lose(alice)
    assert desk.refused() == []
    desk.measure(0, after_s=0.3)
    assert desk.refused() == [] and let_pass(desk, 1) == []
    assert desk.holders() == ["b"] and desk.budget(bob) >= TOO_MUCH
    assert desk.status("b").memory_wait_left_s is None


@pytest.mark.promise("accounts-38")
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
    "accounts-39",
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


@pytest.mark.promise("accounts-39")
def test_processes_of_a_tenant_wait_together(desk: MemoryDesk) -> None:
    """The second of them does not begin anew."""
    fixed(desk)
    bob = begins_to_wait(desk)
    sibling = desk.client("b")
    assert let_pass(desk, WAIT_S / 2) == []
    desk.ask(sibling)
    desk.need(sibling, TOO_MUCH)
    assert sorted(let_pass(desk, WAIT_S / 2 + 2)) == sorted([bob, sibling])


@pytest.mark.promise("accounts-39")
def test_it_waits_anew_when_others_have_released_something(desk: MemoryDesk) -> None:
    """Although it is not enough yet."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    alice = process_of(desk, "a")
    desk.report(alice, allocated=IN_THE_WAY // 2, fixed=IN_THE_WAY // 2)
    desk.need(bob, USABLE)
    assert let_pass(desk, WAIT_S - 2) == []
    assert let_pass(desk, 5) == [bob]


@pytest.mark.promise(
    "accounts-40",
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
    for stalls in range(1, STALLS_MAX + 1):
        desk.stall(bob, calls_waiting=1)
        assert bob in desk.reopened() and desk.holders() == ["b"]
        assert desk.refused() == ([bob] if stalls == STALLS_MAX else [])
        if stalls < STALLS_MAX:
            await_recall(desk, bob)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [bob] or let_pass(desk, GRACE_S) == [bob]


@pytest.mark.promise("accounts-40")
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


@pytest.mark.promise("accounts-40")
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


@pytest.mark.promise("accounts-34")
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


# ---- found by hostile reading ------------------------------------------------------------------


@pytest.mark.promise("accounts-39")
def test_a_small_call_that_is_met_changes_nothing(desk: MemoryDesk) -> None:
    """After a wait in vain the next large one does not wait."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.grow(bob, 100)
    desk.need(bob, TOO_MUCH - 100)
    assert desk.refused() == [bob] or let_pass(desk, GRACE_S) == [bob]


def test_a_turn_is_asked_for_once_for_one_wait() -> None:
    """A sibling that is silent may have more than it has told: so the policy takes for enough what
    is not."""
    desk = MemoryDesk(memory_wait_s=WAIT_S, park_timeout_s=2, overdue_s=1000)
    sibling = desk.with_memory("b", 3000)
    other = desk.client("x")
    desk.ask(other)
    desk.need(other, USABLE - 500)
    desk.do(ev.ClockTicked(), after_s=4)
    desk.need(other, 0)
    desk.drop(other)
    desk.close(other, "A")
    desk.report(sibling, allocated=2000, serial=0)
    desk.with_memory("a", 2000, fixed=2000)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, USABLE - 2000 - 2000 - 50)
    await_recall(desk, bob)
    recalls = 0
    for _ in range(20):
        if bob in desk.recalled():
            recalls += 1
            desk.report(bob, after_s=0.01)
            desk.drop(bob)
            desk.ask(bob, after_s=0.01)
        else:
            desk.sleep_until_woken()
    assert recalls == 1


@pytest.mark.parametrize("how", ["lost", "closed"])
def test_a_wait_ends_with_its_call(desk: MemoryDesk, how: str) -> None:
    """Nothing of it is left for the next one."""
    fixed(desk)
    bob = begins_to_wait(desk)
    let_pass(desk, 50)
    if how == "lost":
        desk.lose(bob)
        bob = desk.client("b")
    else:
        desk.close(bob, "A")
        desk.open(bob, "A")
    assert desk.status("b").memory_wait_left_s is None
    let_pass(desk, WAIT_S)
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    assert let_pass(desk, WAIT_S / 2) == []


@pytest.mark.promise("accounts-40")
@pytest.mark.parametrize("first", ["a", "b"])
def test_who_waits_for_somebody_else_may_still_be_waited_for(first: str) -> None:
    """No circle: that one's wait can end, so the other one's can, whoever comes first."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, overdue_s=1000)
    desk.with_memory("c", IN_THE_WAY, "B", fixed=IN_THE_WAY)
    bob = desk.with_memory("b", IN_THE_WAY, "A", fixed=IN_THE_WAY)
    desk.open(bob, "B")
    ann = desk.client("a")
    needs = {"a": (ann, "A"), "b": (bob, "B")}
    for name in sorted(needs, reverse=first == "b"):
        client, device = needs[name]
        desk.ask(client)
        desk.need(client, TOO_MUCH, device)
        assert let_pass(desk, LOOK_S_MAX + GRACE_S) == []
        if name in desk.holders():
            desk.report(client, device)
            desk.drop(client)
            desk.ask(client)
            desk.report(client, device)
    assert let_pass(desk, WAIT_S / 2) == []
    assert all(desk.status(name).memory_wait_left_s is not None for name in needs)


@pytest.mark.promise("accounts-40")
def test_a_third_one_with_too_little_ends_no_circle(desk: MemoryDesk) -> None:
    """The last one to come is refused all the same."""
    desk.with_memory("t", 1, fixed=1)
    one, two = (desk.with_memory(each, 3000, fixed=3000) for each in "ab")
    begins_to_wait(desk, "a", one, count=USABLE - 3001)
    desk.ask(two)
    desk.need(two, USABLE - 3001)
    assert let_pass(desk, GRACE_S + 3) == [two]


def test_a_refusal_without_a_wait_marks_nothing(desk: MemoryDesk) -> None:
    """What could never be there says nothing of what others could free."""
    desk.measure(1000)
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, USABLE - 500)
    desk.await_refusal(bob, used=1000 + IN_THE_WAY)
    desk.need(bob, TOO_MUCH)
    assert let_pass(desk, WAIT_S / 2) == []


def test_the_time_may_be_changed_meanwhile(desk: MemoryDesk) -> None:
    fixed(desk)
    bob = begins_to_wait(desk)
    desk.set(memory_wait_s=10)
    assert desk.refused() == [] and let_pass(desk, 12) == [bob]


def test_a_moment_in_which_others_cannot_free_it_ends_no_wait(desk: MemoryDesk) -> None:
    """Foreign bytes come and go."""
    fixed(desk)
    begins_to_wait(desk)
    desk.measure(IN_THE_WAY + 3000, after_s=0.4)
    assert let_pass(desk, 5) == []
    desk.measure(IN_THE_WAY, after_s=0.4)
    assert let_pass(desk, 5) == []


def test_where_turns_are_off_nobody_waits(desk: MemoryDesk) -> None:
    """It would keep its turn, and what it has, meanwhile."""
    desk.turns_on(False)
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    desk.await_refusal(bob, within_s=LOOK_S_MAX + GRACE_S)
