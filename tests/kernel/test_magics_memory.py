"""`%gpushare` in kernels that have more memory together than the simulated GPU has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.machine import Machine
from tests.support.memory_tenants import swapping_scheduler
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import wait_until

DEVICE_BYTES = 512 * MIB
TAKES_MOST = f"memory = gpu.allocate({384 * MIB // 4})\n{gpu_cells.spin(1)}"


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[SharedGpu]:
    """A device on which one kernel's memory has room, and not two kernels'."""
    sim = SimulatedMachine(tmp_path / "machine", bytes_per_device=DEVICE_BYTES)
    machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
    with swapping_scheduler(tmp_path / "run", machine.env) as scheduler:
        gpu = SharedGpu(machine, scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


def bytes_of(gpu: SharedGpu, name: str, kind: str) -> int:
    """Resident or parked, as the scheduler has heard last."""
    tenant = gpu.tenant(name)
    assert tenant is not None
    return sum(memory[f"bytes_{kind}"] for memory in tenant["memory"])


@pytest.mark.promise(
    "jupyter-27",
    "`%gpushare` shows each device's memory, what this kernel has there and parked, and what is "
    "in its way",
)
def test_parked_memory_is_told(crowded: SharedGpu) -> None:
    """What had to make room is told to its own kernel as parked."""
    alice, bob = crowded.kernel("alice.ipynb"), crowded.kernel("bob.ipynb")
    alice.run(TAKES_MOST).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "resident") > 0, "her memory is known")
    assert "Memory of this kernel: 384 MiB on Simulated GPU." in alice.run("%gpushare").ok().text
    bob.run(TAKES_MOST).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "parked") > 0, "her memory is parked")
    text = alice.run("%gpushare").ok().text
    found = re.search(
        r"Memory of this kernel: (\d+) MiB on Simulated GPU, parked (\d+) MiB\.", text
    )
    assert found, text
    assert int(found[1]) + int(found[2]) == 384
    assert re.search(r"[█░]{20} \d+ MiB of 512 MiB in use", text), text


@pytest.mark.promise("jupyter-25")
@pytest.mark.full
def test_memory_that_came_back_is_explained(crowded: SharedGpu) -> None:
    """Her cell had the GPU at once, and waited for what of her memory had made room."""
    alice, bob = crowded.kernel("alice.ipynb"), crowded.kernel("bob.ipynb")
    alice.run(TAKES_MOST).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "resident") > 0, "her memory is known")
    bob.run(TAKES_MOST).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "parked") > 0, "her memory is parked")
    alice.run(gpu_cells.spin(1)).ok()
    wait_until(lambda: bytes_of(crowded, "alice.ipynb", "parked") == 0, "her memory is back")
    text = alice.run("%gpushare explain").ok().text
    assert text.startswith("The last cell waited "), text
    found = re.search(r"Its memory came back: ([\d.]+) MiB\.", text)
    assert found and 0 < float(found[1]) <= 384, text
