"""The journal replays what happened."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.scheduler.journal import as_json, read_journal
from tests.support.scheduler_process import running_scheduler


def test_a_journal_replays_to_the_same_commands(runtime: Path, tmp_path: Path) -> None:
    """Its events at their times, through a fresh core, lead to the very commands it recorded."""
    path = tmp_path / "journal"
    with running_scheduler(runtime, f"--journal={path}") as scheduler:
        scheduler.client.change_settings({"quantum_s": 0.05})
        with scheduler.joined("first") as first, scheduler.joined("second") as second:
            turn = first.take_turn()
            second.ask()
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
