"""A Jupyter server of a test's own: JupyterLab and Jupyter Notebook with the built panel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.waits import WAIT_S_MAX

TOKEN = "token-of-the-browser-tests"
PANEL = ROOT / "jupyter_gpushare" / "labextension"
PANEL_NAME = "@jupyter-gpushare/labextension"


def _settings(directory: Path, name: str, values: Mapping[str, object]) -> None:
    file = directory / "@jupyterlab" / "apputils-extension" / f"{name}.jupyterlab-settings"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


def write_notebook(file: Path, *cells: str) -> None:
    """A notebook with these cells of code, none of them run, for this environment's kernel."""
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    blank = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    notebook = {
        "cells": [{**blank, "id": f"cell-{i}", "source": text} for i, text in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    file.write_text(json.dumps(notebook))


class JupyterProcess:
    """`jupyter lab` with one extension or none; what it reads and writes is below `directory`."""

    def __init__(
        self,
        directory: Path,
        extension: str | None,
        environment: Mapping[str, str] = os.environ,
        python: Path | None = None,
    ) -> None:
        """`python` is of another environment than this one."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.files = directory / "files"
        self.files.mkdir(parents=True)
        self.settings = directory / "settings"
        _settings(self.settings, "notification", {"fetchNews": "false", "checkForUpdates": False})
        panel = directory / "share" / "labextensions" / PANEL_NAME
        panel.parent.mkdir(parents=True)
        shutil.copytree(PANEL, panel)
        places = {
            "HOME": "home",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_PATH": "share",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        environment = {
            **environment,
            **{name: str(directory / place) for name, place in places.items()},
            "PYTHONPATH": str(ROOT),
        }
        command = [
            str(python or sys.executable),
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
        ]
        command += [f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"]
        command += [f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.files}"]
        for app in ("JupyterNotebookApp", "LabApp"):  # which tells when it is there
            command.append(f"--{app}.expose_app_in_browser=True")
        # It asks PyPI in a thread, for as long as that takes, which the server's end awaits.
        command.append("--LabApp.extension_manager=readonly")
        # The environment may have switched ours on for every server.
        extensions = {"jupyter_gpushare": False, "jupyterlab": True, "notebook": True}
        # It looks for language servers in a thread, for seconds, which the server's end awaits.
        extensions["jupyter_lsp"] = False
        extensions |= {extension: True} if extension else {}
        command.append(f"--ServerApp.jpserver_extensions={extensions!r}")
        self._log = directory / "server.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=directory, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        end_s = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < end_s and self.process.poll() is None:
            try:
                self.request("GET", "api/status")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
            else:
                return
        self.stop()
        said = self._log.read_text()
        raise RuntimeError(f"The Jupyter server at {self.url} did not start:\n{said}")

    def request(self, method: str, path: str, body: object = None) -> Any:
        """The server's answer as JSON; None where it is empty."""
        request = urllib.request.Request(
            f"{self.url}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as response:
            text = response.read()
        return json.loads(text) if text else None

    def shut_kernel(self, notebook: str) -> None:
        for session in self.request("GET", "api/sessions"):
            if session["path"] == notebook:
                self.request("DELETE", f"api/sessions/{session['id']}")

    def page_url(self, path: str = "lab") -> str:
        return f"{self.url}/{path}{'&' if '?' in path else '?'}token={TOKEN}"

    def use_theme(self, theme: str) -> None:
        """Takes effect with the next page that is opened."""
        self.change_settings("themes", {"theme": theme})

    def change_settings(self, name: str, values: Mapping[str, object]) -> None:
        """Of a plugin of JupyterLab's own. Takes effect with the next page that is opened."""
        _settings(self.settings, name, values)

    def stop(self) -> None:
        """Its kernels end first. A server that is asked to end waits for the threads in which AnyIO
        reads and writes files, and some of these never end."""
        if self.process.poll() is None:
            with suppress(OSError):
                for session in self.request("GET", "api/sessions"):
                    with suppress(urllib.error.HTTPError):  # its kernel has died
                        self.request("DELETE", f"api/sessions/{session['id']}")
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> JupyterProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
