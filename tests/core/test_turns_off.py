"""`turns` off and on, also while the scheduler runs."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import GrantTurn, ReopenGate
from jupyter_gpushare.core.settings import TurnTaking

from .desk import TURNS_ALONE, Desk
from .memory_desk import USABLE, MemoryDesk

OFF = TURNS_ALONE.replace(turns=TurnTaking.OFF)


def test_off_grants_everybody_at_once() -> None:
    """Without turns nobody waits, whoever else holds."""
    desk = Desk(OFF)
    for name in "abc":
        client = desk.client(name)
        desk.ask(client)
        assert desk.granted() == [client]
    assert desk.holders() == ["a", "b", "c"]
    assert desk.wake_at_s is None


@pytest.mark.promise("scheduler-51")
def test_switching_off_grants_all_who_wait() -> None:
    """The queue empties in its order."""
    desk = Desk()
    clients = [desk.client(name) for name in "abc"]
    for client in clients:
        desk.ask(client)
    desk.turns_on(False)
    assert desk.granted() == clients[1:]
    assert desk.queue() == []


def test_switching_off_takes_recalls_back() -> None:
    """Who was just asked for its turn may keep it."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.sleep_until_woken()
    assert desk.recalled() == [a]
    desk.turns_on(False)
    assert [type(c) for c in desk.last if isinstance(c, ReopenGate | GrantTurn)] == [
        ReopenGate,
        GrantTurn,
    ]
    assert desk.holders() == ["a", "b"]
    desk.drop(a)  # it had dropped before it heard of that
    desk.ask(a)
    assert desk.granted() == [a]


@pytest.mark.promise("scheduler-51")
def test_switching_on_recalls_all_but_the_first() -> None:
    """On each device the earliest holder goes on; the others give back and queue."""
    desk = Desk(OFF)
    a, b, c = desk.client("a", "A"), desk.client("b", "AB"), desk.client("c", "B")
    for client in (a, b, c):
        desk.ask(client)
    desk.turns_on(True)
    assert desk.recalled() == [b, c]
    desk.ask(b)
    desk.drop(b)
    assert desk.queue("A") == ["b"]
    desk.drop(c)
    assert desk.granted() == []
    desk.drop(a)
    assert desk.granted() == [b]


def test_switching_on_leaves_those_who_do_not_overlap() -> None:
    """Tenants on different devices are not disturbed."""
    desk = Desk(OFF)
    a, b = desk.client("a", "A"), desk.client("b", "B")
    desk.ask(a)
    desk.ask(b)
    desk.turns_on(True)
    assert desk.recalled() == []


def test_off_and_on_again_keeps_the_first_holder() -> None:
    """A turn from before turns were off is the first, and goes on."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.turns_on(False)
    desk.ask(b)
    desk.turns_on(True)
    assert desk.recalled() == [b]
    desk.drop(b)
    assert desk.holders() == ["a"]


def test_an_overlap_that_cannot_drain_is_tried_again() -> None:
    """A drain stall of a surplus holder keeps the overlap until the next try, without a waiter."""
    desk = Desk(OFF)
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.turns_on(True)
    desk.stall(b, calls_waiting=1)
    assert desk.reopened() == [b]
    desk.sleep_until_woken()
    assert desk.recalled() == [b]
    desk.drop(b)
    assert desk.holders() == ["a"]


def test_the_same_settings_again_say_nothing() -> None:
    """Settings that do not change are not told."""
    desk = Desk()
    desk.client("a")
    desk.do(ev.SettingsChanged(settings=desk.scheduler.settings))
    assert desk.last == []


@pytest.mark.promise(
    "together-3",
    "Without turns no quantum is counted for those who wait for memory; a need in a context that "
    "fails is refused; no room is denied by a look from before it was made",
)
def test_without_turns_no_quantum_is_counted_for_who_waits_for_memory() -> None:
    """Somebody may wait although turns are off: for memory. Nobody's quantum ends for that, and no
    alarm is set for its end."""
    desk = MemoryDesk(turns=TurnTaking.OFF)
    two = desk.with_memory("b", 4000)
    one = desk.client("a")
    desk.ask(one)
    desk.need(one, USABLE)
    desk.park(two)
    desk.report(one, allocated=USABLE, fixed=USABLE)
    desk.ask(two)
    assert desk.holders() == ["a"] and desk.obstacle("b") is not None
    for _ in range(3):
        desk.do(ev.ClockTicked(), after_s=desk.scheduler.settings.quantum_s)
        assert desk.recalled() == []
