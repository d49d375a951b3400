"""Contexts with a sticky error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    ContextFailed,
    DeviceOpened,
    DropReason,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine

Opened = Callable[..., tuple[GpuProcess, HookedClient]]
Start = Callable[..., GpuProcess]

ASSERT = 710
MIB = 1 << 20


def fail(shell: GpuProcess, client: HookedClient) -> None:
    """A launch that fails a device-side assertion."""
    shell.say("0 assert d")
    client.grant_request()
    shell.expect("0 assert 0")


@pytest.mark.promise(
    "hook-16",
    "A context with a sticky error counts as drained, gives its turn back and takes no more",
)
def test_a_sticky_error_seen_by_a_synchronise_gives_the_turn_back(opened: Opened) -> None:
    """The failed context is reported once, the turn dropped, the user told what to do."""
    shell, client = opened()
    shell.say(f"0 alloc {96 * MIB}")
    client.grant_request()
    shell.expect("0 alloc 0")
    shell.say("0 assert d")
    shell.expect("0 assert 0")
    shell.say("0 sync")
    shell.expect(f"0 sync {ASSERT}")
    assert client.expect(ContextFailed).cu_result == ASSERT
    assert client.expect(TurnDropped).reason is DropReason.CONTEXT_FAILED
    errors = shell.errors()
    assert errors.count("\n") == 1
    assert "CUDA_ERROR_ASSERT" in errors
    assert "Restart the kernel" in errors
    assert "frees 96 MiB" in errors


@pytest.mark.promise("hook-16")
def test_later_calls_return_their_error_without_asking(opened: Opened) -> None:
    """A context that can do no work takes no turns."""
    shell, client = opened()
    fail(shell, client)
    shell.say("0 sync")
    shell.expect(f"0 sync {ASSERT}")
    client.expect(TurnDropped)
    for _ in range(3):
        shell.say("0 spin d 1000")
        shell.expect(f"0 spin {ASSERT}")
    assert client.count(TurnRequested) == 1
    assert client.count(ContextFailed) == 1


@pytest.mark.promise("hook-16")
def test_a_drain_that_meets_a_sticky_error_counts_as_done(opened: Opened) -> None:
    """Nobody looked at the result yet when the recall comes: the drain finds it."""
    shell, client = opened()
    fail(shell, client)
    client.recall()
    assert client.expect(TurnDropped).reason is DropReason.CONTEXT_FAILED
    assert client.count(ContextFailed) <= 1


@pytest.mark.promise("hook-16")
def test_calls_that_wait_are_let_through_to_their_error(opened: Opened) -> None:
    """A call that waits when its context fails returns the error instead of waiting for ever."""
    shell, client = opened(window_ms=1000)
    shell.say("0 create 1")
    shell.expect("0 create 0")
    shell.say("0 spin 1 300000000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say("0 assert 1")
    shell.expect("0 assert 0")
    client.recall()
    shell.say("1 current")
    shell.expect("1 current 0")
    while not shell.log_lines("shut"):
        pass
    shell.say("1 spin 1 1000")
    shell.expect(f"1 spin {ASSERT}")
    assert client.expect(TurnDropped).reason is DropReason.CONTEXT_FAILED


def test_a_failed_context_leaves_another_device_usable(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """Of two contexts one fails: the turn goes back, calls of the failed one return its error, and
    those of the other take turns as before."""
    shell = start("shell", machine=SimulatedMachine(tmp_path / "two", devices=2))
    shell.say("0 open 0")
    client = scheduler.accept()
    client.welcome()
    shell.say("0 open 1")
    client.expect(DeviceOpened)
    second = client.expect(DeviceOpened)
    shell.say("0 assert d")
    client.grant_request()
    shell.expect("0 assert 0")
    shell.say("0 sync")
    shell.expect(f"0 sync {ASSERT}")
    assert client.expect(ContextFailed).device == second.device
    assert client.expect(TurnDropped).reason is DropReason.CONTEXT_FAILED
    shell.say("0 spin d 1000")
    shell.expect(f"0 spin {ASSERT}")
    for turn in range(2):
        shell.say("0 open 0")
        shell.expect("0 open 0")
        shell.say("0 spin d 1000")
        client.grant_request()
        shell.expect("0 spin 0")
        assert client.recall_and_drop().reason is DropReason.RECALL, turn
    assert client.count(ContextFailed) == 1


UNKNOWN = 999


@pytest.mark.promise(
    "hook-17", "An answer of the driver that says nothing about the work never counts as its end"
)
def test_a_drain_asks_again_where_the_driver_tells_nothing(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """An error that says nothing of the stream does not end its work: memory would be parked from
    under it."""
    faults = f"fail cuStreamQuery thread=gpushare times=3 result={UNKNOWN}"
    shell, client = opened(env={"GPUSHARE_SIM_FAULTS": faults}, tenants=1)
    shell.say("0 create 1")
    shell.expect("0 create 0")
    shell.say("0 spin 1 300000000")
    client.grant_request()
    shell.expect("0 spin 0")
    dropped = client.recall_and_drop()
    (launch,) = [record for record in sim.journal() if record.kind.name == "LAUNCH"]
    assert (sim.directory / "happened").read_text().endswith("fail cuStreamQuery\n")
    assert launch.ended_ns <= dropped.drained_at_ns


@pytest.mark.promise("hook-17")
def test_a_context_of_which_the_driver_tells_nothing_any_more_is_given_up(opened: Opened) -> None:
    """A drain ends all the same. The context counts as failed: its memory stays where it is."""
    faults = f"fail cuStreamQuery thread=gpushare times=0 result={UNKNOWN}"
    shell, client = opened(env={"GPUSHARE_SIM_FAULTS": faults}, tenants=1)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    client.recall()
    assert client.expect(ContextFailed).cu_result == UNKNOWN
    client.expect(TurnDropped)
