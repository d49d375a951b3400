"""The view's page and answers alone, in a thread: a fleet that the test fills, and whoever asks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_gpushare.view.caller import Caller
from jupyter_gpushare.view.fleet import Fleet
from jupyter_gpushare.view.follow import Followers
from jupyter_gpushare.view.pages import routes

PREFIX = "/services/gpushare-view/"
TICK_S = 0.05


class Standin:
    """Its callers are who `caller` says; None is refused."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.caller: Caller | None = Caller("root", True)
        self.ahead_s = 0.0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._server: HTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    def now_s(self) -> float:
        return time.monotonic() + self.ahead_s

    def do(self, change: Callable[[Fleet, float], Any]) -> Any:
        """Change the fleet, where it lives."""
        done: Future[Any] = Future()

        def act() -> None:
            try:
                done.set_result(change(self.fleet, self.now_s()))
            except BaseException as error:  # noqa: BLE001 - for the test
                done.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return done.result(30)

    def stop_listening(self) -> None:
        """The service is gone: connections too."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)

    def listen_again(self) -> None:
        self._loop.call_soon_threadsafe(self._listen)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.stop()
            self.followers.end()
            await self._server.close_all_connections()
            self._server = None

    def _listen(self) -> None:
        self._server = HTTPServer(self.application)
        sockets = bind_sockets(self.port, "127.0.0.1", reuse_port=False)
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self.followers = Followers(self.fleet, self.now_s)
        standin = self

        class Base(RequestHandler):
            def prepare(self) -> None:
                if standin.caller is None:
                    self.set_status(403)
                    self.finish({"message": "Log in."})
                else:
                    self.caller = standin.caller

        made = routes(self, Base)
        self.application = Application([(PREFIX + each[0], *each[1:]) for each in made])
        self._listen()
        self._loop.create_task(self._tick())
        self._ready.set()
        self._loop.run_forever()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.followers.tell(self.fleet.take_changed())

    def __enter__(self) -> Standin:
        self._thread.start()
        self._ready.wait(30)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
