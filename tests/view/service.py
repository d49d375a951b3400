"""The view without a hub, and nodes that report to it, all in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.web import RequestHandler
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    websocket_connect,
)

from jupyter_gpushare.reports.format import Message, NodeHello, Report, Seen, message_of, text_of
from jupyter_gpushare.reports.node_tokens import new_token
from jupyter_gpushare.view.callers import CallerRefused, Viewer
from jupyter_gpushare.view.credentials import Credentials, EitherOf, FileTokens
from jupyter_gpushare.view.service import View, ViewOptions
from tests.reports.rows import BOOT, a_report
from tests.support.waits import WAIT_S_MAX

PREFIX = "/services/gpushare-view/"
T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """A test's coroutine, bounded in time."""

    async def bounded() -> T:
        return await asyncio.wait_for(scenario, WAIT_S_MAX)

    return asyncio.run(bounded())


class SaidCallers:
    """A stand-in for the hub: the header `X-Caller` says who asks, `admin` is the administrator."""

    async def caller(self, handler: RequestHandler) -> Viewer | None:
        name = handler.request.headers.get("X-Caller")
        if name == "hub is down":
            raise CallerRefused(HTTPStatus.SERVICE_UNAVAILABLE, "The hub is down. Try again.")
        return None if name is None else Viewer(name, name == "admin")

    def routes(self, prefix: str) -> list[tuple[Any, ...]]:
        return []


class RunningView:
    """A view at a free port, whose nodes have tokens of a file."""

    def __init__(self, view: View, tokens: Path) -> None:
        self.view = view
        self.fleet = view.fleet
        self._tokens = tokens

    def token(self, name: str) -> str:
        return new_token(self._tokens, name)

    def url(self, route: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.view.port}{PREFIX}{route}"

    async def get(
        self, route: str, caller: str | None = None, *, method: str = "GET", **headers: str
    ) -> HTTPResponse:
        if caller is not None:
            headers["X-Caller"] = caller
        request = HTTPRequest(
            self.url(route),
            method=method,
            headers=headers,
            follow_redirects=False,
            allow_nonstandard_methods=True,
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def connect(self, token: str | None, **headers: str) -> Node:
        """Raises Refused."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        request = HTTPRequest(self.url("api/v1/reports", "ws"), headers=headers)
        try:
            return Node(await websocket_connect(request))
        except HTTPClientError as error:
            raise Refused(error) from error

    async def node(self, name: str, boot: str = BOOT, **rows: Any) -> Node:
        """One that has come, and has sent a whole report."""
        node = await self.connect(self.token(name))
        await node.come(boot, **rows)
        return node

    async def until(self, holds: Any) -> None:
        while not holds():
            await asyncio.sleep(0.01)


class Refused(Exception):
    """The answer to a handshake that was no upgrade."""

    def __init__(self, error: HTTPClientError) -> None:
        self.status = error.code
        body = error.response.body if error.response is not None else b""
        try:
            self.message = json.loads(body)["message"]
        except (ValueError, KeyError):
            self.message = body.decode("utf-8", "replace")
        super().__init__(f"{self.status}: {self.message}")


class Closed(Exception):
    """The view has ended the connection."""

    def __init__(self, code: int | None, reason: str | None) -> None:
        self.code, self.reason = code, reason or ""
        super().__init__(f"{code}: {reason}")


class Node:
    """The scheduler's end of a connection."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection

    async def send(self, message: Message | str | bytes) -> Seen:
        """The answer; raises Closed."""
        await self.push(message)
        return await self.answer()

    async def push(self, message: Message | str | bytes) -> None:
        """Also where nobody takes it any more: the next answer says so."""
        raw = message if isinstance(message, str | bytes) else text_of(message)
        with contextlib.suppress(WebSocketClosedError):
            await self.connection.write_message(raw, binary=isinstance(raw, bytes))

    async def answer(self) -> Seen:
        raw = await self.connection.read_message()
        if raw is None:
            raise Closed(self.connection.close_code, self.connection.close_reason)
        seen = message_of(raw)
        assert isinstance(seen, Seen)
        return seen

    async def hello(self, boot: str = BOOT) -> Seen:
        return await self.send(NodeHello(boot=boot, version="1"))

    async def report(self, report: Report) -> Seen:
        return await self.send(report)

    async def come(self, boot: str = BOOT, **rows: Any) -> None:
        assert await self.hello(boot) == Seen(sequence=-1, again=True)
        assert await self.report(a_report(boot=boot, **rows)) == Seen(sequence=0)

    async def ended(self) -> Closed:
        try:
            found = await self.answer()
        except Closed as closed:
            return closed
        raise AssertionError(f"the connection goes on: {found}")

    def leave(self) -> None:
        self.connection.close()


@contextlib.asynccontextmanager
async def running_view(
    folder: Path,
    *,
    credentials: Credentials | None = None,
    callers: Any = None,
    clock_s: Callable[[], float] = time.monotonic,
    **options: Any,
) -> AsyncIterator[RunningView]:
    tokens = folder / "tokens"
    tokens.touch(mode=0o600)
    view = View(
        ViewOptions(host="127.0.0.1", port=0, prefix=PREFIX, **options),
        callers or SaidCallers(),
        credentials or EitherOf([FileTokens(tokens)]),
        clock_s=clock_s,
    )
    view.start()
    try:
        yield RunningView(view, tokens)
    finally:
        await view.end()


def headers_of(response: HTTPResponse) -> Mapping[str, str]:
    return dict(response.headers)
