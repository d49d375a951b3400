"""A device-side assertion in a notebook: a sticky error, which only a restart cures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.waits import wait_until

KEPT_MIB = 96
FAILS = """
kept = gpu.allocate({words})
gpu.launch("assert_fail")
try:
    gpu.synchronize()
except RuntimeError as error:
    print(error, flush=True)
import pathlib, threading
while not pathlib.Path({file!r}).exists():
    threading.Event().wait(0.02)
"""


@pytest.fixture
def broken(shared: SharedGpu) -> Kernel:
    return shared.kernel("broken.ipynb")


@pytest.fixture
def other(shared: SharedGpu) -> Kernel:
    return shared.kernel("other.ipynb")


@pytest.mark.promise(
    "bad-input-2",
    "A device-side assert: that kernel is told to restart and how much memory that frees",
)
@pytest.mark.promise(
    "bad-input-3",
    "A device-side assert: its turn goes back at once, also when nobody looked, and the others go "
    "on",
)
def test_a_device_side_assertion(
    shared: SharedGpu, broken: Kernel, other: Kernel, tmp_path: Path
) -> None:
    """The kernel is told to restart and how much memory that frees; its turn goes back at once, in
    the middle of its cell, and the other kernel goes on; after the restart all is well. A cell that
    does not synchronise gives its turn back all the same."""
    shared.scheduler.client.change_settings({"quantum_s": 600, "idle_ms": 600_000})
    other.run("kept = gpu.allocate(4096)\ngpu.fill(kept, 9, 4096)\ngpu.synchronize()").ok()
    file = tmp_path / "go"
    failing = broken.submit(FAILS.format(words=KEPT_MIB << 18, file=str(file)))
    wait_until(lambda: "CUDA_ERROR_ASSERT" in broken.text_of(failing), "the assertion fails")
    other.run(gpu_cells.fill_and_check(7, milliseconds=1)).ok()
    assert not broken.done(failing)
    file.touch()
    told = broken.wait(failing).ok().stderr
    assert told.count("gpushare: ") == 1
    assert "CUDA_ERROR_ASSERT" in told
    assert "Restart the kernel" in told and f"frees {KEPT_MIB} MiB" in told

    again = broken.run(gpu_cells.spin(1))
    assert (again.ename, again.evalue) == ("RuntimeError", "CUDA error: CUDA_ERROR_ASSERT")
    assert broken.run("6 * 7").ok().text == "42"
    assert int(other.run("gpu.checksum(kept, 4096)").ok().text) == 9 * 4096**2
    assert shared.holders() == []

    broken.restart()
    broken.run(gpu_cells.setup()).ok()
    broken.run(gpu_cells.fill_and_check(3)).ok()

    broken.run('gpu.launch("assert_fail")').ok()  # it ends without knowing of its failure
    other.run(gpu_cells.spin(1)).ok()
    after = broken.run("gpu.synchronize()")
    assert after.evalue == "CUDA error: CUDA_ERROR_ASSERT"
    other.run(gpu_cells.spin(1)).ok()
    assert shared.machine.sim is not None and shared.machine.sim.overlaps() == []
