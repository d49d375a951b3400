"""Work in flight that waits for a call which waits at the gate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import DrainStalled, DropReason, TurnDropped
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import HookedClient

Opened = Callable[..., tuple[GpuProcess, HookedClient]]


@pytest.mark.promise(
    "hook-30",
    "A drain that stalls on a gated call of the same process reopens the gate",
)
def test_a_drain_that_waits_for_a_gated_call_ends_by_reopening(opened: Opened) -> None:
    """A launch polls a flag that only another thread's gated call sets: the stall is reported with
    that call waiting, the reopened gate lets it through, and the next recall drains."""
    shell, client = opened(drain_stall_ms=60)
    for command in ("create 1", "create 2", "poll 1"):
        shell.say(f"0 {command}")
        shell.expect("0 create 0") if "create" in command else None
    turn = client.grant_request()
    shell.expect("0 poll 0")
    client.recall()
    client.expect(DrainStalled)  # the gate is shut
    shell.say("1 current")
    shell.say("1 set 2")
    stalled = client.expect(DrainStalled)
    while stalled.calls_waiting == 0:
        stalled = client.expect(DrainStalled)
    assert (stalled.turn_id, stalled.calls_waiting) == (turn, 1)
    assert client.count(TurnDropped) == 0
    client.reopen()
    shell.expect("1 set 0")
    dropped = client.recall_and_drop()
    assert (dropped.turn_id, dropped.reason) == (turn, DropReason.RECALL)


@pytest.mark.promise("hook-30")
def test_streams_of_one_thread_go_on_after_a_reopening(opened: Opened) -> None:
    """The drain adds no order between blocking streams: after it was taken back, work on one can
    still release work on another."""
    shell, client = opened(drain_stall_ms=60)
    for stream in (1, 2):
        shell.say(f"0 create {stream} blocking")
        shell.expect("0 create 0")
    shell.say("0 poll 1")
    client.grant_request()
    shell.expect("0 poll 0")
    client.recall()
    client.expect(DrainStalled)  # the gate is shut
    shell.say("0 set 2")
    while client.expect(DrainStalled).calls_waiting == 0:
        pass
    client.reopen()
    shell.expect("0 set 0")
    shell.say("0 sync")
    shell.expect("0 sync 0")


def test_the_window_lets_a_call_through_that_releases_the_work_before_it(opened: Opened) -> None:
    """A second launch on a stream whose first never ends by itself is held up for drain_stall_ms
    only, so that a later call of the same thread can release both."""
    shell, client = opened(drain_stall_ms=60)
    for stream in (1, 2):
        shell.say(f"0 create {stream}")
        shell.expect("0 create 0")
    shell.say("0 poll 1")
    client.grant_request()
    shell.expect("0 poll 0")
    shell.say("0 spin 1 1000 3")
    shell.expect("0 spin 0")
    shell.say("0 set 2")
    shell.expect("0 set 0")
    shell.say("0 sync")
    shell.expect("0 sync 0")


@pytest.mark.promise("hook-30")
def test_an_end_of_a_cell_that_stalls_on_a_call_reopens_by_itself(opened: Opened) -> None:
    """Without a recall the hook takes its own release back, also while others wait."""
    shell, client = opened(drain_stall_ms=60)
    for stream in (1, 2):
        shell.say(f"0 create {stream}")
        shell.expect("0 create 0")
    shell.say("0 hook cell_began")
    shell.expect("0 hook")
    shell.say("0 poll 1")
    client.grant_request(waiters=1)
    client.contention(waiters=1)
    shell.expect("0 poll 0")
    shell.say("0 hook cell_ended")
    shell.expect("0 hook")
    shell.say("1 current")
    shell.say("1 set 2")
    shell.expect("1 set 0")
    assert client.count(DrainStalled) == 0
