"""REST of the extension: authenticate, authorise, delegate."""

from __future__ import annotations

from collections.abc import Awaitable
from http import HTTPStatus

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado.web import authenticated

from jupyter_gpushare.client import ClientError, RequestRefused

from .relay import NotAbleTo, NotHere, NotShared, Relay

RELAY = "gpushare_relay"
"""Among the web application's settings."""


class GPUShareHandler(APIHandler):
    """What both have in common."""

    auth_resource = "gpushare"

    @property
    def relay(self) -> Relay:
        relay = self.settings[RELAY]
        assert isinstance(relay, Relay)
        return relay


class StateHandler(GPUShareHandler):
    @authenticated
    @authorized
    async def get(self) -> None:
        self.finish(await self.relay.state())


class TimelineHandler(GPUShareHandler):
    @authenticated
    @authorized
    async def get(self) -> None:
        try:
            self.finish(await self.relay.timeline())
        except ClientError as error:
            self.set_status(status_of(error))
            self.finish({"message": str(error)})


class ActionHandler(GPUShareHandler):
    """What a user asks for one kernel."""

    async def answer(self, action: Awaitable[None]) -> None:
        """Empty when it is asked for; a refusal is one sentence."""
        try:
            await action
        except (NotAbleTo, NotHere, NotShared, ClientError) as error:
            self.set_status(status_of(error))
            self.finish({"message": str(error)})
        else:
            self.set_status(HTTPStatus.NO_CONTENT)
            self.finish()


class ReleaseHandler(ActionHandler):
    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await self.answer(self.relay.release(kernel_id))


class HoldHandler(ActionHandler):
    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        body = self.get_json_body()
        hold_s = body.get("hold_s") if isinstance(body, dict) else None
        if isinstance(hold_s, bool) or not isinstance(hold_s, int | float):
            self.set_status(HTTPStatus.BAD_REQUEST)
            self.finish({"message": "`hold_s` is not a time. Send seconds; 0 ends a hold."})
            return
        await self.answer(self.relay.hold(kernel_id, hold_s))


class EvictHandler(ActionHandler):
    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await self.answer(self.relay.evict(kernel_id))


class TrimHandler(ActionHandler):
    @authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        await self.answer(self.relay.trim(kernel_id))


_PASSED_ON = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Of the scheduler's answers; any other would be read as the Jupyter server's own word."""


def status_of(error: Exception) -> int:
    """The one place where errors become HTTP."""
    match error:
        case NotHere():
            return HTTPStatus.NOT_FOUND
        case NotAbleTo() | NotShared():
            return HTTPStatus.CONFLICT
        case RequestRefused(status=status):
            return status if status in _PASSED_ON else HTTPStatus.BAD_GATEWAY
        case _:
            return HTTPStatus.SERVICE_UNAVAILABLE


HANDLERS = [
    (r"/gpushare/api/state", StateHandler),
    (r"/gpushare/api/timeline", TimelineHandler),
    (r"/gpushare/api/kernels/([\w-]{1,128})/release", ReleaseHandler),
    (r"/gpushare/api/kernels/([\w-]{1,128})/hold", HoldHandler),
    (r"/gpushare/api/kernels/([\w-]{1,128})/evict", EvictHandler),
    (r"/gpushare/api/kernels/([\w-]{1,128})/trim", TrimHandler),
]
