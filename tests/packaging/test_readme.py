"""What the README says, done in a new environment: its commands and lines are read from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.hub.running_hub import RunningHub, end_leftovers, server_env
from tests.packaging.environments import SERVER_CONFIG_IN_PREFIX, Environment, run
from tests.packaging.jupyter_lab import JupyterLab
from tests.packaging.readme import blocks_under, commands_under
from tests.support import gpu_cells
from tests.support.environments import shared_python
from tests.support.paths import ROOT
from tests.support.sim import SimulatedMachine

WITHOUT_A_HUB, WITH_A_HUB, OUT = (
    "Two commands",
    "For a JupyterHub, in ten minutes",
    "Switching it off",
)
BEFORE_US = ["cuda-bindings>=13.0", "jupyterhub>=5.2", "jupyterlab>=4.2", "pip"]
LINES_AT_MOST = 5
SHARES = "import os; print('GPUSHARE_TOKEN' in os.environ)"


@pytest.mark.promise("packaging-8")
def test_it_says_what_it_is_in_five_lines() -> None:
    """The first paragraph is all that a visitor reads; the picture comes next, and exists."""
    what, picture = (ROOT / "README.md").read_text().split("\n\n")[1:3]
    assert 0 < len(what.splitlines()) <= LINES_AT_MOST
    assert (ROOT / picture.split("](")[1].rstrip(")")).exists()


@pytest.fixture
def device(tmp_path: Path) -> dict[str, str]:
    """Leads programs to a simulated device, as a driver would be there."""
    machine_env = SimulatedMachine(tmp_path / "machine").env({"CUDA_VISIBLE_DEVICES": "0"})
    return {
        name: machine_env[name]
        for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR", "CUDA_VISIBLE_DEVICES")
    }


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """What people have before: JupyterLab, JupyterHub, pip, and what a framework needs."""
    return Environment.copy_of(shared_python("before-us", BEFORE_US), tmp_path / "venv")


@pytest.fixture
def lab(tmp_path: Path, environment: Environment, device: dict[str, str]) -> Iterator[JupyterLab]:
    """A person who starts JupyterLab there."""
    with JupyterLab(environment, tmp_path, device) as lab:
        yield lab


@pytest.mark.promise(
    "packaging-8",
    "The README's two commands are enough, and its way out leaves nothing behind",
)
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_two_commands_and_out_again(clone: Path, lab: JupyterLab) -> None:
    """After the two commands a notebook's kernel takes turns and the page has the panel; after the
    one that switches the extension off, kernels are plain; after the last one nothing is left."""
    install, start = commands_under(WITHOUT_A_HUB)
    run(["sh", "-c", install], cwd=clone, env={**lab.env, "HOME": str(Path.home())})  # its caches
    lab.start(start)
    kernel = lab.open_notebook("work.ipynb")
    assert "True" in lab.run_cell(kernel, SHARES)
    lab.run_cell(kernel, gpu_cells.setup())
    lab.run_cell(kernel, gpu_cells.fill_and_check(7))
    (tenant,) = lab.scheduler.status()["tenants"]
    assert tenant["name"] == "work.ipynb" and tenant["counters"]["turns"] >= 1
    assert "@jupyter-gpushare/labextension" in lab.ask("GET", "lab").text
    assert "This kernel does not use the GPU now." in lab.run_cell(kernel, "%gpushare")
    lab.stop()

    disable, uninstall = commands_under(OUT)
    run(["sh", "-c", disable], cwd=clone, env=lab.env)
    lab.start(start)
    kernel = lab.open_notebook("work.ipynb")
    assert "False" in lab.run_cell(kernel, SHARES)
    assert lab.ask("GET", "gpushare/api/state").status_code == 404
    lab.stop()

    run(["sh", "-c", uninstall], cwd=clone, env=lab.env)
    prefix = Path(lab.env["VIRTUAL_ENV"])
    assert not (prefix / SERVER_CONFIG_IN_PREFIX).exists()
    assert not [path for path in prefix.rglob("*gpushare*") if path.is_file()]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which other users may not enter."""
    with TemporaryDirectory(prefix="gpushare-hub-") as name:
        yield Path(name)
        end_leftovers(Path(name))


@pytest.mark.promise("hub-16")
@pytest.mark.promise(
    "packaging-9",
    "The README's steps for a hub make its users take turns, and its way out makes them plain "
    "again",
)
@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_hub_in_ten_minutes_and_out_again(
    clone: Path, environment: Environment, device: dict[str, str], folder: Path
) -> None:
    """The steps make a user's notebook take turns, as hers by the hub's word, and the magics of
    her notebook answer; the line under "Switching it off" makes it plain; the package can go."""
    (install,), (lines,) = commands_under(WITH_A_HUB), blocks_under(WITH_A_HUB, "python")
    (looks,) = blocks_under(WITH_A_HUB, "ipython")
    run(["sh", "-c", install], cwd=clone, env=environment.env())
    env = server_env(device, folder)
    del env["GPUSHARE_LIBRARY"]  # the installed one is meant
    hub = RunningHub(
        folder, server_env=env, scheduler_env=env, python=environment.python, our_lines=lines
    )
    try:
        alice = hub.start().visitor("alice")
        kernel = alice.open_notebook("work.ipynb")
        kernel.run(gpu_cells.setup()).ok()
        kernel.run(gpu_cells.fill_and_check(7)).ok()
        (tenant,) = hub.scheduler.status()["tenants"]
        assert (tenant["owner"], tenant["name"]) == ("alice", "work.ipynb")
        assert tenant["counters"]["turns"] >= 1
        shown, doctor = (kernel.run(look).ok().text for look in looks.splitlines())
        assert "This kernel" in shown
        assert "can be preloaded" in doctor and "PROBLEM" not in doctor
        hub.stop()

        (line,) = blocks_under(OUT, "python")
        hub.back_out(line)
        plain = hub.start().visitor("alice").open_notebook("work.ipynb")
        assert plain.run(SHARES).ok().text == "False\n"
        plain.run(gpu_cells.setup()).ok()
        hub.stop()

        hub.forget_us()
        run(["sh", "-c", commands_under(OUT)[-1]], cwd=clone, env=environment.env())
        without = hub.start().visitor("alice").open_notebook("work.ipynb")
        assert without.run("import jupyter_gpushare").ename == "ModuleNotFoundError"
    finally:
        hub.stop()
