"""The settings file of an administrator: TOML, looked at again and again while the scheduler runs.

    quantum_s = "5s"
    visibility = "users"

A file that is not right is refused as a whole, and the last good settings stay. The file is looked
at under its name each time, so that an editor may put another file in its place, and a link may
come to lead elsewhere, as those of a ConfigMap do.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.core.configuration.layers import Values, read_values
from jupyter_gpushare.core.errors import CoreError
from jupyter_gpushare.core.settings import SettingsError

log = logging.getLogger(__name__)

BYTES_MAX = 256 << 10
LOOK_S = 0.5
"""A file is read when two looks in a row have found it the same: it may just be written."""
_FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LINE = re.compile(r"\(at line (\d+), column \d+\)")
Signature = tuple[int, ...]


class FileRefused(Exception):
    """The file counts for nothing; the message says why and what to do."""


def read_settings(path: Path) -> dict[str, object]:
    """The values of the file; raises FileRefused."""
    return settings_in(_text_of(path), path)


def settings_in(text: str, path: Path) -> dict[str, object]:
    """The values of this text; raises Refused, with the line."""
    try:
        written: dict[str, Any] = _toml_loads()(text)
    except (ValueError, RecursionError) as error:
        found = _LINE.search(str(error))
        line = int(found[1]) if found else len(text.splitlines())
        what = _LINE.sub("", str(error)).strip().rstrip(".")
        raise FileRefused(f"Line {line} of {path} is not TOML: {what}. Correct it.") from error
    values: dict[str, object] = {}
    for name, value in written.items():
        try:
            read = read_values({name: value})
            if values.keys() & read.keys():
                raise SettingsError(f"{name} is given twice. Leave one of them out.")
        except SettingsError as error:
            raise FileRefused(f"Line {_line_of(name, text)} of {path}: {error}") from error
        values.update(read)
    return values


def _toml_loads() -> Callable[[str], dict[str, Any]]:
    """Python reads TOML since 3.11; before it, tomli does where it is installed."""
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        loads: Callable[[str], dict[str, Any]] = importlib.import_module(name).loads
    except ModuleNotFoundError as error:
        raise FileRefused(
            "This Python reads no TOML. Install tomli beside jupyter-gpushare, or use Python 3.11."
        ) from error
    return loads


def _line_of(name: str, text: str) -> int:
    """Where the name stands at the beginning of a line, as key or table."""
    key = re.compile(rf"""\s*\[*\s*["']?{re.escape(name)}["']?\s*[.=\]]""")
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines, 1) if key.match(line)), 1)


def _text_of(path: Path) -> str:
    """The text, once it is certain that nobody else could have written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise FileRefused(
            f"The settings file {path} cannot be read: {error.strerror}. Put it there, or start "
            f"the scheduler without --settings-file."
        ) from error
    try:
        problem = _problem_with(path, os.fstat(fd))
        if problem:
            raise FileRefused(problem)
        with open(fd, "rb", closefd=False) as file:
            return file.read(BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise FileRefused(
            f"The settings file {path} cannot be read: {error}. Write it as UTF-8."
        ) from error
    finally:
        os.close(fd)


def _problem_with(path: Path, found: os.stat_result) -> str | None:
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISREG(found.st_mode):
        return f"The settings file {path} is not a file. Put a file there."
    if found.st_uid not in (0, os.getuid()):
        return (
            f"The settings file {path} belongs to {user_name(found.st_uid)}, who does not "
            f"administer this scheduler. Give it to root or to {user_name(os.getuid())}."
        )
    if mode & _FOREIGN_WRITE:
        return f"Others may write to {path} (mode {mode:04o}). Run `chmod go-w {path}`."
    if found.st_size > BYTES_MAX:
        return f"The settings file {path} has more than {BYTES_MAX >> 10} KiB. Shorten it."
    return None


def signature_of(path: Path) -> Signature:
    """Differs when another file lies there, or when it was written; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class SettingsFile:
    """`apply` is told the values of each file that is right; it raises SettingsError where they do
    not go together with the others."""

    def __init__(self, path: Path, apply: Callable[[Values], None]) -> None:
        self.path = path
        self.refusal: str | None = None
        """Why the file that is there now counts for nothing."""
        self.noted: Callable[[str], None] = lambda result: None
        """Is told what came of each file: `done`, or why it was refused."""
        self._apply = apply
        self._read: Signature | None = None
        self._seen: Signature | None = None

    def check(self) -> None:
        """Raises Refused or SettingsError where the file would count for nothing."""
        self._apply(read_settings(self.path))

    def look(self) -> None:
        """Called every LOOK_S."""
        seen, before = signature_of(self.path), self._seen
        self._seen = seen
        if seen == before and seen != self._read:
            self.read()

    def read(self) -> None:
        """Take in what is there now."""
        self._read = self._seen = signature_of(self.path)
        try:
            self.check()
        except (FileRefused, SettingsError, CoreError) as error:
            self.refusal = str(error)
            log.error("the settings stay as they were: %s", error)
        else:
            self.refusal = None
            log.info("settings taken from %s", self.path)
        self.noted(self.refusal or "done")

    def as_json(self) -> dict[str, Any]:
        return {"path": str(self.path), "refused": self.refusal}
