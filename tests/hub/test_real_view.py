"""A real JupyterHub with the view: users log in through its OAuth, and nodes report through its
proxy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import requests
import websocket

from jupyter_gpushare.hub.view import SERVICE, TOKENS_FILE, own_name
from jupyter_gpushare.reports.format import Hello, Report, Seen, message_of, text_of
from jupyter_gpushare.reports.node_tokens import new_token
from tests.hub.conftest import HubOnAMachine
from tests.hub.running_hub import OUR_LINES, PASSWORD
from tests.hub.visitor import Visitor
from tests.reports.rows import BOOT, a_device, a_report, a_tenant
from tests.support.paths import ROOT
from tests.support.ports import free_ports
from tests.support.waits import WAIT_S_MAX

PREFIX = "/services/gpushare-view/"
VIEW_LINES = """
from pathlib import Path

c.GPUShare.view = True
c.GPUShare.view_port = {port}
c.GPUShare.view_dir = str(Path.cwd() / "view")
"""
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
        assert told(sock, Hello(boot=BOOT, version="1")) == Seen(sequence=-1, again=True)
        assert told(sock, a_report(**rows)) == Seen(sequence=0)
        return sock

    def tenants(self, token: str) -> set[tuple[str, str]]:
        answer = self.script("api/v1/tenants", token)
        assert answer.status_code == 200, answer.text
        return {(each["node"], each["name"]) for each in answer.json()["tenants"]}


def told(sock: websocket.WebSocket, message: Hello | Report) -> Any:
    sock.send(text_of(message))
    return message_of(sock.recv())


def visitor(home: HubOnAMachine, name: str) -> Visitor:
    """Logged in, without a server."""
    found = Visitor(home.hub.url, name, PASSWORD)
    found.log_in()
    return found


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., HubOnAMachine]) -> HubWithView:
    (port,) = free_ports(1)
    home = start_hub(our_lines=VIEW_LINES.format(port=port) + OUR_LINES)
    found = HubWithView(home)

    def answers() -> bool:
        return found.script("api/v1/nodes", None).status_code == 403

    home.hub.wait_until(answers, "the view answers")
    return found


@pytest.fixture(scope="module")
def alice(hub: HubWithView) -> Visitor:
    return visitor(hub.home, "alice")


@pytest.mark.promise("hub", "The view lets a hub's users in by OAuth, and each sees what is theirs")
def test_a_user_logs_in(hub: HubWithView, alice: Visitor) -> None:
    """Whoever opens the page is led through the hub and back to it, with what was asked for."""
    page = alice.visit(f"{PREFIX}?find=x")
    assert page.url.startswith(f"{hub.url}?find=x")
    assert page.history and "oauth2/authorize" in " ".join(each.url for each in page.history)
    summary = alice.visit(f"{PREFIX}api/v1/summary").json()
    assert summary["caller"] == {"name": "alice", "is_admin": False}
    assert alice.visit(f"{PREFIX}?find=x").history == []


@pytest.mark.promise(
    "hub", "A page of another user's server cannot ask the view with its visitor's cookie"
)
def test_what_a_page_has_to_send(hub: HubWithView, alice: Visitor) -> None:
    """All users' servers are of one origin: a request that a script makes needs the XSRF token,
    which only the view's own page can read."""
    alice.visit(PREFIX)
    route = f"{PREFIX}api/v1/summary"
    assert alice.visit(route, AS_A_PAGE_ASKS).status_code == 403
    token = alice.xsrf(PREFIX)
    with_header = {**AS_A_PAGE_ASKS, "X-XSRFToken": token}
    assert alice.visit(route, with_header).status_code == 200
    assert alice.visit(f"{route}?_xsrf={token}", AS_A_PAGE_ASKS).status_code == 200
    assert alice.visit(route, {**with_header, "X-XSRFToken": "x"}).status_code == 403
    for page in (PREFIX, f"{PREFIX}login"):  # neither the page, nor in circles
        refused = alice.visit(page, AS_A_PAGE_ASKS)
        assert (refused.status_code, refused.history) == (403, [])
    for path in (route, f"{PREFIX}api/v1/events", PREFIX):
        assert alice.visit(path, WITHOUT_CORS).status_code == 403, path
    assert alice.visit(f"{route}?_xsrf={token}", WITHOUT_CORS).status_code == 403


