"""The settings file of an administrator: who may have written it, and what is followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_gpushare.core.configuration.layers import Values
from jupyter_gpushare.core.errors import RequestFailed
from jupyter_gpushare.scheduler.base.settings_file import (
    BYTES_MAX,
    FileRefused,
    SettingsFile,
    read_settings,
    settings_in,
)
from tests.cli.conftest import command_at
from tests.support.other_user import OTHER_UID, as_root_only
from tests.support.scheduler_process import (
    SchedulerDidNotStart,
    SchedulerUnderTest,
    running_scheduler,
)
from tests.support.waits import wait_until

FILE = Path("settings.toml")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o644)
    return path


@pytest.mark.promise(
    "scheduler-91",
    "A settings file that is not right is refused as a whole, with its line and a reason, and the "
    "last good settings stay; so is one that somebody else could have written",
)
@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('quantum_s = "5s"\nidle_ms = ', 2, "is not TOML"),
        ('quantum_s = "5s', 1, "is not TOML"),
        ("quantum_s = 5\nquantum_s = 6", 2, "is not TOML"),
        ("# a word\n\nquantm_s = 5", 3, "There is no setting 'quantm_s'. Did you mean quantum_s?"),
        ("idle_ms = 5\n[quantum_s]\na = 1", 2, "quantum_s cannot be"),
        ("idle_ms = 5\nquantum_s = -1", 2, "quantum_s is -1.0, which is outside"),
        ("quantum_s = nan", 1, "Give a finite number"),
        ("quantum = 5\nquantum_s = 6", 2, "quantum_s is given twice"),
        ("turns = true", 1, "turns cannot be True. Give one of: on, off."),
        ('"quantum_s" = 1979-05-27', 1, "Give a number of seconds"),
        ("memory_cap_bytes = 5", 1, "cannot be changed while the scheduler runs"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, what: str) -> None:
    """One sentence on what is wrong, and one on what to do."""
    with pytest.raises(FileRefused) as refused:
        settings_in(text, FILE)
    said = str(refused.value)
    assert said.startswith(f"Line {line} of settings.toml")
    assert what in said and said.endswith((".", "?"))


def test_what_is_right_is_read_as_set_reads_it() -> None:
    """Names and values as everywhere."""
    text = '# for the class\nquantum = "5s"\nidle-ms = 70\nvisibility = "users"\n'
    values = {name: getattr(v, "value", v) for name, v in settings_in(text, FILE).items()}
    assert values == {"quantum_s": 5.0, "idle_ms": 70, "visibility": "users"}


@pytest.mark.promise("scheduler-91")
def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """So is what is not a file, and what is too long; nothing waits for a pipe's other end."""
    path = written(tmp_path / "s.toml", "quantum_s = 5")
    for mode in (0o666, 0o664, 0o602):
        path.chmod(mode)
        with pytest.raises(FileRefused, match=r"Others may write to .* Run `chmod go-w"):
            read_settings(path)
    path.chmod(0o600)
    assert read_settings(path) == {"quantum_s": 5.0}
    path.write_text("#" * (BYTES_MAX + 1))
    with pytest.raises(FileRefused, match="Shorten it"):
        read_settings(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileRefused, match="Write it as UTF-8"):
        read_settings(path)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path):
        with pytest.raises(FileRefused, match="is not a file"):
            read_settings(other)
    with pytest.raises(FileRefused, match="cannot be read: No such file"):
        read_settings(tmp_path / "none")


@as_root_only
@pytest.mark.promise("scheduler-91")
def test_another_users_file_is_refused(tmp_path: Path) -> None:
    """Also behind a link of ours."""
    path = written(tmp_path / "s.toml", "quantum_s = 5")
    os.chown(path, OTHER_UID, -1)
    (tmp_path / "link").symlink_to(path)
    for name in (path, tmp_path / "link"):
        with pytest.raises(
            FileRefused, match=r"who does not administer this scheduler\. Give it to"
        ):
            read_settings(name)


