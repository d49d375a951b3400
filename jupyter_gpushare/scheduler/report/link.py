"""One WebSocket to the view: a message out, its answer back, and a sentence on why it ended.

Whatever the view sends, it costs this process little: an answer is short or the connection ends,
and nothing that was not asked for is read."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.netutil import Resolver
from tornado.simple_httpclient import HTTPStreamClosedError, HTTPTimeoutError
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketError,
    websocket_connect,
)

from jupyter_gpushare.client.daemon_thread import on_daemon_thread
from jupyter_gpushare.reports.format import ReportError, Seen, message_of, printable

from .standing import Failure

CONNECT_S_MAX = 20.0
ANSWER_S_MAX = 30.0
ANSWER_BYTES_MAX = 4096
PING_S = 20.0
PINGS_MAX = 100
"""From the view, for each question to it."""
_REASON_CHARACTERS_MAX = 200
UNREADABLE, OLDER_BOOT, TOO_MUCH = 4400, 4409, 4429
"""With these codes the view ends a WebSocket."""
_REFUSED = (
    "What answers at {url} says {code} and opens no connection. It is asked again; look into its "
    "log, and whether --report-to leads to the view."
)
_REFUSALS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: (
        "The view at {url} does not know this node's token. Make one with `jupyter gpushare view "
        "token` where the view runs, and write it into the file of --report-token-file."
    ),
    HTTPStatus.FORBIDDEN: (
        "The view at {url} does not let this node report. Look into the view's log."
    ),
    HTTPStatus.NOT_FOUND: "There is no view at {url}. Correct --report-to.",
}
_REFUSED_POD = (
    "The view at {url} does not know this pod's token. Start the view with --kubernetes and with "
    "the service account of this pod in --service-account, and look into its log."
)
_ENDINGS = {
    UNREADABLE: (
        "The view at {url} cannot believe what this node reports ({reason}). Use one version of "
        "jupyter-gpushare on both sides."
    ),
    OLDER_BOOT: (
        "Another scheduler reports to {url} with this node's token. Give each node a token of its "
        "own."
    ),
    TOO_MUCH: (
        "The view at {url} has too much to do ({reason}). It is told less often; look into the "
        "view's log."
    ),
}


class NamesOnTheSide(Resolver):
    """A name server that does not answer keeps neither the loop waiting nor the process."""

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        found = await on_daemon_thread(
            lambda: socket.getaddrinfo(host, port, family, socket.SOCK_STREAM), name="view-address"
        )
        return [(each_family, address) for each_family, _, _, _, address in found]


class Link:
    """Open when `connect` has returned. `woken` is called when it has ended. `in_pod`: the token
    is one of Kubernetes."""

    def __init__(self, url: str, woken: Callable[[], None], *, in_pod: bool = False) -> None:
        self._url = url
        self._in_pod = in_pod
        self._woken = woken
        self._connection: WebSocketClientConnection | None = None
        self._answer: asyncio.Future[str | bytes] | None = None
        self._failure: Failure | None = None
        self._pings = 0

    async def connect(self, token: str, tls: ssl.SSLContext | None) -> None:
        """Raises Failure."""
        request = HTTPRequest(
            self._url,
            headers={"Authorization": f"Bearer {token}"},
            connect_timeout=CONNECT_S_MAX,
            request_timeout=CONNECT_S_MAX,
            ssl_options=tls,
            follow_redirects=False,
            decompress_response=False,
            streaming_callback=lambda _: None,  # what a refusal says besides is kept nowhere
        )
        try:
            self._connection = await websocket_connect(
                request,
                on_message_callback=self._heard,
                ping_interval=PING_S,
                ping_timeout=PING_S,
                max_message_size=ANSWER_BYTES_MAX,
                resolver=NamesOnTheSide(),
            )
        except Exception as error:
            raise self._cannot_open(error) from error
        for name in ("on_ping", "on_pong"):
            setattr(self._connection, name, self._pinged)

    async def ask(self, text: str) -> Seen:
        """Send a message; what the view answers. Raises Failure."""
        self.check()
        assert self._connection is not None
        self._pings = 0
        self._answer = asyncio.get_running_loop().create_future()
        try:
            sent = self._connection.write_message(text)
        except WebSocketClosedError:
            self._end(self._ended())
            raise self._ended() from None
        sent.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            answer = await asyncio.wait_for(self._answer, ANSWER_S_MAX)
        except asyncio.TimeoutError:  # another class than the builtin on Python 3.10
            raise Failure(
                "silent",
                f"The view at {self._url} has not answered for {ANSWER_S_MAX:g} s. Look into its "
                f"log, and at how busy it is.",
            ) from None
        finally:
            self._answer = None
        try:
            message = message_of(answer)
        except ReportError:
            message = None
        if not isinstance(message, Seen):
            raise self._nonsense()
        return message

    def check(self) -> None:
        """Raises Failure once the connection has ended."""
        if self._failure is not None:
            raise Failure(self._failure.kind, str(self._failure))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _heard(self, message: str | bytes | None) -> None:
        if message is None:
            self._end(self._ended())
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)
        else:
            self._cut()

    def _pinged(self, data: bytes) -> None:
        self._pings += 1
        if self._pings > PINGS_MAX:
            self._cut()

    def _cut(self) -> None:
        """Nothing more is read, and no farewell is waited for."""
        self._end(self._nonsense())
        protocol = self._connection.protocol if self._connection else None
        if protocol is not None:
            protocol.client_terminated = True
            if protocol.stream is not None:
                protocol.stream.close()

    def _end(self, failure: Failure) -> None:
        """The first reason counts."""
        if self._failure is None:
            self._failure = failure
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(self._failure)
        self._woken()

    # ---- in words ----

    def _nonsense(self) -> Failure:
        return Failure(
            "nonsense",
            f"What answers at {self._url} is no view, or one of another version. Correct "
            f"--report-to, or use one version of jupyter-gpushare on both sides.",
        )

    def _ended(self) -> Failure:
        code = self._connection.close_code if self._connection else None
        reason = (self._connection.close_reason if self._connection else None) or "it says no more"
        shown = printable(reason[:_REASON_CHARACTERS_MAX]).rstrip(".")
        words = _ENDINGS.get(code or 0)
        if words is None:
            return Failure(
                f"closed {code}",
                f"The view at {self._url} has ended the connection. This node connects again; if "
                f"that goes on, look into the view's log.",
            )
        return Failure(f"closed {code}", words.format(url=self._url, reason=shown))

    def _cannot_open(self, error: Exception) -> Failure:
        if isinstance(error, HTTPTimeoutError):
            return Failure(
                "silent",
                f"The view at {self._url} has not answered within {CONNECT_S_MAX:g} s. Look "
                f"whether it runs, and whether this node may connect there.",
            )
        if isinstance(error, HTTPClientError) and not isinstance(error, HTTPStreamClosedError):
            return self._refused(error.code)
        if isinstance(error, ssl.SSLCertVerificationError):
            return Failure(
                "certificate",
                f"The certificate of the view at {self._url} is not trusted: "
                f"{error.verify_message.rstrip('.')}. Name the file of its authority in "
                f"--report-ca.",
            )
        if isinstance(error, WebSocketError | ValueError | KeyError):
            return self._nonsense()
        cause = error.real_error if isinstance(error, StreamClosedError) else error
        said = getattr(cause, "strerror", None) or str(cause or "it hangs up")
        return Failure(
            "unreachable",
            f"The view at {self._url} cannot be reached: {printable(said[:200]).rstrip('.')}. Look "
            f"whether it runs, and whether this node may connect there.",
        )

    def _refused(self, code: int) -> Failure:
        words = _REFUSALS.get(code, _REFUSED)
        if self._in_pod and code == HTTPStatus.UNAUTHORIZED:
            words = _REFUSED_POD
        return Failure(f"refused {code}", words.format(url=self._url, code=code))
