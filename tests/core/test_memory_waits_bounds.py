"""A wait for memory that others cannot move is bounded, counts the time in which something is
lacking, and leaves nothing behind that outlasts its reason."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn, KillClient, ReportOverdue
from jupyter_gpushare.core.errors import CoreError
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.needs import GRACE_S, STALLS_MAX
from jupyter_gpushare.core.settings import OverduePolicy

from .memory_desk import USABLE, MemoryDesk
from .test_memory_waits import WAIT_S, await_recall, begins_to_wait, desk, let_pass, process_of
from .test_memory_waits_end import fix, left_s, waits_with_memory_elsewhere
from .test_needs import IN_THE_WAY, TOO_MUCH, fixed

__all__ = ["desk"]
OVERDUE_S = 30.0


def fix_and_hear(
    desk: MemoryDesk, client: ClientId, count: int, *, after_s: float = 0.0
) -> list[int]:
    """As `fix`, and it has heard what it may have then."""
    refused = fix(desk, client, count, after_s=after_s)
    return refused + fix(desk, client, count)


def strict_desk(**changes: object) -> MemoryDesk:
    """Who keeps a turn for too long is ended."""
    overdue = {"overdue_s": OVERDUE_S, "overdue_policy": OverduePolicy.KILL, "quantum_s": 5}
    return MemoryDesk(memory_wait_s=WAIT_S, reclaim_s=0.2, **overdue, **changes)


def await_kill(desk: MemoryDesk) -> None:
    """It is reported and ended `overdue_s` from now."""
    since_s, reports = desk.now_s, 0
    while not desk.all(KillClient):
        assert desk.wake_at_s is not None and desk.now_s < since_s + 2 * OVERDUE_S
        desk.sleep_until_woken()
        reports += len(desk.all(ReportOverdue))
    assert reports == 1 and desk.now_s == pytest.approx(since_s + OVERDUE_S, abs=1)


def pause(desk: MemoryDesk) -> None:
    desk.do(ev.DeviceModeChanged(device=DeviceId("A"), mode=ev.DeviceMode.PAUSED))


def waits_anew(desk: MemoryDesk, client: ClientId) -> None:
    """What others released since its wait in vain was noticed."""
    desk.ask(client)
    desk.need(client, TOO_MUCH)
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []


def kept_away(desk: MemoryDesk) -> tuple[ClientId, ClientId]:
    """Two processes: b, whose parked memory cannot come back to B, and c, who has fixed memory
    there. Nobody has anything on A."""
    bob = desk.with_memory("b", 5000, "B")
    desk.open(bob, "A")
    desk.report(bob, "A")
    carol = desk.client("c", "B")
    desk.ask(carol)
    desk.need(carol, 6000, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=6000, fixed=6000)
    desk.drop(carol)
    assert let_pass(desk, 5) == []
    return bob, carol


# ---- who keeps a turn although others want it ----------------------------------------------------


@pytest.mark.promise("accounts-38")
def test_an_admin_gets_a_turn_back_although_a_call_waits() -> None:
    """The process hangs with its turn. A call of its own that waits does not excuse it."""
    desk = strict_desk()
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    pause(desk)
    assert desk.recalled() == [bob]
    desk.need(bob, TOO_MUCH)
    await_kill(desk)


@pytest.mark.promise("accounts-38")
def test_a_limit_gets_a_turn_back_although_a_call_waits() -> None:
    """As an admin's pause does."""
    desk = strict_desk(hard_limits="u=0.5", share_window_s=20.0)
    fixed(desk)
    desk.tenant("b", owner="u")
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    limit_s = desk.now_s + 10
    while not desk.all(KillClient):
        assert desk.wake_at_s is not None and desk.now_s < limit_s + 2 * OVERDUE_S
        desk.sleep_until_woken()


