"""Interrupting kernels that wait for the device or hold it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.waits import wait_until

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
    "jupyter-14",
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
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(code)
    shared.await_waiter("waiter.ipynb")
    waiter.interrupt()
    assert waiter.wait(waiting).ename == "KeyboardInterrupt"
    assert waiter.run("6 * 7").ok().text == "42"
    assert not holder.done(long)
    holder.interrupt()
    assert holder.wait(long).ename == "KeyboardInterrupt"
    assert int(waiter.run("gpu.checksum(kept, 4096)").ok().text) == 9 * 4096**2


ONE_LINE = ["KeyboardInterrupt: This cell was interrupted while it waited for the GPU."]


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cell's text: `launch` is a function in C that launches and raises an exception itself, with
    the interpreter's lock held throughout. Its last argument says how many ways it tries."""
    library = tmp_path_factory.mktemp("c") / "libheld_lock.so"
    source = Path(__file__).with_name("held_lock.c")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", library, source], check=True)
    return (
        f"import ctypes\n"
        f"launch = ctypes.PyDLL({str(library)!r}).held_lock_launch\n"
        f"launch.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int]\n"
        f"gpu.spin(0)\n"
        f"spin = int(gpu._functions['spin'])\n"
    )


def interrupt(shared: SharedGpu, kernel: Kernel, mode: str) -> None:
    """As the kernelspec says; of a message the server tells the scheduler."""
    spec = kernel.manager.kernel_spec
    assert spec is not None and kernel.tenant_id is not None
    before, spec.interrupt_mode = spec.interrupt_mode, mode
    kernel.interrupt()
    spec.interrupt_mode = before
    if mode == "message":
        shared.scheduler.client.interrupt_tenant(kernel.tenant_id)


@pytest.mark.promise(
    "jupyter-15",
    "A cell that is interrupted while it waits shows one line, without the error of the cancelled "
    "call, and leaves the queue, also where the interpreter's lock is held meanwhile",
)
@pytest.mark.parametrize("mode", ["signal", "message", "scheduler"])
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("gpu.spin(1)", id="cuda-python"),
        pytest.param("more = gpu.allocate(64 << 20)", id="allocation"),
        pytest.param("launch(spin, 1000, 1)", id="lock-held"),
        pytest.param("launch(spin, 1000, 3)", id="tries-other-ways"),
        pytest.param("await __import__('asyncio').sleep(0)\nlaunch(spin, 1000, 1)", id="async"),
    ],
)
def test_an_interrupted_wait_shows_one_line(
    shared: SharedGpu, holder: Kernel, waiter: Kernel, c_program: str, code: str, mode: str
) -> None:
    """Nothing of the binding stands in the notebook; nobody waits any longer; the next GPU cell
    works."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    waiter.run(c_program).ok()
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(code)
    shared.await_waiter("waiter.ipynb")
    if mode == "scheduler":
        assert waiter.tenant_id is not None
        shared.scheduler.client.interrupt_tenant(waiter.tenant_id)
    else:
        interrupt(shared, waiter, mode)
    reply = waiter.wait(waiting)
    assert (reply.ename, reply.printed.errors) == ("KeyboardInterrupt", ONE_LINE)
    waiter.control(
        "kernel_info_request"
    )  # the message before it has been read: no signal is to come
    assert waiter.run("import sys; repr(sys.last_value.__context__)").ok().text == "'None'"
    wait_until(lambda: shared.waiters() == [], "the place in the queue is free")
    assert not holder.done(long)
    holder.interrupt()
    assert holder.wait(long).ename == "KeyboardInterrupt"
    waiter.run("gpu.spin(1)\nlaunch(spin, 1000, 1)").ok()


@pytest.mark.promise(
    "jupyter-16",
    "Interrupting a kernel that holds the turn, or is idle, works as ever",
)
def test_an_interrupt_while_holding(shared: SharedGpu, holder: Kernel, waiter: Kernel) -> None:
    """The holder's cell ends with KeyboardInterrupt, the waiting one is served, and the holder
    works again."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(gpu_cells.spin(1))
    shared.await_waiter("waiter.ipynb")
    holder.interrupt()
    assert holder.wait(long).ename == "KeyboardInterrupt"
    waiter.wait(waiting).ok()
    holder.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("jupyter-16")
def test_an_interrupt_of_an_idle_kernel_harms_nobody(
    shared: SharedGpu, holder: Kernel, waiter: Kernel
) -> None:
    """Nothing waits there: the next cell is not cancelled for it."""
    waiter.interrupt()
    # The answer comes after the scheduler's word of the interrupt, which a busy machine may delay.
    waiter.run("%gpushare hold 0").ok()
    waiter.run(gpu_cells.spin(1)).ok()
    holder.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise("jupyter-14")
@pytest.mark.full
def test_the_users_own_kill_cancels_the_wait_too(
    shared: SharedGpu, holder: Kernel, waiter: Kernel
) -> None:
    """A SIGINT that does not come through the provisioner ends the wait as well."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(gpu_cells.spin(1))
    shared.await_waiter("waiter.ipynb")
    os.kill(waiter.pid, signal.SIGINT)
    assert waiter.wait(waiting).ename == "KeyboardInterrupt"
    assert not holder.done(long)
