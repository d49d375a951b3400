"""Memory that comes back ahead of its tenant's turn, told event by event."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.settings import RestoreAhead
from jupyter_gpushare.core.space import ahead

from ..memory_desk import TOTAL, USABLE, MemoryDesk

SLACK = USABLE // 32


def desk_with_one_that_waits(
    held: int, parked: int, *others: int, **settings: object
) -> tuple[MemoryDesk, ClientId, ClientId]:
    """`a` has the turn and so much memory, `b` waits and has all of its own parked. Others are
    idle, with theirs on the device."""
    desk = MemoryDesk(**{"restore_ahead": RestoreAhead.ON, **settings})
    next_one = desk.with_memory("b", parked)
    desk.report(next_one, parked=parked)
    desk.report(next_one)  # it has heard that it may have no more than it has
    for number, count in enumerate(others):
        desk.with_memory(f"c{number}", count)
    holder = desk.with_memory("a", held, resting=False)
    desk.report(holder)
    desk.ask(next_one)
    desk.report(holder)
    return desk, holder, next_one


@pytest.mark.promise(
    "accounts-20",
    "While another tenant computes, parked memory of the next one comes back into space that "
    "nobody with a turn uses; the holder keeps a slack",
)
def test_the_next_one_may_have_its_memory_while_another_computes() -> None:
    """All of it where there is space; the holder had all that was free, and keeps the rest."""
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000)
    assert desk.budget(next_one) == 3000
    assert desk.budget(holder) >= 3000 + SLACK
    desk.report(next_one, parked=0)
    assert desk.memory("b").bytes_resident == 3000


@pytest.mark.promise("accounts-20")
def test_as_much_as_there_is_space_for() -> None:
    """The holder's own memory and its slack stay."""
    desk, holder, next_one = desk_with_one_that_waits(5000, 3000)
    assert desk.budget(next_one) == USABLE - 5000 - SLACK
    assert desk.budget(holder) == 5000 + SLACK


@pytest.mark.promise("accounts-20")
def test_idle_ones_park_for_it() -> None:
    """They would have to at the next grant; no more than is short, and not the holder."""
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000, 1500)
    other = ClientId(next_one + 1)
    short = 3000 + SLACK + 1500 + 3000 - USABLE
    assert desk.budget(other) == 1500 - short
    desk.park(other)
    assert desk.budget(next_one) == 3000
    assert desk.budget(holder) == 3000 + SLACK


@pytest.mark.promise("accounts-20")
@pytest.mark.parametrize("why", ["off", "turns are off", "nobody has a turn", "holder restores"])
def test_nothing_comes_ahead(why: str) -> None:
    """It is switched off, all run at once, or the holder's own memory has the bus."""
    settings: dict[str, object] = {"restore_ahead": RestoreAhead.OFF} if why == "off" else {}
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000, **settings)
    if why == "off":
        assert desk.budget(next_one) == 0
        return
    assert desk.budget(next_one) == 3000
    if why == "holder restores":
        desk.report(holder, parked=1000)
    elif why == "turns are off":
        desk.turns_on(False)
        return
    else:
        desk.withdraw(next_one)
    assert desk.budget(next_one) == 0


@pytest.mark.promise(
    "accounts-21",
    "As soon as a holder is short nothing more comes ahead, and what came ahead leaves first, for "
    "the host still has it",
)
def test_a_holder_that_grows_takes_it_back() -> None:
    """Before an idle tenant whose memory was used longer ago."""
    desk, holder, next_one = desk_with_one_that_waits(2000, 2000, 2000)
    other = ClientId(next_one + 1)
    assert desk.budget(next_one) == 2000
    desk.report(next_one, parked=0)
    desk.need(holder, 2500)
    assert desk.budget(next_one) < 2000
    assert other not in desk.told()
    desk.park(next_one)
    assert desk.budget(holder) >= 4500


@pytest.mark.promise("accounts-21")
def test_a_holder_that_grows_and_shrinks_asks_once() -> None:
    """A loop that allocates and frees: else it would wait each time, and the other one's memory go
    to and fro. A need that was refused keeps nothing."""
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000)
    desk.report(next_one, parked=0)
    desk.need(holder, USABLE)
    assert desk.refused() == [holder]
    desk.need(holder, 2000)
    desk.park(next_one)
    desk.report(holder, allocated=5000)
    desk.report(holder, allocated=3000)
    assert desk.budget(holder) >= 5000
    assert desk.budget(next_one) == desk.memory("b").bytes_resident < 3000
    desk.drop(holder)
    desk.drop(next_one)
    desk.ask(holder)
    desk.report(holder, allocated=2000)
    desk.ask(next_one)
    desk.report(holder)
    assert desk.budget(next_one) == 3000, "another turn may need less"


