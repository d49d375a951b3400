"""Turns kept by hand and given away: what the hook tells the scheduler, and what it does then."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.protocol.messages import (
    CellEnded,
    DropReason,
    HoldChanged,
    HoldRequested,
    TurnDropped,
    TurnGivenAway,
)
from tests.hook.runtime.described import described, described_when
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler, HookedClient

Opened = Callable[..., tuple[GpuProcess, HookedClient]]
HOLD_MS = 600_000


def take_turn_in_a_cell(shell: GpuProcess, client: HookedClient) -> None:
    shell.say("0 hook cell_began")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")


def test_a_hold_is_asked_for_and_keeps_the_turn(opened: Opened) -> None:
    """The scheduler hears the wish; from its answer on, the cell's end gives nothing back, until
    the scheduler says that the hold is over."""
    shell, client = opened()
    take_turn_in_a_cell(shell, client)
    shell.say(f"0 hold {HOLD_MS}")
    assert client.expect(HoldRequested).hold_ms == HOLD_MS
    client.send(HoldChanged(hold_ms=HOLD_MS))
    described_when(shell, lambda now: now["hold_answers"] == 1)
    shell.say("0 hook cell_ended")
    client.expect(CellEnded)
    shell.say("0 spin d 1000")
    shell.expect("0 spin 0")
    assert client.count(TurnDropped) == 0
    client.send(HoldChanged(hold_ms=0))
    assert client.expect(TurnDropped).reason is DropReason.CELL_END


def test_idleness_does_not_end_a_hold(opened: Opened) -> None:
    """With somebody waiting and nothing to do, a held turn stays; an own one would go."""
    shell, client = opened(idle_ms=10)
    take_turn_in_a_cell(shell, client)
    client.send(HoldChanged(hold_ms=HOLD_MS))
    client.contention(waiters=1)
    assert client.hears_none(TurnDropped, for_s=0.2)
    client.send(HoldChanged(hold_ms=0))
    assert client.expect(TurnDropped).reason is DropReason.IDLE


def test_the_description_tells_the_hold(opened: Opened) -> None:
    """How long it still lasts, and how many answers have come, so that one can be waited for."""
    shell, client = opened()
    assert (described(shell)["hold_left_ms"], described(shell)["hold_answers"]) == (0, 0)
    client.send(HoldChanged(hold_ms=HOLD_MS))
    now = described_when(shell, lambda now: now["hold_answers"] == 1)
    assert 0 < now["hold_left_ms"] <= HOLD_MS


def test_a_wish_waits_for_a_scheduler(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Asked for before CUDA is opened, the hold is told with the first connection; of several, the
    last one counts."""
    shell = start("shell")
    shell.say("0 hold 1000")
    shell.expect("0 hold 0")
    shell.say("0 hold 2000")
    shell.expect("0 hold 0")
    shell.say("0 open")
    client = scheduler.accept()
    client.welcome()
    assert client.expect(HoldRequested).hold_ms == 2000
    shell.expect("0 open 0")
    assert client.count(HoldRequested) == 1


def test_a_turn_is_given_away(opened: Opened) -> None:
    """A release is told to the scheduler, whose recall takes the turn from the whole tenant."""
    shell, client = opened()
    take_turn_in_a_cell(shell, client)
    shell.say("1 hook release")
    client.expect(TurnGivenAway)
    assert client.recall_and_drop().reason is DropReason.RECALL
