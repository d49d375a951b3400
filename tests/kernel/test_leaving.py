"""`%gpushare off` and `on` in real kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import LEAVE_FILE, MAY_LEAVE, why_left, without_gpushare
from tests.kernel.conftest import SharedGpu
from tests.kernel.test_provisioner import launch_of
from tests.support import gpu_cells

LEAVES = pytest.mark.promise(
    "jupyter-17",
    "Where the administrator allows it, `%gpushare off` takes a kernel out of the sharing from its "
    "next restart on, `on` brings it back, and nothing changes before the restart",
)
ALLOWED = {MAY_LEAVE: "1"}


@LEAVES
def test_a_kernel_leaves_and_comes_back(lasting: SharedGpu) -> None:
    """Over several restarts; its first cell says so, and its end leaves no file."""
    kernel = lasting.kernel("a.ipynb", env=ALLOWED)
    file = Path(kernel.run(f"import os; print(os.environ['{LEAVE_FILE}'])").ok().text.strip())
    assert "goes on to do so" in kernel.run("%gpushare on").ok().text
    assert "This kernel still shares the GPU. Restart it" in kernel.run("%gpushare off").ok().text
    assert lasting.tenant("a.ipynb") is not None
    for _ in range(2):
        kernel.restart()
        assert "It has left GPU sharing by `%gpushare off`" in kernel.run("1").ok().stderr
        assert lasting.tenant("a.ipynb") is None
    kernel.run(gpu_cells.setup() + gpu_cells.spin(1)).ok()
    back = "Restart this kernel, and it shares the GPU again.\n"
    assert kernel.run("%gpushare on").ok().text == back
    assert "A restart does not change that now." in kernel.run("%gpushare off").ok().text
    assert kernel.run("%gpushare on").ok().text == back
    kernel.restart()
    assert kernel.run("1").ok().stderr == ""
    assert lasting.tenant("a.ipynb") is not None
    kernel.run("%gpushare off").ok()
    assert "goes on to do so" in kernel.run("%gpushare on").ok().text
    kernel.restart()
    assert lasting.tenant("a.ipynb") is not None, "`on` without a restart after `off`"
    kernel.run("%gpushare off").ok()
    assert file.exists()
    kernel.stop()
    assert not file.exists()


@LEAVES
def test_where_it_is_not_allowed(lasting: SharedGpu, tmp_path: Path) -> None:
    """A sentence says who may allow it. A file from when it was allowed does not count."""
    own = lasting.kernel("c.ipynb", set_up=False).run("%gpushare off").ok().text
    assert own.startswith("This Jupyter server does not let notebooks leave GPU sharing.")
    assert "set GPUSHARE_MAY_LEAVE=1 in its environment" in own and "administrator" not in own
    of_hub = lasting.kernel("d.ipynb", set_up=False, env={"JUPYTERHUB_API_TOKEN": "a-users"})
    said = of_hub.run("%gpushare off").ok().text
    assert said.startswith("Your administrator has not allowed that notebooks leave")
    (file := tmp_path / "kernel.json.left").touch()
    assert why_left({}, str(file)) == why_left({MAY_LEAVE: "0"}, str(file)) == ""
    assert "%gpushare on" in why_left(ALLOWED, str(file))


def test_children_do_not_inherit_the_file() -> None:
    """A kernel that is started inside of one has its own."""
    assert LEAVE_FILE not in without_gpushare({LEAVE_FILE: "/x"})


def test_a_kernel_without_a_magic_is_not_told(stub_env: dict[str, str]) -> None:
    """Nor one whose provisioner has no connection file."""
    env = {**stub_env, MAY_LEAVE: "1", LEAVE_FILE: "/x"}
    for argv in (["julia", "kernel.jl"], ["python", "-m", "ipykernel_launcher"]):
        assert LEAVE_FILE not in launch_of(argv, env)["env"]
