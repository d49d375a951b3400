"""HTTP on http.sock. Handlers authenticate (callers.py says who calls) and delegate."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import tornado.web
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.iostream import IOStream, StreamClosedError

from jupyter_gpushare.client.connection import user_name
from jupyter_gpushare.client.credentials import credentials_of
from jupyter_gpushare.core.errors import (
    ClassNotAllowed,
    CoreError,
    NeedNotMet,
    NoSuchDevice,
    UnknownTenant,
    WrongOwner,
)

from ..base.errors import RequestError
from ..identity.admission import Admission
from ..identity.caller import Caller
from ..identity.peer import Peer, has_hung_up, peer_of
from ..identity.registrants import RegistrantWatch
from ..service.administration import Administration
from ..service.cut import Cut
from ..service.looks import Looks
from ..service.service import Service
from .callers import STREAM_S_MAX, Callers
from .event_stream import Follower, Followers
from .handover import Handover

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 64 << 10
REQUEST_DEADLINE_S = 10.0
CONNECTIONS_PER_ACCOUNT_MAX = 1024
API = "/api/v1"
ENTRIES_SHOWN = 50
"""Of the audit log, unless asked for more or fewer."""


class Handler(tornado.web.RequestHandler):
    """What all routes share: who calls, JSON in and out, errors in one shape."""

    peer: Peer
    caller: Caller

    def initialize(
        self,
        service: Service,
        administration: Administration,
        admission: Admission,
        registrants: RegistrantWatch,
        followers: Followers,
        callers: Callers,
        handover: Handover,
        answers: Looks,
        news: Looks,
        answer_deadline_s: float,
    ) -> None:
        self.administration = administration
        self.answer_deadline_s = answer_deadline_s
        self.answers = answers
        self.news = news
        self.callers = callers
        self.handover = handover
        self.service = service
        self.admission = admission
        self.registrants = registrants
        self.followers = followers

    async def prepare(self) -> None:
        if self.stream().closed():  # they sent it and went
            self.finish()
            return
        self.peer = peer_of(self.peer_socket())
        if not self.admission.serves(self.peer):
            raise RequestError(
                HTTPStatus.FORBIDDEN,
                f"This scheduler does not serve {user_name(self.peer.uid)}. Start one of your own.",
            )
        authorization = self.request.headers.get("Authorization")
        self.caller = await self.callers.caller(self.peer, authorization)
        if self.stream().closed():  # they hung up while a hub was asked who they are
            self.finish()

    def stream(self) -> IOStream:
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection)
        assert isinstance(connection.stream, IOStream)
        return connection.stream

    def peer_socket(self) -> socket.socket:
        found = self.stream().socket
        assert isinstance(found, socket.socket)
        return found

    def body(self) -> dict[str, Any]:
        """The request's JSON object."""
        try:
            value = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise RequestError(
                HTTPStatus.BAD_REQUEST, "The request's body is not a JSON object. Send one."
            )
        return value

    def on_finish(self) -> None:
        """A caller that does not read loses its answer: each of them would keep a copy waiting."""
        stream = self.stream()
        if stream.writing():
            IOLoop.current().call_later(self.answer_deadline_s, stream.close)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs.get("exc_info", (None, None, None))[1]
        status, message = message_of_error(status_code, error)
        self.set_status(status)
        if isinstance(error, RequestError) and error.retry_after_s:
            self.set_header("Retry-After", str(error.retry_after_s))
        self.finish({"message": message})

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A request's mistake is the caller's affair; a traceback is kept for ours."""
        if not isinstance(value, RequestError | CoreError | tornado.web.HTTPError):
            log.error("%s %s failed", self.request.method, self.request.path, exc_info=value)


class StatusHandler(Handler):
    async def get(self) -> None:
        text = await self.answers.answer(lambda look: self.service.status(self.caller, look).text)
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        self.write(text)


class TimelineHandler(Handler):
    async def get(self) -> None:
        text = await self.answers.answer(
            lambda look: json.dumps(self.service.timeline(self.caller, look))
        )
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        self.write(text)


class EventsHandler(Handler):
    follower: Follower | None = None

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("Cache-Control", "no-store")
        self.follower = Follower(self.look, self.send)
        with contextlib.suppress(StreamClosedError), self.ending_in_time(self.follower):
            await self.followers.serve(self.follower, self.caller.key)

    async def look(self) -> Cut:
        return await self.news.answer(lambda look: self.service.status(self.caller, look))

    @contextlib.contextmanager
    def ending_in_time(self, follower: Follower) -> Iterator[None]:
        """A hub's token may be revoked: who showed one has to show it again now and then."""
        if not self.caller.hub_user:
            yield
            return
        loop = IOLoop.current()
        end = loop.call_later(STREAM_S_MAX, follower.end)
        try:
            yield
        finally:
            loop.remove_timeout(end)

    async def send(self, text: str) -> None:
        self.write(text)
        await self.flush()

    def on_connection_close(self) -> None:
        if self.follower:
            self.follower.end()


