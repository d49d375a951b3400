"""What the core tells of turns that begin and end, for whoever keeps a record of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command
from jupyter_gpushare.core.ids import ClientId, Seconds, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.shown.moves import Moves
from tests.bench.mix import Mix

from .desk import TURNS_ALONE, Desk
from .moves import MovesFollowed
from .test_machine import WORLD_TIMEOUT, World
from .test_memory_machine import MemoryWorld
from .test_work_per_event import FEW, GIB, MANY, Crowd, counted


def test_moves_tell_who_has_what() -> None:
    """After each of a thousand events of many tenants on several devices, one who has heard the
    moves alone knows all holders and the lengths of all queues. (test_failures.py
    checks the same where the core fails.)"""
    swap = SchedulerSettings(memory_mode=MemoryMode.SWAP, quantum_s=2)
    scheduler, followed = Scheduler(swap), MovesFollowed()

    def handle(event: ev.Event, now_s: Seconds) -> list[Command]:
        commands = scheduler.handle(event, now_s=now_s)
        followed.follow(scheduler, scheduler.snapshot(now_s))
        return commands

    Mix(handle, tenants=12, devices=3).run(1000)
    assert followed.moves > 100


class WorldFollowed(World):
    """Random events, also while turns are switched off and on."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = MovesFollowed()

    def handle(self, event: ev.Event) -> None:
        super().handle(event)
        self.moves.follow(self.scheduler, self.scheduler.snapshot(self.now_s))


WorldFollowed.TestCase.settings = settings(max_examples=10, stateful_step_count=50)
TestWorldFollowed = WorldFollowed.TestCase
TestWorldFollowed.pytestmark = [WORLD_TIMEOUT]
TestWorldFollowed.__doc__ = "Whatever happens, moves tell all of it."


class MemoryWorldFollowed(MemoryWorld):
    """Random events where memory follows the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = MovesFollowed()

    def handle(self, event: ev.Event) -> None:
        super().handle(event)
        self.moves.follow(self.scheduler, self.scheduler.snapshot(self.now_s))


MemoryWorldFollowed.TestCase.settings = settings(max_examples=5, stateful_step_count=50)
TestMemoryWorldFollowed = MemoryWorldFollowed.TestCase
TestMemoryWorldFollowed.pytestmark = [WORLD_TIMEOUT]
TestMemoryWorldFollowed.__doc__ = "They also tell whose memory has still to come back."


@pytest.mark.promise("scheduler-47")
def test_moves_cost_what_has_moved() -> None:
    """With eight times as many tenants in the queue, as much work; and none where nothing moves."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants)
        moves = Moves(crowd.scheduler)
        moves.take()
        crowd.handle(
            ev.TurnDropped(client=ClientId(0), turn=TurnId(1), reason=ev.DropReason.CELL_END)
        )
        with counted() as work:
            (move,) = moves.take()
        assert (move.ended, len(move.begun), move.queued) == (("t0",), 1, tenants - 2)
        assert moves.take() == []
        return work.total()

    assert work(MANY) <= 1.1 * work(FEW)


@pytest.mark.promise("scheduler-47")
def test_who_comes_last_costs_no_more_behind_many() -> None:
    """What is told of who joins the queue, and leaves it, does not hang on those before it."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants, waiting=tenants - 1)
        moves, last = Moves(crowd.scheduler), ClientId(tenants - 1)
        moves.take()
        with counted() as work:
            crowd.handle(ev.TurnRequested(client=last))
            (came,) = moves.take()
            crowd.handle(ev.RequestWithdrawn(client=last))
            (went,) = moves.take()
        assert [each.tenant for each in came.waiters] == [*went.left] == [f"t{last}"]
        return work.total()

    assert work(MANY) <= 1.1 * work(FEW)


@pytest.mark.promise("scheduler-47")
def test_memory_that_comes_back_costs_the_same_behind_many() -> None:
    """With what is told of it: at the grant, and when the last of it is back."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants)
        moves = Moves(crowd.scheduler)
        moves.take()
        crowd.handle(
            ev.TurnDropped(client=ClientId(0), turn=TurnId(1), reason=ev.DropReason.CELL_END)
        )
        ((next_one,),) = [move.begun for move in moves.take()]
        assert (next_one.tenant, next_one.bytes_to_come) == ("t1", 6 * GIB)
        parked = [6 * GIB - part * GIB for part in range(1, 7)]
        back = [crowd.report_of(ClientId(1), 6 * GIB, parked=each) for each in parked]
        with counted() as work:
            for report in back:
                crowd.handle(report)
            told = [each for move in moves.take() for each in move.still]
        assert [(each.tenant, each.bytes_to_come) for each in told] == [("t1", 0)]
        return work.total()

    assert work(MANY) <= 1.1 * work(FEW)


def test_moves_tell_how_turns_end_and_are_kept() -> None:
    """A turn that was asked back is told from one that was dropped; so is one kept by hand."""
    desk = Desk(replace(TURNS_ALONE, hold_max_s=600))
    moves = Moves(desk.scheduler)
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.hold(a, 60)
    moves.take()
    desk.hold(a, 0)
    (move,) = moves.take()
    assert [(each.tenant, each.by_hand) for each in move.still] == [("a", False)]
    desk.ask(b)
    moves.take()
    desk.do(ev.ClockTicked(), after_s=10)
    desk.drop(a, ev.DropReason.RECALL)
    (move,) = moves.take()
    assert (move.ended, move.recalled, move.left) == (("a",), ("a",), ("b",))
    desk.drop(b)
    (move,) = moves.take()
    assert (move.ended, move.recalled) == (("b",), ())
