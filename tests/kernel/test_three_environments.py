"""Kernels of three environments share one device: ours, one without our package, and one with the
oldest ipykernel and IPython that we promise to work with."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.environments import shared_packages
from tests.support.kernels import Kernel
from tests.support.timeline import overlaps
from tests.support.waits import wait_until

OLDEST = ["ipykernel==6.15.0", "ipython==7.34.0"]
OLDEST += ["backcall", "decorator", "nest-asyncio", "pickleshare"]
"""What these two need and today's do not."""
INSTALLED = sysconfig.get_path("purelib")
LAUNCH = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]


@pytest.fixture(scope="session")
def oldest_packages() -> Path:
    """The oldest versions."""
    return shared_packages("oldest-ipykernel", OLDEST)


def without_our_package(
    shared: SharedGpu, name: str, folder: Path, packages: str = INSTALLED
) -> Kernel:
    """Its Python sees the installed packages as PYTHONPATH has them, and no editable install."""
    env = {**shared.kernel_env, "PYTHONPATH": packages}
    return started(shared, Kernel(env, name=name, argv=[sys.executable, "-S", *LAUNCH]), folder)


def of_the_oldest(shared: SharedGpu, name: str, folder: Path, packages: Path) -> Kernel:
    return without_our_package(shared, name, folder, f"{packages}{os.pathsep}{INSTALLED}")


def started(shared: SharedGpu, kernel: Kernel, folder: Path) -> Kernel:
    """In a folder of its own, where our checkout is not importable."""
    shared.started.append(kernel)
    kernel.start(cwd=str(folder))
    assert kernel.run("import jupyter_gpushare").ename == "ModuleNotFoundError"
    kernel.run(gpu_cells.setup()).ok()
    return kernel


@pytest.fixture
def shared(settings_as_new: SharedGpu) -> SharedGpu:
    return settings_as_new


@pytest.fixture(scope="module")
def kernels(
    lasting: SharedGpu, tmp_path_factory: pytest.TempPathFactory, oldest_packages: Path
) -> list[Kernel]:
    folder = tmp_path_factory.mktemp("elsewhere")
    return [
        lasting.kernel("ours.ipynb"),
        without_our_package(lasting, "without.ipynb", folder),
        of_the_oldest(lasting, "oldest.ipynb", folder, oldest_packages),
    ]


@pytest.mark.promise(
    "jupyter-38",
    "Kernels of three environments share a device: ours, one without our package, and one with "
    "ipykernel 6.15 and IPython 7.34",
)
def test_cells_of_three_environments_take_turns(shared: SharedGpu, kernels: list[Kernel]) -> None:
    """Cells sent to all three at once are never two on the device, and each kernel is served."""
    assert kernels[2].run("import IPython; IPython.__version__").ok().text == "'7.34.0'"
    observed = shared.observed(*kernels)
    cell = gpu_cells.fill_and_check(7, milliseconds=15, count=4)
    assert overlaps(observed.play_until_served(cell, 2)) == 0


@pytest.mark.promise("jupyter-38")
@pytest.mark.promise(
    "jupyter-39",
    "The bootstrap works without our package in the kernel's environment",
)
def test_the_end_of_a_cell_gives_the_turn_back_in_each(
    shared: SharedGpu, kernels: list[Kernel]
) -> None:
    """The bootstrap of each reports its cells: turns go on although nobody becomes idle."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    for _ in range(2):
        for kernel in kernels:
            kernel.run(gpu_cells.spin(2)).ok()


@pytest.mark.promise(
    "jupyter-40",
    "The magics work without our package in the kernel's environment, and by `%load_ext "
    "jupyter_gpushare`",
)
def test_the_magics_are_there_in_each(kernels: list[Kernel]) -> None:
    """Each keeps the device by hand, shows itself with it, and gives it away."""
    for kernel in kernels:
        reply = kernel.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n%gpushare\n").ok()
        assert "This kernel keeps the GPU until" in reply.text
        assert f"{kernel.name} (this kernel)" in reply.text
        assert "reserved until" in reply.html
        assert "The GPU was given back." in kernel.run("%gpushare release").ok().text


@pytest.mark.promise(
    "jupyter-41",
    "`import gpushare` works in kernels of every environment, never hides another module of that "
    "name, and does nothing where the GPU is not shared",
)
def test_a_turn_by_hand_is_there_in_each(shared: SharedGpu, kernels: list[Kernel]) -> None:
    """Its end gives the GPU back, although the cell around it was silent and nobody is idle."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    for kernel in kernels:
        turn = f"from gpushare import turn\nwith turn():\n    {gpu_cells.spin(1)}"
        kernel.run(turn, silent=True).ok()
    wait_until(lambda: shared.holders() == [], "the last turn is given back")


@pytest.mark.promise("jupyter-38")
@pytest.mark.full
def test_an_interrupt_while_waiting_in_each(shared: SharedGpu, kernels: list[Kernel]) -> None:
    """A cell that waits for the device ends with KeyboardInterrupt, and the kernel stays usable."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    for waiting in kernels:
        holder = kernels[0] if waiting is not kernels[0] else kernels[1]
        busy = holder.submit(gpu_cells.spin_until_interrupted(5))
        shared.await_holder(holder.name)
        cell = waiting.submit(gpu_cells.spin(1))
        shared.await_waiter(waiting.name)
        waiting.interrupt()
        reply = waiting.wait(cell)
        assert reply.ename == "KeyboardInterrupt"
        assert reply.printed.errors == [
            "KeyboardInterrupt: This cell was interrupted while it waited for the GPU."
        ]
        holder.interrupt()
        assert holder.wait(busy).ename == "KeyboardInterrupt"
        waiting.run(gpu_cells.spin(1)).ok()
