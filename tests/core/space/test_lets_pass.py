"""A turn whose memory still comes back, and a new cell that could compute meanwhile."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core import policy, turns
from jupyter_gpushare.core.commands import RecallReason, RecallTurn
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.settings import RestoreAhead
from tests.core.memory_desk import USABLE, MemoryDesk

HALF = USABLE // 2


@pytest.fixture(autouse=True)
def every_restore_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The desk's devices have 8000 bytes."""
    monkeypatch.setattr(policy, "_WORTH_PASSING_S", 0.0)


def cell(desk: MemoryDesk, client: ClientId, *, after_s: float = 0.0) -> None:
    """A new cell, which begins with a call to the device."""
    desk.do(ev.CellBegan(client=client), after_s=after_s)
    desk.ask(client)


def ends(desk: MemoryDesk, client: ClientId, *, after_s: float = 0.0) -> None:
    desk.do(ev.CellEnded(client=client), after_s=after_s)
    desk.drop(client)


def restoring(**settings: object) -> tuple[MemoryDesk, ClientId, ClientId, ClientId]:
    """The memory of `a` comes back with its turn; that of `b` and `c` is there."""
    desk = MemoryDesk(restore_ahead=RestoreAhead.ON, **settings)
    first = desk.with_memory("a", HALF)
    second, third = desk.with_memory("b", 100), desk.with_memory("c", 100)
    desk.report(first, parked=HALF)
    desk.report(first)
    cell(desk, first, after_s=100.0)
    assert first in desk.granted() and desk.budget(first) >= HALF
    desk.report(first, parked=HALF - 1000)
    return desk, first, second, third


def recalled(desk: MemoryDesk) -> list[tuple[int, RecallReason]]:
    return [(each.client, each.reason) for each in desk.all(RecallTurn)]


@pytest.mark.promise(
    "accounts-10",
    "A turn whose memory still comes back, of a new cell too, ends, once, for a new cell that is "
    "next and has all of its memory on the device. The memory goes on coming, and the turn has its "
    "place again",
)
def test_a_new_cell_computes_meanwhile() -> None:
    """And a third one, which came before the first asked again, is behind it."""
    desk, first, second, third = restoring()
    cell(desk, second)
    assert recalled(desk) == [(first, RecallReason.LETS_PASS)]
    cell(desk, third)
    desk.drop(first)
    assert desk.granted() == [second]
    desk.ask(first)
    desk.report(second)
    assert desk.budget(first) == HALF  # ahead of its turn
    desk.report(first, parked=HALF - 2000)
    ends(desk, second)
    assert desk.granted() == [first]
    assert not recalled(desk)  # once: the third one waits
    desk.report(first, parked=0)
    assert not recalled(desk)
    ends(desk, first)
    assert desk.granted() == [third]


@pytest.mark.promise("accounts-10")
def test_another_time_it_does_so_again() -> None:
    """Once it has had a turn with all of its memory."""
    desk, first, second, _ = restoring()
    for _ in range(2):
        cell(desk, second)
        assert recalled(desk) == [(first, RecallReason.LETS_PASS)]
        desk.drop(first)
        desk.ask(first)
        ends(desk, second)
        assert desk.granted() == [first]
        desk.report(first, parked=0)
        ends(desk, first)
        desk.report(first, parked=HALF)
        cell(desk, first, after_s=100.0)


@pytest.mark.promise("accounts-10")
@pytest.mark.parametrize(
    "why",
    ["nothing comes ahead", "its memory is away", "no new cell", "kept by hand", "copies", "done"],
)
def test_a_turn_goes_on(why: str) -> None:
    """Where the device would have nothing to do, or the memory would not come meanwhile."""
    off = {"restore_ahead": RestoreAhead.OFF} if why == "nothing comes ahead" else {}
    desk, first, second, _ = restoring()
    if off:
        desk.set(**off)
    if why == "its memory is away":
        desk.report(second, parked=100)
    if why == "kept by hand":
        desk.hold(first, 60)
    if why == "copies":
        desk.do(ev.BusUsed(client=first))
    if why == "done":
        desk.report(first, parked=0)
    if why == "no new cell":
        desk.ask(second)
    else:
        cell(desk, second)
    assert not recalled(desk)


@pytest.mark.promise("accounts-10")
def test_who_does_not_ask_at_once_has_lost_its_place() -> None:
    """Its call was cancelled, say, and another one comes later."""
    desk, first, second, third = restoring()
    cell(desk, second)
    desk.drop(first)
    cell(desk, third)
    desk.ask(first, after_s=turns.KEEPS_PLACE_S + 0.1)
    ends(desk, second)
    assert desk.granted() == [third]
