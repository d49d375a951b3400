"""Notebooks that run without a server, as batch tools run them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import ANSWER_S_MAX, PROVISIONER
from tests.support.waits import wait_until


def notebook(path: Path) -> Path:
    """Opens the GPU, and checks a sum that it computes there."""
    cells = [
        gpu_cells.setup(),
        gpu_cells.fill_and_check(11, milliseconds=10, count=5),
        "print('end')",
    ]
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    nbformat.write(content, path)
    return path


def nbconvert(path: Path) -> list[str]:
    options = ["--execute", "--to", "notebook", "--output", "executed.ipynb"]
    return [sys.executable, "-m", "nbconvert", *options, str(path)]


def papermill(path: Path) -> list[str]:
    options = ["--no-progress-bar", "--kernel", "python3"]
    executed = path.with_name("executed.ipynb")
    return [sys.executable, "-m", "papermill", *options, str(path), str(executed)]


@pytest.mark.promise("jupyter-37")
@pytest.mark.promise(
    "jupyter-32",
    "`run -- jupyter nbconvert --execute` and papermill wait for the device while somebody holds "
    "it",
)
@pytest.mark.promise("cli-35", "`jupyter gpushare run` works for nbconvert")
@pytest.mark.parametrize("way", [pytest.param("run", marks=pytest.mark.full), "provisioner"])
@pytest.mark.parametrize("tool", [nbconvert, pytest.param(papermill, marks=pytest.mark.full)])
def test_batch_tools_take_turns(
    shared: SharedGpu, tmp_path: Path, tool: Callable[[Path], list[str]], way: str
) -> None:
    """A notebook executed under `jupyter gpushare run`, or with the provisioner as the default,
    waits for the device while a kernel holds it, and gets it afterwards."""
    holder = shared.kernel("holder.ipynb")
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    held = holder.submit(gpu_cells.spin_until_interrupted(20))
    shared.await_holder("holder.ipynb")
    command = tool(notebook(tmp_path / "batch.ipynb"))
    env = dict(shared.kernel_env)
    if way == "run":
        command = [sys.executable, "-m", "jupyter_gpushare.cli.main", "run", "--", *command]
    else:
        env["JUPYTER_DEFAULT_PROVISIONER_NAME"] = PROVISIONER
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as batch:
        try:
            wait_until(lambda: len(shared.waiters()) == 1, "the notebook's kernel waits")
            assert batch.poll() is None and shared.holders() == ["holder.ipynb"]
            holder.interrupt()
            assert holder.wait(held).ename == "KeyboardInterrupt"
            _, errors = batch.communicate(timeout=ANSWER_S_MAX)
        finally:
            batch.kill()
    assert batch.returncode == 0, errors
    executed = nbformat.read(tmp_path / "executed.ipynb", as_version=4)
    assert executed.cells[-1].outputs[0].text == "end\n"
    assert shared.machine.sim is not None and shared.machine.sim.overlaps() == []
