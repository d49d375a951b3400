"""A view in the test's own process: the real state of all nodes behind a small WebSocket server, in
a thread of its own. `fault` makes it answer badly."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import tornado.httpserver
import tornado.web
import tornado.websocket

from jupyter_gpushare.reports.format import (
    MESSAGE_BYTES_MAX,
    NodeHello,
    Report,
    ReportError,
    message_of,
    text_of,
)
from jupyter_gpushare.view.fleet import Fleet, Node, OlderBoot
from tests.support.ports import free_port
from tests.support.waits import WAIT_S_MAX

TOKEN = "the-token-of-the-node"
NAME = "node"
MUCH = "x" * (10 << 20)


class ViewStandIn:
    """Runs from `with` to its end; a second `with` is the view that was started again. `fault` is
    one of: silent, nonsense, much (10 MB for an answer), page (10 MB instead of a WebSocket),
    chatter, pings, order, hang up, 4400, 4409, 4429. `status` is answered in place of a WebSocket.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.tokens = {TOKEN: NAME}
        self.fault = ""
        self.status = 0
        self._tls = tls
        self._start_anew()

    def _start_anew(self) -> None:
        self.fleet = Fleet()
        self.reports: list[Report] = []
        self.hellos: list[NodeHello] = []
        self.shown_tokens: list[str] = []
        self.texts: list[str] = []
        self.faults_met = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/services/gpushare-view"

    @property
    def node(self) -> Node:
        return self.fleet.nodes[NAME]

    def eventually(self, holds: Callable[[], object]) -> None:
        until_s = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                if holds():
                    return
            except (KeyError, IndexError):
                pass
            assert time.monotonic() < until_s, f"it never came true: {self.fleet.nodes}"
            time.sleep(0.01)

    def __enter__(self) -> ViewStandIn:
        self._start_anew()
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(WAIT_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(WAIT_S_MAX)

    def _run(self, ready: threading.Event) -> None:
        async def main() -> None:
            self._end = asyncio.Event()
            route = (r"/services/gpushare-view/api/v1/reports", _Reports, {"view": self})
            app = tornado.web.Application([route], websocket_max_message_size=MESSAGE_BYTES_MAX)
            server = tornado.httpserver.HTTPServer(app, ssl_options=self._tls)
            server.listen(self.port, "127.0.0.1")
            ready.set()
            await self._end.wait()
            server.stop()
            for each in list(_Reports.open_ones):
                each.close()
            await server.close_all_connections()

        self._loop.run_until_complete(main())
        self._loop.close()


class _Reports(tornado.websocket.WebSocketHandler):
    open_ones: ClassVar[set[_Reports]] = set()

    def initialize(self, view: ViewStandIn) -> None:
        self.view = view
        self.boot = ""

    async def get(self, *args: str, **kwargs: str) -> None:
        if self.view.fault == "page":
            self.view.faults_met += 1
            self.finish(MUCH)
            return
        token = self.request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.view.shown_tokens.append(token)
        if self.view.status or token not in self.view.tokens:
            self.view.faults_met += 1
            self.set_status(self.view.status or 401)
            self.finish()
            return
        self.name = self.view.tokens[token]
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> None:
        self.open_ones.add(self)

    def on_close(self) -> None:
        self.open_ones.discard(self)

    def on_message(self, message: str | bytes) -> None:
        if self.view.fault:
            self._be_bad(self.view.fault)
            return
        try:
            answer = self._take(message_of(message))
        except OlderBoot as error:
            self.close(4409, str(error)[:120])
        except ReportError as error:
            self.close(4400, str(error)[:120])
        else:
            self.say(answer)

    def _take(self, message: object) -> str:
        fleet = self.view.fleet
        if isinstance(message, NodeHello):
            self.view.hellos.append(message)
            return text_of(fleet.hello(self.name, message, now_s=time.monotonic()))
        assert isinstance(message, Report)
        self.view.reports.append(message)
        seen = fleet.report(self.name, message, now_s=time.monotonic(), wall_s=time.time())
        return text_of(seen)

    def say(self, text: str) -> None:
        """Whether it arrives or not."""
        sent = self.write_message(text)
        sent.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _be_bad(self, fault: str) -> None:
        self.view.faults_met += 1
        match fault:
            case "nonsense":
                self.say("{]")
            case "much":
                self.say(MUCH)
            case "order":
                self.say('{"type":"seen","sequence":77}')
            case "chatter":
                for _ in range(1000):
                    if self.ws_connection is not None and not self.ws_connection.is_closing():
                        self.say('{"type":"seen","sequence":0}')
            case "pings":
                for _ in range(5000):
                    if self.ws_connection is not None and not self.ws_connection.is_closing():
                        with contextlib.suppress(tornado.websocket.WebSocketClosedError):
                            self.ping()
            case "hang up":
                self.close()
            case "4400" | "4409" | "4429":
                self.close(int(fault), "because\n of it")


def token_file(folder: Path, token: str = TOKEN) -> Path:
    path = folder / "view-token"
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return path
