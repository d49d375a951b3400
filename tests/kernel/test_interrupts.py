"""Interrupting kernels that wait for the device or hold it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import Kernel

LONG = gpu_cells.spin_until_interrupted(20)


@pytest.fixture
def shared(settings_as_new: SharedGpu) -> SharedGpu:
    return settings_as_new


@pytest.fixture(scope="module")
def holder(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("holder.ipynb")


@pytest.fixture(scope="module")
def waiter(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("waiter.ipynb")


WAITING_CELLS = [
    pytest.param(gpu_cells.spin(1), id="sync"),
    pytest.param(f"await __import__('asyncio').sleep(0)\n{gpu_cells.spin(1)}", id="async"),
    pytest.param(
        f"""
while True:
    try:
        {gpu_cells.spin(1)}
    except RuntimeError:
        pass
""",
        id="tries-again",
    ),
    pytest.param(
        "import threading\n"
        "def work():\n"
        "    cu.cuCtxSetCurrent(gpu.context)\n"
        "    try:\n"
        f"        {gpu_cells.spin(1)}\n"
        "    except RuntimeError as error:\n"
        "        seen = str(error)\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "thread.join()",
        id="thread",
    ),
]


@pytest.mark.promise(
    "jupyter",
    "Interrupting a kernel that waits ends the cell with KeyboardInterrupt at once, and it stays "
    "usable",
)
@pytest.mark.parametrize("code", WAITING_CELLS)
def test_an_interrupt_while_waiting(
    shared: SharedGpu, holder: Kernel, waiter: Kernel, code: str
) -> None:
    """The waiting cell ends with KeyboardInterrupt at once; its kernel, its context and the holder
    go on."""
    waiter.run("kept = gpu.allocate(4096)\ngpu.fill(kept, 9, 4096)\ngpu.synchronize()").ok()
    shared.scheduler.client.change_settings({"quantum_s": 600})
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(code)
    shared.await_waiter("waiter.ipynb")
    waiter.interrupt()
    assert waiter.wait(waiting, timeout_s=20).ename == "KeyboardInterrupt"
    assert waiter.run("6 * 7").ok().text == "42"
    assert not holder.done(long)
    holder.interrupt()
    assert holder.wait(long).ename == "KeyboardInterrupt"
    assert int(waiter.run("gpu.checksum(kept, 4096)").ok().text) == 9 * 4096**2


@pytest.mark.promise(
    "jupyter",
    "Interrupting a kernel that holds the turn, or is idle, works as ever",
)
def test_an_interrupt_while_holding(shared: SharedGpu, holder: Kernel, waiter: Kernel) -> None:
    """The holder's cell ends with KeyboardInterrupt, the waiting one is served, and the holder
    works again."""
    shared.scheduler.client.change_settings({"quantum_s": 600})
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(gpu_cells.spin(1))
    shared.await_waiter("waiter.ipynb")
    holder.interrupt()
    assert holder.wait(long, timeout_s=20).ename == "KeyboardInterrupt"
    waiter.wait(waiting, timeout_s=20).ok()
    holder.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("Interrupting a kernel that holds the...")
def test_an_interrupt_of_an_idle_kernel_harms_nobody(
    shared: SharedGpu, holder: Kernel, waiter: Kernel
) -> None:
    """Nothing waits there: the next cell is not cancelled for it."""
    waiter.interrupt()
    waiter.run(gpu_cells.spin(1)).ok()
    holder.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("Interrupting a kernel that waits ends...")
def test_the_users_own_kill_cancels_the_wait_too(
    shared: SharedGpu, holder: Kernel, waiter: Kernel
) -> None:
    """A SIGINT that does not come through the provisioner ends the wait as well."""
    shared.scheduler.client.change_settings({"quantum_s": 600})
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(gpu_cells.spin(1))
    shared.await_waiter("waiter.ipynb")
    os.kill(waiter.pid, signal.SIGINT)
    assert waiter.wait(waiting, timeout_s=20).ename == "KeyboardInterrupt"
    assert not holder.done(long)
