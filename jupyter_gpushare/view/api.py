"""What all answers of the view share: who calls, JSON, errors in one shape; and how a part of the
view adds its routes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import tornado.web

from . import pages
from .callers import CallerRefused, MetricsToken, Viewer, Viewers, is_opened
from .fleet import Fleet
from .follow import PageFollowers
from .headers import DATA_HEADERS, PAGE_HEADERS
from .metrics import ViewCounters

log = logging.getLogger(__name__)

API = "api/v1"
OPENAPI = Path(__file__).with_name("openapi.yaml")
ALLOWED_METHODS = ("GET", "HEAD")
Route = tuple[Any, ...]
Listener = Callable[[set[str]], None]


@dataclass(kw_only=True)
class ViewState:
    """What the parts of the view share."""

    fleet: Fleet
    callers: Viewers
    prefix: str
    """Of all routes: begins and ends with a slash."""
    clock_s: Callable[[], float]
    """Monotonic: the `now_s` of the fleet."""
    wall_s: Callable[[], float]
    accounts_are_users: bool = False
    """Whether an account of a node is the hub's user of its name."""
    data_dir: Path | None = None
    """Where a part may keep what outlives a restart; None: nowhere."""
    counters: ViewCounters = field(default_factory=ViewCounters)
    """What Prometheus reads of the view itself."""
    metrics_token: MetricsToken = field(default_factory=lambda: MetricsToken(None))
    listeners: list[Listener] = field(default_factory=list)
    """Each is told the names of the nodes that have changed, ten times a second at most."""
    closers: list[Callable[[], None]] = field(default_factory=list)
    """Called when the view ends: streams to end, files to close."""

    followers: PageFollowers = field(init=False)
    """Of the page's answers."""

    def __post_init__(self) -> None:
        self.followers = PageFollowers(
            self.fleet, self.clock_s, accounts_are_users=self.accounts_are_users
        )

    def url(self, route: str) -> str:
        """The pattern of a route that is given without the prefix, such as `api/v1/nodes`."""
        return f"{re.escape(self.prefix)}{route}"


class QueryRefused(Exception):
    """What is asked makes no sense: a sentence on what is wrong, and one on what to do."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class ViewHandler(tornado.web.RequestHandler):
    """An answer for a caller who is known. Routes give it `state`, if its class has none."""

    state: ViewState
    caller: Viewer
    takes_metrics_token: ClassVar[bool] = False
    for_browser: ClassVar[bool] = False
    """A page: whoever has not logged in is led to the hub."""

    def initialize(self, state: ViewState | None = None) -> None:
        if state is not None:
            self.state = state

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in (PAGE_HEADERS if self.for_browser else DATA_HEADERS).items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        if self.request.method not in ALLOWED_METHODS:
            raise QueryRefused(HTTPStatus.METHOD_NOT_ALLOWED, "The view only shows. Ask with GET.")
        if self.takes_metrics_token and self.state.metrics_token.fits(
            self.request.headers.get("Authorization")
        ):
            self.caller = Viewer("", is_admin=True)
            return
        caller = await self.state.callers.caller(self)
        if caller is None:
            self.nobody()
            return
        self.caller = caller
        if self.for_browser:
            _ = self.xsrf_token  # its cookie: the page sends it with what it asks

    def nobody(self) -> None:
        if self.for_browser and is_opened(self.request):
            query = f"?{self.request.query}" if self.request.query else ""
            self.redirect(f"{self.state.prefix}login{query}")
            return
        raise QueryRefused(
            HTTPStatus.FORBIDDEN,
            "Nobody has logged in here. Open the page of the view, or send a hub token in the "
            "header Authorization.",
        )

    def for_administrators(self) -> None:
        """Raises QueryRefused for others."""
        if not self.caller.is_admin:
            raise QueryRefused(
                HTTPStatus.FORBIDDEN,
                "This is for administrators of the GPUs alone. Ask one for the hub's role "
                "gpushare-admin.",
            )

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        status, message = _said(status_code, kwargs.get("exc_info", (None, None))[1])
        self.set_status(status)
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            self.set_header("Retry-After", "1")
        self.finish({"message": message})

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """A request's mistake is the caller's affair; a traceback is kept for ours."""
        if not isinstance(value, QueryRefused | CallerRefused | tornado.web.HTTPError):
            log.error("%s %s failed", self.request.method, self.request.path, exc_info=value)


class OpenApiHandler(ViewHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "application/yaml; charset=UTF-8")
        self.finish(OPENAPI.read_bytes())


class NotFoundHandler(ViewHandler):
    """What is nowhere: whoever asks need not have logged in."""

    async def prepare(self) -> None:
        raise QueryRefused(
            HTTPStatus.NOT_FOUND,
            f"There is nothing here. The page of the view is {self.state.prefix}, and "
            f"{API}/openapi.yaml lists what else there is.",
        )


def routes(state: ViewState) -> list[Route]:
    arguments = {"state": state}
    state.listeners.append(state.followers.tell)
    state.closers.append(state.followers.end)
    return [
        *((state.url(route), *rest) for route, *rest in pages.routes(state, ViewHandler)),
        (state.url(f"{API}/openapi.yaml"), OpenApiHandler, arguments),
        *state.callers.routes(state.prefix),
    ]


def _said(status: int, error: BaseException | None) -> tuple[int, str]:
    if isinstance(error, QueryRefused | CallerRefused):
        return error.status, str(error)
    if isinstance(error, tornado.web.MissingArgumentError):
        return status, f"The request has no {error.arg_name}. Add it to the query."
    if status >= 500:
        return 500, "The view has met a mistake of its own. Report what its log says."
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Refused"
    return status, f"{phrase}. Look at {API}/openapi.yaml for what may be asked."
