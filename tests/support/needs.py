"""What a machine must have for the tests: said in one sentence before any of them runs."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from dataclasses import dataclass

GIB = 1 << 30
MEMORY_BYTES_MIN = 1 * GIB
DISK_BYTES_MIN = 2 * GIB


@dataclass(frozen=True)
class Machine:
    memory_bytes: int
    """All of it, used or not."""
    folder: str
    """Where temporary files go."""
    disk_bytes: int
    """What is free there."""
    has_ipv4_loopback: bool


def this_machine() -> Machine:
    folder = tempfile.gettempdir()
    return Machine(
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        folder=folder,
        disk_bytes=shutil.disk_usage(folder).free,
        has_ipv4_loopback=_can_listen("127.0.0.1"),
    )


def what_is_missing(machine: Machine) -> str | None:
    """One sentence on what the tests lack and one on what to do; None when all is there."""
    if not machine.has_ipv4_loopback:
        return (
            "The tests' servers listen on 127.0.0.1, and this machine has no such address. "
            "Bring it up: ip addr add 127.0.0.1/8 dev lo"
        )
    if machine.memory_bytes < MEMORY_BYTES_MIN:
        has = f"{machine.memory_bytes / GIB:.1f} GiB of memory"
        return (
            f"The tests need {MEMORY_BYTES_MIN // GIB} GiB, and this machine has {has}. Add some."
        )
    if machine.disk_bytes < DISK_BYTES_MIN:
        has = f"{machine.folder} has {machine.disk_bytes / GIB:.1f} GiB free"
        return (
            f"The tests need {DISK_BYTES_MIN // GIB} GiB on the disk, and {has}. "
            "Make room there, or name another folder in TMPDIR."
        )
    return None


def _can_listen(address: str) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True