class Follower:
    """What a file that is looked at has brought so far."""

    def __init__(self, path: Path) -> None:
        self.taken: list[Values] = []
        self.results: list[str] = []
        self.file = SettingsFile(path, self.taken.append)
        self.file.noted = self.results.append

    def after_looks(self, count: int = 2) -> list[Values]:
        """The values that these looks have brought."""
        self.taken.clear()
        for _ in range(count):
            self.file.look()
        return list(self.taken)


@pytest.mark.promise(
    "scheduler-92",
    "A settings file is followed when it is written, when another file is put in its place, and "
    "when a link on the way to it leads elsewhere, as those of a ConfigMap do",
)
def test_the_file_is_followed(tmp_path: Path) -> None:
    """A link that is exchanged leaves name, time and size of the new file as they may be."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        path = written(tmp_path / f"..{number}" / "s.toml", f"quantum_s = {number}")
        os.utime(path, (1000, 1000))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "s.toml").symlink_to("..data/s.toml")
    follower = Follower(tmp_path / "s.toml")
    follower.file.read()
    assert follower.taken == [{"quantum_s": 1.0}]
    assert follower.after_looks() == []
    (tmp_path / "new").symlink_to("..2")
    (tmp_path / "new").rename(tmp_path / "..data")
    assert follower.after_looks() == [{"quantum_s": 2.0}]
    other = written(tmp_path / "other", "quantum_s = 3")
    other.rename(tmp_path / "s.toml")
    assert follower.after_looks() == [{"quantum_s": 3.0}]
    written(tmp_path / "s.toml", "quantum_s = 4")
    assert follower.after_looks() == [{"quantum_s": 4.0}]
    os.utime(tmp_path / "s.toml", (0, 0))  # the clock was set back
    assert follower.after_looks() == [{"quantum_s": 4.0}]


@pytest.mark.promise("scheduler-91")
def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    """As long as it changes between two looks; half of it would be another setting."""
    follower = Follower(written(tmp_path / "s.toml", "quantum_s = 1"))
    follower.file.read()
    for text in ("quantum_s = 2", "quantum_s = 25", "quantum_s = 25."):
        written(tmp_path / "s.toml", text)
        assert follower.after_looks(1) == []
    written(tmp_path / "s.toml", "quantum_s = 25.5")
    assert follower.after_looks() == [{"quantum_s": 25.5}]


@pytest.mark.promise("scheduler-91")
def test_what_is_refused_is_taken_when_it_is_right(tmp_path: Path) -> None:
    """Also when it was gone meanwhile. It is told once, not at each look."""
    follower = Follower(tmp_path / "s.toml")
    follower.file.read()
    assert follower.file.refusal is not None and "No such file" in follower.file.refusal
    written(tmp_path / "s.toml", "quantum_s = -1")
    assert follower.after_looks(4) == []
    assert follower.file.refusal.startswith("Line 1 of ")
    written(tmp_path / "s.toml", "quantum_s = 7")
    assert follower.after_looks(4) == [{"quantum_s": 7.0}]
    assert follower.file.refusal is None
    assert len(follower.results) == 3 and follower.results[-1] == "done"


def test_a_core_that_fails_changes_nothing(tmp_path: Path) -> None:
    """The next file is taken all the same."""
    follower = Follower(written(tmp_path / "s.toml", "quantum_s = 1"))
    failures = [RequestFailed("The scheduler failed. Try again.")]

    def apply(values: Values) -> None:
        if failures:
            raise failures.pop()
        follower.taken.append(values)

    follower.file = SettingsFile(tmp_path / "s.toml", apply)
    follower.file.read()
    assert follower.file.refusal == "The scheduler failed. Try again."
    written(tmp_path / "s.toml", "quantum_s = 22")
    assert follower.after_looks() == [{"quantum_s": 22.0}]


# ---- a running scheduler -------------------------------------------------------------------------


def values_of(scheduler: SchedulerUnderTest, name: str) -> tuple[object, object, list[object]]:
    """A setting, where it comes from, and the places that it shadows."""
    each = scheduler.client.explain_settings()["settings"][name]
    return each["value"], each["from"], [one["from"] for one in each["shadowed"]]


@pytest.mark.promise("scheduler-92")
@pytest.mark.promise("scheduler-42")
def test_a_running_scheduler_follows_its_file(runtime: Path, tmp_path: Path) -> None:
    """Flags are weaker and live values stronger, through reloads and refusals; `unset` and
    `config` say so too."""
    path = written(tmp_path / "s.toml", 'quantum_s = "5s"\noverdue_s = 40\n')
    gpushare = command_at(runtime)
    with running_scheduler(runtime, f"--settings-file={path}", "--quantum=7") as scheduler:
        assert values_of(scheduler, "quantum_s") == (5.0, "file", ["start", "default"])
        scheduler.client.change_settings({"quantum_s": 3})
        written(tmp_path / "s.toml", "quantum_s = 6\n")
        scheduler.eventually(lambda s: s["settings"]["overdue_s"] == 30)
        assert values_of(scheduler, "quantum_s") == (3.0, "set", ["file", "start", "default"])
        written(tmp_path / "s.toml", "quantum_s = -1\noverdue_s = 50\n")
        wait_until(
            lambda: scheduler.client.explain_settings()["file"]["refused"], "the file is refused"
        )
        assert "quantum_s is -1.0" in scheduler.client.explain_settings()["file"]["refused"]
        assert scheduler.status()["settings"]["overdue_s"] == 30
        shown = gpushare("config", "--show").stdout
        (row,) = (line.split() for line in shown.splitlines() if line.startswith("quantum_s"))
        places = ["6s", "(file),", "7s", "(start),", "0s", "(default)"]
        assert row == ["quantum_s", "3s", "set", *places]
        assert "It is refused, and the last good settings stay. Line 1 of" in shown
        assert gpushare("unset", "quantum").stdout.split() == [
            "SETTING",
            "VALUE",
            "quantum_s",
            "6s",
        ]
        assert gpushare("unset", "colour").returncode == 2
        told = [(e["who"], e["verb"], e["result"][:4]) for e in scheduler.client.audit(9)]
        assert told == [
            ("root" if os.getuid() == 0 else told[0][0], "set", "done"),
            ("settings file", "reload", "done"),
            ("settings file", "reload", "Line"),
            (told[0][0], "unset", "done"),
        ]
        assert scheduler.status()["settings"]["quantum_s"] == 6


@pytest.mark.promise("scheduler-91")
def test_a_scheduler_starts_beside_a_file_that_is_wrong(runtime: Path, tmp_path: Path) -> None:
    """A slip in a file must not stop a node at its next start: the log says what is wrong. Who asks
    for a check learns it."""
    path = written(tmp_path / "s.toml", "quantum_s = ")
    with running_scheduler(runtime, f"--settings-file={path}") as scheduler:
        assert scheduler.status()["settings"]["quantum_s"] == 0
        assert "the settings stay as they were: Line 1 of" in scheduler.log
    with pytest.raises(SchedulerDidNotStart, match=r"Line 1 of .* is not TOML"):
        SchedulerUnderTest(runtime, f"--settings-file={path}", "--check-config")


@pytest.mark.promise("scheduler-105")
def test_a_scheduler_starts_with_shares_of_notebooks(runtime: Path, tmp_path: Path) -> None:
    """By its flags and by its file: each is named in the log, and the users' own count."""
    path = written(tmp_path / "s.toml", 'limits = "ann=0.5, ann:b=0.2"')
    flags = (f"--settings-file={path}", "--GPUShareScheduler.requests=ann:a=0.1, ben=0.2")
    with running_scheduler(runtime, *flags) as scheduler:
        assert scheduler.status()["settings"]["requests"] == "ann:a=0.1, ben=0.2"
        for named in ("count for nothing: ann:a (requests).", "ann:b (limits)."):
            assert named in scheduler.log
        change = {"limits": {"ann": "0.4"}}
        assert scheduler.client.change_settings(change)["limits"] == "ann=0.4, ann:b=0.2"


def test_live_values_end_with_the_scheduler(runtime: Path) -> None:
    """A restart goes back to what files and flags say."""
    with running_scheduler(runtime, "--quantum=7") as scheduler:
        scheduler.client.change_settings({"quantum_s": 3})
    with running_scheduler(runtime, "--quantum=7") as scheduler:
        assert values_of(scheduler, "quantum_s") == (7.0, "start", ["default"])
