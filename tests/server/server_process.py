"""A real Jupyter server in a process of its own, spoken to over a unix socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support.scheduler_process import LOOK_EVERY_S, environment
from tests.support.waits import WAIT_S_MAX

TOKEN = "the-tests-own"
_OTHERS = ("jupyter_lsp", "jupyter_server_terminals", "jupyterlab", "notebook", "notebook_shim")
"""Extensions that take longer to load than all the rest of a server."""
_EXTENSIONS = {"jupyter_gpushare": True, **dict.fromkeys(_OTHERS, False)}
_CONFIG = {"ServerApp": {"jpserver_extensions": _EXTENSIONS}}


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=WAIT_S_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(WAIT_S_MAX)
        self.sock.connect(str(self._path))


class JupyterServer:
    """Started by the constructor; `await_ready` waits until it answers."""

    def __init__(
        self, folder: Path, env: Mapping[str, str], *options: str, port: int | None = None
    ) -> None:
        """It listens on a unix socket, or where a port is given, on that."""
        folder.mkdir(parents=True)
        (folder / "config").mkdir()
        (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(_CONFIG))
        self.log_path = folder / "server.log"
        self._socket = folder / "s"
        folders = {"CONFIG": "config", "RUNTIME": "runtime", "DATA": "data"}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *("-m", "jupyter_server", "--no-browser", "--allow-root"),
                    *(_at_port(port) if port else [f"--ServerApp.sock={self._socket}"]),
                    f"--ServerApp.root_dir={folder}",
                    f"--IdentityProvider.token={TOKEN}",
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(
                    {**{f"JUPYTER_{k}_DIR": str(folder / v) for k, v in folders.items()}, **env}
                ),
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def ask(self, method: str, route: str, body: object = None) -> tuple[int, Any]:
        connection = _Connection(self._socket)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"Authorization": f"token {TOKEN}"}
            connection.request(method, route, body=data, headers=headers)
            response = connection.getresponse()
            raw = response.read()
            return response.status, json.loads(raw) if raw else None
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        status, state = self.ask("GET", "/gpushare/api/state")
        assert status == 200, state
        assert isinstance(state, dict)
        return state

    def await_scheduler(self) -> dict[str, Any]:
        """The state once the server answers and has found or started a scheduler."""
        return self.await_state(lambda state: state["scheduler"] == "up")

    def await_state(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The state once the server answers and it is as it should be."""
        until_s = time.monotonic() + WAIT_S_MAX
        while True:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until_s, self.log
            try:
                state = self.state()
            except OSError:
                time.sleep(0.1)  # it is not there yet, and cannot tell us when it is
                continue
            if holds(state):
                return state
            time.sleep(LOOK_EVERY_S)

    def await_port(self, port: int) -> None:
        """Until it answers there."""
        until_s = time.monotonic() + WAIT_S_MAX
        while True:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until_s, self.log
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                time.sleep(0.1)  # it is not there yet, and cannot tell us when it is
            else:
                return

    def interrupt(self) -> None:
        """As Ctrl-C at its terminal does: the whole process group hears it, twice."""
        for _ in range(2):
            os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S_MAX)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(WAIT_S_MAX)


def _at_port(port: int) -> list[str]:
    at = {"ip": "127.0.0.1", "port": port, "port_retries": 0}
    return [f"--ServerApp.{name}={value}" for name, value in at.items()]


def schedulers_of(directory: Path) -> list[int]:
    """The processes that were started to serve the runtime directory and have not ended."""
    wanted = f"--runtime-dir={directory}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in arguments and b"scheduler" in arguments:
            found.append(int(path.parent.name))
    return found
