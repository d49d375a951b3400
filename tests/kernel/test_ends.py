"""Kernels that end, are restarted or die while they wait for the device or hold it: the others go
on, and nothing of them stays in the scheduler."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu, await_printed
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.scheduler_process import running_scheduler
from tests.support.timeline import hand_overs, overlaps
from tests.support.waits import wait_until

LONG = gpu_cells.spin_until_interrupted(20)


@pytest.fixture
def lives_on(settings_as_new: SharedGpu) -> SharedGpu:
    """Its scheduler, and one of its kernels, go on from one test to the next."""
    return settings_as_new


@pytest.fixture(scope="module")
def other(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("other.ipynb")


@pytest.fixture
def ending(lives_on: SharedGpu) -> Iterator[Kernel]:
    kernel = lives_on.kernel("ending.ipynb")
    lives_on.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    yield kernel
    kernel.stop()
    gone(lives_on, "ending.ipynb")


def begin_to_hold(gpu: SharedGpu, kernel: Kernel) -> str:
    cell = kernel.submit(LONG)
    gpu.await_holder(kernel.name)
    return cell


def begin_to_wait(gpu: SharedGpu, kernel: Kernel) -> str:
    cell = kernel.submit(gpu_cells.spin(1))
    gpu.await_waiter(kernel.name)
    return cell


def gone(gpu: SharedGpu, name: str) -> None:
    wait_until(lambda: gpu.tenant(name) is None, f"{name} is forgotten")


@pytest.mark.full
@pytest.mark.promise(
    "jupyter-12", "Restart of a kernel that waits or holds leaves the others running"
)
@pytest.mark.promise("bad-input-39", "A kernel restarted while it waits or holds: the others go on")
@pytest.mark.parametrize("now", [True, False], ids=["now", "politely"])
def test_restart_while_waiting(
    lives_on: SharedGpu, other: Kernel, ending: Kernel, now: bool
) -> None:
    """The holder is not disturbed; the restarted kernel is a new tenant that works."""
    held = begin_to_hold(lives_on, other)
    begin_to_wait(lives_on, ending)
    tenant_before = ending.tenant_id
    ending.restart(now=now)
    assert ending.tenant_id not in (None, tenant_before)
    assert lives_on.waiters() == [] and lives_on.holders() == ["other.ipynb"]
    assert not other.done(held)
    other.interrupt()
    assert other.wait(held).ename == "KeyboardInterrupt"
    ending.run(gpu_cells.setup()).ok()
    ending.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("jupyter-12")
@pytest.mark.promise("bad-input-39")
@pytest.mark.parametrize(
    "now",
    [pytest.param(True, id="now"), pytest.param(False, id="politely", marks=pytest.mark.full)],
)
def test_restart_while_holding(
    lives_on: SharedGpu, other: Kernel, ending: Kernel, now: bool
) -> None:
    """The one who waits is served, and the restarted kernel works again."""
    begin_to_hold(lives_on, ending)
    waiting = begin_to_wait(lives_on, other)
    ending.restart(now=now)
    other.wait(waiting).ok()
    ending.run(gpu_cells.setup()).ok()
    ending.run(gpu_cells.spin(1)).ok()


@pytest.mark.full
@pytest.mark.promise(
    "jupyter-13",
    "Shutdown of a kernel that waits or holds leaves the others running",
)
@pytest.mark.promise("bad-input-40", "A kernel shut down while it waits or holds: the others go on")
@pytest.mark.parametrize("now", [True, False], ids=["now", "politely"])
def test_shutdown_while_waiting(
    lives_on: SharedGpu, other: Kernel, ending: Kernel, now: bool
) -> None:
    """The holder is not disturbed, and the queue is empty."""
    held = begin_to_hold(lives_on, other)
    begin_to_wait(lives_on, ending)
    ending.stop(now=now)
    gone(lives_on, "ending.ipynb")
    assert lives_on.waiters() == [] and not other.done(held)
    other.interrupt()
    assert other.wait(held).ename == "KeyboardInterrupt"


@pytest.mark.promise("jupyter-13")
@pytest.mark.promise("bad-input-40")
@pytest.mark.parametrize(
    "now",
    [pytest.param(True, id="now", marks=pytest.mark.full), pytest.param(False, id="politely")],
)
def test_shutdown_while_holding(
    lives_on: SharedGpu, other: Kernel, ending: Kernel, now: bool
) -> None:
    """The one who waits is served."""
    begin_to_hold(lives_on, ending)
    waiting = begin_to_wait(lives_on, other)
    ending.stop(now=now)
    other.wait(waiting).ok()
    gone(lives_on, "ending.ipynb")


@pytest.mark.promise(
    "bad-input-41", "A kernel killed with the turn (SIGKILL): the next one gets it"
)
def test_a_kernel_that_dies_with_the_turn(
    lives_on: SharedGpu, other: Kernel, ending: Kernel
) -> None:
    """SIGKILL: the end of the connection is enough, nobody has to say anything."""
    begin_to_hold(lives_on, ending)
    waiting = begin_to_wait(lives_on, other)
    os.kill(ending.pid, signal.SIGKILL)
    other.wait(waiting).ok()


@pytest.mark.promise(
    "bad-input-42",
    "A kernel killed with the turn, whose forked child lives on and may keep the socket: the next "
    "one gets it",
)
def test_a_kernel_that_dies_and_leaves_a_forked_child(
    lives_on: SharedGpu, other: Kernel, ending: Kernel
) -> None:
    """A child that lives on, and may keep the kernel's descriptors, does not keep its turn."""
    code = "import os, signal\nchild = os.fork()\nif child == 0:\n    signal.pause()\nchild"
    child = int(ending.run(code).ok().text)
    try:
        begin_to_hold(lives_on, ending)
        waiting = begin_to_wait(lives_on, other)
        os.kill(ending.pid, signal.SIGKILL)
        other.wait(waiting).ok()
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.promise("bad-input-3")
def test_a_device_side_assert_costs_only_its_own_kernel(
    lives_on: SharedGpu, other: Kernel, ending: Kernel
) -> None:
    """The failed kernel is told to restart, its turn goes back at once, memory of the other is
    whole, and after a restart it works again."""
    other.run("kept = gpu.allocate(4096)\ngpu.fill(kept, 3, 4096)\ngpu.synchronize()").ok()
    lives_on.scheduler.client.change_settings({"idle_ms": 600_000})
    # The cell goes on after its failure: it is not its end that gives the turn back.
    failing = ending.submit(
        "try:\n    gpu.launch('assert_fail')\n    gpu.synchronize()\n"
        "except RuntimeError as error:\n    print(error, flush=True)\n"
        "import threading\ngo = threading.Event()\ngo.wait()"
    )
    await_printed(ending, failing, "CUDA_ERROR_ASSERT")
    assert int(other.run("gpu.checksum(kept, 4096)").ok().text) == 3 * 4096**2
    ending.interrupt()
    reply = ending.wait(failing)
    assert "Restart the kernel to go on" in reply.stderr
    assert ending.run(gpu_cells.spin(1)).ename == "RuntimeError"
    ending.restart()
    ending.run(gpu_cells.setup()).ok()
    ending.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("bad-input-6")
def test_a_restarted_scheduler_serves_those_who_wait(shared: SharedGpu, tmp_path: Path) -> None:
    """The scheduler dies and another one takes its place: the holder finishes its cell, the waiting
    cell is served, and nothing overlaps."""
    other, ending = shared.kernel("other.ipynb"), shared.kernel("ending.ipynb")
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    observed = shared.observed(other, ending)
    waits = gpu_cells.wait_for(tmp_path / "go")
    held = observed.submit(0, f"{gpu_cells.spin(20)}\n{waits}\n{gpu_cells.spin(20, 5)}")
    shared.await_holder("other.ipynb")
    waiting = observed.submit(1, gpu_cells.spin(5))
    shared.await_waiter("ending.ipynb")
    shared.scheduler.kill()
    (tmp_path / "go").touch()
    observed.collect(0, held).ok()  # while there is none
    assert not ending.done(waiting)
    env = {**shared.machine.env, "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(tmp_path / "run", env=env):
        observed.collect(1, waiting).ok()
    (served,) = hand_overs(observed.works(), observed.cells)
    assert served.taker == 1
    assert overlaps(observed.works()) == 0
