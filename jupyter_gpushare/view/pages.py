"""The view's page and what it reads, over HTTP: handlers that authenticate by the class they are
given, ask `cut`, and answer.

`routes` makes them. The base class has `caller` set before `get` runs, or has answered itself; for
those `for_browser` it may send a person to the hub's login.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler, StaticFileHandler

from .caller import Viewer
from .cut import (
    answer_of_events,
    answer_of_node,
    answer_of_nodes,
    answer_of_summary,
    answer_of_tenants,
)
from .follow import PageFollowers, TooManyFollowers
from .headers import DATA_HEADERS
from .query import Query, QueryError, query_of

STATIC = Path(__file__).resolve().parent / "static"
SCRIPT = STATIC / "page.js"
"""What `make panel` compiles."""
TEMPLATE = Path(__file__).resolve().parent / "page.html"
NOT_BUILT = (
    "The page of this view has not been built. Install a wheel of jupyter-gpushare, or run "
    "`make panel` in the checkout."
)


class PageState(Protocol):
    """What the handlers need of the service."""

    @property
    def followers(self) -> PageFollowers: ...


Route = tuple[str, type[RequestHandler], dict[str, Any]]


def routes(state: PageState, base: type[RequestHandler]) -> list[Route]:
    """Patterns are relative to the service's prefix, which ends with a slash."""
    handlers: list[tuple[str, type[Asked]]] = [
        ("", PageHandler),
        ("api/v1/nodes", NodesHandler),
        (r"api/v1/nodes/([^/]+)", NodeHandler),
        ("api/v1/tenants", TenantsHandler),
        ("api/v1/summary", SummaryHandler),
        ("api/v1/events", EventsHandler),
    ]
    return [
        *(
            (pattern, type(kind.__name__, (kind, base), {"state": state}), {})
            for pattern, kind in handlers
        ),
        (r"static/([a-z_]+\.(?:js|css|svg))", StaticHandler, {"path": str(STATIC)}),
    ]


class Asked(RequestHandler):
    """Of a caller whom the base class knows."""

    state: ClassVar[PageState]
    caller: Viewer
    for_browser: ClassVar[bool] = False

    def query(self) -> Query:
        return query_of(
            {name: self.get_query_argument(name) for name in self.request.query_arguments}
        )

    def refuse(self, status: HTTPStatus, message: str) -> None:
        self.set_status(status)
        self.finish({"message": message})

    def answer_query(self) -> None:
        try:
            query = self.query()
        except QueryError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self.write(self.answer(query))

    def answer(self, query: Query) -> dict[str, Any]:
        raise NotImplementedError


class NodesHandler(Asked):
    def get(self) -> None:
        self.answer_query()

    def answer(self, query: Query) -> dict[str, Any]:
        return answer_of_nodes(self.state.followers.sight_of(self.caller), query)


class TenantsHandler(Asked):
    def get(self) -> None:
        self.answer_query()

    def answer(self, query: Query) -> dict[str, Any]:
        return answer_of_tenants(self.state.followers.sight_of(self.caller), query)


class SummaryHandler(Asked):
    def get(self) -> None:
        self.write(answer_of_summary(self.state.followers.sight_of(self.caller)))


class NodeHandler(Asked):
    def get(self, name: str) -> None:
        found = answer_of_node(self.state.followers.sight_of(self.caller), name)
        if found is None:
            self.refuse(
                HTTPStatus.NOT_FOUND,
                "No node of this name has reported. Look at the names that api/v1/nodes tells.",
            )
        else:
            self.write(found)


class EventsHandler(Asked):
    """Server-sent events: each one's data is the answer of the query."""

    def prepare(self) -> Any:
        self.gone = asyncio.Event()
        return super().prepare()

    async def get(self) -> None:
        try:
            query = self.query()
        except QueryError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        self.set_header("Content-Type", "text/event-stream")
        self.set_header("X-Accel-Buffering", "no")
        try:
            await self.state.followers.serve(self.caller, query, self.send, gone=self.gone)
        except TooManyFollowers as error:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except asyncio.TimeoutError:  # it takes nothing
            self.detach().close()
        except StreamClosedError:
            pass

    async def send(self, text: str) -> None:
        self.write(text)
        await self.flush()

    def on_connection_close(self) -> None:
        self.gone.set()


class PageHandler(Asked):
    """The page, with the first answer in it: the browser need not ask for it."""

    for_browser = True

    def get(self) -> None:
        if not SCRIPT.exists():
            self.set_status(HTTPStatus.SERVICE_UNAVAILABLE)
            self.set_header("Content-Type", "text/plain; charset=UTF-8")
            self.finish(NOT_BUILT)
            return
        first = self.first_query()
        query = query_of({**first, "summary": "1"})
        answer = answer_of_events(self.state.followers.sight_of(self.caller), query)
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        told = {"asked": first, "answer": answer, "xsrf": self.xsrf_token.decode("ascii")}
        self.write(page_of(TEMPLATE.read_text(), told))

    def first_query(self) -> dict[str, str]:
        """Of the address, as far as it can be asked: a page is shown in any case."""
        asked = {"sort": "problems" if self.caller.is_admin else "free"}
        for name in ("show", "find", "state", "sort", "open"):
            value = self.get_query_argument(name, "")
            try:
                query_of({name: value} if value else {})
            except QueryError:
                continue
            asked |= {name: value} if value else {}
        return asked


class StaticHandler(StaticFileHandler):
    """Scripts and styles, the same for everybody."""

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in DATA_HEADERS.items():
            self.set_header(name, value)

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.finish({"message": f"{HTTPStatus(status_code).phrase}. Open the page of the view."})


def page_of(template: str, told: dict[str, Any]) -> str:
    """With what the page is told first, in an element that is no script: nothing of it can end the
    element or run."""
    first = json.dumps(told, separators=(",", ":"))
    for sign in "<>&":
        first = first.replace(sign, f"\\u{ord(sign):04x}")
    return template.replace("{{first}}", first)
