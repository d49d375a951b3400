"""A service ends with the hub that started it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

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


def is_told_at_once(parent: int) -> bool:
    async def look() -> bool:
        gone = asyncio.Event()
        watch_parent(gone.set, parent=parent)
        for _ in range(3):
            await asyncio.sleep(0)
        return gone.is_set()

    return asyncio.run(look())


@pytest.mark.parametrize("parent", [0, os.getppid()], ids=["whoever", "named"])
def test_a_living_parent_changes_nothing(parent: int) -> None:
    """While the parent lives, nothing is told."""
    assert not is_told_at_once(parent)


def test_a_parent_that_was_gone_before_we_looked() -> None:
    """A process that was adopted meanwhile does not wait for the end of who adopted it."""
    with subprocess.Popen(["true"]) as ended:
        pass
    assert is_told_at_once(ended.pid)