@pytest.mark.promise("accounts-20")
def test_a_need_that_is_said_twice_is_one() -> None:
    """The holder says it again when it has taken what it needed already. It keeps no more for that,
    and the rest is the next one's."""
    desk = MemoryDesk(restore_ahead=RestoreAhead.ON)
    next_one = desk.with_memory("b", 5000)
    desk.report(next_one, parked=5000)
    desk.report(next_one)
    holder = desk.client("a")
    desk.ask(holder)
    desk.need(holder, 1000)
    desk.report(holder, allocated=1000)
    desk.do(
        ev.MemoryNeeded(
            client=holder, device=DeviceId("A"), bytes_needed=1000, need_id=desk.last_need_id
        )
    )
    desk.need(holder, 0)
    desk.report(holder)
    desk.ask(next_one)
    desk.report(holder)
    assert desk.budget(next_one) == 5000
    assert desk.budget(holder) == USABLE - 5000


@pytest.mark.promise("accounts-21")
def test_what_has_not_come_yet_is_taken_first() -> None:
    """Nobody parks for it."""
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000)
    desk.need(holder, 3000)
    assert desk.budget(next_one) == USABLE - 6000
    desk.report(next_one)
    assert desk.budget(holder) >= 6000


@pytest.mark.promise("accounts-20")
def test_no_more_is_under_way_than_a_holder_can_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget goes ahead of what has come by a bounded step, and follows what comes."""
    monkeypatch.setattr(ahead, "UNDER_WAY_BYTES_MAX", 1000)
    desk, holder, next_one = desk_with_one_that_waits(2000, 3000)
    assert desk.budget(next_one) == 1000
    desk.report(next_one, parked=2600)
    assert desk.budget(next_one) == 1000, "enough is under way"
    desk.report(next_one, parked=2400)
    assert desk.budget(next_one) == 1600
    desk.need(holder, 4000)
    desk.report(next_one)
    assert desk.budget(holder) >= USABLE - 1600
    for parked in (1400, 600, 0):
        desk.report(next_one, parked=parked)
        desk.need(holder, 0)
        desk.report(holder)
    assert desk.budget(next_one) == 3000


@pytest.mark.promise("accounts-20")
def test_another_one_is_next() -> None:
    """What came for the first stays, as far as there is space for both; the rest is for the one
    that is next now."""
    desk, holder, first = desk_with_one_that_waits(2000, 2000)
    desk.report(first, parked=500)
    desk.withdraw(first)
    assert desk.budget(first) == 1500, "it keeps what came"
    second = desk.client("d")
    desk.report(second, allocated=2000, parked=2000)
    desk.ask(second)
    desk.report(first)
    desk.report(holder)  # it had all that was free meanwhile
    assert desk.budget(second) == 2000 and desk.budget(first) == 1500


@pytest.mark.promise("accounts-20")
def test_a_device_that_is_over_committed_settles() -> None:
    """Foreign memory has come beyond the reserve: less may come ahead, and that is told once."""
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000)
    for _ in range(3):
        desk.measure(3000 + 1900, after_s=0.2)
    assert desk.budget(next_one) < 3000
    for _ in range(3):
        desk.report(next_one)
        desk.report(holder)
    desk.report(next_one)
    assert next_one not in desk.told()


@pytest.mark.promise("accounts-20")
def test_a_grant_goes_on_with_what_came() -> None:
    """The turn begins with the rest of it, and with no less than had come."""
    desk, holder, next_one = desk_with_one_that_waits(5000, 3000)
    came = desk.budget(next_one)
    desk.report(next_one, parked=3000 - came)
    desk.drop(holder)
    desk.park(holder)
    assert desk.budget(next_one) >= 3000
    desk.report(next_one, parked=0)
    desk.drop(next_one)
    assert desk.budget(next_one) == 3000 <= TOTAL


def desk_with_two_processes() -> tuple[MemoryDesk, ClientId, ClientId, ClientId, ClientId]:
    """`a` has the turn; `b`, all of whose memory is parked, has two processes, one of which waits;
    `c` is idle."""
    desk = MemoryDesk()
    one, other = desk.with_memory("b", 1000), desk.with_memory("b", 2000)
    for client, count in ((one, 1000), (other, 2000)):
        desk.report(client, parked=count)
        desk.report(client)
    idle = desk.with_memory("c", 2500)
    holder = desk.with_memory("a", 2000, resting=False)
    desk.report(holder)
    desk.ask(one)
    desk.report(holder)  # it had all that was free until then
    return desk, one, other, idle, holder


@pytest.mark.promise("accounts-20")
def test_only_for_processes_that_wait() -> None:
    """Another process of the next tenant gets no turn with it: its memory stays parked until it
    waits too, and nobody parks for it."""
    desk, one, other, idle, holder = desk_with_two_processes()
    assert (desk.budget(one), desk.budget(other), desk.budget(idle)) == (1000, 0, 2500)
    desk.ask(other)
    assert desk.budget(idle) < 2500
    desk.park(idle)
    desk.report(holder)
    assert desk.budget(other) == 2000
    desk.withdraw(other)
    assert desk.budget(other) == 0


@pytest.mark.promise("accounts-20")
def test_not_for_a_process_that_was_stopped() -> None:
    """It could not give it back: the holder's next allocation would wait for it in vain."""
    desk, _, other, idle, _ = desk_with_two_processes()
    desk.do(ev.ClientFrozen(client=other, frozen=True))
    desk.ask(other)
    assert (desk.budget(other), desk.budget(idle)) == (0, 2500)
    desk.do(ev.ClientFrozen(client=other, frozen=False))
    assert desk.budget(idle) < 2500
    desk.do(ev.ClientFrozen(client=other, frozen=True))
    desk.park(idle)
    assert desk.budget(other) == 0


