"""Work in flight in one process of a tenant that only another process of the same tenant can let go
on, while the scheduler wants the turn back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.waits import wait_until

WORD = """
import mmap, os
file = os.open({path!r}, os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 4096)
page = mmap.mmap(file, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
checked(cu.cuMemHostRegister(address, 4096, cu.CU_MEMHOSTREGISTER_DEVICEMAP))
word = checked(cu.cuMemHostGetDevicePointer(address, 0))
stream = checked(cu.cuStreamCreate(1))
"""
"""A word of host memory that two processes share and their device work sees."""

WAITS = """
checked(cu.cuStreamWaitValue32(stream, word, 1, 0))
checked(cu.cuMemsetD32Async(int(word) + 64, 7, 1, stream))
print("waits", flush=True)
checked(cu.cuStreamSynchronize(stream))
print(int.from_bytes(page[64:68], "little"))
"""

SIBLING = """
import sys
checked(cu.cuStreamQuery(stream))
print("ready", flush=True)
sys.stdin.readline()
checked(cu.cuStreamWriteValue32(stream, word, 1, 0))
checked(cu.cuStreamSynchronize(stream))
print("written", flush=True)
"""

STARTS_SIBLING = """
import subprocess, sys
sibling = subprocess.Popen(
    [sys.executable, "-c", {code!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
assert sibling.stdout.readline() == "ready\\n"
"""


@pytest.mark.promise(
    "hook-2",
    "A drain that stalls on a gated sibling process reopens the gate for the whole tenant, and is "
    "counted",
)
@pytest.mark.parametrize(
    "sibling_comes",
    [
        pytest.param(True, id="sibling"),
        pytest.param(False, id="control", marks=pytest.mark.full),
    ],
)
def test_a_sibling_process_ends_a_drain_stall(
    shared: SharedGpu, tmp_path: Path, sibling_comes: bool
) -> None:
    """A kernel's stream waits for a word which a child of the kernel writes by a gated call. The
    turn is recalled before the child asks: the gate reopens for both, the work goes on, and then
    the other kernel is served. The control: without the child's call the drain cannot end, and the
    other kernel is not let in."""
    shared.scheduler.client.change_settings({"drain_stall_ms": 100, "idle_ms": 600_000})
    path = str(tmp_path / "word")
    parent, other = shared.kernel("parent.ipynb"), shared.kernel("other.ipynb")
    parent.run(WORD.format(path=path)).ok()
    code = gpu_cells.setup() + WORD.format(path=path) + SIBLING
    parent.run(STARTS_SIBLING.format(code=code)).ok()
    shared.scheduler.client.change_settings({"quantum_s": 0.1})
    # A subshell, so that the cell that waits does not keep the kernel from answering.
    subshell = parent.control("create_subshell_request")["subshell_id"]
    waits = parent.submit(f"cu.cuCtxSetCurrent(gpu.context)\n{WAITS}", subshell_id=subshell)
    while "waits" not in parent.text_of(waits):
        assert not parent.done(waits), parent.wait(waits)
    other_cell = other.submit(gpu_cells.spin(1))
    wait_until(lambda: recalled(shared, "parent.ipynb"), "the turn is recalled")
    if sibling_comes:
        parent.run("sibling.stdin.write('go\\n'); sibling.stdin.flush()").ok()
        assert "7" in parent.wait(waits).ok().text
        assert parent.run("sibling.stdout.readline()").ok().text == "'written\\n'"
        other.wait(other_cell).ok()
        stalls = shared.tenant("parent.ipynb")["counters"]["drain_stalls"]  # type: ignore[index]
        assert stalls >= 1
        assert shared.machine.sim is not None and shared.machine.sim.overlaps() == []
    else:
        with pytest.raises(TimeoutError):
            other.wait(other_cell, timeout_s=1.5)
        assert not parent.done(waits)


def recalled(shared: SharedGpu, name: str) -> bool:
    holders = shared.scheduler.status()["devices"][0]["holders"]
    return any(holder["name"] == name and holder["recalled"] for holder in holders)
