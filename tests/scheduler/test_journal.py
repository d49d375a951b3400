"""The journal replays what happened."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
from pytest import LogCaptureFixture

from jupyter_gpushare.core.events import ClockTicked
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.protocol.messages import QueuePosition
from jupyter_gpushare.scheduler.journal import Journal, as_json, read_journal
from tests.support.scheduler_process import running_scheduler


@pytest.mark.promise("Everything has a cause, and a...")
def test_a_journal_replays_to_the_same_commands(runtime: Path, tmp_path: Path) -> None:
    """Its events at their times, through a fresh core, lead to the very commands it recorded."""
    path = tmp_path / "journal"
    with running_scheduler(runtime, f"--journal={path}") as scheduler:
        scheduler.client.change_settings({"quantum_s": 0.05})
        with scheduler.joined("first") as first, scheduler.joined("second") as second:
            turn = first.take_turn()
            second.ask()
            second.expect(QueuePosition)  # else the drop, on another line, may be heard first
            first.drop(turn.turn_id)
            second.take_turn()
    recording = read_journal(path)
    core = Scheduler(recording.settings, recovering_until_s=recording.recovering_until_s)
    commands: list[str] = []
    for entry in recording.entries:
        again = [as_json(c) for c in core.handle(entry.event, now_s=entry.at_s)]
        assert again == entry.commands, entry
        commands += [command["type"] for command in again]
    assert {"TellSettings", "TellContention", "GrantTurn", "WakeAt"} <= set(commands)
    assert all(as_json(entry.event)["cause"] for entry in recording.entries)


def test_a_journal_cut_off_by_a_crash_is_read(runtime: Path, tmp_path: Path) -> None:
    """The last line may be half written; what came before it is still good."""
    path = tmp_path / "journal"
    with running_scheduler(runtime, f"--journal={path}") as scheduler:
        scheduler.tenant()
        scheduler.kill()
    whole = len(read_journal(path).entries)
    path.write_text(path.read_text()[:-3])
    assert len(read_journal(path).entries) == whole - 1


def test_a_full_disk_ends_the_journal_alone(tmp_path: Path, caplog: LogCaptureFixture) -> None:
    """What cannot be written is left out, and said once; nobody's turn depends on it."""
    path = tmp_path / "journal"
    journal = Journal(path, settings=SchedulerSettings(), recovering_until_s=None)
    held = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, held[1]))
    try:
        for _ in range(2):
            journal.write(ClockTicked(), [], now_s=1.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, held)
        signal.signal(signal.SIGXFSZ, ignored)
    journal.close()
    assert caplog.text.count("the journal ends here") == 1
    assert read_journal(path).entries == []


@pytest.mark.promise("scheduler", "A journal does not grow without bound")
def test_a_journal_that_has_grown_goes_on_in_another_file(tmp_path: Path) -> None:
    """Two files at most, each about as large as it may be; the second says that it goes on."""
    path, bytes_max = tmp_path / "journal", 2000
    journal = Journal(
        path, settings=SchedulerSettings(), recovering_until_s=None, file_bytes_max=bytes_max
    )
    for number in range(500):
        journal.write(ClockTicked(cause="time came"), [], now_s=float(number))
    journal.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["journal", "journal.1"]
    older, newer = read_journal(tmp_path / "journal.1"), read_journal(path)
    assert max(each.stat().st_size for each in tmp_path.iterdir()) < bytes_max + 1000
    assert newer.continues and newer.entries[-1].at_s == 499
    assert older.entries[-1].at_s + 1 == newer.entries[0].at_s
