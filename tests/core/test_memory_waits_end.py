"""What happens beside a wait for memory that others cannot move, or after it: what keeps it, what
ends it, and what is left of it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import KillClient, ReportOverdue
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.needs import GRACE_S
from jupyter_gpushare.core.settings import OverduePolicy
from jupyter_gpushare.scheduler.service.blocked import blocked_reason

from .memory_desk import USABLE, MemoryDesk
from .test_memory_waits import (
    WAIT_S,
    await_recall,
    begins_to_wait,
    desk,
    let_pass,
    process_of,
    stalls_until_it_is_refused,
)
from .test_needs import IN_THE_WAY, TOO_MUCH, fixed

__all__ = ["desk"]
OVERDUE_S = 30.0


def left_s(desk: MemoryDesk, tenant: str = "b") -> float | None:
    return desk.status(tenant).memory_wait_left_s


def fix(desk: MemoryDesk, client: ClientId, count: int, *, after_s: float = 0.0) -> list[int]:
    """It has so much that it cannot move; who is refused for that."""
    desk.report(client, allocated=count, fixed=count, after_s=after_s)
    return desk.refused()


def waits_with_memory_elsewhere() -> tuple[MemoryDesk, ClientId]:
    """A process that waits for memory on A has some on B, too."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, overdue_s=1000, reclaim_s=0.2)
    desk.with_memory("a", IN_THE_WAY, "A", fixed=IN_THE_WAY)
    bob = desk.with_memory("b", 3000, "B")
    desk.open(bob, "A")
    desk.report(bob, "A")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH, "A")
    await_recall(desk, bob)
    desk.report(bob, "A")
    desk.drop(bob)
    desk.ask(bob)
    desk.report(bob, "A")
    return desk, bob


# ---- what keeps a wait ------------------------------------------------------------------------


@pytest.mark.promise("accounts-39")
def test_moments_in_which_there_is_room_do_not_make_it_longer(desk: MemoryDesk) -> None:
    """A neighbour that has the turn frees its memory for a moment, again and again."""
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = begins_to_wait(desk)
    desk.ask(alice)
    began_s, refused = desk.now_s, list[int]()
    while not refused and desk.now_s < began_s + 3 * WAIT_S:
        refused += let_pass(desk, WAIT_S / 6)
        refused += fix(desk, alice, 100)
        refused += fix(desk, alice, IN_THE_WAY, after_s=0.1)
        refused += let_pass(desk, 2 * GRACE_S)
    assert refused == [bob]
    assert desk.now_s < began_s + WAIT_S + WAIT_S / 6 + 3


@pytest.mark.promise("accounts-39")
def test_the_first_call_goes_and_the_wait_stays(desk: MemoryDesk) -> None:
    """Another process of the notebook waits, too, and not for longer."""
    fixed(desk)
    first = begins_to_wait(desk)
    assert let_pass(desk, 5) == []
    second = desk.client("b")
    desk.need(second, TOO_MUCH)
    assert let_pass(desk, WAIT_S - 15) == []
    desk.need(first, 0)
    desk.withdraw(first)
    assert let_pass(desk, GRACE_S) == [] and (left_s(desk) or 0.0) < 15
    assert let_pass(desk, 15) == [second]


@pytest.mark.promise("accounts-38")
def test_its_memory_on_another_device_may_be_kept_away_meanwhile() -> None:
    """The wait goes on until its end."""
    desk, bob = waits_with_memory_elsewhere()
    assert let_pass(desk, 30) == []
    carol = desk.client("c", "B")
    desk.ask(carol)
    desk.need(carol, USABLE - 1000, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=USABLE - 1000, fixed=USABLE - 1000)
    assert let_pass(desk, 60) == [] and (left_s(desk) or 0.0) > 20
    assert let_pass(desk, 60) == [bob]


@pytest.mark.promise("accounts-38")
def test_a_scheduler_that_stood_still(desk: MemoryDesk) -> None:
    """What others have said meanwhile is heard before the call is refused."""
    fixed(desk)
    begins_to_wait(desk)
    assert let_pass(desk, 10) == []
    desk.do(ev.ClockTicked(), after_s=2 * WAIT_S)
    assert desk.refused() == []
    fix(desk, process_of(desk, "a"), 0)
    assert let_pass(desk, 1) == [] and desk.holders() == ["b"]
    assert left_s(desk) is None


# ---- what does not join it --------------------------------------------------------------------


