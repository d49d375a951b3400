"""A device that disappears from under the notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.machine import Machine
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import SimulatedMachine

LOSE = "lose device=0 call=cuLaunchKernel nth=1 from=lose"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedGpu]:
    """A machine with two devices and its scheduler, which looks at them often."""
    sim = SimulatedMachine(tmp_path / "machine", devices=2)
    machine = Machine(device="two simulated GPUs", env=sim.env(), sim=sim)
    env = {**machine.env, "CUDA_VISIBLE_DEVICES": "0,1"}
    option = "--GPUShareScheduler.probe_period_s=0.1"
    with running_scheduler(tmp_path / "run", option, env=env) as scheduler:
        gpu = SharedGpu(machine, scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


@pytest.mark.promise("simulated-38")
@pytest.mark.promise(
    "bad-input-4",
    "A device that disappears: its users and waiters meet the driver's error, the others go on",
)
def test_a_device_that_disappears(shared: SharedGpu) -> None:
    """The cell that uses it, and the one that waits for it, end with the driver's error; nobody
    hangs, no kernel dies, and a kernel on the other device goes on."""
    user = shared.kernel("user.ipynb", env={"GPUSHARE_SIM_FAULTS": LOSE})
    waiter = shared.kernel("waiter.ipynb")
    other = shared.kernel("other.ipynb", set_up=False)
    other.run(gpu_cells.setup(ordinal=1)).ok()
    shared.scheduler.client.change_settings({"quantum_s": 600, "idle_ms": 600_000})
    using = user.submit(gpu_cells.spin_until_interrupted(20))
    shared.await_holder("user.ipynb")
    waiting = waiter.submit(gpu_cells.spin(1))
    shared.await_waiter("waiter.ipynb")
    assert shared.machine.sim is not None
    (shared.machine.sim.directory / "lose").touch()
    for cell, kernel in ((using, user), (waiting, waiter)):
        reply = kernel.wait(cell)
        assert reply.ename == "RuntimeError", (kernel.name, reply)
        assert "CUDA_ERROR" in str(reply.evalue)
    shared.scheduler.eventually(lambda s: sorted(d["lost"] for d in s["devices"]) == [False, True])
    other.run(gpu_cells.fill_and_check(5, milliseconds=1)).ok()
    for kernel in (user, waiter):
        assert kernel.run(gpu_cells.spin(1)).status == "error"
        assert kernel.run("6 * 7").ok().text == "42"
    other.run(gpu_cells.fill_and_check(6, milliseconds=1)).ok()
