"""`jupyter gpushare scheduler`: start, end, log."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_cleanly(scheduler: SchedulerUnderTest, number: signal.Signals) -> None:
    """Whatever asks it to end, it ends with status 0 and leaves no socket behind."""
    assert scheduler.stop(number) == 0
    left = {path.name for path in scheduler.directory.iterdir()}
    assert left == {"scheduler.lock", "token.key"}


def test_it_can_log_to_its_directory(runtime: Path) -> None:
    """With --log-to-file the runtime directory has the log, effective values first."""
    with running_scheduler(runtime, "--log-to-file", "--quantum=7") as scheduler:
        assert scheduler.log == ""
    log = (runtime / "scheduler.log").read_text()
    assert "quantum_s=7.0" in log.splitlines()[0]


def test_debug_logs_events_with_their_causes(runtime: Path) -> None:
    """--debug shows what came in, why, and what followed from it."""
    with running_scheduler(runtime, "--debug") as scheduler, scheduler.joined() as client:
        client.take_turn()
    assert "TurnRequested(cause='cuLaunchKernel'" in scheduler.log
    assert "GrantTurn(cause=" in scheduler.log
