"""What else the machine does while the tests run. All of it ends with this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ALONE, BUSY, DISK = "alone", "busy", "disk"
COMPANIES = (ALONE, BUSY, DISK)

LOOPS_PER_CORE = 2
PARENT_IS_THERE = "os.getppid() == parent"
LOOP = f"""
import os
parent = os.getppid()
while {PARENT_IS_THERE}:
    for _ in range(10**7): pass
"""
FILL = f"""
import os, sys
parent, folder = os.getppid(), sys.argv[1]
part = bytes(1 << 20)
while {PARENT_IS_THERE}:
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = bytearray(available // 4)
    memory[::4096] = b"x" * len(memory[::4096])
    del memory
    path = os.path.join(folder, f"filler-{{os.getpid()}}")
    with open(path, "wb") as file:
        for _ in range(512):
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.unlink(path)
"""
"""Takes a quarter of the free memory, page by page, drops it, and writes 512 MiB to the disk."""


@contextmanager
def company(kind: str, folder: Path) -> Iterator[None]:
    """`kind` is one of COMPANIES; `folder` lies on the disk that is written to."""
    processes = [subprocess.Popen(command) for command in _commands(kind, folder)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        for left in folder.glob("filler-*"):
            left.unlink()


def _commands(kind: str, folder: Path) -> list[list[str]]:
    if kind == BUSY:
        return [[sys.executable, "-c", LOOP]] * (LOOPS_PER_CORE * len(os.sched_getaffinity(0)))
    if kind == DISK:
        return [[sys.executable, "-c", FILL, str(folder)]]
    return []
