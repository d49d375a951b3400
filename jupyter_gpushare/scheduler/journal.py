"""Everything that went into the core and came out of it, as JSON lines, for replay.

The first line holds what the core was made with. Replaying the events at their times through a
fresh core gives the same commands, so any report can be looked into afterwards.

Each day, and when it has grown to `FILE_BYTES_MAX`, the journal is put aside under a name that
ends with the time, and another file begins. Its successor says that it goes on, and who is there. A
replay needs the files before it, and a reader who asks who did what does not. Files of more than
`journal_days` are removed, and so are the oldest of more than `FILES_MAX`.

People and notebooks have pseudonyms in it, unless the admin wants their names (`journal_names`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from jupyter_gpushare.core import events
from jupyter_gpushare.core.commands import Command
from jupyter_gpushare.core.configuration.values import changed_settings, settings_as_json
from jupyter_gpushare.core.events import DeviceMode, DropReason, Event, SettingsChanged
from jupyter_gpushare.core.ids import Seconds
from jupyter_gpushare.core.settings import SchedulerSettings

from .base.errors import StartError
from .base.private_file import written_anew
from .standing import StillHolds

log = logging.getLogger(__name__)

FORMAT = 1
FILE_BYTES_MAX = 256 << 20
FILES_MAX = 16
"""Besides the one that is being written."""
DAY_S = 86_400.0
_STAMP = re.compile(r"\.\d{8}-\d{6}-\d{6}", re.ASCII)


def as_it_is(said: dict[str, Any]) -> dict[str, Any]:
    """Names and all."""
    return said


class Journal:
    """Writes as things happen; a line is in the file when the event's commands are performed.

    `hidden` takes names out of events and commands; `wall_clock` is the time of day."""

    def __init__(
        self,
        path: Path,
        *,
        settings: SchedulerSettings,
        recovering_until_s: Seconds | None,
        file_bytes_max: int = FILE_BYTES_MAX,
        days: int = 7,
        hidden: Callable[[dict[str, Any]], dict[str, Any]] = as_it_is,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._days = days
        self._hidden = hidden
        self._wall_clock = wall_clock
        self._aside_us = 0
        """When a file was put aside last. Their names are in the order of their times, also where
        the time of day goes back."""
        self._file_bytes_max = file_bytes_max
        self._standing = StillHolds()
        self._head = {
            "journal": FORMAT,
            "settings": hidden(as_json(SettingsChanged(settings=settings)))["settings"],
            "recovering_until_s": recovering_until_s,
        }
        try:
            if path.is_file() and path.stat().st_size:
                self._put_aside()
            self._begin(continues=False)
        except OSError as error:
            raise StartError(
                f"The journal {path} cannot be written: {error.strerror}. Correct --journal."
            ) from error

    def _begin(self, *, continues: bool) -> None:
        self._file: TextIO | None = written_anew(self._path)
        self._bytes = 0
        self._began_s = self._wall_clock()
        self._put({**self._head, "continues": continues, "wall_s": self._began_s})
        for said in self._standing.all():
            self._put({"standing": said})

    def _put_aside(self) -> None:
        """Under a name of its own, beside those from before; what is too old or too much goes."""
        now_s = self._wall_clock()
        self._aside_us = max(int(now_s * 1e6), self._aside_us + 1)
        seconds, microseconds = divmod(self._aside_us, 1_000_000)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(seconds))
        aside = self._path.with_name(f"{self._path.name}.{stamp}-{microseconds:06d}")
        self._path.replace(aside)
        aside.chmod(0o600)
        kept = sorted(aside_files(self._path), reverse=True)
        for place, file in enumerate(kept):
            with contextlib.suppress(OSError):  # somebody else has removed it, or may alone
                if place >= FILES_MAX or now_s - file.stat().st_mtime > self._days * DAY_S:
                    file.unlink()

    def write(self, event: Event, commands: list[Command], *, now_s: Seconds) -> None:
        """A disk that is full ends the journal, and nothing else."""
        try:
            if self._file and self._is_full():
                self._file.close()
                self._put_aside()
                self._begin(continues=True)
            said = self._hidden(as_json(event))
            if isinstance(event, SettingsChanged):
                self._head["settings"] = said["settings"]
            self._standing.note(event, said)
            self._put(
                {
                    "at_s": now_s,
                    "event": said,
                    "commands": [self._hidden(as_json(command)) for command in commands],
                }
            )
        except OSError as error:
            log.error("the journal ends here: it cannot be written (%s)", error.strerror)
            self.close()

    def close(self) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _is_full(self) -> bool:
        age_s = self._wall_clock() - self._began_s
        return self._bytes >= self._file_bytes_max or age_s >= DAY_S

    def _put(self, entry: dict[str, Any]) -> None:
        if self._file:
            line = json.dumps(entry, separators=(",", ":")) + "\n"
            self._file.write(line)
            self._bytes += len(line)


def aside_files(path: Path) -> list[Path]:
    """The files that were put aside for a journal of this name."""
    return [
        file
        for file in path.parent.iterdir()
        if file.name.startswith(path.name) and _STAMP.fullmatch(file.name[len(path.name) :])
    ]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One line: an event, when it was handled, and what the core wanted then (as JSON)."""

    at_s: Seconds
    event: Event
    commands: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Recording:
    """A journal, read. One that `continues` another cannot be replayed by itself."""

    settings: SchedulerSettings
    recovering_until_s: Seconds | None
    entries: list[Recorded]
    continues: bool = False


def read_journal(path: Path) -> Recording:
    """The journal in this file; a last line that was cut off by a crash is left out."""
    lines = _lines(path)
    head = next(lines)
    if head.get("journal") != FORMAT:
        raise ValueError(f"{path} is not a journal of this version. Use the version that wrote it.")
    return Recording(
        settings=changed_settings(SchedulerSettings(), head["settings"]),
        recovering_until_s=head["recovering_until_s"],
        entries=[
            Recorded(line["at_s"], event_from_json(line["event"]), line["commands"])
            for line in lines
            if "standing" not in line
        ],
        continues=head["continues"],
    )


def as_json(value: Event | Command) -> dict[str, Any]:
    """An event or command: its type's name and its fields."""
    fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"type": type(value).__name__, **fields}


def event_from_json(data: dict[str, Any]) -> Event:
    """The reverse of `as_json`; raises ValueError for anything else than an event."""
    fields = dict(data)
    kind = getattr(events, fields.pop("type", ""), None)
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise ValueError(f"{data!r} is not an event of the core.")
    if "settings" in fields:
        fields["settings"] = changed_settings(SchedulerSettings(), fields["settings"])
    if "reason" in fields:
        fields["reason"] = DropReason(fields["reason"])
    if "mode" in fields:
        fields["mode"] = DeviceMode(fields["mode"])
    return kind(**fields)


def _plain(value: object) -> object:
    if isinstance(value, SchedulerSettings):
        return settings_as_json(value)
    return value.value if isinstance(value, enum.Enum) else value


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