@pytest.mark.promise("accounts-38")
def test_a_turn_that_goes_on_is_wanted_as_any_other() -> None:
    """The wait was met while the turn was on its way back. Ten minutes later it is released."""
    desk = strict_desk()
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    desk.stall(bob, calls_waiting=1)
    fix_and_hear(desk, alice, 0)
    desk.report(bob)
    desk.report(bob, allocated=TOO_MUCH)
    assert let_pass(desk, 600) == [] and desk.holders() == ["b"]
    desk.do(ev.ReleaseRequested(tenant=TenantId("b")))
    assert desk.recalled() == [bob]
    await_kill(desk)


@pytest.mark.promise("accounts-38")
@pytest.mark.parametrize("how", ["a pause", "a release", "an eviction"])
def test_a_turn_that_nobody_wanted_so_far_has_its_time(how: str) -> None:
    """It has been on its way back for the notebook's own sake for a minute, in which nobody cared.
    Now somebody does: it is overdue after as long as any other turn, not at once and not never."""
    desk = strict_desk()
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    assert let_pass(desk, 60) == []
    if how == "a pause":
        pause(desk)
    elif how == "a release":
        desk.do(ev.ReleaseRequested(tenant=TenantId("b")))
    else:
        desk.do(ev.EvictRequested(tenant=TenantId("b")))
    await_kill(desk)


@pytest.mark.promise("accounts-38")
def test_a_hold_keeps_a_turn_that_goes_back_for_its_own_sake() -> None:
    """As it keeps any other turn whose quantum is over."""
    desk = strict_desk(credit_s=3600, hold_max_s=3600)
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.hold(bob, 3000)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    desk.ask(desk.client("c"))
    until_s = desk.now_s + 4 * OVERDUE_S
    while desk.wake_at_s is not None and desk.wake_at_s < until_s:
        desk.sleep_until_woken()
        assert not desk.all(ReportOverdue) and not desk.all(KillClient)


@pytest.mark.promise("accounts-38")
def test_a_release_in_the_moment_after_a_stall_counts() -> None:
    """The turn is asked for again for the notebook's own sake. Its user wants it back by then."""
    desk = strict_desk()
    fixed(desk)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    await_recall(desk, bob)
    desk.stall(bob, calls_waiting=1)
    desk.do(ev.ReleaseRequested(tenant=TenantId("b")))
    await_kill(desk)


@pytest.mark.promise("accounts-40")
def test_a_moment_of_room_hides_no_stalled_drain(desk: MemoryDesk) -> None:
    """There is room just when the stalled turn is looked at again. Its work still waits for the
    call."""
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = desk.client("b")
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    began_s = desk.now_s
    await_recall(desk, bob)
    desk.stall(bob, calls_waiting=1)
    assert desk.wake_at_s is not None
    desk.now_s = desk.wake_at_s - 0.01
    assert fix_and_hear(desk, alice, 0) == []
    desk.do(ev.ClockTicked(), after_s=0.02)
    refused = fix_and_hear(desk, alice, IN_THE_WAY)
    while not refused:
        assert desk.wake_at_s is not None and desk.now_s < began_s + 10
        desk.sleep_until_woken()
        refused += desk.refused()
        if bob in desk.recalled():
            desk.stall(bob, calls_waiting=1)
            refused += desk.refused()
    assert refused == [bob]


# ---- what is left of a wait ----------------------------------------------------------------------


@pytest.mark.promise("accounts-39")
def test_room_for_the_refused_call_ends_what_is_left_of_it(desk: MemoryDesk) -> None:
    """Although there was more of it at some time of the wait, when somebody else had the turn."""
    desk.set(quantum_s=1000)
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob, carol = begins_to_wait(desk), desk.client("c")
    desk.ask(carol)
    assert let_pass(desk, 10) == []
    assert fix_and_hear(desk, alice, 0) == [] and let_pass(desk, 0.2) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY, after_s=0.1) == []
    assert let_pass(desk, WAIT_S) == [bob]
    desk.drop(carol)
    desk.lose(carol)
    fix_and_hear(desk, alice, 0)
    desk.measure(0, after_s=1)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and desk.budget(bob) >= TOO_MUCH
    desk.report(bob, allocated=TOO_MUCH)
    desk.report(bob, allocated=0)
    desk.drop(bob)
    assert let_pass(desk, 3600) == []
    desk.ask(alice)
    desk.need(alice, IN_THE_WAY)
    fix_and_hear(desk, alice, IN_THE_WAY)
    desk.drop(alice)
    waits_anew(desk, bob)


