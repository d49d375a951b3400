"""Looks at the runtime directory, its sockets, and whoever listens behind them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpushare.client import (
    HOOK_SOCKET,
    HTTP_SOCKET,
    ClientError,
    SchedulerClient,
    SchedulerUntrusted,
    runtime_dir,
)
from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.client.paths import TENANTS_DIR, trusted_uids
from jupyter_gpushare.version import __version__

from .facts import FileFacts, RuntimeFacts, SchedulerFacts

_OTHERS_TIMEOUT_S = 1.0
_LISTENS = 0x10000
"""The flag of a listening socket in /proc/net/unix."""


def runtime_facts(
    environ: Mapping[str, str], directory: Path | None, *, root: Path = Path("/")
) -> RuntimeFacts:
    """`directory` stands for the one that the environment leads to, if it is given."""
    path = (directory or runtime_dir(environ)).absolute()
    own = _directories_of_one(path)
    others = [other for other in _listening(root) if other.parent not in own]
    return RuntimeFacts(
        directory=file_facts(path),
        sockets=tuple(file_facts(path / name) for name in (HOOK_SOCKET, HTTP_SOCKET)),
        own_uid=os.getuid(),
        trusted_uids=trusted_uids(environ),
        others=tuple(file_facts(other) for other in others),
        idle_others=frozenset(str(other) for other in others if _is_idle(other.parent, environ)),
    )


def _directories_of_one(path: Path) -> set[Path]:
    """A hub's scheduler listens in its directory, and in the tenants' one in it."""
    return {path, path / TENANTS_DIR, *([path.parent] if path.name == TENANTS_DIR else [])}


def scheduler_facts(environ: Mapping[str, str], directory: Path | None) -> SchedulerFacts:
    path = (directory or runtime_dir(environ)) / HTTP_SOCKET
    try:
        status = SchedulerClient(path, uids=trusted_uids(environ)).status()
    except ClientError as problem:
        untrusted = isinstance(problem, SchedulerUntrusted)
        return SchedulerFacts(problem=str(problem), untrusted=untrusted, own_version=__version__)
    return SchedulerFacts(status=status, own_version=__version__)


def file_facts(path: Path) -> FileFacts:
    try:
        found = path.lstat()
    except OSError:
        return FileFacts(path=str(path))
    return FileFacts(
        path=str(path),
        exists=True,
        uid=found.st_uid,
        owner=user_name(found.st_uid),
        mode=stat.S_IMODE(found.st_mode),
        is_directory=stat.S_ISDIR(found.st_mode),
        is_socket=stat.S_ISSOCK(found.st_mode),
        is_link=stat.S_ISLNK(found.st_mode),
    )


def _is_idle(directory: Path, environ: Mapping[str, str]) -> bool:
    """A server that is gone leaves the scheduler that it started, which ends after a while."""
    client = SchedulerClient(
        directory / HTTP_SOCKET, uids=trusted_uids(environ), timeout_s=_OTHERS_TIMEOUT_S
    )
    try:
        return len(client.status()["tenants"]) == 0
    except ClientError:
        return False


def _listening(root: Path) -> list[Path]:
    """The hook sockets of all schedulers in this network namespace."""
    try:
        lines = (root / "proc/net/unix").read_text().splitlines()[1:]
    except OSError:
        return []
    found = set()
    for line in lines:
        parts = line.split(None, 7)
        named = len(parts) == 8 and parts[7].endswith(f"/{HOOK_SOCKET}")
        if named and int(parts[3], 16) & _LISTENS:
            found.add(Path(parts[7]))
    return sorted(found)
