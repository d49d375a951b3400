"""Kernels that end, are restarted or die while they wait for the device or hold it: the others go
on, and nothing of them stays in the scheduler."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu, await_that
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.scheduler_process import running_scheduler
from tests.support.timeline import hand_overs, overlaps

LONG = gpu_cells.spin_until_interrupted(20)


@pytest.fixture
def other(shared: SharedGpu) -> Kernel:
    return shared.kernel("other.ipynb")


@pytest.fixture
def ending(shared: SharedGpu) -> Kernel:
    kernel = shared.kernel("ending.ipynb")
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    return kernel


def begin_to_hold(shared: SharedGpu, kernel: Kernel) -> str:
    cell = kernel.submit(LONG)
    shared.await_holder(kernel.name)
    return cell


def begin_to_wait(shared: SharedGpu, kernel: Kernel) -> str:
    cell = kernel.submit(gpu_cells.spin(1))
    shared.await_waiter(kernel.name)
    return cell


def gone(shared: SharedGpu, name: str) -> None:
    await_that(lambda: shared.tenant(name) is None, f"{name} is forgotten")


@pytest.mark.full
@pytest.mark.promise("jupyter", "Restart of a kernel that waits or holds leaves the others running")
@pytest.mark.promise("bad-input", "A kernel restarted while it waits or holds: the others go on")
@pytest.mark.parametrize("now", [True, False], ids=["now", "politely"])
def test_restart_while_waiting(shared: SharedGpu, other: Kernel, ending: Kernel, now: bool) -> None:
    """The holder is not disturbed; the restarted kernel is a new tenant that works."""
    held = begin_to_hold(shared, other)
    begin_to_wait(shared, ending)
    tenant_before = ending.tenant_id
    ending.restart(now=now)
    assert ending.tenant_id not in (None, tenant_before)
    assert shared.waiters() == [] and shared.holders() == ["other.ipynb"]
    assert not other.done(held)
    other.interrupt()
    assert other.wait(held).ename == "KeyboardInterrupt"
    ending.run(gpu_cells.setup()).ok()
    ending.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("Restart of a kernel that waits...")
@pytest.mark.promise("A kernel restarted while it waits...")
@pytest.mark.parametrize("now", [True, False], ids=["now", "politely"])
def test_restart_while_holding(shared: SharedGpu, other: Kernel, ending: Kernel, now: bool) -> None:
    """The one who waits is served, and the restarted kernel works again."""
    begin_to_hold(shared, ending)
    waiting = begin_to_wait(shared, other)
    ending.restart(now=now)
    other.wait(waiting).ok()
    ending.run(gpu_cells.setup()).ok()
    ending.run(gpu_cells.spin(1)).ok()


@pytest.mark.full
@pytest.mark.promise(
    "jupyter",
    "Shutdown of a kernel that waits or holds leaves the others running",
)
@pytest.mark.promise("bad-input", "A kernel shut down while it waits or holds: the others go on")
@pytest.mark.parametrize("now", [True, False], ids=["now", "politely"])
def test_shutdown_while_waiting(
    shared: SharedGpu, other: Kernel, ending: Kernel, now: bool
) -> None:
    """The holder is not disturbed, and the queue is empty."""
    held = begin_to_hold(shared, other)
    begin_to_wait(shared, ending)
    ending.stop(now=now)
    gone(shared, "ending.ipynb")
    assert shared.waiters() == [] and not other.done(held)


@pytest.mark.promise("Shutdown of a kernel that waits...")
@pytest.mark.promise("A kernel shut down while it...")
@pytest.mark.parametrize("now", [True, False], ids=["now", "politely"])
def test_shutdown_while_holding(
    shared: SharedGpu, other: Kernel, ending: Kernel, now: bool
) -> None:
    """The one who waits is served."""
    begin_to_hold(shared, ending)
    waiting = begin_to_wait(shared, other)
    ending.stop(now=now)
    other.wait(waiting).ok()
    gone(shared, "ending.ipynb")


@pytest.mark.promise("bad-input", "A kernel killed with the turn (SIGKILL): the next one gets it")
def test_a_kernel_that_dies_with_the_turn(shared: SharedGpu, other: Kernel, ending: Kernel) -> None:
    """SIGKILL: the end of the connection is enough, nobody has to say anything."""
    begin_to_hold(shared, ending)
    waiting = begin_to_wait(shared, other)
    os.kill(ending.pid, signal.SIGKILL)
    other.wait(waiting).ok()


@pytest.mark.promise(
    "bad-input",
    "A kernel killed with the turn, whose forked child lives on and may keep the socket: the next "
    "one gets it",
)
def test_a_kernel_that_dies_and_leaves_a_forked_child(
    shared: SharedGpu, other: Kernel, ending: Kernel
) -> None:
    """A child that lives on, and may keep the kernel's descriptors, does not keep its turn."""
    code = "import os, signal\nchild = os.fork()\nif child == 0:\n    signal.pause()\nchild"
    child = int(ending.run(code).ok().text)
    try:
        begin_to_hold(shared, ending)
        waiting = begin_to_wait(shared, other)
        os.kill(ending.pid, signal.SIGKILL)
        other.wait(waiting).ok()
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.promise("Scheduler gone: holders go on, waiters...")
def test_the_scheduler_ends_and_the_holder_goes_on(
    shared: SharedGpu, other: Kernel, ending: Kernel, tmp_path: Path
) -> None:
    """A kernel that has the turn when the scheduler dies finishes its cell."""
    waits = gpu_cells.wait_for(tmp_path / "go")
    cell = ending.submit(f"{gpu_cells.spin(20)}\n{waits}\n{gpu_cells.spin(20, 5)}")
    shared.await_holder("ending.ipynb")
    shared.scheduler.kill()
    (tmp_path / "go").touch()
    ending.wait(cell).ok()
    other.stop()  # with nobody to tell it to


