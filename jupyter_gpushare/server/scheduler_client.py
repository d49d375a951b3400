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
from typing import Any

from jupyter_gpushare.client import (
    ClientError,
    SchedulerClient,
    SchedulerUnavailable,
    StatusStream,
)

log = logging.getLogger(__name__)

RETRY_S_MIN = 0.1
RETRY_S_MAX = 10.0
LASTING_S = 5.0
"""A connection that lasted so long was a good one: the next attempt comes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkState:
    """`scheduler` is up, starting or down; `status` is what one that is up said at `at_s`
    (monotonic); `message` says what is wrong and what to do where it is not up."""

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
            for status in stream:
                self._tell(LinkState(scheduler="up", status=status, at_s=time.monotonic()))
                if self._ending.is_set():
                    break
        return None

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
