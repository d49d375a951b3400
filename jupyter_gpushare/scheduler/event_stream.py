"""The status as a stream: each follower is sent its own cut of it, whenever that cut has changed.

A follower is slowed down by its own connection alone: it looks again when it has sent what it saw
last, so what it misses meanwhile costs nothing, and the last state always arrives.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from .errors import RequestError

PERIOD_S_MIN = 0.1
"""A follower looks at most so often, however much happens."""
TIME_SHARE_MAX = 0.1
"""Of the scheduler's time, for all followers together."""
COMMENT_PERIOD_S = 15.0
"""A line that says nothing, so that both ends learn of a connection that is dead."""
FOLLOWERS_MAX = 512
FOLLOWERS_PER_USER_MAX = 64
_TIMES = frozenset({"held_for_s", "waited_s", "waited_s_total", "held_s_total", "uptime_s"})
_HOLD_LEFT = "hold_left_s"

Status = dict[str, Any]


class Follower:
    """One who reads the stream. `look` is its cut of the status; `send` returns when its connection
    has taken what it was given. It looks so seldom that looking takes no more than `share` of the
    loop's time."""

    def __init__(
        self,
        look: Callable[[], Status],
        send: Callable[[str], Awaitable[None]],
        share: Callable[[], float] = lambda: TIME_SHARE_MAX,
    ) -> None:
        self._look = look
        self._send = send
        self._share = share
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
            began_s = time.thread_time()
            status = self._look()
            lasting = without_times(status, status.get("scheduler", {}).get("uptime_s", 0.0))
            text = f"data: {json.dumps(status)}\n\n" if lasting != sent else ""
            spent_s = time.thread_time() - began_s
            if text:
                sent = lasting
                await self._send(text)
            await asyncio.sleep(max(PERIOD_S_MIN, spent_s / self._share()))
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

    def share(self) -> float:
        """Of the scheduler's time, for each of them: turns come first, however many look on."""
        return TIME_SHARE_MAX / max(1, len(self._followers))

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


def without_times(value: object, now_s: float = 0.0) -> object:
    """The status of `now_s` without what changes by itself as time passes: of a hold, the second in
    which it ends, for one that is prolonged is news. Pure."""
    if isinstance(value, dict):
        return {
            key: each and round(now_s + each) if key == _HOLD_LEFT else without_times(each, now_s)
            for key, each in value.items()
            if key not in _TIMES
        }
    if isinstance(value, list | tuple):
        return [without_times(each, now_s) for each in value]
    return value
