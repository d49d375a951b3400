"""Whether a process lives in our own user and pid namespaces, that is, outside of any container
that we are not in ourselves. Root in a container is root there, and nobody in particular here."""

from __future__ import annotations

from pathlib import Path

_NAMESPACES = ("pid", "user")


def in_our_namespaces(pid: int, *, proc: Path = Path("/proc")) -> bool:
    """A process that cannot be looked at does not count as ours."""
    process, ours = proc / str(pid), proc / "self"
    try:
        return all(_link(process, name) == _link(ours, name) for name in _NAMESPACES)
    except PermissionError:
        # Another account's process, such as root's where we are not root: use what all may read.
        try:
            return _nested_pids(process) == _nested_pids(ours) and _uids(process) == _uids(ours)
        except OSError:
            return False
    except OSError:
        return False


def _link(process: Path, name: str) -> str:
    return str((process / "ns" / name).readlink())


def _nested_pids(process: Path) -> int:
    """In how many pid namespaces the process has a number, counted from ours."""
    for line in (process / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return len(line.split()) - 1
    return 0


def _uids(process: Path) -> list[str]:
    """How the process's user ids are mapped to ours."""
    return (process / "uid_map").read_text().split()
