"""Where nodes report: one WebSocket each, opened with the node's credential.

What comes over it is bounded in size and in number, and it is believed of that node alone. A node
that lies or is slow loses its connection; the others do not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tornado.websocket import WebSocketClosedError, WebSocketHandler, WebSocketProtocol

from jupyter_gpushare.hub.auth import token_of
from jupyter_gpushare.reports.format import (
    MESSAGE_BYTES_MAX,
    NodeHello,
    Report,
    ReportError,
    Seen,
    message_of,
    text_of,
)

from .credentials import Credentials, NodeRefused
from .fleet import Fleet, OlderBoot
from .headers import DATA_HEADERS
from .metrics import ViewCounters
from .pace import Pace

log = logging.getLogger(__name__)

HELLO_S_MAX = 10.0
MESSAGES_PER_S, MESSAGES_AT_ONCE = 10.0, 30.0
BYTES_PER_S, BYTES_AT_ONCE = float(512 << 10), float(4 * MESSAGE_BYTES_MAX)
"""Of a node, over all its connections. Once in eight seconds it may send all that it may have."""
RECHECK_S = 60.0
"""So often the credentials of open connections are looked at again."""
UNANSWERED_MAX = 3
"""Nobody says whose so many credentials are: the others are left to the next look. Of one alone, it
may be for ever."""
LOG_EVERY_S = 10.0
REASON_BYTES_MAX = 120
GOING_AWAY = 1001
MESSAGE_TOO_BIG = 1009
CANNOT_BE_READ = 4400
CREDENTIAL_ENDED = 4401
ANOTHER_HAS_COME = 4409
TOO_FAST = 4429


class _TooFast(ReportError):
    """More than a node may send."""


class Receiver:
    """What the connections of all nodes share. At most one of each node is `current`."""

    def __init__(
        self,
        fleet: Fleet,
        credentials: Credentials,
        *,
        clock_s: Callable[[], float],
        wall_s: Callable[[], float],
        hello_s_max: float = HELLO_S_MAX,
        counters: ViewCounters | None = None,
    ) -> None:
        self.counters = counters or ViewCounters()
        self.hello_s_max = hello_s_max
        self._fleet = fleet
        self._credentials = credentials
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._all: set[ReportsHandler] = set()
        self._current: dict[str, ReportsHandler] = {}
        self._paces: dict[str, tuple[Pace, Pace]] = {}
        self._logged_at_s = float("-inf")

    async def admit(self, token: str | None) -> str:
        """The name of the node; raises NodeRefused."""
        if token is None:
            raise NodeRefused(
                HTTPStatus.UNAUTHORIZED,
                "The node has shown no token. Start its scheduler with --report-token-file.",
            )
        name = await self._credentials.name_of(token)
        if not self._pace_of(name)[0].takes(1, self._clock_s()):
            raise NodeRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"The node {name} has come too often. Look for a second scheduler with its token.",
            )
        return name

    def note_refused(self, refused: NodeRefused) -> None:
        """In the log, at most once in a while: somebody may try tokens."""
        now_s = self._clock_s()
        if now_s - self._logged_at_s >= LOG_EVERY_S:
            self._logged_at_s = now_s
            log.warning("a node was refused (%d): %s", refused.status, refused)

    def opened(self, connection: ReportsHandler) -> None:
        self._all.add(connection)

    def took(self, connection: ReportsHandler, text: str | bytes) -> Seen:
        """The answer to a message; raises ReportError."""
        now_s, name = self._clock_s(), connection.name
        messages, size = self._pace_of(name)
        try:
            if not (messages.takes(1, now_s) and size.takes(len(text), now_s)):
                raise _TooFast(
                    f"The node {name} reports more than this view takes. Look for a second "
                    f"scheduler with its token, or at what it reports."
                )
            return self._took(connection, text, now_s)
        except OlderBoot:
            raise
        except ReportError as error:
            self._fleet.cannot_be_read(name, error, now_s=now_s)
            raise

    def _took(self, connection: ReportsHandler, text: str | bytes, now_s: float) -> Seen:
        name, message = connection.name, message_of(text)
        if isinstance(message, NodeHello) and not connection.boot:
            seen = self._fleet.hello(name, message, now_s=now_s)
            connection.boot = message.boot
            before, self._current[name] = self._current.get(name), connection
            if before is not None:
                before.end(ANOTHER_HAS_COME, f"Another connection of the node {name} has come.")
            return seen
        if isinstance(message, Report) and connection.boot:
            if message.boot != connection.boot:
                raise ReportError(
                    "The report is of another start of the scheduler than its hello. Restart it."
                )
            return self._fleet.report(name, message, now_s=now_s, wall_s=self._wall_s())
        raise ReportError(
            "A node says hello once, and then it reports. Use the same version of jupyter-gpushare "
            "on both sides."
        )

    def heard(self, connection: ReportsHandler) -> None:
        """A ping or a pong: they count as messages. Raises ReportError."""
        if not self._pace_of(connection.name)[0].takes(1, self._clock_s()):
            error = _TooFast(f"The node {connection.name} sends pings without end. Restart it.")
            self._fleet.cannot_be_read(connection.name, error, now_s=self._clock_s())
            raise error

    def is_too_big(self, connection: ReportsHandler) -> None:
        error = ReportError(
            f"The node has sent a message of more than {MESSAGE_BYTES_MAX} bytes. Look at what its "
            f"scheduler reports."
        )
        self._fleet.cannot_be_read(connection.name, error, now_s=self._clock_s())

    def closed(self, connection: ReportsHandler) -> None:
        self._all.discard(connection)
        if self._current.get(connection.name) is connection:
            del self._current[connection.name]
            self._fleet.gone(connection.name, connection.boot, now_s=self._clock_s())

    async def recheck(self) -> None:
        """End what has been opened with a credential that counts no longer."""
        unanswered = 0
        for connection in list(self._all):
            await asyncio.sleep(0)  # a file answers at once, and reports go on meanwhile
            try:
                if await self._credentials.name_of(connection.token) == connection.name:
                    continue
                said = "The credential of this node is another node's now. Look at its token file."
            except NodeRefused as refused:
                if refused.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    unanswered += 1
                    if unanswered >= UNANSWERED_MAX:
                        return  # nobody can say; the next look will
                    continue
                said = str(refused)
            connection.end(CREDENTIAL_ENDED, said)

    def tidy(self) -> None:
        """Forget how much nodes have sent that send nothing."""
        now_s = self._clock_s()
        for name, paces in list(self._paces.items()):
            if all(each.is_unspent(now_s) for each in paces):
                del self._paces[name]

    def end(self) -> None:
        for connection in list(self._all):
            connection.end(GOING_AWAY, "The view ends. It may be back soon.")

    def _pace_of(self, name: str) -> tuple[Pace, Pace]:
        return self._paces.setdefault(
            name, (Pace(MESSAGES_PER_S, MESSAGES_AT_ONCE), Pace(BYTES_PER_S, BYTES_AT_ONCE))
        )


class ReportsHandler(WebSocketHandler):
    """One connection of a node."""

    name = ""
    token = ""
    boot = ""
    """Of its hello; empty before."""
    _ended = False
    _hello_timer: asyncio.TimerHandle | None = None

    def initialize(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in DATA_HEADERS.items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        """Before the upgrade: a node without a credential learns nothing and holds nothing."""
        token = token_of(self.request.headers.get("Authorization"))
        try:
            if self.request.headers.get("Upgrade", "").lower() != "websocket":
                raise NodeRefused(
                    HTTPStatus.BAD_REQUEST,
                    "Schedulers report here, over a WebSocket. Open the page of the view.",
                )
            if "Origin" in self.request.headers:
                raise NodeRefused(
                    HTTPStatus.FORBIDDEN,
                    "A page has asked, and only schedulers report. Open the page of the view.",
                )
            self.name = await self._receiver.admit(token)
        except NodeRefused as refused:
            self._refuse(refused)
            return
        self.token = token or ""

    def _refuse(self, refused: NodeRefused) -> None:
        self._receiver.note_refused(refused)
        self._receiver.counters.refused_nodes += 1
        self.set_status(refused.status)
        if refused.status == HTTPStatus.UNAUTHORIZED:
            self.set_header("WWW-Authenticate", "Bearer")
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        self.finish(json.dumps({"message": str(refused)}))

    def get_websocket_protocol(self) -> WebSocketProtocol | None:
        """Tornado says nothing to us of a message that is too big, and ends the connection."""
        protocol = super().get_websocket_protocol()
        if protocol is not None:
            close = protocol.close

            def noticed(code: int | None = None, reason: str | None = None) -> None:
                if code == MESSAGE_TOO_BIG:
                    self._receiver.is_too_big(self)
                close(code, reason)

            protocol.close = noticed  # type: ignore[method-assign]
        return protocol

    def open(self, *_: str, **__: str) -> None:
        self._receiver.opened(self)
        self.set_nodelay(True)
        self._hello_timer = asyncio.get_running_loop().call_later(
            self._receiver.hello_s_max, self._no_hello
        )

    def _no_hello(self) -> None:
        if not self.boot:
            self.end(CANNOT_BE_READ, "No hello has come in time. Restart the scheduler.")

    async def on_message(self, message: str | bytes) -> None:
        """The next one is read when the answer to this one has been taken: a node that does not
        read is not read either."""
        if self._ended:
            return
        try:
            seen = self._receiver.took(self, message)
        except ReportError as error:
            self.end(_code_of(error), str(error))
            return
        with contextlib.suppress(WebSocketClosedError):
            await self.write_message(text_of(seen))

    def on_ping(self, data: bytes) -> None:
        if not self._ended:
            try:
                self._receiver.heard(self)
            except ReportError as error:
                self.end(TOO_FAST, str(error))

    on_pong = on_ping

    def end(self, code: int, reason: str) -> None:
        """What comes after that counts no more."""
        if not self._ended:
            self._ended = True
            if code != GOING_AWAY:
                log.info("node %s: connection ended: %s", self.name, reason)
            self.close(code, cut(reason))

    def on_close(self) -> None:
        self._ended = True
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        self._receiver.closed(self)

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        log.error("reports of the node %s failed", self.name, exc_info=value)


def cut(reason: str) -> str:
    """What a closing frame has space for, whole characters only."""
    return reason.encode("utf-8", "replace")[:REASON_BYTES_MAX].decode("utf-8", "ignore")


def _code_of(error: ReportError) -> int:
    if isinstance(error, OlderBoot):
        return ANOTHER_HAS_COME
    return TOO_FAST if isinstance(error, _TooFast) else CANNOT_BE_READ
