"""A real JupyterHub with the view, asked as browsers, scripts and nodes ask it."""

from __future__ import annotations

from typing import Any

import requests
import websocket

from jupyter_gpushare.hub.view import TOKENS_FILE
from jupyter_gpushare.reports.format import NodeHello, Report, Seen, message_of, text_of
from jupyter_gpushare.reports.node_tokens import new_token
from tests.hub.conftest import HubOnAMachine
from tests.hub.running_hub import PASSWORD
from tests.hub.visitor import Visitor
from tests.reports.rows import BOOT, a_report
from tests.support.waits import WAIT_S_MAX

PREFIX = "/services/gpushare-view/"
AS_A_PAGE_ASKS = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
WITHOUT_CORS = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "same-origin"}
"""As `fetch(url, {mode: "no-cors"})`, whose answer a page of the same origin may read."""


class HubWithView:
    """`home` is the hub; asked as a browser would, or by a script."""

    def __init__(self, home: HubOnAMachine) -> None:
        self.home = home
        self.url = f"{home.hub.url}{PREFIX}"
        self.view_dir = home.hub.folder / "view"

    def script(self, route: str, token: str | None) -> requests.Response:
        headers = {} if token is None else {"Authorization": f"token {token}"}
        return requests.get(
            f"{self.url}{route}", headers=headers, timeout=WAIT_S_MAX, allow_redirects=False
        )

    def node(self, token: str) -> websocket.WebSocket:
        """Through the hub's proxy, as from another machine."""
        url = self.url.replace("http", "ws", 1) + "api/v1/reports"
        return websocket.create_connection(
            url,
            header=[f"Authorization: Bearer {token}"],
            timeout=WAIT_S_MAX,
            suppress_origin=True,
        )

    def reports(self, name: str, **rows: Any) -> websocket.WebSocket:
        """A node that has told this."""
        sock = self.node(new_token(self.view_dir / TOKENS_FILE, name))
        assert told(sock, NodeHello(boot=BOOT, version="1")) == Seen(sequence=-1, again=True)
        assert told(sock, a_report(**rows)) == Seen(sequence=0)
        return sock

    def tenants(self, token: str) -> set[tuple[str, str]]:
        answer = self.script("api/v1/tenants", token)
        assert answer.status_code == 200, answer.text
        return {(each["node"], each["name"]) for each in answer.json()["tenants"]}

    def await_answers(self) -> None:
        self.home.hub.wait_until(
            lambda: self.script("api/v1/nodes", None).status_code == 403, "the view answers"
        )


def told(sock: websocket.WebSocket, message: NodeHello | Report) -> Any:
    sock.send(text_of(message))
    return message_of(sock.recv())


def visitor(home: HubOnAMachine, name: str) -> Visitor:
    """Logged in, without a server."""
    found = Visitor(home.hub.url, name, PASSWORD)
    found.log_in()
    return found
