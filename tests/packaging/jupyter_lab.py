"""`jupyter lab` as the README has it, in an environment and a home of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import requests

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.client.paths import HTTP_SOCKET
from tests.packaging.environments import Environment
from tests.server.server_process import schedulers_of
from tests.support.ports import free_port
from tests.support.server_kernels import run_cell
from tests.support.waits import WAIT_S_MAX

TOKEN = "the-tests-own"
LOOK_EVERY_S = 0.1


class JupyterLab:
    """One person's configuration, which several starts share; `start` starts a server."""

    def __init__(self, environment: Environment, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._scheduler_dir = folder / "run"
        for name in ("home", "config", "runtime", "files"):
            (folder / name).mkdir()
        self._url = f"http://127.0.0.1:{self._configure(folder / 'config')}"
        self.env = {
            **environment.env(env),
            "HOME": str(folder / "home"),
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "GPUSHARE_RUNTIME_DIR": str(self._scheduler_dir),
        }
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, command: str) -> JupyterLab:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                cwd=self._folder / "files",
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until_s = time.monotonic() + WAIT_S_MAX
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < until_s, self._log.read_text()
            time.sleep(LOOK_EVERY_S)
        return self

    def _configure(self, folder: Path) -> int:
        """What a test must have otherwise than a person; the port."""
        port = free_port()
        server = {"allow_root": True, "open_browser": False, "port": port, "port_retries": 0}
        config = {"ServerApp": server, "IdentityProvider": {"token": TOKEN}}
        (folder / "jupyter_server_config.json").write_text(json.dumps(config))
        return port

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "api/status").ok
        except requests.ConnectionError:
            return False

    def ask(self, method: str, path: str, body: object = None) -> requests.Response:
        headers = {"Authorization": f"token {TOKEN}"}
        return requests.request(
            method, f"{self._url}/{path}", json=body, headers=headers, timeout=WAIT_S_MAX
        )

    def open_notebook(self, name: str) -> str:
        """The id of its kernel."""
        body = {"path": name, "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        answer = self.ask("POST", "api/sessions", body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["kernel"]["id"])

    @property
    def scheduler(self) -> SchedulerClient:
        """The one that the server has found or started."""
        return SchedulerClient(self._scheduler_dir / HTTP_SOCKET)

    def run_cell(self, kernel_id: str, code: str) -> str:
        """What it printed; it has to succeed."""
        return run_cell(self._folder / "runtime" / f"kernel-{kernel_id}.json", code)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(WAIT_S_MAX)
            self._process = None

    def __enter__(self) -> JupyterLab:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        for pid in schedulers_of(self._scheduler_dir):
            os.kill(pid, signal.SIGTERM)
