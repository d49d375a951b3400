"""The figures of the view, over HTTP: GPU-hours as CSV, and what Prometheus reads."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from tornado.iostream import StreamClosedError

from .api import API, QueryRefused, Route, ViewHandler, ViewState
from .metrics import FleetCollector, text_of
from .usage import DAY_S
from .usage_file import USAGE_FILE, UsageFile
from .usage_table import BadQuestion, Question, question_of

log = logging.getLogger(__name__)

METRICS_EVERY_S = 2.0
"""Whoever asks sooner is told the same again: a thousand nodes have 100,000 series."""
TABLES_MAX, TABLES_OF_A_CALLER_MAX = 16, 2
"""Made or sent at one time."""
SEND_S_MAX = 30.0
"""A caller that takes nothing for so long is given up."""
_CHUNK_BYTES = 64 << 10


class Exposition:
    """The text for Prometheus, made by a thread of its own: it takes half a second for a thousand
    nodes, and reports go on meanwhile."""

    def __init__(self, state: ViewState) -> None:
        self._clock_s = state.clock_s
        self._collector = FleetCollector(
            state.fleet,
            state.counters,
            lambda: (state.clock_s(), state.wall_s()),
            lambda: len(state.followers),
        )
        self._thread = ThreadPoolExecutor(1, "view-metrics")
        self._lock = asyncio.Lock()
        self._text = b""
        self._made_at_s = -METRICS_EVERY_S

    async def text(self) -> bytes:
        async with self._lock:
            if self._clock_s() - self._made_at_s >= METRICS_EVERY_S:
                loop = asyncio.get_running_loop()
                self._text = await loop.run_in_executor(self._thread, text_of, [self._collector])
                self._made_at_s = self._clock_s()
            return self._text

    def close(self) -> None:
        self._thread.shutdown()


class MetricsHandler(ViewHandler):
    takes_metrics_token = True

    def initialize(self, state: ViewState, exposition: Exposition) -> None:  # type: ignore[override]
        super().initialize(state)
        self._exposition = exposition

    async def get(self) -> None:
        self.for_administrators()
        text = await self._exposition.text()
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        self.finish(text)


class Tables:
    """At most so many are made at once."""

    def __init__(self, usage: UsageFile | None) -> None:
        self.usage = usage
        self._asked: Counter[str] = Counter()

    @contextmanager
    def one_for(self, caller: str) -> Iterator[None]:
        """Raises QueryRefused."""
        if self._asked.total() >= TABLES_MAX or self._asked[caller] >= TABLES_OF_A_CALLER_MAX:
            raise QueryRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "Too many tables of GPU-hours are being made or sent. Ask again soon.",
            )
        self._asked[caller] += 1
        try:
            yield
        finally:
            self._asked[caller] -= 1
            self._asked += Counter()  # so that no name is kept without a number


class UsageHandler(ViewHandler):
    def initialize(self, state: ViewState, tables: Tables) -> None:  # type: ignore[override]
        super().initialize(state)
        self._tables = tables

    async def get(self) -> None:
        usage = self._tables.usage
        if usage is None:
            raise QueryRefused(
                HTTPStatus.NOT_FOUND,
                "This view keeps no GPU-hours. Start it with a data directory (--data-dir).",
            )
        arguments = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        owner = None if self.caller.is_admin else self.caller.name
        try:
            question = question_of(arguments, owner, int(self.state.wall_s() // DAY_S))
        except BadQuestion as error:
            raise QueryRefused(HTTPStatus.BAD_REQUEST, str(error)) from error
        with self._tables.one_for(self.caller.name):
            await self._send(usage, question)

    async def _send(self, usage: UsageFile, question: Question) -> None:
        try:
            table = await asyncio.wrap_future(usage.table(question))
        except (sqlite3.Error, OSError) as error:
            log.error("the GPU-hours cannot be read: %s", error)
            raise QueryRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The GPU-hours cannot be read now. Look at what the view's log says.",
            ) from error
        self.set_header("Content-Type", "text/csv; charset=UTF-8")
        self.set_header(
            "Content-Disposition", f'attachment; filename="gpu-hours-{question.by}.csv"'
        )
        with table:
            try:
                while chunk := table.read(_CHUNK_BYTES):
                    self.write(chunk)
                    await asyncio.wait_for(self.flush(), SEND_S_MAX)
            except StreamClosedError:
                pass
            except asyncio.TimeoutError:
                self.detach().close()


def routes(state: ViewState) -> list[Route]:
    """Counts GPU-hours from now on, where there is a place to keep them. Raises UsageFileError."""
    usage = None
    if state.data_dir is not None:
        usage = _counting(state, state.data_dir / USAGE_FILE)
    exposition = Exposition(state)
    state.closers.append(exposition.close)
    return [
        (state.url(f"{API}/usage.csv"), UsageHandler, {"state": state, "tables": Tables(usage)}),
        (state.url("metrics"), MetricsHandler, {"state": state, "exposition": exposition}),
    ]


def _counting(state: ViewState, path: Path) -> UsageFile:
    usage = UsageFile(
        path,
        now_s=state.clock_s(),
        wall_clock=state.wall_s,
        accounts_are_users=state.accounts_are_users,
    )

    def note(changed: set[str]) -> None:
        usage.note(state.fleet, changed, now_s=state.clock_s())

    # Before all others: what it doubts is a part of what they show.
    state.listeners.insert(0, note)
    state.closers.append(usage.close)
    return usage
