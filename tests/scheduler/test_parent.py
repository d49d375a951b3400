"""A service ends with the hub that started it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from jupyter_gpushare.scheduler.parent import watch_parent

PROGRAM = """
import asyncio
from jupyter_gpushare.scheduler.parent import watch_parent

async def main():
    gone = asyncio.Event()
    watch_parent(gone.set)
    print("watching", flush=True)
    await gone.wait()
    print("gone", flush=True)

asyncio.run(main())
"""


def test_it_is_told_when_its_parent_is_killed() -> None:
    """A process whose parent is killed, by whatever signal, learns of it."""
    command = f"{sys.executable} -c '{PROGRAM}' & wait"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "watching\n"
        parent.kill()
        assert parent.stdout.readline() == "gone\n"


def test_a_living_parent_changes_nothing() -> None:
    """While the parent lives, nothing is told."""

    async def look() -> bool:
        gone = asyncio.Event()
        watch_parent(gone.set)
        await asyncio.sleep(0)
        return gone.is_set()

    assert os.getppid() > 0
    assert not asyncio.run(look())
