"""`jupyter gpushare try`, as somebody runs it who has no GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.cli import trial
from jupyter_gpushare.cli.main import main
from tests.support.kernels import Kernel
from tests.support.ports import free_port
from tests.support.scheduler_process import running_scheduler
from tests.support.waits import WAIT_S_MAX

TOKEN = "token-of-the-trial"


@dataclass
class Trial:
    process: subprocess.Popen[bytes]
    url: str
    temporary: Path
    log: Path

    def ask(self, path: str, body: object = None) -> Any:
        """Its server's answer, when there is one."""
        until_s = time.monotonic() + WAIT_S_MAX
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data)
        request.add_header("Authorization", f"token {TOKEN}")
        while time.monotonic() < until_s and self.process.poll() is None:
            try:
                with urllib.request.urlopen(request, timeout=WAIT_S_MAX) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                raise AssertionError(f"{path}: {error}") from error
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise AssertionError(f"no server:\n{self.log.read_text()}")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short path, which sockets need."""
    with tempfile.TemporaryDirectory(prefix="trial-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def running(tmp_path: Path, temporary: Path) -> Iterator[Trial]:
    port = free_port()
    places = {"HOME": "home", "JUPYTER_RUNTIME_DIR": "r", "JUPYTER_DATA_DIR": "d"}
    env = {**os.environ, **{name: str(tmp_path / place) for name, place in places.items()}}
    env["TMPDIR"] = str(temporary)
    command = [sys.executable, "-m", "jupyter_gpushare.cli.main", "try", "--", "--no-browser"]
    command += ["--allow-root", f"--ServerApp.port={port}", f"--IdentityProvider.token={TOKEN}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stderr=log, stdout=log)
    try:
        yield Trial(process, f"http://127.0.0.1:{port}", temporary, tmp_path / "log")
    finally:
        process.terminate()
        process.wait(WAIT_S_MAX)


@pytest.mark.promise(
    "cli-29",
    "`try` starts a JupyterLab on a simulated GPU with two example notebooks, says that the GPU is "
    "simulated, and leaves nothing behind",
)
@pytest.mark.full
def test_one_command_shows_it_without_a_gpu(running: Trial) -> None:
    """Its server has the notebooks and the simulated device, under a scheduler of its own."""
    names = {each["name"] for each in running.ask("api/contents")["content"]}
    assert names == {"train.ipynb", "explore.ipynb", "simulated.py"}
    running.ask("api/kernels", {"name": "python3"})
    while not (devices := running.ask("gpushare/api/state")["devices"]):
        time.sleep(0.1)  # the server looks for its scheduler
    assert [device["name"] for device in devices] == ["Simulated GPU"]
    assert "this GPU is simulated" in running.log.read_text()
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(WAIT_S_MAX)
    assert not list(running.temporary.glob("gpushare-try-*"))
    until_s = time.monotonic() + WAIT_S_MAX
    while is_there(running.temporary):
        assert time.monotonic() < until_s, "something is left behind"
        time.sleep(0.1)


def is_there(folder: Path) -> bool:
    """A process that has to do with this folder. What was killed takes a moment to be gone."""
    found = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True)
    return found.stdout != ""


@pytest.mark.full
@pytest.mark.promise("cli-29")
def test_the_cells_of_both_notebooks_run(temporary: Path) -> None:
    """Beside each other, and the memory of the first is as it was after the second had more than
    the device has left."""
    env = trial.trial_environment(os.environ, temporary)
    env.pop("PYTEST_CURRENT_TEST", None)
    env["PYTHONPATH"] = os.pathsep.join([str(trial.FILES), env.get("PYTHONPATH", "")])
    with (
        running_scheduler(temporary / "run", env=env),
        Kernel(env, name="train.ipynb").start() as train,
        Kernel(env, name="explore.ipynb").start() as explore,
    ):
        allocates, works, reads = cells_of("train.ipynb")
        train.run(allocates).ok()
        working = train.submit(works.replace("range(600)", "range(50)"))
        printed = [explore.run(cell).ok() for cell in cells_of("explore.ipynb")]
        assert "for 0.20 s of work" in printed[0].text
        assert "Simulated GPU" in printed[1].html
        assert train.wait(working).ok().text == "step 50\n"
        assert train.run(reads).ok().text == str(b"\7" * 16)


def cells_of(notebook: str) -> list[str]:
    """The text of its cells of code."""
    cells = json.loads((trial.FILES / notebook).read_text())["cells"]
    return ["".join(each["source"]) for each in cells if each["cell_type"] == "code"]


def test_a_notebook_that_was_changed_stays(tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_text("mine")
    trial._lay_out(tmp_path)
    assert (tmp_path / "train.ipynb").read_text() == "mine"
    assert (tmp_path / "explore.ipynb").exists()


@pytest.mark.promise("cli-30", "`try` says in a sentence what it lacks, and what to do")
def test_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments without `--`, folders that cannot be written or are too deep, JupyterLab, the
    simulated GPU."""
    file = tmp_path / "file"
    file.touch()

    def said(*arguments: str) -> str:
        assert main(["try", *arguments]) == 2
        return capsys.readouterr().err

    assert "`try` knows no 'lab'. Write JupyterLab's arguments after `--`." in said("lab")
    assert "Name another folder with --directory." in said("--directory", str(file / "below"))
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert "is too long for a socket. Name a shorter folder" in said()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "jupyterlab is not installed in this environment. Install it: " in said()
    monkeypatch.setattr(trial, "SIMULATED", tmp_path)
    assert "This installation has no simulated GPU. Reinstall" in said()
