"""Two kernels on one simulated device: their cells take turns. Judged from the device's journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu, await_printed
from tests.kernel.test_turn_api import THREAD
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.timeline import overlaps
from tests.support.waits import wait_until


@pytest.fixture
def shared(settings_as_new: SharedGpu) -> SharedGpu:
    return settings_as_new


@pytest.fixture(scope="module")
def alice(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("alice.ipynb")


@pytest.fixture(scope="module")
def bob(lasting: SharedGpu) -> Kernel:
    return lasting.kernel("bob.ipynb")


@pytest.mark.promise(
    "jupyter-46",
    "A kernel started by the provisioner is a tenant; cells of two kernels take turns and never "
    "overlap",
)
@pytest.mark.promise(
    "jupyter-47",
    "The next kernel's cell starts within milliseconds of the end of the one before",
)
def test_cells_take_turns(shared: SharedGpu, alice: Kernel, bob: Kernel) -> None:
    """Cells of both kernels at once: never two on the device, each waits and is served, results are
    right. Only the end of a cell lets the next one start: quantum and idle time last too long."""
    shared.scheduler.client.change_settings({"quantum_s": 600, "idle_ms": 600_000})
    observed = shared.observed(alice, bob)
    cell = gpu_cells.fill_and_check(7, milliseconds=15, count=4)
    assert overlaps(observed.play_until_served(cell, 3)) == 0


@pytest.mark.promise(
    "scheduler-51",
    "`turns` off lets everybody run, and on again restores the turns",
)
@pytest.mark.promise("jupyter-46")
def test_without_turns_cells_overlap(shared: SharedGpu, alice: Kernel, bob: Kernel) -> None:
    """The control: with turns off the same cells are on the device at once."""
    shared.scheduler.client.change_settings({"turns": "off"})
    observed = shared.observed(alice, bob)
    while overlaps(observed.works()) == 0:  # both have to come to their cells at about one time
        observed.play(gpu_cells.fill_and_check(7, milliseconds=15, count=4), 3)


@pytest.mark.promise("jupyter-2")
def test_async_cells_take_turns(shared: SharedGpu, alice: Kernel, bob: Kernel) -> None:
    """Cells with a top-level await are cells like others."""
    observed = shared.observed(alice, bob)
    code = f"import asyncio\nawait asyncio.sleep(0)\n{gpu_cells.spin(15, 4)}"
    assert overlaps(observed.play_until_served(code, 2)) == 0


@pytest.mark.promise("jupyter-48", "Cells that use no GPU never wait")
def test_what_uses_no_gpu_never_waits(
    shared: SharedGpu, alice: Kernel, bob: Kernel, tmp_path: Path
) -> None:
    """Cells without GPU calls run while another kernel has the device, and ask for nothing."""
    waits_before = shared.tenant("bob.ipynb")["counters"]["turns"]  # type: ignore[index]
    busy = alice.submit(f"{gpu_cells.spin(20)}\n{gpu_cells.wait_for(tmp_path / 'go')}")
    shared.await_holder("alice.ipynb")
    assert bob.run("sum(range(10))").ok().text == "45"
    assert not alice.done(busy)
    assert shared.tenant("bob.ipynb")["counters"]["turns"] == waits_before  # type: ignore[index]
    (tmp_path / "go").touch()
    alice.wait(busy).ok()


@pytest.mark.promise("jupyter-49", "Memory stays where it is between turns")
def test_memory_stays_between_turns(shared: SharedGpu, alice: Kernel, bob: Kernel) -> None:
    """What a kernel left on the device is there, unchanged, after another one's turn."""
    keep = "kept = gpu.allocate(4096)\ngpu.fill(kept, {value}, 4096)\ngpu.synchronize()"
    alice.run(keep.format(value=3)).ok()
    bob.run(keep.format(value=5)).ok()
    assert int(alice.run("gpu.checksum(kept, 4096)").ok().text) == 3 * 4096**2
    assert int(bob.run("gpu.checksum(kept, 4096)").ok().text) == 5 * 4096**2


