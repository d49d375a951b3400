"""http.client over a unix socket whose other end has been checked before a byte is sent to it."""

from __future__ import annotations

import functools
import http.client
import os
import pwd
import socket
from pathlib import Path

from .credentials import credentials_of
from .errors import SchedulerUnavailable, SchedulerUntrusted
from .paths import RUNTIME_DIR, SCHEDULER_UID, hub_provides

_START = "Start one with `jupyter gpushare scheduler`"
_ASK_THE_HUBS = "Ask the hub's administrator to look at its service `gpushare`"


class UnixHTTPConnection(http.client.HTTPConnection):
    """One connection to `path`; only a peer that runs as one of `uids` is spoken to."""

    def __init__(self, path: Path, *, uids: frozenset[int], timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._uids = uids
        self._timeout_s = timeout_s

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self._timeout_s)
            sock.connect(os.fspath(self._path))
            self._check_peer(sock)
        except OSError as error:
            sock.close()
            raise SchedulerUnavailable(_reason(self._path, error)) from error
        except SchedulerUntrusted:
            sock.close()
            raise
        self.sock = sock

    def _check_peer(self, sock: socket.socket) -> None:
        _, uid = credentials_of(sock)
        if uid not in self._uids:
            raise SchedulerUntrusted(
                f"The process that listens on {self._path} runs as {user_name(uid)}, who is "
                f"neither you nor root. Do not use that socket; name another directory in "
                f"{RUNTIME_DIR}, or ask your administrator whether {SCHEDULER_UID} should name "
                f"that account."
            )


def user_name(uid: int) -> str:
    """The user's name, or `uid N` where there is none."""
    try:
        return _known_name(uid)
    except KeyError:
        return f"uid {uid}"


@functools.lru_cache(maxsize=4096)
def _known_name(uid: int) -> str:
    """Looked up once: where users live in a directory service, each look-up may take a while, and
    the scheduler's loop would stand still for it."""
    return pwd.getpwuid(uid).pw_name


def _reason(path: Path, error: OSError) -> str:
    """Why nobody answers, and what to do, in words for the person at the terminal."""
    remedy = _ASK_THE_HUBS if hub_provides() else _START
    if isinstance(error, FileNotFoundError):
        other = f", or name the directory of a running one in {RUNTIME_DIR}"
        return f"No scheduler serves {path.parent}. {remedy}{'' if hub_provides() else other}."
    if isinstance(error, ConnectionRefusedError):
        return f"The scheduler that served {path.parent} has ended. {remedy}."
    if isinstance(error, PermissionError):
        return (
            f"You may not use the scheduler's socket {path}. Ask its owner for access, or start "
            f"your own with `jupyter gpushare scheduler` and another {RUNTIME_DIR}."
        )
    if isinstance(error, TimeoutError | BlockingIOError):  # the latter: its queue is full
        return (
            f"The scheduler at {path} does not answer. Look into its log, and start it again if "
            f"it hangs."
        )
    return f"The scheduler at {path} cannot be reached: {error}. {remedy}."