class TenantsHandler(Handler):
    def post(self) -> None:
        if has_hung_up(self.peer_socket()):
            return  # A tenant that nobody has heard of, nobody would remove.
        answer = self.service.register_tenant(self.caller, self.body())
        self.registrants.watch(
            self.peer_socket(), self.peer, answer["tenant_id"], self.service.registrant_ended
        )
        self.set_status(HTTPStatus.CREATED)
        self.write(answer)


class TenantHandler(Handler):
    def patch(self, tenant_id: str) -> None:
        request = self.body()
        if "need" not in request:
            self.administration.set_class(self.caller, tenant_id, request)
        elif "class" not in request:
            self.administration.set_need(self.caller, tenant_id, request)
        else:
            raise RequestError(
                HTTPStatus.BAD_REQUEST, "It says a class and a need. Send one request for each."
            )
        self.set_status(HTTPStatus.NO_CONTENT)

    def delete(self, tenant_id: str) -> None:
        self.service.remove_tenant(self.caller, tenant_id)
        self.set_status(HTTPStatus.NO_CONTENT)


class InterruptHandler(Handler):
    def post(self, tenant_id: str) -> None:
        self.service.interrupt_tenant(self.caller, tenant_id)
        self.set_status(HTTPStatus.NO_CONTENT)


class WaitsHandler(Handler):
    async def get(self, tenant_id: str) -> None:
        text = await self.answers.answer(
            lambda look: json.dumps(self.service.past_waits(self.caller, look, tenant_id))
        )
        self.set_header("Content-Type", "application/json; charset=UTF-8")
        self.write(text)


class ReleaseHandler(Handler):
    def post(self, tenant_id: str) -> None:
        self.service.release_tenant(self.caller, tenant_id)
        self.set_status(HTTPStatus.NO_CONTENT)


class BusyHandler(Handler):
    def post(self, tenant_id: str) -> None:
        self.service.tenant_busy(self.caller, tenant_id, self.body())
        self.set_status(HTTPStatus.NO_CONTENT)


class SettingsHandler(Handler):
    def get(self) -> None:
        self.write(self.service.explain_settings(self.caller))

    def patch(self) -> None:
        self.write(self.administration.change_settings(self.caller, self.body()))


class ModeHandler(Handler):
    def put(self, device: str) -> None:
        self.administration.set_mode(self.caller, device, self.body())
        self.set_status(HTTPStatus.NO_CONTENT)


class HoldHandler(Handler):
    def post(self, tenant_id: str) -> None:
        self.write(self.administration.hold(self.caller, tenant_id, self.body()))


class EvictHandler(Handler):
    def post(self, tenant_id: str) -> None:
        self.administration.evict(self.caller, tenant_id)
        self.set_status(HTTPStatus.NO_CONTENT)


class BoostHandler(Handler):
    def post(self, tenant_id: str) -> None:
        self.administration.boost(self.caller, tenant_id)
        self.set_status(HTTPStatus.NO_CONTENT)


class AuditHandler(Handler):
    def get(self) -> None:
        count = self.get_query_argument("count", str(ENTRIES_SHOWN))
        self.write({"entries": self.administration.entries(self.caller, count)})


class SettingHandler(Handler):
    def delete(self, name: str) -> None:
        self.write(self.administration.unset_setting(self.caller, name))


class ShutdownHandler(Handler):
    def post(self) -> None:
        self.handover.asked_by(self.caller)
        self.set_status(HTTPStatus.NO_CONTENT)


class UnknownHandler(Handler):
    async def prepare(self) -> None:
        await super().prepare()
        raise RequestError(
            HTTPStatus.NOT_FOUND, f"There is no {self.request.path} here. See ARCHITECTURE.md."
        )


