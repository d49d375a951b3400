"""The file of GPU-hours: what it keeps over restarts, and what becomes of one that is damaged."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jupyter_gpushare.view.fleet import Fleet
from jupyter_gpushare.view.usage import DAY_S, UsageLine
from jupyter_gpushare.view.usage_file import (
    KEPT_DAYS,
    USAGE_FILE,
    WRITE_EVERY_S,
    UsageFile,
    UsageFileError,
)
from jupyter_gpushare.view.usage_table import question_of
from tests.view.figures.nodes import WALL_S, Reporting, tenant

TODAY = int(WALL_S // DAY_S)


class View:
    """With a file; its clocks stand where the test puts them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / USAGE_FILE
        self.now_s = 0.0
        self.fleet = Fleet()
        self.node = Reporting(self.fleet, "a", now_s=0.0)
        self.node.has(t=tenant("alice", groups=("ml", "bio")), u=tenant("bob"))
        self.starts()

    def starts(self) -> None:
        self.fleet.nodes.clear()
        self.node.breaks()
        self.usage = UsageFile(self.path, now_s=self.now_s, wall_clock=lambda: WALL_S + self.now_s)

    def restarts(self) -> None:
        self.usage.close()
        self.starts()

    def hears(self, now_s: float, **held_s: float) -> None:
        self.now_s = now_s
        self.node.held(held_s)
        self.node.reports(now_s)
        self.usage.note(self.fleet, self.fleet.take_changed(), now_s=now_s)

    def table(self, owner: str | None = None, **arguments: str) -> list[str]:
        question = question_of(arguments, owner, TODAY)
        with self.usage.table(question).result() as file:
            return file.read().decode().splitlines()[1:]


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = View(tmp_path)
    yield view
    view.usage.close()


TOTAL = "2026-12-17,2027-01-15"


def hours(name: str, value: float, days: str = TOTAL) -> str:
    return f"{days},{name},,{value:.4f}"


@pytest.mark.promise("view-19")
def test_a_restart_of_the_view(view: View) -> None:
    """What was counted stays, and what has grown meanwhile is counted once."""
    view.hears(0.0)
    view.hears(3600.0, t=3600.0, u=1800.0)
    view.restarts()
    view.hears(7200.0, t=7200.0)
    view.restarts()
    view.hears(7201.0, t=7200.0)
    assert view.table() == [hours("alice", 2.0), hours("bob", 0.5)]
    assert view.table(by="group") == [hours("bio", 2.0), hours("ml", 2.0)]
    assert view.table("bob") == [hours("bob", 0.5)]
    assert view.table("bob", by="group") == []
    today = "2027-01-15,2027-01-15"
    assert view.table("alice", per="day") == [hours("alice", 2.0, today)]
    assert view.table(**{"to": "2026-01-01"}) == []


@pytest.mark.promise("view-19")
def test_a_crash_of_the_view(view: View) -> None:
    """What was not written is counted again from the counters that were written with the rest."""
    view.hears(0.0)
    view.hears(3600.0, t=3600.0)
    assert view.table() == [hours("alice", 1.0)]
    view.usage.note(view.fleet, (), now_s=view.now_s)
    lost = view.usage.usage
    view.hears(3600.0 + WRITE_EVERY_S - 1, t=3601.0)
    assert lost.changes().lines, "taken by nobody who writes it"
    view.restarts()
    view.hears(7200.0, t=5400.0)
    assert view.table() == [hours("alice", 1.5)]


def test_it_is_written_every_few_seconds(view: View) -> None:
    """By the view's own reports: nobody has to ask."""
    view.hears(0.0)
    view.hears(WRITE_EVERY_S, t=4.0)
    view.usage._settle(wait=True)
    with closing(sqlite3.connect(view.path)) as connection:
        assert connection.execute("SELECT SUM(seconds) FROM usage WHERE grp = ''").fetchone() == (
            4.0,
        )
    assert stat.S_IMODE(view.path.stat().st_mode) == 0o600


def spoil(path: Path) -> None:
    path.write_bytes(b"This is no database at all. " * 500)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=99")


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE usage (x)")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def odd(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE counters SET held_s = 'much'")
        connection.commit()


