"""A notebook server that a user of a cluster starts by hand, where there is no GPU."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from types import TracebackType
from typing import Any

import requests
import websocket

from tests.cluster.slurm import SlurmCluster
from tests.hub.running_hub import as_if_installed
from tests.support.ports import free_port

TOKEN = "a token for the test"
READY_S_MAX = 120.0
END_S_MAX = 30.0


class ServerOfAUser:
    """With the requests that a HubKernel makes. It sees no device and no scheduler."""

    def __init__(self, cluster: SlurmCluster, user: str, command: str) -> None:
        account = cluster.views.accounts[user]
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._log = cluster.folder / "log" / "server.out"
        options = ["--no-browser", f"--port={port}", f"--IdentityProvider.token={TOKEN}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                cluster.views.command(
                    "",
                    [*cluster.as_user(user), "sh", "-c", f"{command} {shlex.join(options)}"],
                ),
                env={
                    **cluster.env,
                    **as_if_installed(cluster.folder),
                    "HOME": str(account.home),
                },
                cwd=account.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> ServerOfAUser:
        until_s = time.monotonic() + READY_S_MAX
        while not self._answers():
            assert time.monotonic() < until_s, self._log.read_text()[-4000:]
            assert self._process.poll() is None, self._log.read_text()[-4000:]
            time.sleep(0.1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            return self.request("GET", "api/me").ok
        except requests.ConnectionError:
            return False

    def request(self, method: str, path: str, body: object = None) -> requests.Response:
        headers = {"Authorization": f"token {TOKEN}"}
        return requests.request(
            method, f"{self._url}/{path}", json=body, headers=headers, timeout=120
        )

    def web_socket(self, path: str) -> Any:
        address = f"{self._url.replace('http', 'ws')}/{path}"
        header = [f"Authorization: token {TOKEN}"]
        return websocket.create_connection(address, header=header, timeout=120)

    def new_kernel(self, name: str) -> str:
        """Of a new notebook; its id."""
        kernel = {"name": "python3"}
        body = {"path": name, "name": name, "type": "notebook", "kernel": kernel}
        answer = self.request("POST", "api/sessions", body)
        assert answer.status_code == 201, f"{answer.text}\n{self._log.read_text()[-4000:]}"
        return str(answer.json()["kernel"]["id"])
