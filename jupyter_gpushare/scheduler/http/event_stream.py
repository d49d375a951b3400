"""The status as a stream: each follower is sent its own cut of it, whenever that cut has changed.

A follower is slowed down by its own connection alone: it looks again when it has sent what it saw
last, so what it misses meanwhile costs nothing, and the last state always arrives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from ..base.errors import RequestError
from ..service.cut import Cut

PERIOD_S_MIN = 0.1
"""A follower looks at most so often, however much happens."""
COMMENT_PERIOD_S = 15.0
"""A line that says nothing, so that both ends learn of a connection that is dead."""
FOLLOWERS_MAX = 512
FOLLOWERS_PER_USER_MAX = 64


class Follower:
    """One who reads the stream. `look` is its cut of the status, once the scheduler has time to
    make one; `send` returns when its connection has taken what it was given."""

    def __init__(
        self, look: Callable[[], Awaitable[Cut]], send: Callable[[str], Awaitable[None]]
    ) -> None:
        self._look = look
        self._send = send
        self._news = asyncio.Event()
        self._over = False

    def wake(self) -> None:
        self._news.set()

    def end(self) -> None:
        """From the connection's end; `run` returns soon after."""
        self._over = True
        self._news.set()

    async def run(self) -> None:
        """Send the status now, and after each change, until `end`."""
        sent: object = None
        while not self._over:
            self._news.clear()
            cut = await self._look()
            if cut.news != sent:
                sent = cut.news
                await self._send(f"data: {cut.text}\n\n")
            await asyncio.sleep(PERIOD_S_MIN)
            await self._await_news()

    async def _await_news(self) -> None:
        while not self._over:
            try:
                await asyncio.wait_for(self._news.wait(), COMMENT_PERIOD_S)
            except asyncio.TimeoutError:  # another class than the builtin on Python 3.10
                await self._send(": nothing has changed\n\n")
            else:
                return


class Followers:
    """All of them; `changed` costs nothing while there are none. `on_count` is told how many there
    are whenever one comes or goes."""

    def __init__(self, on_count: Callable[[int], None] = lambda count: None) -> None:
        self._on_count = on_count
        self._followers: dict[Follower, str] = {}

    def changed(self) -> None:
        for follower in self._followers:
            follower.wake()

    async def serve(self, follower: Follower, owner_key: str) -> None:
        """Run it, unless its user or everybody together has too many; raises RequestError."""
        users = Counter(self._followers.values())
        if users.total() >= FOLLOWERS_MAX or users[owner_key] >= FOLLOWERS_PER_USER_MAX:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Too many programs follow the scheduler's events already. Close some, or ask for "
                "the status instead.",
            )
        self._followers[follower] = owner_key
        self._on_count(len(self._followers))
        try:
            await follower.run()
        finally:
            del self._followers[follower]
            self._on_count(len(self._followers))

    def end(self) -> None:
        for follower in self._followers:
            follower.end()