@pytest.mark.promise("accounts-39")
def test_a_wait_in_vain_says_nothing_of_a_device_that_lacked_nothing() -> None:
    """The call was on A, and what it waited for is on B."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    bob, carol = kept_away(desk)
    desk.ask(bob)
    desk.need(bob, 10, "A")
    assert let_pass(desk, WAIT_S + 3) == [bob]
    desk.report(carol, "B", allocated=0, fixed=0)
    desk.report(bob, "B", parked=0)
    desk.drop(bob)
    desk.with_memory("z", IN_THE_WAY, "A", fixed=IN_THE_WAY)
    desk.ask(bob)
    desk.need(bob, TOO_MUCH, "A")
    assert desk.refused() == [] and let_pass(desk, 3) == [] and left_s(desk) is not None


@pytest.mark.promise("accounts-39")
def test_a_wait_in_vain_for_a_place_elsewhere_ends_with_a_turn() -> None:
    """Its memory came back then. An hour later somebody is in the way again."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    bob, carol = kept_away(desk)
    desk.ask(bob)
    desk.need(bob, 10, "A")
    assert let_pass(desk, WAIT_S + 3) == [bob]
    for _ in range(2):
        desk.report(carol, "B", allocated=0, fixed=0)
    assert let_pass(desk, 5) == [] and desk.holders("B") == ["b"]
    desk.report(bob, "B", parked=0)
    desk.report(bob, "A")
    assert let_pass(desk, 3600) == []
    desk.drop(bob)
    desk.ask(carol)
    desk.need(carol, 6000, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=6000, fixed=6000)
    desk.drop(carol)
    assert let_pass(desk, 5) == []
    desk.ask(bob)
    desk.need(bob, 10, "A")
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []


