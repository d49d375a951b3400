"""A person at a hub: logs in through the form, starts a server, runs notebooks, by HTTP alone."""

from __future__ import annotations

import json
import queue
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests
import websocket
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session

from tests.support.kernels import Kernel
from tests.support.waits import WAIT_S_MAX

LOOK_EVERY_S = 0.1


class Visitor:
    """One browser. Cookies and XSRF tokens are handled as a browser does."""

    def __init__(self, url: str, name: str, password: str) -> None:
        self.name = name
        self._url = url
        self._password = password
        self._browser = requests.Session()
        self._user_path = f"/user/{quote(name, safe='')}/"

    def log_in(self) -> None:
        page = f"{self._url}/hub/login"
        self._browser.get(page, timeout=WAIT_S_MAX).raise_for_status()
        form = {
            "username": self.name,
            "password": self._password,
            "_xsrf": self._xsrf("/hub/"),
        }
        answer = self._browser.post(page, data=form, timeout=WAIT_S_MAX, allow_redirects=False)
        assert answer.status_code == 302, answer.text
        # A browser goes on to a page, whose cookie is good for who has logged in; JupyterHub
        # 5.2 takes no other.
        self._browser.get(f"{self._url}/hub/home", timeout=WAIT_S_MAX).raise_for_status()

    def start_server(self, options: object = None) -> None:
        """Start it and pass through the hub's OAuth, whose cookie the server wants from then on.
        `options` are what the person has chosen in the hub's form."""
        start = f"{self._url}/hub/api/users/{quote(self.name, safe='')}/server"
        answer = self._browser.post(
            start, json=options, headers=self._xsrf_header("/hub/"), timeout=WAIT_S_MAX
        )
        assert answer.status_code in (201, 202, 400), answer.text
        until_s = time.monotonic() + WAIT_S_MAX
        while not self._passes_through():
            assert time.monotonic() < until_s, f"the server of {self.name} does not start"
            time.sleep(LOOK_EVERY_S)

    def _passes_through(self) -> bool:
        answer = self._browser.get(f"{self._url}{self._user_path}api/me", timeout=WAIT_S_MAX)
        if answer.status_code == 403:  # no cookie yet; what is no API leads through the log-in
            self._browser.get(f"{self._url}{self._user_path}files/none", timeout=WAIT_S_MAX)
        return answer.ok and "identity" in answer.text

    def request(self, method: str, path: str, body: object = None) -> requests.Response:
        """A request to the server's own API, as a page of it would send it."""
        return self._browser.request(
            method,
            f"{self._url}{self._user_path}{path}",
            json=body,
            headers=self._xsrf_header(self._user_path),
            timeout=WAIT_S_MAX,
        )

    def visit(self, path: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        """A page of the hub's own address, through all that it leads to."""
        return self._browser.get(f"{self._url}{path}", headers=headers, timeout=WAIT_S_MAX)

    def xsrf(self, path: str) -> str:
        """What a page below this path sends with its requests."""
        return self._xsrf(path)

    def new_token(self, *scopes: str) -> str:
        """A token that the person asks the hub for; limited to scopes where some are named."""
        route = f"{self._url}/hub/api/users/{quote(self.name, safe='')}/tokens"
        body = {"note": "test", **({"scopes": list(scopes)} if scopes else {})}
        answer = self._browser.post(
            route, json=body, headers=self._xsrf_header("/hub/"), timeout=WAIT_S_MAX
        )
        assert answer.status_code == 201, answer.text
        self._last_token_id = answer.json()["id"]
        return str(answer.json()["token"])

    def revoke_last_token(self) -> None:
        route = f"{self._url}/hub/api/users/{quote(self.name, safe='')}/tokens"
        answer = self._browser.delete(
            f"{route}/{self._last_token_id}",
            headers=self._xsrf_header("/hub/"),
            timeout=WAIT_S_MAX,
        )
        assert answer.status_code == 204, answer.text

    def open_notebook(self, name: str) -> HubKernel:
        """A session with a kernel for a notebook, and a websocket to it."""
        body = {
            "path": name,
            "name": name,
            "type": "notebook",
            "kernel": {"name": "python3"},
        }
        answer = self.request("POST", "api/sessions", body)
        assert answer.status_code == 201, answer.text
        return HubKernel(self, name, answer.json()["kernel"]["id"])

    def run_in_terminal(self, command: str) -> tuple[int, str]:
        """Exit status and output of a command that is typed into a new terminal of the server."""
        answer = self.request("POST", "api/terminals")
        assert answer.status_code == 200, answer.text
        sock = self.web_socket(f"terminals/websocket/{answer.json()['name']}")
        sock.send(json.dumps(["stdin", f"{command}; echo 'ended with' $?.\r"]))
        output = ""
        while not (ended := re.search(r"ended with (\d+)\.", output)):
            kind, *content = json.loads(sock.recv())
            output += content[0] if kind == "stdout" else ""
        sock.close()
        return int(ended[1]), output

    def web_socket(self, path: str) -> websocket.WebSocket:
        address = self._url.replace("http://", "ws://") + self._user_path + path
        request = requests.Request("GET", f"{self._url}{self._user_path}{path}")
        cookie = self._browser.prepare_request(request).headers.get("Cookie", "")
        return websocket.create_connection(
            address, cookie=cookie, origin=self._url, timeout=WAIT_S_MAX
        )

    def _xsrf(self, path: str) -> str:
        """The token of the cookie that belongs to the path."""
        values = [c.value for c in self._browser.cookies if c.name == "_xsrf" and c.path == path]
        return values[0] or "" if values else ""

    def _xsrf_header(self, path: str) -> dict[str, str]:
        return {"X-XSRFToken": self._xsrf(path), "Referer": self._url + path}


class HubKernel(Kernel):
    """A kernel behind a hub, with the same calls as one of our own."""

    def __init__(self, visitor: Visitor, name: str, kernel_id: str) -> None:
        self.name = name
        self.kernel_id = kernel_id
        self._visitor = visitor
        self._replies = {}
        self._printed = {}
        self._printed_all = set()
        self.client = WebSocketClient(visitor.web_socket(f"api/kernels/{kernel_id}/channels"))
        self._pid = int(self.run("import os; os.getpid()").ok().text)

    def reach_by(self, visitor: Visitor) -> None:
        """After the hub has been away: its proxy has ended the connection."""
        self._visitor = visitor
        self.client = WebSocketClient(visitor.web_socket(f"api/kernels/{self.kernel_id}/channels"))

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def tenant_id(self) -> str | None:
        """What makes the process a tenant is in its environment."""
        code = "import os; print(os.environ.get('GPUSHARE_TOKEN', '') != '')"
        return "known to the scheduler" if "True" in self.run(code).text else None

    def interrupt(self) -> None:
        answer = self._visitor.request("POST", f"api/kernels/{self.kernel_id}/interrupt")
        assert answer.status_code == 204, answer.text

    def restart(self, *, now: bool = True) -> None:
        answer = self._visitor.request("POST", f"api/kernels/{self.kernel_id}/restart")
        assert answer.status_code == 200, answer.text

    def start(self, **options: Any) -> HubKernel:
        return self

    def stop(self, *, now: bool = True) -> None:
        if self.client is not None:
            self.client.stop_channels()
            self.client = None
        self._visitor.request("DELETE", f"api/kernels/{self.kernel_id}")


class WebSocketClient:
    """The channels of a kernel as jupyter_client's blocking client has them, over one websocket."""

    def __init__(self, sock: websocket.WebSocket) -> None:
        self._socket = sock
        self.session = Session()
        self.shell_channel = self
        self._queues: dict[str, queue.SimpleQueue[dict[str, Any]]] = {
            "shell": queue.SimpleQueue(),
            "iopub": queue.SimpleQueue(),
        }

    def send(self, message: dict[str, Any]) -> None:
        whole = {**message, "channel": "shell", "buffers": []}
        self._socket.send(json.dumps(whole, default=json_default))

    def get_shell_msg(self, timeout: float) -> dict[str, Any]:
        return self._next("shell", timeout)

    def get_iopub_msg(self, timeout: float) -> dict[str, Any]:
        return self._next("iopub", timeout)

    def stop_channels(self) -> None:
        self._socket.close()

    def _next(self, channel: str, timeout_s: float) -> dict[str, Any]:
        until_s = time.monotonic() + timeout_s
        while self._queues[channel].empty():
            self._socket.settimeout(max(0.001, until_s - time.monotonic()))
            try:
                message = json.loads(self._socket.recv())
            except (TimeoutError, websocket.WebSocketTimeoutException):
                raise queue.Empty from None
            if message.get("channel") in self._queues:
                self._queues[message["channel"]].put(message)
        return self._queues[channel].get_nowait()
