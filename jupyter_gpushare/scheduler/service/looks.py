"""Looks at the core's whole state, for those who ask for it.

The cost of a look, and of each answer, grows with the number of tenants. Therefore questions that
wait at the same time share one look, and looks and answers together never take more than a share of
the loop's time. An answer is never older than its question.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.snapshot import DeviceSnapshot, Snapshot, TenantSnapshot

from .cut import Cut, Plain

log = logging.getLogger(__name__)

ANSWERS_SHARE = 0.5
"""Of the loop's time: for those who wait for an answer."""
NEWS_SHARE = 0.1
"""For those who are told of changes, and are many: turns come first."""
WORK_S = 0.002
"""Of one turn of the loop, as far as single answers allow."""
Answer = TypeVar("Answer")


class Look:
    """The state at one moment, and what has been made of it for those who asked."""

    def __init__(self, snapshot: Snapshot, before: Plain | None = None) -> None:
        self.snapshot = snapshot
        self._before = before
        self.cuts: dict[tuple[str, bool], Cut] = {}
        """By caller; service.py fills it."""

    @cached_property
    def plain(self) -> Plain:
        return Plain.of(self.snapshot, self._before)

    @property
    def newest_plain(self) -> Plain | None:
        """What was made of this look, or else of one before."""
        made: Plain | None = vars(self).get("plain")
        return self._before if made is None else made

    @cached_property
    def devices(self) -> dict[DeviceId, DeviceSnapshot]:
        return {device.id: device for device in self.snapshot.devices}

    @cached_property
    def tenants(self) -> dict[TenantId, TenantSnapshot]:
        return {tenant.id: tenant for tenant in self.snapshot.tenants}


class Looks:
    """`snapshot` is the driver's. `share` is of the loop's time; `spent_s` measures that time."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        share: float,
        spent_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._snapshot = snapshot
        self._pause_per_work = 1 / share - 1
        self._spent_s = spent_s
        self._look: Look | None = None
        self._plain: Plain | None = None
        """What was made of the last look that anybody wanted as plain data."""
        self._from_this_look: deque[Callable[[Look], None]] = deque()
        self._from_the_next: deque[Callable[[Look], None]] = deque()
        self._pausing = False

    def ask(self, answer: Callable[[Look], None]) -> None:
        """Call `answer` with a look of this moment or later: at once, if the share allows."""
        self._from_the_next.append(answer)
        if not self._pausing:
            self._work()

    async def answer(self, make: Callable[[Look], Answer]) -> Answer:
        """What `make` makes of a look of this moment or later."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def settle(look: Look) -> None:
            if future.done():  # the caller has gone
                return
            try:
                future.set_result(make(look))
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
                future.set_exception(error)

        self.ask(settle)
        return await future

    def _work(self) -> None:
        """The next pause comes whatever fails here: nobody would be answered any more without."""
        self._pausing = True
        began_s = self._spent_s()
        try:
            self._answer_some(began_s)
        finally:
            pause_s = (self._spent_s() - began_s) * self._pause_per_work
            asyncio.get_running_loop().call_later(pause_s, self._pause_is_over)

    def _answer_some(self, began_s: float) -> None:
        if not self._from_this_look:
            self._look = Look(self._snapshot(), self._plain)
            self._from_this_look, self._from_the_next = self._from_the_next, deque()
        assert self._look is not None
        while self._from_this_look:
            answer = self._from_this_look.popleft()
            try:
                answer(self._look)
            except Exception:
                log.exception("a question could not be answered")
            if self._spent_s() - began_s >= WORK_S:
                break
        if not self._from_this_look:
            self._plain, self._look = self._look.newest_plain, None

    def _pause_is_over(self) -> None:
        self._pausing = False
        if self._from_this_look or self._from_the_next:
            self._work()
