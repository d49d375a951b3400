"""The view itself, in a thread beside a browser: a fleet that the test fills, and whoever asks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from tornado.web import RequestHandler

from jupyter_gpushare.view.caller import Viewer
from jupyter_gpushare.view.credentials import EitherOf
from jupyter_gpushare.view.fleet import Fleet
from jupyter_gpushare.view.service import View, ViewOptions
from tests.support.waits import WAIT_S_MAX
from tests.view.service import PREFIX

SLOWER = 20


def clock_s() -> float:
    """Time goes slowly: on a machine that is slow, no node turns silent that should not. It goes
    on, because a page takes no answer that is not younger than what it shows."""
    return time.monotonic() / SLOWER


class Standin:
    """Its callers are whom `caller` names; None has not logged in."""

    def __init__(self) -> None:
        self.caller: Viewer | None = Viewer("root", True)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._view: View | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    def do(self, change: Callable[[Fleet, float], Any]) -> Any:
        """Change the fleet, where it lives."""
        done: Future[Any] = Future()

        def act() -> None:
            assert self._view is not None
            try:
                done.set_result(change(self._view.fleet, self._view.state.clock_s()))
            except BaseException as error:  # noqa: BLE001 - for the test
                done.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return done.result(WAIT_S_MAX)

    def start(self) -> None:
        """With nothing known, at the port that it had."""
        self._run(self._start())

    def stop(self) -> None:
        self._run(self._stop())

    def _run(self, act: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(act, self._loop).result(WAIT_S_MAX)

    async def _start(self) -> None:
        options = ViewOptions(host="127.0.0.1", port=self.port, prefix=PREFIX)
        self._view = View(options, Callers(self), EitherOf([]), clock_s=clock_s)
        self._view.start()
        self.port = self._view.port

    async def _stop(self) -> None:
        if self._view is not None:
            await self._view.end()
            self._view = None

    def __enter__(self) -> Standin:
        self._thread.start()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S_MAX)
        self._loop.close()


class Callers:
    """A stand-in for the hub. As the hub does, it takes no page's request without the token that
    the page was given."""

    def __init__(self, standin: Standin) -> None:
        self._standin = standin

    async def caller(self, handler: RequestHandler) -> Viewer | None:
        if handler.request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate":
            handler.check_xsrf_cookie()
        return self._standin.caller

    def routes(self, prefix: str) -> list[tuple[Any, ...]]:
        return []
