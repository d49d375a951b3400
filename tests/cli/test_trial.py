"""`jupyter gpushare try`, as somebody runs it who has no GPU."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyter_gpushare.cli import trial
from jupyter_gpushare.cli.main import main
from tests.support.trial_process import Trial, running_trial
from tests.support.waits import WAIT_S_MAX

UNTIL_ENOUGH = "iter(__import__('pathlib').Path('enough').exists, True)"
"""For `range(24)`: as many epochs as the test needs."""
HOLD_S = 4
MINE = (
    ".jupyter/lab/workspaces/default-37a8.jupyterlab-workspace",
    ".jupyter/lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings",
    ".ipython/profile_default/history.sqlite",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Of somebody who uses JupyterLab and IPython already."""
    home = tmp_path / "home"
    for name in MINE:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine")
    return home


@pytest.fixture
def running(tmp_path: Path, home: Path) -> Iterator[Trial]:
    with running_trial(tmp_path, {"HOME": str(home)}) as trial:
        yield trial


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
@pytest.mark.promise(
    "cli-39", "`try` neither reads nor changes the layout, settings and history of a user's Jupyter"
)
def test_nothing_of_the_users_jupyter_is_touched(running: Trial, home: Path) -> None:
    """After a cell, a saved notebook, a new layout and another theme, the home is as it was."""
    before = contents_of(home)
    running.run(running.open("explore.ipynb"), "6 * 7")
    notebook = running.ask("api/contents/explore.ipynb")
    running.ask("api/contents/explore.ipynb", notebook, "PUT")
    layout = running.ask("lab/api/workspaces/default")
    assert "notebook:explore.ipynb" in layout["data"]
    running.ask("lab/api/workspaces/default", layout, "PUT")
    theme = {"raw": '{"theme": "JupyterLab Dark"}'}
    running.ask("lab/api/settings/@jupyterlab/apputils-extension:themes", theme, "PUT")
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(WAIT_S_MAX)
    assert contents_of(home) == before


def contents_of(folder: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.is_file() else b"a folder"
        for each in folder.rglob("*")
    }


@pytest.mark.full
@pytest.mark.promise(
    "cli-40",
    "In `try`, a cell beside the training prints what it took: it waits for none of the training's "
    "epochs, and the training is paused for as long",
)
@pytest.mark.promise("cli-29")
def test_the_cells_of_both_notebooks_run(running: Trial) -> None:
    """All of them, in their order. Each time is judged by the others of this run. The memory of the
    training is as it was after the other notebook had more than the device had left."""
    allocates, trains, reads = cells_of("train.ipynb")
    short, status, fills, frees, works, holds = cells_of("explore.ipynb")
    train, explore = running.open("train.ipynb"), running.open("explore.ipynb")
    took(running.run(train, allocates))
    trains = scaled(scaled(trains, "range(24)", UNTIL_ENOUGH), "range(250)", "range(100)")
    with ThreadPoolExecutor() as threads:
        training = threads.submit(running.run, train, trains)
        try:
            running.await_training()
            printed = [took(running.run(explore, short))]
            shown = running.run(explore, status)
            printed += [took(running.run(explore, cell)) for cell in (fills, frees)]
            long = took(running.run(explore, works))
            held = running.run(explore, scaled(holds, "hold 10s", f"hold {HOLD_S}s"))
        finally:
            (running.notebooks / "enough").touch()
        epochs = all_took(training.result())
    assert "Simulated GPU" in shown
    assert f"keep the GPU for {HOLD_S} s" in held
    paused_s = HOLD_S + sum(each.work_s for each in [*printed, long])
    printed.append(took(held))
    epoch_s = epochs[0].work_s
    assert all(each.work_s == epoch_s for each in epochs)
    assert all(each.took_s < epoch_s for each in printed), printed
    ran_s = total_s(epochs) - total_s([*printed, long]) - HOLD_S
    slower = max(1, ran_s / (epoch_s * len(epochs)))  # this machine, than the device alone
    assert long.took_s < 2 * long.work_s * slower
    assert sum(each.took_s - each.work_s for each in epochs) > paused_s
    assert max(each.took_s for each in epochs) > HOLD_S
    assert str(b"\7" * 16) in running.run(train, reads)


@dataclass(frozen=True)
class Took:
    """A line that a cell has printed."""

    took_s: float
    work_s: float


def total_s(steps: list[Took]) -> float:
    return sum(each.took_s for each in steps)


def all_took(printed: str) -> list[Took]:
    found = re.findall(r"([0-9.]+) s; ([0-9.]+) s of it work$", printed, re.MULTILINE)
    return [Took(float(took_s), float(work_s)) for took_s, work_s in found]


def took(printed: str) -> Took:
    (only,) = all_took(printed)
    return only


def scaled(cell: str, written: str, shorter: str) -> str:
    """The cell with less to do: a test need not take minutes."""
    assert written in cell
    return cell.replace(written, shorter)


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
