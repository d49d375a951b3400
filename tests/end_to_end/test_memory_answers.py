"""What a tenant is told about the device's memory, and what it may have of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support.machine import Machine
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import GIB, MIB, SimulatedMachine

CAP = 2 * GIB
NVML = """
import pynvml
pynvml.nvmlInit()
info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print(info.total, info.free, info.used)
"""
SMI = f"""
import subprocess, sys
print(subprocess.run([sys.executable, "-c", {NVML!r}], capture_output=True, text=True).stdout)
"""


@pytest.fixture
def shared(sim: SimulatedMachine, tmp_path: Path) -> Iterator[SharedGpu]:
    """A scheduler that gives each tenant 2 of the device's 8 GiB."""
    machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
    env = {**machine.env, "CUDA_VISIBLE_DEVICES": "0"}
    option = f"--GPUShareScheduler.memory_cap_bytes={CAP}"
    with running_scheduler(tmp_path / "run", option, env=env) as scheduler:
        gpu = SharedGpu(machine, scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


@pytest.mark.promise(
    "hook-7",
    "A cap holds, for all processes of a tenant and all threads of a process",
)
@pytest.mark.promise(
    "hook-8",
    "`cuMemGetInfo` and `cuDeviceTotalMem` answer for the tenant, from the first question on",
)
@pytest.mark.promise(
    "hook-9",
    "NVML memory queries answer for the tenant, also in a process that uses NVML alone, as "
    "`nvidia-smi` does",
)
def test_a_capped_tenant_sees_and_gets_its_own(shared: SharedGpu) -> None:
    """cuMemGetInfo, cuDeviceTotalMem and NVML, in the kernel and in a child that uses NVML alone,
    say total 2 GiB and used what this tenant has, whatever another one has; an allocation beyond
    is out of memory, and what was freed can be had again."""
    kernel, other = shared.kernel("kernel.ipynb"), shared.kernel("other.ipynb")
    other.run(f"theirs = gpu.allocate({512 * MIB // 4})").ok()
    kernel.run(f"mine = gpu.allocate({256 * MIB // 4})").ok()
    seen = "(checked(cu.cuMemGetInfo()), checked(cu.cuDeviceTotalMem(gpu.device)))"
    assert kernel.run(seen).ok().text == f"([{CAP - 256 * MIB}, {CAP}], {CAP})"
    expected = f"{CAP} {CAP - 256 * MIB} {256 * MIB}"
    assert kernel.run(NVML).ok().text.strip() == expected
    assert kernel.run(SMI).ok().text.strip() == expected

    refused = kernel.run(f"gpu.allocate({(CAP - 255 * MIB) // 4})")
    assert refused.evalue == "CUDA error: CUDA_ERROR_OUT_OF_MEMORY"
    kernel.run("gpu.free(mine)").ok()
    assert kernel.run(seen).ok().text == f"([{CAP}, {CAP}], {CAP})"
    kernel.run(f"mine = gpu.allocate({(CAP - 255 * MIB) // 4})").ok()
    other.run(f"more = gpu.allocate({512 * MIB // 4})").ok()


@pytest.mark.promise("hook-7")
@pytest.mark.promise("hook-8")
def test_a_cap_holds_for_all_processes_of_a_tenant(shared: SharedGpu) -> None:
    """What the kernel has, its children cannot have too; and a child that asks how much there is
    at once, before anybody can have told it of the cap, gets the right answer."""
    kernel = shared.kernel("kernel.ipynb")
    kernel.run(f"mine = gpu.allocate({1536 * MIB // 4})").ok()
    child = """
from cuda.bindings import driver as cu
cu.cuInit(0)
total = cu.cuDeviceTotalMem(0)[1]
cu.cuCtxSetCurrent(cu.cuDevicePrimaryCtxRetain(0)[1])
print(total, *cu.cuMemGetInfo()[1:], *(cu.cuMemAlloc(400 << 20)[0].name for _ in range(2)))
"""
    code = f"import subprocess, sys\nrun = [sys.executable, '-c', {child!r}]\n"
    code += "print(subprocess.check_output(run, text=True))"
    told = kernel.run(code).ok().text.strip()
    assert told == f"{CAP} {512 * MIB} {CAP} CUDA_SUCCESS CUDA_ERROR_OUT_OF_MEMORY"
