"""The journal replays what happened."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from pytest import LogCaptureFixture

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.core.events import ClockTicked, DeviceFound, DeviceMode, DeviceModeChanged
from jupyter_gpushare.core.ids import DeviceId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.protocol.messages import QueuePosition
from jupyter_gpushare.scheduler.journal import (
    DAY_S,
    FILES_MAX,
    Journal,
    as_json,
    aside_files,
    read_journal,
)
from jupyter_gpushare.scheduler.pseudonyms import Pseudonyms
from tests.support.scheduler_process import running_scheduler


@pytest.mark.promise("scheduler-43")
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


def journal(path: Path, **options: object) -> Journal:
    settings = SchedulerSettings()
    return Journal(path, settings=settings, recovering_until_s=None, **options)  # type: ignore[arg-type]


@pytest.mark.promise("scheduler-80", "A journal does not grow without bound")
def test_a_journal_that_has_grown_goes_on_in_another_file(tmp_path: Path) -> None:
    """Each file is about as large as it may be, and the oldest of too many go."""
    path, bytes_max = tmp_path / "journal", 2000
    written = journal(path, file_bytes_max=bytes_max)
    for number in range(2000):
        written.write(ClockTicked(cause="time came"), [], now_s=float(number))
    written.close()
    aside = sorted(aside_files(path))
    assert len(aside) == FILES_MAX
    assert len(list(tmp_path.iterdir())) == FILES_MAX + 1
    assert max(each.stat().st_size for each in tmp_path.iterdir()) < bytes_max + 1000
    older, newer = read_journal(aside[-1]), read_journal(path)
    assert newer.continues and newer.entries[-1].at_s == 1999
    assert older.entries[-1].at_s + 1 == newer.entries[0].at_s


@pytest.mark.promise("scheduler-80")
def test_a_journal_keeps_its_days(tmp_path: Path) -> None:
    """Each day has a file of its own, and those of more than `journal_days` go."""
    path, clock = tmp_path / "journal", [1_700_000_000.0]
    written = journal(path, days=3, wall_clock=lambda: clock[0])
    for day in range(6):
        written.write(ClockTicked(cause="time came"), [], now_s=float(day))
        os.utime(path, (clock[0], clock[0]))
        clock[0] += DAY_S
    written.close()
    first_events = [read_journal(each).entries[0].at_s for each in sorted(aside_files(path))]
    assert first_events == [2, 3, 4]
    assert read_journal(path).entries[0].at_s == 5


def test_each_journal_file_says_which_devices_are_paused(tmp_path: Path) -> None:
    """The file in which it was said may be gone."""
    path, device = tmp_path / "journal", DeviceId("A")
    written = journal(path, file_bytes_max=1000)
    written.write(DeviceFound(device=device, name="GPU", bytes_total=1), [], now_s=0.0)
    paused = DeviceModeChanged(device=device, mode=DeviceMode.PAUSED, cause="paused by ann")
    written.write(paused, [], now_s=0.0)
    while not aside_files(path):
        written.write(ClockTicked(cause="time came"), [], now_s=1.0)
    written.close()
    assert '"mode":"paused"' in path.read_text()


def test_a_journal_of_before_is_kept(tmp_path: Path) -> None:
    """A scheduler that starts anew begins another file, which goes on from nothing."""
    path = tmp_path / "journal"
    for at_s in (1.0, 2.0):
        written = journal(path)
        written.write(ClockTicked(cause="time came"), [], now_s=at_s)
        written.close()
    (before,) = aside_files(path)
    assert [entry.at_s for entry in read_journal(before).entries] == [1.0]
    assert not read_journal(path).continues


@pytest.mark.promise(
    "scheduler-81", "The journal names nobody, and no notebook, unless the admin wants the names"
)
@pytest.mark.parametrize("flag", ["", "--journal-names=names"])
def test_the_journal_names_people_by_pseudonym(runtime: Path, tmp_path: Path, flag: str) -> None:
    """After registration, turns, a release and a change of settings: neither the user's name, nor
    the notebook's, nor the user's number as the beginning of a tenant's id."""
    path = tmp_path / "journal"
    flags = [flag] if flag else []
    with running_scheduler(runtime, f"--journal={path}", *flags) as scheduler:
        weights = f"{user_name(os.getuid())}=2, @payroll=3"
        scheduler.client.change_settings({"quantum_s": 0.05, "weights": weights})
        with scheduler.joined("salaries") as first, scheduler.joined("other") as second:
            first.take_turn()
            second.ask()
            second.expect(QueuePosition)
            salaries = next(t for t in scheduler.status()["tenants"] if t["name"] == "salaries")
            scheduler.client.release_tenant(salaries["id"])
    text = path.read_text()
    me = user_name(os.getuid())
    named = [
        f"{me}=2",
        "@payroll=3",
        f'"owner":"{me}"',
        f"by {me}",
        "salaries",
        f'"tenant":"{os.getuid()}-',
    ]
    found = [each for each in named if each in text]
    assert found == (named if flag else [])


def test_pseudonyms_stay_the_same_for_a_key() -> None:
    """One name, one pseudonym; another scheduler has others."""
    one, same, other = Pseudonyms(b"1"), Pseudonyms(b"1"), Pseudonyms(b"2")
    assert one.of("owner", "ann") == same.of("owner", "ann")
    assert len({one.of("owner", "ann"), one.of("owner", "bob"), other.of("owner", "ann")}) == 3
    assert one.of("notebook", "") == ""


def test_entries_of_notebooks_have_the_pseudonyms_of_both() -> None:
    """So that a replay finds the notebook that is meant."""
    names = Pseudonyms(b"1")
    said = {"type": "SettingsChanged", "settings": {"memory_caps": "ann:a=8GiB"}}
    ann, a = names.of("owner", "ann"), names.of("notebook", "a")
    assert names.in_place_of_names(said)["settings"] == {"memory_caps": f"{ann}:{a}=8GiB"}