_STATUS_OF_CORE_ERRORS: dict[type[CoreError], int] = {
    UnknownTenant: HTTPStatus.NOT_FOUND,
    NoSuchDevice: HTTPStatus.NOT_FOUND,
    WrongOwner: HTTPStatus.CONFLICT,
    ClassNotAllowed: HTTPStatus.FORBIDDEN,
    NeedNotMet: HTTPStatus.CONFLICT,
}


def message_of_error(status: int, error: BaseException | None) -> tuple[int, str]:
    """The one place where errors become HTTP."""
    if isinstance(error, RequestError):
        return error.status, str(error)
    if isinstance(error, CoreError):
        return _STATUS_OF_CORE_ERRORS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR), str(error)
    if isinstance(error, tornado.web.HTTPError) and status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return status, f"{HTTPStatus(status).phrase}. Look at the request's method and path."
    return (
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "The scheduler failed. Look into its log, and report it.",
    )


ROUTES: dict[str, type[Handler]] = {
    "/status": StatusHandler,
    "/events": EventsHandler,
    "/timeline": TimelineHandler,
    "/tenants": TenantsHandler,
    "/tenants/{tenant_id}": TenantHandler,
    "/tenants/{tenant_id}/interrupt": InterruptHandler,
    "/tenants/{tenant_id}/waits": WaitsHandler,
    "/tenants/{tenant_id}/release": ReleaseHandler,
    "/tenants/{tenant_id}/busy": BusyHandler,
    "/tenants/{tenant_id}/hold": HoldHandler,
    "/tenants/{tenant_id}/evict": EvictHandler,
    "/tenants/{tenant_id}/boost": BoostHandler,
    "/devices/{device}/mode": ModeHandler,
    "/audit": AuditHandler,
    "/settings": SettingsHandler,
    "/settings/{name}": SettingHandler,
    "/shutdown": ShutdownHandler,
}
"""Below `API`, as openapi.yaml has them too."""


class BoundedServer(HTTPServer):
    """Closes connections of an account that has very many, before it reads from them. Under a hub
    many users may share an account, so the bound only keeps one from taking every descriptor."""

    def initialize(self, *arguments: Any, **options: Any) -> None:
        super().initialize(*arguments, **options)
        self._account_of: dict[IOStream, int] = {}
        self._open_of: Counter[int] = Counter()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        _, uid = credentials_of(stream.socket)
        if self._open_of[uid] >= CONNECTIONS_PER_ACCOUNT_MAX:
            stream.close()
            return
        self._account_of[stream] = uid
        self._open_of[uid] += 1
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        self._open_of[self._account_of.pop(server_conn.stream)] -= 1
        super().on_close(server_conn)


class HTTPApi:
    """The server; `start` takes a socket that listens already."""

    def __init__(
        self,
        *,
        service: Service,
        administration: Administration,
        admission: Admission,
        registrants: RegistrantWatch,
        followers: Followers,
        callers: Callers,
        handover: Handover,
        answers: Looks,
        news: Looks,
        answer_deadline_s: float = REQUEST_DEADLINE_S,
    ) -> None:
        """`answers` serves requests for the status, `news` serves its followers. A caller has
        `answer_deadline_s` to read its answer."""
        self._followers = followers
        parts = {
            "service": service,
            "administration": administration,
            "admission": admission,
            "registrants": registrants,
            "followers": followers,
            "callers": callers,
            "handover": handover,
            "answers": answers,
            "news": news,
            "answer_deadline_s": answer_deadline_s,
        }
        application = tornado.web.Application(
            [(_pattern(route), handler, parts) for route, handler in ROUTES.items()],
            default_handler_class=UnknownHandler,
            default_handler_args=parts,
            log_function=_log_request,
        )
        self._server = BoundedServer(
            application,
            max_body_size=REQUEST_BYTES_MAX,
            max_buffer_size=2 * REQUEST_BYTES_MAX,
            idle_connection_timeout=REQUEST_DEADLINE_S,
            body_timeout=REQUEST_DEADLINE_S,
            no_keep_alive=True,  # requests that lie in one buffer would have no others in between
        )

    def start(self, sock: socket.socket) -> None:
        self._server.add_socket(sock)

    async def stop(self) -> None:
        self._server.stop()
        self._followers.end()
        await self._server.close_all_connections()


def _pattern(route: str) -> str:
    return API + re.sub(r"\{\w+\}", "([^/]{1,128})", route)


def _log_request(handler: tornado.web.RequestHandler) -> None:
    request = handler.request
    log.debug("%s %s -> %s", request.method, request.path, handler.get_status())
