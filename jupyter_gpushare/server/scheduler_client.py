"""The server's standing connection to the scheduler: found, or started, and found again when lost.

A thread of its own reads the event stream, since starting and reading block; what it learns is
handed to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from jupyter_gpushare.client import (
    ClientError,
    RequestRefused,
    SchedulerClient,
    SchedulerUnavailable,
    StatusStream,
)

from .predecessor import Predecessor

log = logging.getLogger(__name__)

RETRY_S_MIN = 0.1
RETRY_S_MAX = 10.0
LASTING_S = 5.0
"""A connection that lasted so long was a good one: the next attempt comes at once."""
TAKE_OVER_AGAIN_S = 600.0
"""Where two versions of servers share a directory, each may find the other's scheduler again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """`scheduler` is up, starting, down or (switched) off; `status` is what one that is up said at
    `at_s` (monotonic); `message` says what is wrong and what to do where it is not up, and that it
    is of an older package where it is."""

    scheduler: str
    message: str = ""
    status: dict[str, Any] | None = None
    at_s: float = 0.0


STARTING = LinkState(scheduler="starting", message="The scheduler is being started. Wait a moment.")


class SchedulerLink:
    """`on_change` is called on the event loop. `start` is starter.start_scheduler, or None where
    somebody else (a hub, an administrator) sees to it that there is a scheduler."""

    def __init__(
        self,
        client: SchedulerClient,
        *,
        start: Callable[[], str | None] | None,
        on_change: Callable[[LinkState], None],
    ) -> None:
        self._client = client
        self._start = start
        self._on_change = on_change
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = threading.Event()
        self._stream: StatusStream | None = None
        self._decided = asyncio.Event()
        self._take_over_from_s = 0.0
        self.state = STARTING

    def begin(self) -> None:
        """On the event loop."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._follow, name="gpushare-link", daemon=True).start()

    def end(self) -> None:
        """The scheduler goes on; the thread ends by itself."""
        self._ending.set()
        if stream := self._stream:
            stream.close()

    async def decided(self, timeout_s: float) -> None:
        """Until it is known whether there is a scheduler, or the time is over."""
        try:
            await asyncio.wait_for(self._decided.wait(), timeout_s)
        except asyncio.TimeoutError:  # another class than the builtin on Python 3.10
            return

    # ---- on the thread ----

    def _follow(self) -> None:
        retry_s = RETRY_S_MIN
        while not self._ending.is_set():
            began_s = time.monotonic()
            try:
                problem = self._follow_once()
            except Exception as error:
                log.exception("following the scheduler failed")
                problem = f"jupyter-gpushare itself failed ({error!r}). Report the server's log."
            if time.monotonic() - began_s > LASTING_S:
                retry_s = RETRY_S_MIN
            if problem:
                self._tell(LinkState(scheduler="down", message=problem))
            if self._ending.wait(retry_s):
                return
            retry_s = min(2 * retry_s, RETRY_S_MAX)

    def _follow_once(self) -> str | None:
        """Until the connection ends; what is wrong, if there was none."""
        try:
            stream = self._client.follow()
        except SchedulerUnavailable as absent:
            if self._start is None:
                return str(absent)
            if self.state.scheduler != "down":  # a start that fails again and again is no news
                self._tell(STARTING)
            return self._start()
        except ClientError as refused:
            return str(refused)
        with stream:
            self._stream = stream
            predecessor = Predecessor(replaceable=self._start is not None)
            for status in stream:
                predecessor.tells(status)
                if self._take_over(predecessor):
                    break
                self._tell(
                    LinkState(
                        scheduler="up",
                        message=predecessor.notice,
                        status=status,
                        at_s=time.monotonic(),
                    )
                )
                if self._ending.is_set():
                    return None
            else:
                return None
            for _ in stream:  # until it has ended, so that its place is free
                pass
        return self._start() if self._start else None

    def _take_over(self, predecessor: Predecessor) -> bool:
        """Whether the scheduler is of an older package, and ends to make room for ours."""
        again = time.monotonic() < self._take_over_from_s
        if again or not predecessor.may_be_asked_to_end:
            return False
        try:
            self._client.shut_down()
        except RequestRefused as refused:
            if refused.status != HTTPStatus.CONFLICT:  # that is a matter of the moment
                predecessor.refuses(str(refused))
            return False
        except ClientError:
            return False  # the stream's end tells the rest
        self._take_over_from_s = time.monotonic() + TAKE_OVER_AGAIN_S
        self._tell(STARTING)
        return True

    def _tell(self, state: LinkState) -> None:
        if self._ending.is_set() or self._loop is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._changed, state)

    def _changed(self, state: LinkState) -> None:
        self.state = state
        if state.scheduler == "starting":
            self._decided.clear()
        else:
            self._decided.set()
        self._on_change(state)
