"""Bounds how many messages of clients one turn of the event loop handles, and orders them.

A client may send hundreds of messages at once, and the core looks at every tenant for some of them.
So one turn of the loop handles messages for a bounded time, one message of each client after the
other; everything else on the loop, HTTP above all, comes in between.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

WORK_S = 0.002
"""Of one turn of the loop, for all clients together. A message that takes longer is paid for by the
turns that follow."""
MESSAGES_MAX = 64
"""In one turn of the loop, however fast they are."""


class Source(Protocol):
    """A connection with messages; hook_connection.py has the real one."""

    def handle_next(self) -> bool:
        """Handle one message; False when none is left."""


class Intake:
    """Shared by all connections. `spent_s` measures the loop's time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._loop = loop
        self._spent_s = spent_s
        self._waiting: deque[Source] = deque()
        self._left_s = WORK_S
        self._next_turn_is_set = False

    def offer(self, source: Source) -> None:
        """The source has messages. They are handled now where this turn of the loop has time left
        for them, else in the turns that follow."""
        self._waiting.append(source)
        self._work()

    def _work(self) -> None:
        while self._waiting and self._left_s > 0:
            began_s = self._spent_s()
            source = self._waiting.popleft()
            if source.handle_next():
                self._waiting.append(source)
            self._left_s -= max(self._spent_s() - began_s, WORK_S / MESSAGES_MAX)
        if not self._next_turn_is_set:
            self._next_turn_is_set = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._next_turn_is_set = False
        self._left_s = min(WORK_S, self._left_s + WORK_S)
        if self._waiting:
            self._work()
