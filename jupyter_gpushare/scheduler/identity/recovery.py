"""After a scheduler was lost: which processes of this machine will come back.

A process is expected when its environment has a token of ours and both the hook and a CUDA driver
are mapped. /proc tells that, so nothing had to be written down. Where this process cannot see
everybody (other users' processes, other pid namespaces) only the time ends the recovery.
"""

from __future__ import annotations

import os
from pathlib import Path

from .tokens import BadToken, TokenSigner

_TOKEN = b"GPUSHARE_TOKEN="
_HOOK = b"libgpushare.so"
_DRIVER = b"libcuda.so"
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The inode of the machine's own pid namespace, fixed in the Linux kernel (proc_ns.h)."""


def sees_everybody(*, serves_all: bool, proc: Path = Path("/proc")) -> bool:
    """Whether /proc shows every process that may be a client of ours."""
    if not serves_all:
        return True
    try:
        namespace = str((proc / "self/ns/pid").readlink())
    except OSError:
        return False
    return os.getuid() == 0 and namespace == _INITIAL_PID_NAMESPACE


def expected_clients(signer: TokenSigner, *, proc: Path = Path("/proc")) -> set[int]:
    """The pids of processes that hold a token of ours and use CUDA."""
    return {
        int(process.name)
        for process in proc.iterdir()
        if process.name.isdigit() and _has_our_token(process, signer) and _uses_cuda(process)
    }


class Recovery:
    """Counts the expected clients that are still missing."""

    def __init__(self, expected: set[int]) -> None:
        self._missing = set(expected)

    def client_back(self, pid: int) -> bool:
        """Note a client; True when it was the last one that was missing."""
        if pid not in self._missing:
            return False
        self._missing.discard(pid)
        return not self._missing


def _has_our_token(process: Path, signer: TokenSigner) -> bool:
    for entry in _read(process / "environ").split(b"\0"):
        if entry.startswith(_TOKEN):
            try:
                signer.verify(entry[len(_TOKEN) :].decode("ascii", "replace"))
            except BadToken:
                return False
            return True
    return False


def _uses_cuda(process: Path) -> bool:
    maps = _read(process / "maps")
    return _HOOK in maps and _DRIVER in maps


def _read(path: Path) -> bytes:
    """The file's bytes; none where the process has ended or is not ours to look into."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
