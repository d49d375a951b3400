"""The memory limits of the control groups that a process is in, of both versions.

`root` is where /proc and /sys begin, so that tests can show other machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .facts import CgroupFacts

_NO_LIMIT_FROM = 1 << 60
"""Version 1 writes a number near 2**63 for no limit."""


@dataclass(frozen=True, slots=True)
class _Files:
    version: int
    limit: str
    used: str
    reclaimable: str
    """In memory.stat: file contents that the kernel drops before it kills anybody."""


_V1 = _Files(1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Files(2, "memory.max", "memory.current", "inactive_file")


def tightest_limit(root: Path = Path("/")) -> CgroupFacts:
    """Of all levels that have a limit, the one with the least room; no path where none has."""
    found: CgroupFacts | None = None
    for facts in _limits(root):
        if found is None or _room(facts) < _room(found):
            found = facts
    return found or CgroupFacts()


def _room(facts: CgroupFacts) -> int:
    return (facts.bytes_max or 0) - facts.bytes_used


def _limits(root: Path) -> Iterator[CgroupFacts]:
    for files, mount, group in _memberships(root):
        # In a container, the group's path may be that of the host, and the mount its own root.
        level = mount / group.lstrip("/")
        if not level.is_dir():
            level = mount
        while True:
            limit, used = _number(level / files.limit), _number(level / files.used)
            if limit is not None and limit < _NO_LIMIT_FROM:
                yield CgroupFacts(
                    path="/" + str(level.relative_to(root)),
                    version=files.version,
                    bytes_max=limit,
                    bytes_used=max(0, (used or 0) - _of_stat(level, files.reclaimable)),
                )
            if level == mount:
                break
            level = level.parent


def _memberships(root: Path) -> Iterator[tuple[_Files, Path, str]]:
    """Where memory is limited for this process: files, mount point, path of its group."""
    base = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield _V1, base / "memory", group
        elif number == "0" and not controllers:
            unified = base / "unified"
            yield _V2, unified if unified.is_dir() else base, group


def _of_stat(level: Path, name: str) -> int:
    try:
        entries = dict(line.split() for line in (level / "memory.stat").read_text().splitlines())
        return int(entries.get(name, 0))
    except (OSError, ValueError):
        return 0


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file; None where there is none, or `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