@pytest.mark.promise("A device-side assert: its turn goes...")
def test_a_device_side_assert_costs_only_its_own_kernel(
    shared: SharedGpu, other: Kernel, ending: Kernel
) -> None:
    """The failed kernel is told to restart, its turn goes back at once, memory of the other is
    whole, and after a restart it works again."""
    other.run("kept = gpu.allocate(4096)\ngpu.fill(kept, 3, 4096)\ngpu.synchronize()").ok()
    shared.scheduler.client.change_settings({"idle_ms": 600_000})
    # The cell goes on after its failure: it is not its end that gives the turn back.
    failing = ending.submit(
        "try:\n    gpu.launch('assert_fail')\n    gpu.synchronize()\n"
        "except RuntimeError as error:\n    print(error, flush=True)\n"
        "import threading\ngo = threading.Event()\ngo.wait(600)"
    )
    while "CUDA_ERROR_ASSERT" not in ending.text_of(failing):
        assert not ending.done(failing)
    assert int(other.run("gpu.checksum(kept, 4096)").ok().text) == 3 * 4096**2
    ending.interrupt()
    reply = ending.wait(failing)
    assert "Restart the kernel to go on" in reply.stderr
    assert ending.run(gpu_cells.spin(1)).ename == "RuntimeError"
    ending.restart()
    ending.run(gpu_cells.setup()).ok()
    ending.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("Scheduler gone: holders go on, waiters...")
def test_a_restarted_scheduler_serves_those_who_wait(
    shared: SharedGpu, other: Kernel, ending: Kernel, tmp_path: Path
) -> None:
    """The scheduler dies and another one takes its place: the holder finishes its cell, the waiting
    cell is served, and nothing overlaps."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    observed = shared.observed(other, ending)
    waits = gpu_cells.wait_for(tmp_path / "go")
    held = observed.submit(0, f"{gpu_cells.spin(20)}\n{waits}\n{gpu_cells.spin(20, 5)}")
    shared.await_holder("other.ipynb")
    waiting = observed.submit(1, gpu_cells.spin(5))
    shared.await_waiter("ending.ipynb")
    shared.scheduler.kill()
    (tmp_path / "go").touch()
    env = {**shared.machine.env, "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(tmp_path / "run", env=env):
        observed.collect(0, held).ok()
        observed.collect(1, waiting).ok()
    (served,) = hand_overs(observed.works(), observed.cells)
    assert served.taker == 1
    assert overlaps(observed.works()) == 0
