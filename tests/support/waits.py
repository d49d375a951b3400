"""Waits for what comes: the limit ends a hang and nothing else. Its message says what was waited
for and where the threads of this process and of its children stand.

Standard library only, for tests/driver also runs where our package is not."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.stacks import stacks_of

HANG_S = 600.0
LOOK_EVERY_S = 0.01
"""Each look costs both processes a millisecond, which others could use."""
CHILDREN_MAX = 8


def await_that(
    holds: Callable[[], object], what: str, *, look_every_s: float = LOOK_EVERY_S
) -> None:
    """Ask again and again."""
    until_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < until_s, hung(what)
        time.sleep(look_every_s)


async def await_in_loop(
    holds: Callable[[], object], what: str, *, look_every_s: float = LOOK_EVERY_S
) -> None:
    """The same while the event loop runs on."""
    until_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < until_s, hung(what)
        await asyncio.sleep(look_every_s)


def hung(what: str) -> str:
    """The message of a wait that was in vain."""
    own = [
        f"our thread {thread}:\n{''.join(traceback.format_stack(frame)[-4:])}"
        for thread, frame in sys._current_frames().items()
    ]
    others = [f"process {pid}:\n{stacks_of(pid)}" for pid in _children(os.getpid())]
    return "\n".join([f"not within {HANG_S:.0f} s: {what}", *own, *others[:CHILDREN_MAX]])


def _children(pid: int) -> list[int]:
    """Those of any depth, the newest first."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *_children(child)]
    return sorted(found, reverse=True)