@pytest.mark.promise("accounts-21")
def test_what_was_freed_while_it_was_parked_has_not_come() -> None:
    """What its process has left goes in the order of last use: the host has no copy of it."""
    desk = MemoryDesk()
    first, later = desk.with_memory("b", 3000), desk.with_memory("c", 2000)
    desk.report(later, parked=1000)
    desk.report(later, allocated=1000, parked=0)
    holder = desk.with_memory("a", 1500, resting=False)
    desk.need(holder, 2500)
    assert desk.budget(first) == 2000 and later not in desk.told()


# ---- a holder whose program copies --------------------------------------------------------------


@pytest.mark.promise(
    "accounts-22",
    "While the program of a holder copies much between host and device, nothing comes ahead; it "
    "goes on when the bus is quiet",
)
def test_copies_of_a_holder_have_the_bus() -> None:
    """What has not come stays away, and what has come stays."""
    desk, holder, next_one = desk_with_one_that_waits(3000, 3000)
    desk.report(next_one, parked=2000)
    desk.do(ev.BusUsed(client=holder))
    assert desk.budget(next_one) == 1000
    assert desk.memory("b").bytes_resident == 1000
    desk.do(ev.BusUsed(client=holder), after_s=ahead.BUS_QUIET_S / 2)
    desk.do(ev.ClockTicked(), after_s=ahead.BUS_QUIET_S * 0.9)
    assert desk.budget(next_one) == 1000
    assert desk.wake_at_s == pytest.approx(desk.now_s + ahead.BUS_QUIET_S * 0.1)
    desk.do(ev.ClockTicked(), after_s=ahead.BUS_QUIET_S * 0.2)
    assert desk.budget(next_one) == 3000


@pytest.mark.promise("accounts-22")
def test_nobody_begins_to_come_beside_copies() -> None:
    """The one who waits came after them."""
    desk = MemoryDesk(restore_ahead=RestoreAhead.ON)
    next_one = desk.with_memory("b", 3000)
    desk.report(next_one, parked=3000)
    desk.report(next_one)
    holder = desk.with_memory("a", 3000, resting=False)
    desk.report(holder)
    desk.do(ev.BusUsed(client=holder))
    desk.ask(next_one)
    assert desk.budget(next_one) == 0
    desk.do(ev.ClockTicked(), after_s=ahead.BUS_QUIET_S)
    desk.report(holder)  # it had heard that all that is free is its own
    assert desk.budget(next_one) == 3000


@pytest.mark.promise("accounts-22")
def test_copies_without_the_turn_say_nothing() -> None:
    """They were under way when it ended."""
    desk, _, next_one = desk_with_one_that_waits(3000, 3000)
    desk.do(ev.BusUsed(client=next_one))
    assert desk.budget(next_one) == 3000