@pytest.mark.promise(
    "bad-input-71", "A file of GPU-hours that cannot be read is put aside, and the view goes on"
)
@pytest.mark.parametrize("damage", [spoil, newer, foreign, cut, odd])
def test_a_file_that_cannot_be_read(
    view: View, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log says where it is now."""
    view.hears(0.0)
    view.hears(3600.0, t=3600.0)
    view.usage.close()
    damage(view.path)
    view.starts()
    (said,) = caplog.messages
    assert "cannot be read" in said and "look there for the GPU-hours" in said
    (aside,) = view.path.parent.glob(f"{USAGE_FILE}.unreadable-*[0-9]")
    assert aside.stat().st_size > 0
    view.hears(3601.0, t=3601.0)
    view.hears(3611.0, t=3611.0)
    assert view.table() == [hours("alice", 10 / 3600)]


@pytest.mark.promise("bad-input-71")
def test_a_file_that_breaks_while_it_is_written(view: View) -> None:
    """What is counted since goes to a new one, with all counters."""
    view.hears(0.0)
    view.hears(3600.0, t=3600.0, u=1.0)
    assert view.table() == [hours("alice", 1.0), hours("bob", 1 / 3600)]
    for suffix in ("-wal", "-shm"):
        view.path.with_name(view.path.name + suffix).unlink(missing_ok=True)
    view.usage._file.close()
    spoil(view.path)
    view.hears(3606.0, t=3606.0)
    view.usage._settle(wait=True)
    view.restarts()
    view.hears(3610.0, t=3610.0, u=1.0)
    assert view.table() == [hours("alice", 10 / 3600)]


@pytest.mark.promise("bad-input-71")
def test_a_disk_that_is_full(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """The view says so, keeps what it has counted, and writes it once there is room."""
    view.hears(0.0)
    view.usage._settle(wait=True)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(view.usage._file, "_write", full)
        for second in (10.0, 20.0, 30.0):
            view.hears(second, t=second)
            view.usage._writing and view.usage._writing[0].exception()
        view.hears(40.0, t=40.0)
        assert "disk is full. Make room there" in view.usage.problem
    view.usage._writing and view.usage._writing[0].exception()
    view.hears(50.0, t=50.0)
    view.restarts()
    assert view.usage.problem == ""
    assert view.table() == [hours("alice", 50 / 3600)]


def days_of(view: View) -> list[int]:
    with closing(sqlite3.connect(view.path)) as connection:
        return [day for (day,) in connection.execute("SELECT DISTINCT day FROM usage")]


def test_a_directory_with_a_name_of_its_own(tmp_path: Path) -> None:
    """Signs that mean something in an address mean nothing here."""
    folder = tmp_path / "a?mode=memory#b%41"
    folder.mkdir()
    view = View(folder)
    view.hears(0.0)
    view.hears(3600.0, t=3600.0)
    assert view.table() == [hours("alice", 1.0)]
    view.usage.close()


def test_days_that_are_too_old(view: View) -> None:
    """They go; the last 400 days are kept."""
    view.hears(0.0)
    lines = [UsageLine(TODAY - ago, "hub", "old", "", "a") for ago in range(KEPT_DAYS + 5)]
    view.usage.usage._lines.update(dict.fromkeys(lines, 1.0))
    view.restarts()
    assert days_of(view) == list(range(TODAY - KEPT_DAYS + 1, TODAY + 1))


def test_a_clock_that_is_wrong_for_a_while(view: View) -> None:
    """Years ahead, over restarts: nothing that was kept is too old by that."""
    view.hears(0.0)
    view.hears(10.0, t=10.0)
    for view.now_s in (2000 * DAY_S, 2000.5 * DAY_S, 2001 * DAY_S, 20.0):
        view.restarts()
    assert days_of(view) == [TODAY]


def test_a_second_view(view: View) -> None:
    """Each would count the same hours: the second one does not begin."""
    with pytest.raises(UsageFileError, match=r"Another view writes .*\. Stop that one, or give"):
        UsageFile(view.path, now_s=0.0)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The view does not begin, and says why."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageFileError, match="Give the view a data directory that it may write"):
        UsageFile(tmp_path / "file" / "data" / USAGE_FILE, now_s=0.0)
