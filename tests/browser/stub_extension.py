"""A server extension that keeps the contract of `gpushare/api` and whose state the test sets.

With it the panel is tested in states that no machine can be brought into at will: many users, a
lost device, another version. It counts what the browser asks, so that a test can tell a push from
a poll.
"""

from __future__ import annotations

import json
from typing import Any

import tornado
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.serverapp import ServerApp
from jupyter_server.utils import url_path_join

SCHEMA_ID = "urn:jupyter-gpushare:changed:v1"
SCHEMA = {
    "$id": SCHEMA_ID,
    "version": "1",
    "title": "The state of the GPUs has changed",
    "type": "object",
    "properties": {"version": {"type": "integer"}},
    "required": ["version"],
}


class Stub:
    """What the handlers share."""

    def __init__(self, app: ServerApp) -> None:
        self.app = app
        self.state: dict[str, Any] = {"version": 1, "scheduler": "starting", "devices": []}
        self.state |= {"message": "", "user": "", "kernels": []}
        self.asked = 0
        self.acted: list[list[Any]] = []
        self.refusal = ""

    def emit(self) -> None:
        self.app.event_logger.emit(schema_id=SCHEMA_ID, data={"version": 1})


class Handler(APIHandler):
    auth_resource = "gpushare"

    def initialize(self, stub: Stub) -> None:
        self.stub = stub


class StateHandler(Handler):
    @tornado.web.authenticated
    @authorized
    def get(self) -> None:
        self.stub.asked += 1
        self.finish(json.dumps(self.stub.state))


class ActionHandler(Handler):
    @tornado.web.authenticated
    @authorized
    def post(self, kernel_id: str, action: str) -> None:
        body = json.loads(self.request.body or "{}")
        self.stub.acted.append([kernel_id, action, body])
        if self.stub.refusal:
            self.set_status(409)
            self.finish(json.dumps({"message": self.stub.refusal}))
            return
        self.set_status(204)
        self.finish()


class StubHandler(Handler):
    """The test's own way in: sees what was asked, sets what is answered and emits it."""

    @tornado.web.authenticated
    def get(self) -> None:
        self.finish(json.dumps({"asked": self.stub.asked, "acted": self.stub.acted}))

    @tornado.web.authenticated
    def post(self) -> None:
        body = json.loads(self.request.body)
        self.stub.state = body["state"]
        self.stub.refusal = body["refusal"]
        if body["emit"]:
            self.stub.emit()
        self.set_status(204)
        self.finish()


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "tests.browser.stub_extension"}]


def _load_jupyter_server_extension(app: ServerApp) -> None:
    app.event_logger.register_event_schema(SCHEMA)
    stub = {"stub": Stub(app)}
    base = url_path_join(app.web_app.settings["base_url"], "gpushare")
    app.web_app.add_handlers(
        ".*$",
        [
            (url_path_join(base, r"api/state"), StateHandler, stub),
            (url_path_join(base, r"api/kernels/([\w-]+)/(\w+)"), ActionHandler, stub),
            (url_path_join(base, "stub"), StubHandler, stub),
        ],
    )
