"""What the simulated devices are charged for managed memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.harness import run_program
from tests.support.paths import SIM_DRIVER
from tests.support.sim import MIB, SimulatedMachine

pytestmark = pytest.mark.skipif(not SIM_DRIVER.exists(), reason="run `make build` first")

SET_UP = """
from cuda.bindings import driver as cuda
from tests.driver.harness import MIB, Gpu, ok
from tests.driver.test_managed_memory import CPU, advise, prefetch
gpu, size = Gpu(), 64 * MIB
pointer = int(ok(cuda.cuMemAllocManaged(size, cuda.CUmemAttach_flags(1))))
before = ok(cuda.cuMemGetInfo())[0]
def taken():
    ok(cuda.cuCtxSynchronize())
    print((before - ok(cuda.cuMemGetInfo())[0]) // MIB)
def launch():
    gpu.launch("fill", pointer, 5, size // 4)
    taken()
def go(device, part=size):
    prefetch(pointer, device, part)
    taken()
"""


def said(folder: Path, *lines: str) -> list[str]:
    """What a program prints on a machine of its own, whose device has 512 MiB."""
    machine = SimulatedMachine(folder, bytes_per_device=512 * MIB)
    program = "\n".join([SET_UP, *lines])
    done = run_program(machine.env({"GPUSHARE_DRIVER": "named"}), program)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.promise("simulated-36", "A device is charged for the managed memory that it holds")
def test_a_device_holds_what_it_touches(tmp_path: Path) -> None:
    """It is charged from the first touch or prefetch on, until a free. What a prefetch to the host
    has left is kept, as an H100's driver keeps it, until somebody allocates."""
    lines = ["taken(); launch(); go(CPU); go(0, size // 2); go(0); go(CPU, size // 4)"]
    lines += ["rest = ok(cuda.cuMemGetInfo())[0]", "ok(cuda.cuMemAlloc(rest + 8 * MIB))"]
    lines += ["before -= rest", "taken()"]
    assert said(tmp_path, *lines) == ["0", *["64"] * 5, "64"]
    freed = "launch(); ok(cuda.cuMemFree(pointer)); taken()"
    assert said(tmp_path / "freed", freed) == ["64", "0"]


@pytest.mark.promise("simulated-36")
def test_a_full_device_leaves_memory_on_the_host(tmp_path: Path) -> None:
    """Launches reach it there, and prefetches change nothing."""
    lines = [
        "rest = ok(cuda.cuMemGetInfo())[0]",
        "full = ok(cuda.cuMemAlloc(rest - 4 * MIB))",
        "before -= rest - 4 * MIB",
        "launch(); go(0)",
        "print(set(gpu.download(pointer, size // 4).tolist()))",
    ]
    assert said(tmp_path, *lines) == ["4", "4", "{5}"]


def test_memory_that_prefers_the_host_stays_there(tmp_path: Path) -> None:
    """A launch does not move it; a prefetch does."""
    assert said(tmp_path, "advise(pointer, 3, CPU, size); launch(); go(0)") == ["0", "64"]