@pytest.mark.promise("accounts-40")
def test_a_siblings_call_that_nobody_could_meet(desk: MemoryDesk) -> None:
    """Foreign bytes have their own answer, although the notebook waits for something else."""
    desk.measure(1000)
    fixed(desk)
    desk.measure(1000 + IN_THE_WAY, after_s=1)
    begins_to_wait(desk, count=USABLE - 1000 - IN_THE_WAY + 1)
    assert let_pass(desk, 5) == []
    desk.measure(1000 + IN_THE_WAY)
    sibling = desk.client("b")
    desk.ask(sibling)
    desk.need(sibling, USABLE - 500)
    assert let_pass(desk, 3) == [sibling]
    assert (left_s(desk) or 0.0) > WAIT_S / 2


@pytest.mark.promise("accounts-40")
def test_a_circle_beside_a_siblings_small_call(desk: MemoryDesk) -> None:
    """Of a notebook that waits, the largest of its calls counts."""
    desk.with_memory("t", 1, fixed=1)
    alice = desk.with_memory("a", 3000, fixed=3000)
    sibling = desk.client("a")
    bob = desk.with_memory("b", 3000, fixed=3000)
    begins_to_wait(desk, "a", alice, count=2000)
    desk.need(sibling, 1000)
    assert let_pass(desk, 1) == []
    desk.ask(bob)
    desk.need(bob, 2000)
    assert desk.refused() == [bob] or let_pass(desk, 3) == [bob]


# ---- the turn that goes back ------------------------------------------------------------------


@pytest.mark.promise("accounts-38")
def test_a_turn_that_ends_for_its_own_sake_is_never_overdue() -> None:
    """One process works for minutes while another one of the notebook waits for memory: nobody
    else wants the turn."""
    desk = MemoryDesk(
        memory_wait_s=WAIT_S,
        reclaim_s=0.2,
        overdue_s=OVERDUE_S,
        overdue_policy=OverduePolicy.KILL,
        quantum_s=5,
    )
    fixed(desk)
    main = desk.client("b")
    desk.ask(main)
    helper = desk.client("b")
    desk.need(helper, TOO_MUCH)
    await_recall(desk, main)
    until_s = desk.now_s + WAIT_S - 10
    while desk.wake_at_s is not None and desk.wake_at_s < until_s:
        desk.sleep_until_woken()
        assert not desk.all(ReportOverdue) and not desk.all(KillClient)
    desk.do(ev.ClockTicked(), after_s=until_s - desk.now_s)
    carol = desk.client("c")
    desk.ask(carol)
    came_s = desk.now_s
    while not desk.all(KillClient):
        assert desk.wake_at_s is not None and desk.now_s < came_s + 2 * OVERDUE_S
        desk.sleep_until_woken()
    assert desk.now_s >= came_s + OVERDUE_S


# ---- after it ---------------------------------------------------------------------------------


@pytest.mark.promise("accounts-39")
def test_what_others_released_long_ago_counts(desk: MemoryDesk) -> None:
    """A wait in vain is forgotten when all of it was free in between."""
    fixed(desk)
    bob, alice = begins_to_wait(desk), process_of(desk, "a")
    assert let_pass(desk, WAIT_S + 1) == [bob]
    fix(desk, alice, 0)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and desk.holders() == ["b"]
    desk.report(bob, allocated=TOO_MUCH)
    desk.report(bob, allocated=0)
    desk.drop(bob)
    desk.ask(alice)
    desk.need(alice, IN_THE_WAY)
    fix(desk, alice, IN_THE_WAY)
    desk.drop(alice)
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []
    assert left_s(desk) is not None


