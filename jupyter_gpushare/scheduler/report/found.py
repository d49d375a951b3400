"""What this node's device plugin of Kubernetes has found, in the file that it writes for us
(kubelet/problems_file.py), and how much memory the host has left."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_gpushare.client.paths import PLUGIN_PROBLEMS

FRESH_S = 300.0
"""What is older was found by a plugin that runs no more."""
BYTES_MAX = 64 << 10
_MEMORY = Path("/proc/meminfo")


class PluginProblems:
    """Reads the file again when it is another one. `wall_clock` is the time of day."""

    def __init__(self, directory: Path, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._path = directory / PLUGIN_PROBLEMS
        self._wall_clock = wall_clock
        self._read: tuple[int, int] | None = None
        self._found: tuple[str, ...] = ()

    def now(self) -> tuple[str, ...]:
        """None of it where there is no such file, or none that counts."""
        try:
            there = self._path.lstat()
        except OSError:
            return ()
        if abs(self._wall_clock() - there.st_mtime) > FRESH_S:
            return ()
        if (there.st_ino, there.st_mtime_ns) != self._read:
            self._read = there.st_ino, there.st_mtime_ns
            self._found = _sentences_in(self._path)
        return self._found


def _sentences_in(path: Path) -> tuple[str, ...]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.getuid()):
            return ()
        said = json.loads(os.read(fd, BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return ()
    finally:
        os.close(fd)
    problems = said.get("problems") if isinstance(said, dict) else None
    if not isinstance(problems, list):
        return ()
    return tuple(each for each in problems if isinstance(each, str))


def host_bytes_available(path: Path = _MEMORY) -> int:
    """0 where the kernel does not tell it."""
    try:
        with path.open("rb") as file:
            for line in file:
                if line.startswith(b"MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0