@pytest.mark.promise("accounts-39")
def test_a_turn_shows_that_memory_has_a_place() -> None:
    """After a wait in vain the notebook frees what had none, and works. Later somebody else needs
    the little that it has left there: that is another wait."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    bob, carol = kept_away(desk)
    desk.ask(bob)
    desk.need(bob, 10, "A")
    assert let_pass(desk, WAIT_S + 3) == [bob]
    desk.report(bob, "B", allocated=1000, parked=0)
    assert let_pass(desk, 5) == [] and desk.holders("B") == ["b"]
    desk.report(bob, "A")
    desk.drop(bob)
    desk.ask(carol)
    desk.need(carol, 1000, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=USABLE, fixed=USABLE)
    desk.need(carol, 0, "B")
    desk.drop(carol)
    assert let_pass(desk, 5) == []
    desk.ask(bob)
    desk.need(bob, 10, "A")
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []


@pytest.mark.promise("accounts-39")
def test_one_wait_for_two_devices_is_one() -> None:
    """The call lacks memory on A for most of the wait, and a place on B at its end. When B has
    room, the next call does not wait anew for A."""
    desk, bob = waits_with_memory_elsewhere()
    assert let_pass(desk, WAIT_S - 10) == []
    carol = desk.client("c", "B")
    desk.ask(carol)
    desk.need(carol, USABLE - 1000, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=USABLE - 1000, fixed=USABLE - 1000)
    assert let_pass(desk, 15) == [bob]
    for _ in range(2):
        desk.report(carol, "B", allocated=0, fixed=0)
    desk.drop(carol)
    let_pass(desk, 1)
    desk.report(bob, "B", parked=0)
    desk.report(bob, "A")
    desk.need(bob, TOO_MUCH, "A")
    assert desk.refused() == [bob] or let_pass(desk, 3) == [bob]


@pytest.mark.promise("accounts-39")
def test_all_of_the_room_for_a_moment_is_no_release_either(desk: MemoryDesk) -> None:
    """A neighbour that keeps its turn frees all it has for a moment, again and again. Only the
    first try waits."""
    desk.set(quantum_s=10_000)
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = begins_to_wait(desk)
    desk.ask(alice)
    took_s = []
    for attempt in range(3):
        began_s, refused = desk.now_s, list[int]()
        if attempt:
            desk.need(bob, TOO_MUCH)
            refused += desk.refused()
        while not refused:
            assert desk.now_s < began_s + 2 * WAIT_S
            refused += let_pass(desk, 19) + fix_and_hear(desk, alice, 100)
            refused += fix_and_hear(desk, alice, IN_THE_WAY, after_s=0.1) + let_pass(desk, 1)
        assert refused == [bob]
        took_s.append(desk.now_s - began_s)
        for count in (100, IN_THE_WAY):
            assert let_pass(desk, 5) == []
            fix_and_hear(desk, alice, count)
    assert took_s[0] > WAIT_S - 5 and max(took_s[1:]) < 30


@pytest.mark.promise("accounts-39")
def test_a_part_that_others_have_released_begins_a_new_wait(desk: MemoryDesk) -> None:
    """It is more than there was at any time of the wait, and not enough."""
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    bob = begins_to_wait(desk, count=USABLE - 500)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    assert fix_and_hear(desk, alice, IN_THE_WAY - 1000) == []
    desk.need(bob, USABLE - 500)
    assert desk.refused() == [] and let_pass(desk, WAIT_S / 2) == []


@pytest.mark.promise("accounts-39")
def test_what_was_released_while_nobody_asked_counts(desk: MemoryDesk) -> None:
    """All of it was free for a minute, between a wait in vain and the next call."""
    fixed(desk)
    bob, alice = begins_to_wait(desk), process_of(desk, "a")
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.withdraw(bob)
    assert fix_and_hear(desk, alice, 0) == [] and let_pass(desk, 60) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY) == []
    waits_anew(desk, bob)


@pytest.mark.promise("accounts-39")
def test_what_was_released_is_noticed_after_a_smaller_call_was_met(desk: MemoryDesk) -> None:
    """Frameworks try less, and go on with that. An hour later all was free for a while."""
    fixed(desk)
    bob, alice = begins_to_wait(desk), process_of(desk, "a")
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.need(bob, 10)
    assert desk.refused() == []
    for _ in range(2):
        desk.report(bob, allocated=10)
    desk.need(bob, 0)
    desk.drop(bob)
    fix_and_hear(desk, alice, 0)
    assert let_pass(desk, 3600) == []
    desk.ask(alice)
    desk.need(alice, IN_THE_WAY - 10)
    fix_and_hear(desk, alice, IN_THE_WAY)
    desk.need(alice, 0)
    desk.drop(alice)
    waits_anew(desk, bob)


@pytest.mark.promise("accounts-39")
def test_the_process_that_waited_in_vain_may_end(desk: MemoryDesk) -> None:
    """What others release afterwards is noticed for the others of its notebook."""
    fixed(desk)
    kernel, alice = desk.client("b"), process_of(desk, "a")
    desk.report(kernel)
    helper = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [helper]
    desk.lose(helper)
    desk.measure(0, after_s=1)
    assert fix_and_hear(desk, alice, 0) == [] and let_pass(desk, 3600) == []
    assert fix_and_hear(desk, alice, IN_THE_WAY) == []
    waits_anew(desk, kernel)


@pytest.mark.promise("accounts-39")
def test_what_is_left_of_a_wait_delays_no_grant(desk: MemoryDesk) -> None:
    """Nobody lacks anything any more, so a grant comes before the look at memory."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.need(bob, 10)
    for _ in range(2):
        desk.report(bob, allocated=10)
    desk.need(bob, 0)
    desk.drop(bob)
    carol = desk.with_memory("c", 100)
    assert let_pass(desk, 60) == []
    steps = list(desk.scheduler.steps(ev.TurnRequested(client=carol), now_s=desk.now_s))
    assert [type(each) for each in steps[0]] == [GrantTurn]


