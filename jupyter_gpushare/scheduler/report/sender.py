"""Sends the reports. Turns come first: a look at the state takes its share of the loop's time
(`Looks`), a long text is made in pieces, and whatever the view does, or does not, ends here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

from jupyter_gpushare.client.daemon_thread import on_daemon_thread
from jupyter_gpushare.reports.delta import Delta, Now, OutOfOrder, is_news
from jupyter_gpushare.reports.format import (
    HEARTBEAT_S,
    PERIOD_S,
    NodeHello,
    Report,
    pieces_of,
    text_of,
)

from ..service.looks import WORK_S, Look, Looks
from .link import Link
from .options import NoToken, ReportOptions, read_token, tls_of
from .standing import LONGEST_S, Backoff, Failure, Reporting

log = logging.getLogger(__name__)

REPORTS_SHARE = 0.05
"""Of the loop's time, for looks at the state."""
CONNECTION_S = (45 * 60.0, 50 * 60.0)
"""So long a connection lasts: the token of the next one may be another."""


class Reporter:
    """`now` makes of a look what is reported of it. `period_s` and `heartbeat_s` are for tests."""

    def __init__(
        self,
        options: ReportOptions,
        *,
        looks: Looks,
        now: Callable[[Look], Now],
        version: str,
        period_s: float = PERIOD_S,
        heartbeat_s: float = HEARTBEAT_S,
        connection_s: tuple[float, float] = CONNECTION_S,
    ) -> None:
        self._options = options
        self._looks = looks
        self._now = now
        self._period_s, self._heartbeat_s = period_s, heartbeat_s
        self._connection_s = connection_s
        self._hello = NodeHello(boot=secrets.token_hex(16), version=version)
        self._delta = Delta(self._hello.boot)
        self._news = asyncio.Event()
        self._backoff = Backoff(random.random)
        self._standing = Reporting(options.url, since=time.time())
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def as_json(self) -> dict[str, Any]:
        return self._standing.as_json()

    def changed(self) -> None:
        """Something may be new. It is called after each event, and costs nothing."""
        self._news.set()

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        self._over = True
        self._news.set()  # before Python 3.12, wait_for() may swallow that it is cancelled
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while not self._over:
            try:
                await self._connection()
                continue  # it has lasted long enough
            except Failure as failure:
                self._standing.failed(failure, time.time())
            except Exception:
                log.exception("a mistake in the reporting")
                mistake = "This scheduler has met a mistake of its own. Report what its log says."
                self._standing.failed(Failure("ours", mistake), time.time())
            await asyncio.sleep(self._backoff.next_s())

    async def _connection(self) -> None:
        """From one that is opened until it is old. Raises Failure."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        until_s = began_s + random.uniform(*self._connection_s)
        try:
            token = read_token(self._options.token_file)
        except NoToken as error:
            raise Failure("token", str(error)) from error
        tls = await on_daemon_thread(lambda: tls_of(self._options), name="view-authority")
        in_pod = self._options.platform == "kubernetes"
        link = Link(self._options.url, self._news.set, in_pod=in_pod)
        try:
            await link.connect(token, tls)
            await link.ask(text_of(self._hello))
            self._delta.restart()
            sent_s = -self._heartbeat_s
            while loop.time() < until_s and not self._over:
                self._news.clear()
                report = await self._looks.answer(self._report)
                if is_news(report) or loop.time() - sent_s >= self._heartbeat_s:
                    sent_s = loop.time()
                    await self._send(link, report)
                    if sent_s - began_s > LONGEST_S:
                        self._backoff.worked()
                await asyncio.sleep(self._period_s)
                if not self._delta.is_behind:
                    await self._await_news(sent_s + self._heartbeat_s)
                link.check()
        finally:
            link.close()

    def _report(self, look: Look) -> Report:
        return self._delta.next(self._now(look), sent_at=time.time())

    async def _send(self, link: Link, report: Report) -> None:
        seen = await link.ask(await self._text(report))
        try:
            self._delta.seen(seen)
        except OutOfOrder as error:
            raise Failure(
                "order",
                f"The view at {self._options.url} answers out of order. Use one version of "
                f"jupyter-gpushare on both sides.",
            ) from error
        self._standing.succeeded(time.time())

    async def _text(self, report: Report) -> str:
        """Others have the loop between two pieces that took long."""
        made: list[str] = []
        began_s = time.thread_time()
        for piece in pieces_of(report):
            made.append(piece)
            if time.thread_time() - began_s >= WORK_S:
                await asyncio.sleep(0)
                began_s = time.thread_time()
        return "".join(made)

    async def _await_news(self, until_s: float) -> None:
        """Until then at most; a heartbeat is due."""
        left_s = until_s - asyncio.get_running_loop().time()
        if left_s > 0 and not self._news.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), left_s)
