"""`jupyter gpushare scheduler`: start, end, log."""

from __future__ import annotations

import logging
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.base.private_file import PrivateLog
from tests.support.other_user import let_others_in
from tests.support.scheduler_process import (
    SchedulerUnderTest,
    environment,
    running_scheduler,
)


@pytest.mark.promise("cli-18", "`jupyter gpushare scheduler` runs the scheduler and stops cleanly")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_cleanly(scheduler: SchedulerUnderTest, number: signal.Signals) -> None:
    """Whatever asks it to end, it ends with status 0 and leaves no socket behind."""
    assert scheduler.stop(number) == 0
    left = {path.name for path in scheduler.directory.iterdir()}
    assert left == {"owners.json", "scheduler.lock", "token.key"}


@pytest.mark.promise("cli-18")
def test_it_can_log_to_its_directory(runtime: Path) -> None:
    """With --log-to-file the runtime directory has the log. It begins with what is not as by
    default."""
    flags = ("--quantum=7", "--turns=off", "--memory-cap=4GiB")
    with running_scheduler(runtime, "--log-to-file", *flags) as scheduler:
        assert scheduler.log == ""
    first = (runtime / "scheduler.log").read_text().splitlines()[0]
    assert ": not as by default: quantum_s=7.0, turns=off, " in first
    assert f"memory_cap_bytes={4 << 30}" in first and "idle_ms" not in first
    assert len(first) < 400


@pytest.mark.promise("cli-18")
def test_under_a_hub_its_log_is_its_own(runtime: Path) -> None:
    """The hub's package, which it imports, says nothing there. Each line is of this project."""
    hub = {"JUPYTERHUB_API_URL": "http://127.0.0.1:9/hub/api", "JUPYTERHUB_API_TOKEN": "none"}
    flags = ("--hub", f"--hub-pid={os.getpid()}", "--idle-exit-s=0.1", f"--runtime-dir={runtime}")
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli.main", "scheduler", *flags],
        env=environment(hub),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stderr.splitlines():
        assert " jupyter_gpushare." in line and len(line) < 400, line


@pytest.mark.promise("scheduler-1", "Log and journal are their owner's alone")
def test_its_log_and_journal_are_private(runtime: Path, tmp_path: Path) -> None:
    """They name users, notebooks and processes, and with --serve-all-users everybody may pass
    through the directory. A log that was there before is shut, too."""
    runtime.mkdir(mode=0o711)
    runtime.chmod(0o711)
    (runtime / "scheduler.log").touch(0o644)
    let_others_in(tmp_path)
    journal = tmp_path / "journal"
    options = ("--serve-all-users", "--log-to-file", f"--journal={journal}")
    with running_scheduler(runtime, *options):
        for path in (runtime / "scheduler.log", journal):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.promise("scheduler-1")
def test_logs_that_follow_are_private(tmp_path: Path) -> None:
    """So is what is written after the first log is full, and that one itself."""
    log = PrivateLog(tmp_path / "log", maxBytes=10, backupCount=1)
    for number in range(3):
        log.emit(logging.makeLogRecord({"msg": f"line number {number}"}))
    log.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"log": 0o600, "log.1": 0o600}
    assert (tmp_path / "log").read_text() == "line number 2\n"


@pytest.mark.promise("cli-18")
def test_debug_logs_events_with_their_causes(runtime: Path) -> None:
    """--debug shows what came in, why, and what followed from it."""
    with running_scheduler(runtime, "--debug") as scheduler, scheduler.joined() as client:
        client.take_turn()
    assert "TurnRequested(cause='cuLaunchKernel'" in scheduler.log
    assert "GrantTurn(cause=" in scheduler.log