@pytest.mark.promise("accounts-39")
def test_a_wait_in_vain_ends_with_its_device(desk: MemoryDesk) -> None:
    """One that is found later may have the same name, and its shares the same numbers."""
    fixed(desk)
    bob = begins_to_wait(desk)
    assert let_pass(desk, WAIT_S + 1) == [bob]
    desk.drop(bob)
    desk.find_device(8000, "B")
    desk.open(bob, "B")
    desk.lose(process_of(desk, "a"))
    desk.close(bob, "A")
    desk.do(ev.DeviceWithdrawn(device=DeviceId("A")))
    desk.find_device(8000, "A")
    desk.measure(0)
    desk.with_memory("z", IN_THE_WAY, fixed=IN_THE_WAY)
    desk.open(bob, "A")
    desk.report(bob, allocated=0)
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    assert desk.refused() == [] and let_pass(desk, 3) == [] and left_s(desk) is not None


@pytest.mark.promise("accounts-40")
def test_what_stalled_in_one_cell_does_not_count_in_the_next(desk: MemoryDesk) -> None:
    """Also where a call of a background thread keeps the wait."""
    fixed(desk)
    bob = desk.client("b")
    desk.do(ev.CellBegan(client=bob))
    desk.ask(bob)
    desk.need(bob, TOO_MUCH)
    for _ in range(STALLS_MAX - 1):
        await_recall(desk, bob)
        desk.stall(bob, calls_waiting=1)
    desk.do(ev.CellEnded(client=bob))
    desk.do(ev.CellBegan(client=bob))
    await_recall(desk, bob)
    desk.stall(bob, calls_waiting=1)
    assert desk.refused() == [] and left_s(desk) is not None


# ---- bytes that a call lacks on another device ---------------------------------------------------