@pytest.mark.promise("The view lets a hub's users in by...")
def test_who_sees_what(hub: HubWithView, alice: Visitor) -> None:
    """An administrator all, a user their own, by browser and by token; a token that was made for
    something else nothing."""
    rows = {"t": a_tenant(), "u": a_tenant(owner="bob", name="bobs secret.ipynb")}
    sock = hub.reports("node-a", devices={"d": a_device()}, tenants=rows)
    root = visitor(hub.home, "root")
    root.visit(PREFIX)
    assert root.visit(f"{PREFIX}api/v1/summary").json()["caller"]["is_admin"]
    assert "bobs secret" in root.visit(f"{PREFIX}api/v1/nodes/node-a").text
    seen = alice.visit(f"{PREFIX}api/v1/nodes/node-a")
    assert "train.ipynb" in seen.text and "bob" not in seen.text
    assert hub.tenants(alice.new_token()) == {("node-a", "train.ipynb")}
    everything = {("node-a", "train.ipynb"), ("node-a", "bobs secret.ipynb")}
    assert hub.tenants(root.new_token()) == everything
    refused = hub.script("api/v1/tenants", alice.new_token("read:users:name!user"))
    assert (refused.status_code, "something else" in refused.json()["message"]) == (403, True)
    sock.close()


@pytest.mark.promise("The view lets a hub's users in by...")
def test_nobody(hub: HubWithView) -> None:
    """Without a token a script is refused and a browser is led to the hub; an invented one is
    nobody's."""
    assert hub.script("api/v1/nodes", None).status_code == 403
    assert hub.script("api/v1/nodes", "invented").status_code == 403
    page = hub.script("", None)
    assert (page.status_code, page.headers["Location"]) == (302, f"{PREFIX}login")


@pytest.mark.promise("A wrong node token: 401 before...")
def test_a_wrong_node_token_through_the_proxy(hub: HubWithView) -> None:
    """The proxy passes the answer on. A user's hub token is no node's."""
    for token in ("guessed", visitor(hub.home, "bob").new_token()):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            hub.node(token)
        assert refused.value.status_code == 401


@pytest.mark.promise("One more line is enough for the...")
def test_the_hubs_own_scheduler_reports(hub: HubWithView) -> None:
    """Its device is there, under the machine's name."""
    token = visitor(hub.home, "root").new_token()
    route = f"api/v1/nodes/{own_name()}"

    def is_there() -> bool:
        answer = hub.script(route, token)
        return answer.status_code == 200 and len(answer.json()["devices"]) == 1

    hub.home.hub.wait_until(is_there, "the scheduler has reported")
    found = hub.script(route, token).json()
    (device,) = hub.home.hub.scheduler.status()["devices"]
    assert list(found["devices"]) == [device["id"]]
    assert (found["state"], found["owners"], found["platform"]) == ("live", "hub", "machine")
    assert json.dumps(found).count(device["id"]) == 1


@pytest.mark.promise("hub", "A view that the hub does not start lets its users in too")
def test_a_view_that_runs_elsewhere(start_hub: Callable[..., HubOnAMachine]) -> None:
    """With the variables that docs/view.md lists, as the chart sets them."""
    (port,) = free_ports(1)
    token = "ab" * 32
    service = {"name": SERVICE, "url": f"http://127.0.0.1:{port}", "api_token": token}
    lines = f"c.GPUShare.view = True\nc.JupyterHub.services = [{service!r}]\n"
    home = start_hub(our_lines=lines + OUR_LINES)
    hub = HubWithView(home)
    tokens = home.hub.folder / "tokens"
    node_token = new_token(tokens, "node-a")
    page = (ROOT / "docs" / "view.md").read_text()
    values = dict(re.findall(r"^\| `(JUPYTERHUB_\w+)` \| `?([^`|,]*)", page, re.M))
    values |= {
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_SERVICE_URL": service["url"],
        "JUPYTERHUB_API_URL": home.hub.api_url,
        "JUPYTERHUB_API_TOKEN": token,
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTERHUB_")}
    view = subprocess.Popen(
        [sys.executable, "-m", "jupyter_gpushare.cli.main", "view", f"--tokens={tokens}"],
        env={**kept, **values},
    )
    try:
        home.hub.wait_until(lambda: hub.script("api/v1/nodes", None).status_code == 403, "it is up")
        hub.node(node_token).close()
        alice = visitor(home, "alice")
        assert alice.visit(PREFIX).history
        caller = {"name": "alice", "is_admin": False}
        assert alice.visit(f"{PREFIX}api/v1/summary").json()["caller"] == caller
        assert hub.tenants(visitor(home, "root").new_token()) == set()
    finally:
        view.terminate()
        assert view.wait(WAIT_S_MAX) == 0


@pytest.mark.promise("view", "The hub restarts, and the view and its nodes find each other again")
def test_the_hub_restarts(hub: HubWithView) -> None:
    """Tokens are the same, and the scheduler that the new hub starts takes the old one's place."""
    token_file = (hub.view_dir / TOKENS_FILE).read_text()
    token = visitor(hub.home, "root").new_token()
    hub.home.hub.stop()
    hub.home.hub.start()

    def is_back() -> bool:
        answer = hub.script("api/v1/nodes", token)
        names = [each["name"] for each in answer.json()["nodes"]] if answer.ok else []
        return own_name() in names

    hub.home.hub.wait_until(is_back, "the scheduler reports again")
    assert (hub.view_dir / TOKENS_FILE).read_text() == token_file
