"""Waits for memory of others where room comes and goes, and what keeps a turn that goes back for
its own sake. Found by hostile reading."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import KillClient
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId

from .memory_desk import MemoryDesk
from .test_memory_waits import (
    WAIT_S,
    await_recall,
    begins_to_wait,
    desk,
    let_pass,
    process_of,
    stalls_until_it_is_refused,
)
from .test_memory_waits_bounds import OVERDUE_S, fix_and_hear, strict_desk
from .test_memory_waits_end import left_s
from .test_needs import IN_THE_WAY, TOO_MUCH, fixed

__all__ = ["desk"]


def comes_and_goes(desk: MemoryDesk, alice: ClientId, period_s: float) -> tuple[list[int], float]:
    """Memory in the way, as it does from step to step of a training: who is refused, and when."""
    refused, began_s = list[int](), desk.now_s
    while not refused and desk.now_s < began_s + 2 * WAIT_S:
        refused += fix_and_hear(desk, alice, 100) + let_pass(desk, period_s)
        refused += fix_and_hear(desk, alice, IN_THE_WAY) + let_pass(desk, period_s)
    return refused, desk.now_s - began_s


def somebody_computes(desk: MemoryDesk) -> tuple[ClientId, ClientId]:
    """A turn that lasts, and a call that waits for memory of its holder."""
    desk.set(quantum_s=10_000)
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = begins_to_wait(desk)
    desk.ask(alice)
    return alice, bob


@pytest.mark.promise("accounts-39")
@pytest.mark.parametrize("period_s", [0.1, 0.2, 0.4])
def test_moments_of_room_after_a_wait_in_vain(desk: MemoryDesk, period_s: float) -> None:
    """Who tries again is refused at once, although nothing lacks for long."""
    alice, bob = somebody_computes(desk)
    assert let_pass(desk, 10) == [] and fix_and_hear(desk, alice, 100) == []
    assert let_pass(desk, 1) == [] and fix_and_hear(desk, alice, IN_THE_WAY) == []
    assert let_pass(desk, WAIT_S + 1) == [bob]
    fix_and_hear(desk, alice, 100)
    desk.need(bob, TOO_MUCH)
    refused, after_s = comes_and_goes(desk, alice, period_s)
    assert refused == [bob] and after_s < 2


@pytest.mark.promise("accounts-39")
@pytest.mark.parametrize("period_s", [0.1, 0.2, 0.4])
def test_moments_of_room_in_a_wait(desk: MemoryDesk, period_s: float) -> None:
    """It ends when it has lasted for `memory_wait_s`."""
    alice, bob = somebody_computes(desk)
    refused, after_s = comes_and_goes(desk, alice, period_s)
    assert refused == [bob] and after_s < WAIT_S + 2
    assert left_s(desk) is None


# ---- a moment is one, after a wait in vain too ---------------------------------------------------


@pytest.mark.promise("accounts-42")
def test_memory_of_the_dead_is_waited_for(desk: MemoryDesk) -> None:
    """Its user ends the neighbour and tries again."""
    fixed(desk)
    bob, alice = begins_to_wait(desk), process_of(desk, "a")
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.lose(alice)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and let_pass(desk, 1) == []
    assert desk.holders() == ["b"] and desk.budget(bob) >= TOO_MUCH


@pytest.mark.promise("accounts-42")
def test_what_a_sibling_has_freed_is_waited_for(desk: MemoryDesk) -> None:
    """An hour later. The report of it is 50 ms behind."""
    fixed(desk)
    bob, worker = begins_to_wait(desk), desk.client("b")
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.withdraw(bob)
    desk.ask(worker)
    desk.report(bob, allocated=0)
    desk.report(worker)
    desk.need(worker, 2500)
    desk.report(bob)
    assert desk.budget(worker) >= 2500
    for _ in range(2):
        desk.report(worker, allocated=2500)
    desk.report(bob)
    assert let_pass(desk, 3600) == []
    desk.ask(bob)
    desk.need(bob, 2000)
    assert desk.refused() == [] and let_pass(desk, 0.05) == []
    for _ in range(2):
        desk.report(worker, allocated=0)
    assert let_pass(desk, 1) == [] and desk.budget(bob) >= 2000


@pytest.mark.promise("accounts-42")
def test_a_moment_without_host_memory_is_waited_for(desk: MemoryDesk) -> None:
    """Ten minutes after a wait in vain, another notebook could not park for 50 ms."""
    fixed(desk)
    carol = desk.with_memory("c", 2000)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob] and let_pass(desk, 600) == []
    desk.report(carol, parkable=0)
    desk.need(bob, 2000)
    assert desk.refused() == []
    desk.report(carol, parkable=10**6, after_s=0.05)
    assert desk.refused() == [] and let_pass(desk, 0.2) == []


@pytest.mark.promise("accounts-42")
def test_an_hour_of_room_ends_in_a_moment_of_doubt(desk: MemoryDesk) -> None:
    """The call waits for its turn by then, and lacks memory anew."""
    alice, bob = somebody_computes(desk)
    assert let_pass(desk, 10) == [] and fix_and_hear(desk, alice, 100) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY, after_s=0.01) == []
    assert let_pass(desk, WAIT_S) == [bob]
    fix_and_hear(desk, alice, 100)
    desk.need(bob, TOO_MUCH)
    assert let_pass(desk, 3600) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY) == []


@pytest.mark.promise("accounts-42")
def test_room_that_comes_shortly_before_the_end_of_a_wait(desk: MemoryDesk) -> None:
    """Then some lacks for 10 ms."""
    alice, _ = somebody_computes(desk)
    assert let_pass(desk, (left_s(desk) or 0) - 2) == []
    assert fix_and_hear(desk, alice, 100) == [] and let_pass(desk, 4) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY) == []
    assert fix_and_hear(desk, alice, 100, after_s=0.01) == [] and let_pass(desk, 1) == []


@pytest.mark.promise("accounts-42")
def test_many_moments_without_room(desk: MemoryDesk) -> None:
    """10 ms of every four seconds: there is room, and the call waits for its turn."""
    alice, _ = somebody_computes(desk)
    assert let_pass(desk, 10) == [] and fix_and_hear(desk, alice, 100) == []
    for _ in range(200):
        assert let_pass(desk, 4) == [] and fix_and_hear(desk, alice, IN_THE_WAY) == []
        assert fix_and_hear(desk, alice, 100, after_s=0.01) == []


def tries_again(desk: MemoryDesk) -> tuple[ClientId, ClientId]:
    """After a wait in vain in which there was room for a second. Now there is room, and no turn."""
    alice, bob = somebody_computes(desk)
    desk.set(quantum_s=80_000)
    assert let_pass(desk, 10) == [] and fix_and_hear(desk, alice, 100) == []
    assert let_pass(desk, 1) == [] and fix_and_hear(desk, alice, IN_THE_WAY) == []
    assert let_pass(desk, WAIT_S + 1) == [bob]
    fix_and_hear(desk, alice, 100)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == []
    return alice, bob


@pytest.mark.promise("accounts-42")
@pytest.mark.parametrize("room_s", [6.0, 3600.0])
def test_moments_with_much_room_between_do_not_add_up(desk: MemoryDesk, room_s: float) -> None:
    """More than 5 s of it: then the call waits for its turn, as in a wait."""
    alice, _ = tries_again(desk)
    assert fix_and_hear(desk, alice, IN_THE_WAY) == [] and let_pass(desk, 0.45) == []
    assert fix_and_hear(desk, alice, 100) == [] and let_pass(desk, room_s) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY) == [] and let_pass(desk, 0.06) == []


@pytest.mark.promise("accounts-42")
def test_another_call_of_the_same_size_begins_anew(desk: MemoryDesk) -> None:
    """Although the one before was not called off."""
    alice, bob = tries_again(desk)
    assert fix_and_hear(desk, alice, IN_THE_WAY) == [] and let_pass(desk, 0.45) == []
    assert fix_and_hear(desk, alice, 100) == [] and let_pass(desk, 1) == []
    desk.need(bob, TOO_MUCH)
    assert fix_and_hear(desk, alice, IN_THE_WAY) == [] and let_pass(desk, 0.06) == []


# ---- what keeps a turn ---------------------------------------------------------------------------


@pytest.mark.promise("accounts-38")
def test_who_waits_for_memory_is_not_next_again() -> None:
    """However large its share is: it would be passed over, so others want the turn."""
    desk = strict_desk(weights="rich=1000", credit_s=0)
    fixed(desk)
    desk.tenant("b", owner="rich")
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    desk.tenant("c", owner="poor")
    desk.ask(desk.client("c"))
    since_s = desk.now_s
    while not desk.all(KillClient):
        desk.sleep_until_woken()
        assert desk.now_s < since_s + 2 * OVERDUE_S


@pytest.mark.promise("accounts-38")
@pytest.mark.parametrize("own_sake", [False, True])
def test_a_hold_does_not_hide_who_goes_first(own_sake: bool) -> None:
    """A realtime notebook comes in the moment in which the held quantum is over."""
    desk = strict_desk(credit_s=3600, hold_max_s=3600, allowed_classes="me=realtime")
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.hold(bob, 3000)
    if own_sake:
        desk.need(bob, TOO_MUCH)
        await_recall(desk, bob)
    desk.ask(desk.client("c"))
    desk.tenant("r", asked_class="realtime")
    urgent = desk.client("r")
    ends_s = desk.now_s + desk.scheduler.settings.quantum_s
    while desk.wake_at_s is not None and desk.wake_at_s < ends_s - 1e-6:
        desk.sleep_until_woken()
    desk.ask(urgent, after_s=ends_s - desk.now_s + 0.001)
    assert own_sake or desk.recalled() == [bob]


@pytest.mark.promise("accounts-40")
def test_a_stalled_wait_leaves_nothing_behind_its_cell(desk: MemoryDesk) -> None:
    """What is left of a wait in vain costs a look at each change: it goes with its cell."""
    fixed(desk)
    bob = desk.client("b")
    stalls_until_it_is_refused(desk, bob)
    desk.do(ev.CellEnded(client=bob))
    state = desk.scheduler._machine._state
    assert not state.tenants[TenantId("b")].waits_in_vain
    assert not state.devices[DeviceId("A")].memory.attention.in_vain