@pytest.mark.promise("accounts-40")
def test_foreign_bytes_on_another_device_have_their_own_answer() -> None:
    """Memory of the notebook cannot come back to B, where a program outside the sharing has taken
    the room. Nobody waits for that, wherever the call is."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, reclaim_s=0.2)
    for device in "AB":
        desk.measure(0, device)
    bob = desk.with_memory("b", 5000, "B")
    desk.open(bob, "A")
    desk.report(bob, "A")
    desk.measure(5000, "B", after_s=0.5)
    carol = desk.client("c", "B")
    desk.ask(carol)
    desk.need(carol, USABLE - 100, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=USABLE - 100)
    desk.measure(USABLE, "B", after_s=0.5)
    desk.lose(carol)
    for _ in range(40):
        desk.measure(6100, "B", after_s=0.2)
    desk.ask(bob)
    began_s = desk.now_s
    desk.need(bob, 10, "A")
    refused = desk.refused()
    while not refused:
        assert desk.now_s < began_s + 5
        desk.measure(0, "A", after_s=0.05)
        refused += desk.refused()
        desk.measure(6100, "B")
        refused += desk.refused()
    assert refused == [bob]


@pytest.mark.promise("accounts-40")
def test_a_circle_over_two_devices() -> None:
    """b lacks memory of c on B, and c lacks memory of b on A: c came last."""
    desk = MemoryDesk(devices="AB", memory_wait_s=WAIT_S, reclaim_s=0.2, overdue_s=1000)
    bob = desk.with_memory("b", 5000, "B")
    desk.open(bob, "A")
    desk.report(bob, "A")
    desk.ask(bob)
    desk.grow(bob, 3000, "A", fixed=3000)
    desk.drop(bob)
    carol = desk.client("c", "B")
    desk.ask(carol)
    desk.need(carol, 6000, "B")
    desk.park(bob, "B")
    desk.report(carol, "B", allocated=6000, fixed=6000)
    desk.drop(carol)
    assert let_pass(desk, 5) == []
    desk.open(carol, "A")
    desk.report(carol, "A")
    desk.ask(bob)
    desk.need(bob, 10, "A")
    assert let_pass(desk, 3) == [] and left_s(desk) is not None
    desk.ask(carol)
    desk.need(carol, USABLE - 2000, "A")
    assert desk.refused() == [carol] or let_pass(desk, 3) == [carol]
    assert left_s(desk) is not None


# ---- time that does not count --------------------------------------------------------------------


@pytest.mark.promise("accounts-39")
def test_time_with_room_is_no_wait_for_memory(desk: MemoryDesk) -> None:
    """The memory is there, and the notebook waits for its turn. Then the memory is gone again."""
    desk.set(quantum_s=5, hold_max_s=3600, credit_s=3600)
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    carol = desk.with_memory("c", 100)
    bob = begins_to_wait(desk)
    desk.ask(carol)
    desk.hold(carol, 1000)
    assert let_pass(desk, 20) == []
    fix_and_hear(desk, alice, 0)
    assert let_pass(desk, 5 * WAIT_S) == [] and left_s(desk) is None
    fix_and_hear(desk, alice, IN_THE_WAY)
    began_s = desk.now_s
    assert let_pass(desk, WAIT_S - 30) == []
    assert let_pass(desk, 20) == [bob] and desk.now_s < began_s + WAIT_S


@pytest.mark.promise("accounts-39")
def test_a_scheduler_that_is_always_late_ends_a_wait(desk: MemoryDesk) -> None:
    """It hears first what others have said meanwhile, once."""
    fixed(desk)
    bob = begins_to_wait(desk)
    began_s, refused = desk.now_s, desk.refused()
    while not refused:
        assert desk.wake_at_s is not None and desk.now_s < began_s + WAIT_S + 10
        desk.do(ev.ClockTicked(), after_s=max(0.0, desk.wake_at_s - desk.now_s) + 1.05)
        refused += desk.refused()
    assert refused == [bob]


@pytest.mark.promise("accounts-39")
@pytest.mark.parametrize("still_s", [0, 60])
def test_a_standstill_while_there_is_room_counts_once(desk: MemoryDesk, still_s: float) -> None:
    """Neither it nor the room around it is a wait for memory."""
    desk.set(quantum_s=5, hold_max_s=3600, credit_s=3600)
    alice = desk.with_memory("a", IN_THE_WAY, fixed=IN_THE_WAY)
    carol = desk.with_memory("c", 100)
    begins_to_wait(desk)
    desk.ask(carol)
    desk.hold(carol, 2000)
    assert let_pass(desk, 90) == []
    fix_and_hear(desk, alice, 0)
    assert let_pass(desk, 3) == []
    if still_s:
        desk.do(ev.ClockTicked(), after_s=max(0.0, (desk.wake_at_s or 0) - desk.now_s) + still_s)
    assert let_pass(desk, 3) == []
    fix_and_hear(desk, alice, IN_THE_WAY)
    assert let_pass(desk, 3) == []
    assert left_s(desk) == pytest.approx(WAIT_S - 93, abs=3)


@pytest.mark.promise("accounts-39")
def test_requests_that_are_refused_make_no_wait_longer(desk: MemoryDesk) -> None:
    """They come while the scheduler is late."""
    fixed(desk)
    begins_to_wait(desk)
    assert let_pass(desk, 10) == [] and desk.wake_at_s is not None
    desk.now_s = desk.wake_at_s + 3
    for _ in range(200):
        with pytest.raises(CoreError):
            desk.do(ev.InterruptRequested(tenant=TenantId("nobody")))
    desk.do(ev.ClockTicked())
    assert (left_s(desk) or 0.0) <= 1.0 + GRACE_S


# ---- what is said --------------------------------------------------------------------------------


@pytest.mark.promise("accounts-38")
def test_the_time_left_of_a_process_that_is_stopped(desk: MemoryDesk) -> None:
    """It is in no queue, and its wait goes on."""
    fixed(desk)
    bob = begins_to_wait(desk)
    desk.do(ev.ClientFrozen(client=bob, frozen=True))
    before_s = left_s(desk)
    assert desk.queue() == [] and before_s is not None
    desk.do(ev.ClockTicked(), after_s=20)
    assert left_s(desk) == pytest.approx(before_s - 20)
