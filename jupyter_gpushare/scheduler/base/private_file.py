"""Files that tell who does what on this machine: for their owner alone, whatever the umask."""

from __future__ import annotations

import json
import logging.handlers
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor; a file that is there already is shut to others."""
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(fd, 0o600)
    return fd


def written_anew(path: Path) -> TextIO:
    """An empty file whose lines are written as they end."""
    fd = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    return os.fdopen(fd, "w", encoding="utf-8", buffering=1)


def put_in_place(path: Path, said: Mapping[str, object]) -> None:
    """JSON that is complete under its name, whenever somebody looks. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with written_anew(new) as file:
        json.dump(said, file)
    new.replace(path)


class PrivateLog(logging.handlers.RotatingFileHandler):
    """A log in a directory that other users may pass through; so is each one that follows it."""

    def _open(self) -> TextIO:  # type: ignore[override]
        fd = open_private(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return os.fdopen(fd, "a", encoding=self.encoding)
