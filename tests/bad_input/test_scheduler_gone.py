"""A scheduler that dies under kernels which hold the device and wait for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.scheduler_process import running_scheduler
from tests.support.waits import wait_until

LOOPS_UNTIL = """
import pathlib
while not pathlib.Path({file!r}).exists():
    gpu.spin(5)
"""


@pytest.mark.promise("scheduler-89")
@pytest.mark.promise(
    "bad-input-6",
    "Scheduler gone: holders go on, waiters read why in the notebook, and are served by the next "
    "one",
)
def test_a_scheduler_that_dies_and_comes_back(shared: SharedGpu, tmp_path: Path) -> None:
    """The holder computes on; who waits reads in the notebook what is wrong and what to do, and is
    served by the next scheduler when the holder's cell has ended: at no time are both on the
    device."""
    holder, waiter = shared.kernel("holder.ipynb"), shared.kernel("waiter.ipynb")
    settings = {"idle_ms": 600_000, "quantum_s": 600, "reconnect_s": 1}
    shared.scheduler.client.change_settings(settings)
    file = tmp_path / "go"
    held = holder.submit(LOOPS_UNTIL.format(file=str(file)))
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(gpu_cells.fill_and_check(7, milliseconds=5))
    shared.await_waiter("waiter.ipynb")
    shared.scheduler.kill()
    wait_until(lambda: "gpushare: " in waiter.stderr_of(waiting), "the notebook is told")
    told = waiter.stderr_of(waiting)
    assert "no GPU scheduler answers at" in told and "`jupyter gpushare scheduler`" in told
    assert not waiter.done(waiting) and not holder.done(held)
    env = {**shared.machine.env, "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(shared.scheduler.directory, env=env) as next_one:
        # The waiter is the same user's: it may be served before the holder's cell has ended.
        next_one.eventually(lambda s: sum(each["counters"]["turns"] for each in s["tenants"]))
        file.touch()
        assert holder.wait(held).ok().stderr == ""
        waiter.wait(waiting).ok()
        assert shared.machine.sim is not None and shared.machine.sim.overlaps() == []
        holder.stop()
        waiter.stop()


@pytest.mark.promise("bad-input-7", "Scheduler gone: a waiting cell can be interrupted")
def test_an_interrupt_without_a_scheduler(shared: SharedGpu) -> None:
    """A cell that waits for a scheduler which is gone can be interrupted, and the kernel lives."""
    kernel = shared.kernel("kernel.ipynb")
    shared.scheduler.client.change_settings({"reconnect_s": 1})
    kernel.run(gpu_cells.spin(1)).ok()
    shared.scheduler.kill()
    waiting = kernel.submit(gpu_cells.spin(1))
    wait_until(lambda: "interrupt it to stop" in kernel.stderr_of(waiting), "it waits")
    kernel.interrupt()
    assert kernel.wait(waiting).ename == "KeyboardInterrupt"
    assert kernel.run("6 * 7").ok().text == "42"
