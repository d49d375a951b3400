"""`jupyter gpushare try` as a process: its server, its kernels and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_gpushare.cli.trial import OWN_PLACES
from tests.support.ports import free_port
from tests.support.server_kernels import run_cell
from tests.support.waits import WAIT_S_MAX, wait_until

TOKEN = "token-of-the-trial"


@dataclass
class Trial:
    process: subprocess.Popen[bytes]
    url: str
    temporary: Path
    log: Path

    @property
    def page_url(self) -> str:
        """What it opens in the user's browser."""
        return f"{self.url}/lab?token={TOKEN}"

    @property
    def notebooks(self) -> Path:
        (folder,) = self.temporary.glob("gpushare-try-*/notebooks")
        return folder

    def open(self, notebook: str) -> Path:
        """As JupyterLab does it; the connection file of its kernel."""
        kernel = {"name": "python3"}
        body = {"path": notebook, "name": notebook, "type": "notebook", "kernel": kernel}
        kernel_id = self.ask("api/sessions", body)["kernel"]["id"]
        return self.notebooks.parent / "jupyter" / "runtime" / f"kernel-{kernel_id}.json"

    def run(self, kernel: Path, code: str) -> str:
        """What the cell has printed; it has to succeed."""
        return run_cell(kernel, code)

    def await_training(self) -> None:
        """Until somebody has had the GPU for a second. Before, its cell is a new one, too."""

        def trains() -> bool:
            devices = self.ask("gpushare/api/state")["devices"]
            return any(each["holder"] and each["holder"]["held_s"] > 1 for each in devices)

        wait_until(trains, "a training")

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """Its server's answer, when there is one."""
        until_s = time.monotonic() + WAIT_S_MAX
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, method=method)
        request.add_header("Authorization", f"token {TOKEN}")
        while time.monotonic() < until_s and self.process.poll() is None:
            try:
                with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as answer:
                    return json.loads(answer.read() or "null")
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{path}: {error}") from error
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise AssertionError(f"no server:\n{self.log.read_text()}")


@contextmanager
def running_trial(folder: Path, env: Mapping[str, str], *options: str) -> Iterator[Trial]:
    """With `env` besides this environment, and options of JupyterLab. Its log is in `folder`."""
    port, log = free_port(), folder / "trial.log"
    command = [sys.executable, "-m", "jupyter_gpushare.cli.main", "try", "--", "--no-browser"]
    command += ["--allow-root", f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}"]
    command += options
    # A short path, which sockets need.
    with tempfile.TemporaryDirectory(prefix="trial-", dir="/tmp") as temporary:
        env = {**os.environ, "TMPDIR": temporary, **env}
        for name in (*OWN_PLACES, "PYTEST_CURRENT_TEST"):  # ipykernel shows less with the last one
            env.pop(name, None)
        with log.open("wb") as written:
            process = subprocess.Popen(command, env=env, stderr=written, stdout=written)
        try:
            yield Trial(process, f"http://127.0.0.1:{port}", Path(temporary), log)
        finally:
            process.terminate()
            process.wait(WAIT_S_MAX)