@pytest.mark.promise("accounts-39")
def test_a_wait_in_vain_says_nothing_of_another_device() -> None:
    """Nor does one on a device that the notebook has closed and opened again."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, overdue_s=1000, reclaim_s=0.2)
    for name, device in (("a", "A"), ("z", "B")):
        desk.with_memory(name, IN_THE_WAY, device, fixed=IN_THE_WAY)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.drop(bob)
    for device in "BA":
        desk.close(bob, "A" if device == "B" else "B")
        desk.open(bob, device)
        desk.ask(bob)
        desk.need(bob, TOO_MUCH, device)
        assert let_pass(desk, WAIT_S / 2) == [] and left_s(desk) is not None
        desk.need(bob, 0, device)
        desk.withdraw(bob)


@pytest.mark.promise("accounts-39")
def test_a_neighbours_memory_that_comes_and_goes_is_no_release(desk: MemoryDesk) -> None:
    """What there was at some time of the wait does not count as news."""
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = begins_to_wait(desk, count=TOO_MUCH + 1000)
    assert let_pass(desk, WAIT_S / 2) == []
    assert fix(desk, alice, IN_THE_WAY - 500) == []
    assert fix(desk, alice, IN_THE_WAY, after_s=1) == []
    assert let_pass(desk, WAIT_S) == [bob]
    for count in (IN_THE_WAY - 500, IN_THE_WAY):
        fix(desk, alice, count, after_s=1)
        desk.need(bob, TOO_MUCH + 1000)
        assert desk.refused() == [bob] or let_pass(desk, GRACE_S) == [bob]


@pytest.mark.promise("accounts-40")
def test_the_next_cell_may_wait_although_this_one_stalled(desk: MemoryDesk) -> None:
    """Its work need not depend on the call."""
    fixed(desk)
    bob = desk.client("b")
    stalls_until_it_is_refused(desk, bob)
    desk.do(ev.CellEnded(client=bob))
    desk.drop(bob)
    desk.do(ev.CellBegan(client=bob))
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []


@pytest.mark.promise("accounts-40")
@pytest.mark.parametrize("how", ["turns are off", "there is no time"])
def test_a_setting_ends_waits_and_leaves_no_mark(desk: MemoryDesk, how: str) -> None:
    """When it is as before, calls wait as before."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, 10) == []
    if how == "turns are off":
        desk.turns_on(False)
    else:
        desk.set(memory_wait_s=0.0)
    assert desk.refused() == [bob]
    if how == "turns are off":
        desk.turns_on(True)
    else:
        desk.set(memory_wait_s=WAIT_S)
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []


# ---- what is said, and what it costs ----------------------------------------------------------


def sentence(desk: MemoryDesk, tenant: str = "b") -> str:
    from dataclasses import asdict

    snapshot = desk.scheduler.snapshot(desk.now_s)
    told: dict[str, Any] = asdict(next(each for each in snapshot.tenants if each.id == tenant))
    if told["obstacle"]:
        told["obstacle"]["kind"] = told["obstacle"]["kind"].value
    return blocked_reason(told, {each.id: asdict(each) for each in snapshot.devices}, str) or ""


@pytest.mark.promise("accounts-38")
@pytest.mark.parametrize("behind", ["somebody's turn", "a pause"])
def test_it_is_said_while_somebody_works(desk: MemoryDesk, behind: str) -> None:
    """Why it waits, and until when; few times anew, since everybody is told each time."""
    fixed(desk)
    if behind == "a pause":
        begins_to_wait(desk)
        desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.PAUSED))
    else:
        desk.set(quantum_s=1000.0)
        desk.ask(desk.client("c"))
        bob = desk.client("b")
        desk.need(bob, TOO_MUCH)
        desk.ask(bob)
    assert let_pass(desk, 2) == []
    told = []
    while left_s(desk) is not None:
        told.append(sentence(desk))
        let_pass(desk, 1)
    assert all("a has " in each and "out of memory within" in each for each in told)
    assert len(told) > WAIT_S / 2 and len(set(told)) <= 4


def steps_of(work: Callable[[], object]) -> int:
    """How many lines of the core ran."""
    lines: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if "/core/" in frame.f_code.co_filename:
            lines[event] += 1
            return trace
        return None

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines["line"]


def steps_of_waits(tenants: int) -> tuple[int, int]:
    """For the moment in which so many begin to wait, and for a report while they do."""
    desk = MemoryDesk(memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    desk.scheduler.check_invariants = lambda: None  # type: ignore[method-assign]
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    for number in range(tenants):
        client = desk.client(f"t{number}")
        desk.ask(client)
        desk.need(client, TOO_MUCH)
    began = steps_of(lambda: let_pass(desk, 3))
    assert all(left_s(desk, f"t{number}") is not None for number in range(tenants))
    reported = steps_of(lambda: fix(desk, alice, IN_THE_WAY + 1))
    return began, reported


def test_many_that_wait_cost_little_more_than_few() -> None:
    """Four times as many cost some four times as much where each of them is looked at, and not 64
    times, as where each is compared with all others again and again."""
    few, many = steps_of_waits(10), steps_of_waits(40)
    for before, after in zip(few, many, strict=True):
        assert after < 10 * before, (few, many)