@pytest.mark.promise("scheduler-50")
@pytest.mark.parametrize("ending", ["1 / 0", "raise SystemExit"])
def test_a_failing_cell_gives_the_turn_back(
    shared: SharedGpu, alice: Kernel, bob: Kernel, ending: str, tmp_path: Path
) -> None:
    """A cell that fails with the turn ends it as any other does: at once, not after idle time."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    waits = gpu_cells.wait_for(tmp_path / "go")
    failing = alice.submit(f"{gpu_cells.spin(20)}\n{waits}\n{ending}")
    shared.await_holder("alice.ipynb")
    waiting = bob.submit(gpu_cells.spin(1))
    shared.await_waiter("bob.ipynb")
    (tmp_path / "go").touch()
    bob.wait(waiting).ok()
    assert alice.wait(failing).status == "error"


def test_silent_execution_gives_the_turn_back_when_idle(
    shared: SharedGpu, alice: Kernel, bob: Kernel
) -> None:
    """Silent code is no cell; its turn goes back for lack of GPU work."""
    assert alice.run(gpu_cells.spin(5), silent=True).status == "ok"
    bob.run(gpu_cells.spin(1)).ok()


@pytest.mark.promise(
    "scheduler-52", "Idle time inside a cell gives the turn back while others wait"
)
def test_a_pause_inside_a_cell_lets_the_other_in(
    shared: SharedGpu, alice: Kernel, bob: Kernel
) -> None:
    """A cell that stops using the GPU for idle_ms, and goes on later, does not keep the other."""
    held = alice.submit(
        f"{gpu_cells.spin(5)}\nimport threading\ngo = threading.Event()\n"
        f"print('up', flush=True)\ngo.wait()\n{gpu_cells.spin(5)}"
    )
    await_printed(alice, held)
    bob.run(gpu_cells.spin(1)).ok()
    assert not alice.done(held)
    subshell = alice.control("create_subshell_request")["subshell_id"]
    alice.run("go.set()", subshell_id=subshell).ok()
    alice.wait(held).ok()


@pytest.mark.promise("jupyter-2")
def test_overlapping_cells_of_a_kernel_are_one_tenant(
    shared: SharedGpu, alice: Kernel, bob: Kernel, tmp_path: Path
) -> None:
    """Cells on a subshell and on the main shell use the device together; the other kernel gets it
    when the last one has ended."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    subshell = alice.control("create_subshell_request")["subshell_id"]
    observed = shared.observed(alice, bob)
    waits = gpu_cells.wait_for(tmp_path / "go")
    code = f"cu.cuCtxSetCurrent(gpu.context)\n{gpu_cells.spin(10)}\n{waits}\n{gpu_cells.spin(10)}"
    long = alice.submit(code, subshell_id=subshell)
    shared.await_holder("alice.ipynb")
    waiting = bob.submit(gpu_cells.spin(5))
    shared.await_waiter("bob.ipynb")
    alice.run(gpu_cells.spin(5)).ok()
    assert not bob.done(waiting)
    (tmp_path / "go").touch()
    bob.wait(waiting).ok()
    alice.wait(long).ok()
    assert overlaps(observed.works()) == 0


@pytest.mark.promise("jupyter-44")
def test_the_gpu_stays_until_the_threads_turn_ends(shared: SharedGpu, alice: Kernel) -> None:
    """Where nobody is idle for long, the GPU stays with the thread's kernel after the cell, and is
    given back when the turn of the thread ends."""
    shared.scheduler.client.change_settings({"idle_ms": 600_000, "quantum_s": 600})
    alice.run(f"{THREAD}\n{gpu_cells.spin(1)}").ok()
    assert shared.holders() == ["alice.ipynb"]
    alice.run("go.set(); thread.join()", silent=True).ok()
    wait_until(lambda: shared.holders() == [], "the turn is given back")
