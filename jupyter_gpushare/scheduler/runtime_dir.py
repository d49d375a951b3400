"""The runtime directory: exactly one scheduler serves it, and nobody else can put anything there.

The process that holds the lock owns every file of the directory. It may replace everything that a
predecessor left behind (sockets, the lock's text). The lock's text outlives the process on
purpose: text without a lock says that a predecessor left while clients might still hold turns.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.client.paths import (
    HOOK_SOCKET,
    HTTP_SOCKET,
    RUNTIME_DIR,
    SOCKET_PATH_BYTES_MAX,
    TENANTS_DIR,
)

from .base.errors import AlreadyServed, StartError

LOCK_FILE = "scheduler.lock"
LOG_FILE = "scheduler.log"
_LISTEN_BACKLOG = 256
_FOREIGN_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class LockText:
    """Who serves, as the lock file tells it."""

    pid: int
    uid: int
    version: str


class RuntimeDir:
    """The directory, open and locked from construction until `release`."""

    def __init__(self, path: Path, *, open_to_all: bool, version: str) -> None:
        self.path = path
        self._open_to_all = open_to_all
        self._sockets: list[tuple[str, tuple[int, int]]] = []
        self.fd = _open_directory(path, open_to_all=open_to_all)
        try:
            _keep_tidiers_out(self.fd, path)
            self._lock_fd = os.open(
                LOCK_FILE,
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=self.fd,
            )
            self.had_predecessor = self._take_lock(version)
        except StartError:
            os.close(self.fd)
            raise
        except OSError as error:
            os.close(self.fd)
            raise StartError(
                f"The lock {path / LOCK_FILE} cannot be opened: {error.strerror}. Remove that "
                f"file, or name another directory in {RUNTIME_DIR}."
            ) from error

    def _take_lock(self, version: str) -> bool:
        """Lock, write our name into the file, and tell whether a predecessor's name was there."""
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(self._lock_fd, 4096, 0)
            os.close(self._lock_fd)
            raise AlreadyServed(_already_served(self.path, text)) from None
        had_predecessor = bool(os.pread(self._lock_fd, 1, 0))
        mine = LockText(pid=os.getpid(), uid=os.getuid(), version=version)
        os.ftruncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, json.dumps(asdict(mine)).encode() + b"\n", 0)
        return had_predecessor

    def make_tenants_dir(self) -> None:
        """The folder that may be mounted into containers: it has two sockets and nothing else, so
        whoever is root there finds no key, and may write nothing that we read."""
        path = self.path / TENANTS_DIR
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(TENANTS_DIR, 0o711, dir_fd=self.fd)
            found = os.stat(TENANTS_DIR, dir_fd=self.fd, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise StartError(
                    f"{path} is not a directory of ours. Move it away and start again."
                )
            os.chmod(TENANTS_DIR, 0o711, dir_fd=self.fd)
            others = {each.name for each in path.iterdir()} - {HOOK_SOCKET, HTTP_SOCKET}
        except OSError as error:
            raise StartError(
                f"The directory {path} cannot be used: {error.strerror}. Remove it, or name "
                f"another runtime directory in {RUNTIME_DIR}."
            ) from error
        if others:
            raise StartError(
                f"{path} is given to containers, and holds {sorted(others)[0]!r} besides our "
                f"sockets. Move that away and start again."
            )

    def listen(self, name: str) -> socket.socket:
        """A listening socket called `name`; a stale one of ours is replaced."""
        path = os.fspath(self.path / name)
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            raise StartError(
                f"The path {path} is too long for a socket (more than {SOCKET_PATH_BYTES_MAX} "
                f"bytes). Name a shorter directory in {RUNTIME_DIR}."
            )
        self._clear_stale(name)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.bind(path)
            # Nobody can connect before listen(), so the mode is never too wide for anybody.
            os.chmod(name, 0o666 if self._open_to_all else 0o600, dir_fd=self.fd)
            sock.listen(_LISTEN_BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise StartError(
                f"The socket {path} cannot be opened: {error.strerror}. Look at who else writes to "
                f"that directory, or name another one in {RUNTIME_DIR}."
            ) from error
        found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        self._sockets.append((name, (found.st_dev, found.st_ino)))
        return sock

    def _clear_stale(self, name: str) -> None:
        """Remove our predecessor's socket; whatever else lies there is not ours to remove."""
        try:
            found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        path = self.path / name
        if found.st_uid not in (os.getuid(), 0):
            raise StartError(
                f"{path} belongs to {user_name(found.st_uid)}, who has taken the scheduler's place "
                f"there. Ask them to remove it, or name another directory in {RUNTIME_DIR}."
            )
        if not stat.S_ISSOCK(found.st_mode):
            raise StartError(f"{path} is not a socket. Move it away and start again.")
        os.unlink(name, dir_fd=self.fd)

    def release(self, *, clients_left: bool) -> None:
        """Remove our sockets and give the lock back. With clients left, the lock's text stays: the
        next scheduler then waits for them before it grants."""
        for name, identity in self._sockets:
            with contextlib.suppress(OSError):
                found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
                if (found.st_dev, found.st_ino) == identity:
                    os.unlink(name, dir_fd=self.fd)
        self._sockets.clear()
        if not clients_left:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock_fd, 0)
        os.close(self._lock_fd)
        os.close(self.fd)

    @property
    def hook_socket(self) -> Path:
        return self.path / HOOK_SOCKET

    @property
    def http_socket(self) -> Path:
        return self.path / HTTP_SOCKET


def _keep_tidiers_out(fd: int, path: Path) -> None:
    """Tells systemd-tmpfiles, which tidies /tmp up, to leave everything in here alone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StartError(
            f"Another program holds a lock on {path}, as systemd-tmpfiles does while it tidies up. "
            f"Start the scheduler again in a moment."
        ) from None


def _open_directory(path: Path, *, open_to_all: bool) -> int:
    """Make the directory if need be, and open it once it is certain whose it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            if open_to_all:
                path.chmod(0o711)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StartError(_cannot_open(path, error)) from error
    found = os.fstat(fd)
    problem = _problem_with(path, found, open_to_all=open_to_all)
    if problem:
        os.close(fd)
        raise StartError(problem)
    return fd


def _problem_with(path: Path, found: os.stat_result, *, open_to_all: bool) -> str | None:
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.getuid():
        return (
            f"The runtime directory {path} belongs to {user_name(found.st_uid)}, not to "
            f"{user_name(os.getuid())}. Name a directory of your own in {RUNTIME_DIR}."
        )
    if open_to_all and mode & _FOREIGN_WRITE:
        return f"Others may write to {path} (mode {mode:04o}). Run `chmod 711 {path}`."
    if not open_to_all and mode & 0o077:
        return f"Others may enter {path} (mode {mode:04o}). Run `chmod 700 {path}`."
    if open_to_all and not mode & stat.S_IXOTH:
        return f"Other users cannot enter {path} (mode {mode:04o}). Run `chmod 711 {path}`."
    if open_to_all and (closed := _closed_parent(path)):
        return (
            f"Other users cannot come to {path}, because {closed} is closed to them. Name a "
            f"directory that they can reach in {RUNTIME_DIR}, such as /run/jupyter-gpushare."
        )
    return None


def _closed_parent(path: Path) -> Path | None:
    """The directory on the way to `path` that not everybody may pass through."""
    return next((p for p in path.parents if not p.stat().st_mode & stat.S_IXOTH), None)


def _cannot_open(path: Path, error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and path.is_symlink():
        return (
            f"The runtime directory {path} is a symbolic link, which another user may have put "
            f"there. Remove it, or name the directory itself in {RUNTIME_DIR}."
        )
    return (
        f"The runtime directory {path} cannot be used: {error.strerror}. Correct that, or name "
        f"another one in {RUNTIME_DIR}."
    )


def _already_served(path: Path, text: bytes) -> str:
    """Name the owner of the lock, as far as its text can be read."""
    try:
        other = LockText(**json.loads(text))
        who = f"process {other.pid} of {user_name(other.uid)}"
    except (ValueError, TypeError):
        who = "another process"
    return (
        f"A scheduler serves {path} already: {who}. Use that one (`jupyter gpushare status`), or "
        f"stop it first."
    )
