"""Waits for events. Standard library only, for tests/driver also runs where our package is not.

A wait has a limit only to end a hang: it says nothing about speed. Where a test has failed after
such a wait, tests/conftest.py adds where the threads of all its processes stand."""

from __future__ import annotations

import asyncio
import linecache
import time
from collections.abc import Callable
from typing import TypeVar

WAIT_S_MAX = 600.0
LOOK_EVERY_S = 0.01

T = TypeVar("T")


def wait_until(holds: Callable[[], T], what: str = "", every_s: float = LOOK_EVERY_S) -> T:
    """Look until `holds` returns something true, and return that. TimeoutError says `what` was
    waited for in vain; without it, the line on which `holds` begins."""
    until_s = time.monotonic() + WAIT_S_MAX
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() >= until_s:
            raise TimeoutError(in_vain(what or line_of(holds)))
        time.sleep(every_s)


async def until(holds: Callable[[], T], what: str = "") -> T:
    """The same while the event loop runs on."""
    until_s = time.monotonic() + WAIT_S_MAX
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() >= until_s:
            raise TimeoutError(in_vain(what or line_of(holds)))
        await asyncio.sleep(LOOK_EVERY_S)


def in_vain(what: str) -> str:
    """What is said at the end of a wait that had its limit."""
    return f"waited {WAIT_S_MAX:.0f} s in vain for {what}"


def line_of(function: Callable[[], object]) -> str:
    """Where it begins, if Python wrote it down."""
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(function)
    return linecache.getline(code.co_filename, code.co_firstlineno).strip()
