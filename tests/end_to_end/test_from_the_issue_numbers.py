"""The same numbers everywhere: what a tenant has on the device, parked and fixed, and what it may
have, told by the status, the panel and the magic, and by CUDA and NVML inside of its kernel."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.server.state import ServerKernel, panel_state
from tests.kernel.conftest import SharedGpu
from tests.support.kernels import Kernel
from tests.support.machine import Machine
from tests.support.memory_tenants import swapping_scheduler
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import wait_until

DEVICE = 512 * MIB
CAP = 400 * MIB
CONTEXT, RESERVE = 8 * MIB, 16 * MIB
PLAIN, MANAGED = 320 * MIB, 32 * MIB
LOOKS_MAX = 20
CUDA = "(*checked(cu.cuMemGetInfo()), checked(cu.cuDeviceTotalMem(gpu.device)))"
NVML = """
import pynvml
pynvml.nvmlInit()
info = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print((info.free, info.total, info.used))
"""
SMI = f"""
import subprocess, sys
print(subprocess.run([sys.executable, "-c", {NVML!r}], capture_output=True, text=True).stdout)
"""
READ_MOSTLY = """
advice, place = cu.CUmem_advise.CU_MEM_ADVISE_SET_READ_MOSTLY, cu.CUmemLocation()
place.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
"""
"""Such managed memory stays on the device."""
FRAMEWORKS = ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH", "NCCL_GRAPH_REGISTER")


@contextmanager
def crowded(folder: Path, *settings: str) -> Iterator[SharedGpu]:
    """A device on which two kernels have more than there is."""
    sim = SimulatedMachine(folder / "machine", bytes_per_device=DEVICE, context_bytes=CONTEXT)
    machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
    named = (f"device_reserve_bytes={RESERVE}", *settings)
    chosen = [f"--GPUShareScheduler.{each}" for each in named]
    with swapping_scheduler(folder / "run", machine.env, *chosen) as scheduler:
        gpu = SharedGpu(machine, scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


def by_status(gpu: SharedGpu, name: str) -> dict[str, int]:
    """`jupyter gpushare status --json`."""
    command = [sys.executable, "-m", "jupyter_gpushare.cli.main", "status", "--json"]
    directory = f"--runtime-dir={gpu.scheduler.directory}"
    done = subprocess.run(
        [*command, directory], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    (tenant,) = (t for t in json.loads(done.stdout)["tenants"] if t["name"] == name)
    (memory,) = tenant["memory"]
    return amounts(memory)


def by_panel(gpu: SharedGpu, kernel: Kernel) -> dict[str, int]:
    """What the server's extension tells the panel."""
    shown = ServerKernel(
        kernel_id="k", name="n", path="p", tenant_id=kernel.tenant_id, why_unshared=""
    )
    state: Any = panel_state(
        scheduler="up",
        message="",
        user="",
        status=gpu.scheduler.status(),
        age_s=0.0,
        kernels=[shown],
    )
    (memory,) = state["kernels"][0]["memory"]
    return amounts(memory)


def amounts(memory: dict[str, Any]) -> dict[str, int]:
    named = {word: memory[f"bytes_{word}"] for word in ("resident", "parked", "fixed")}
    return {**named, "cap": memory["cap_bytes"]}


def by_magic(kernel: Kernel) -> dict[str, int]:
    """%gpushare, in MiB as it is written."""
    text = kernel.run("%gpushare").ok().text
    found = re.search(
        r"Memory of this kernel: (\d+) MiB on .*, parked (\d+) MiB, "
        r"fixed (\d+) MiB \(32 MiB managed\), limit (\d+) MiB\.",
        text,
    )
    assert found, text
    values = [int(each) * MIB for each in found.groups()]
    return dict(zip(("resident", "parked", "fixed", "cap"), values, strict=True))


def inside(kernel: Kernel) -> list[tuple[int, ...]]:
    """Free, total, and used or total again: by CUDA, by NVML, and by NVML in a child that has
    nothing else, as nvidia-smi."""
    codes = (CUDA, NVML, SMI)
    return [tuple(ast.literal_eval(kernel.run(code).ok().text.strip())) for code in codes]


def inside_unchanged(kernel: Kernel) -> list[tuple[int, ...]]:
    """The same, when it no longer changes: the scheduler learns of contexts by and by."""
    told = inside(kernel)
    for _ in range(LOOKS_MAX):
        before, told = told, inside(kernel)
        if told == before:
            break
    return told


@pytest.mark.promise(
    "together-4",
    "`status --json`, the panel, `%gpushare`, CUDA, NVML in the process and NVML alone tell the "
    "same of a kernel's memory",
)
def test_all_who_tell_of_memory_tell_the_same(tmp_path: Path) -> None:
    """Of a kernel with a limit, some of whose memory is parked and some cannot be moved."""
    with crowded(tmp_path, f"memory_cap_bytes={CAP}") as gpu:
        alice, bob = gpu.kernel("alice.ipynb"), gpu.kernel("bob.ipynb")
        alice.run(f"managed = checked(cu.cuMemAllocManaged({MANAGED}, 1))\ngpu.spin(1)").ok()
        alice.run(f"{READ_MOSTLY}\nchecked(cu.cuMemAdvise(managed, {MANAGED}, advice, place))").ok()
        alice.run(f"plain = gpu.allocate({PLAIN // 4})\ngpu.spin(1)").ok()
        bob.run(f"plain = gpu.allocate({PLAIN // 4})\ngpu.spin(1)").ok()
        wait_until(lambda: by_status(gpu, "alice.ipynb")["parked"] > 0, "alice is parked")
        told = by_status(gpu, "alice.ipynb")
        assert (told["cap"], told["fixed"]) == (CAP, MANAGED)
        assert told["resident"] + told["parked"] == PLAIN + MANAGED
        assert by_panel(gpu, alice) == told
        assert by_magic(alice) == told
        used = told["resident"] + told["parked"]
        by_cuda, by_nvml, by_smi = inside(alice)
        assert by_cuda == (CAP - used, CAP, CAP)
        assert by_nvml == by_smi == (CAP - used, CAP, used)
        assert by_status(gpu, "alice.ipynb") == told, "asking has moved memory"


@pytest.mark.promise("together-4")
@pytest.mark.full
def test_without_a_limit_they_agree_too(tmp_path: Path) -> None:
    """What others have and can give up is free, to CUDA, to NVML and to nvidia-smi."""
    with crowded(tmp_path) as gpu:
        alice, bob = gpu.kernel("alice.ipynb"), gpu.kernel("bob.ipynb")
        for kernel in (alice, bob):
            kernel.run(f"plain = gpu.allocate({PLAIN // 4})\ngpu.spin(1)").ok()
        wait_until(lambda: by_status(gpu, "alice.ipynb")["parked"] > 0, "alice is parked")
        for kernel in (alice, bob):
            by_cuda, by_nvml, by_smi = inside_unchanged(kernel)
            free, total, _ = by_cuda
            assert total == DEVICE
            assert DEVICE - PLAIN - RESERVE - 2 * CONTEXT <= free < DEVICE - PLAIN
            assert by_nvml == by_smi == (free, DEVICE, DEVICE - free)


@pytest.mark.promise(
    "together-5", "A real kernel and its children have the settings for frameworks"
)
def test_kernels_are_told_how_frameworks_should_take_memory(tmp_path: Path) -> None:
    """In a real kernel, and in what it starts, frameworks find the settings under which they grab
    nothing that they do not use; what the user has set is as it was."""
    look = f"import os\nprint([os.environ.get(name) for name in {FRAMEWORKS}])"
    run = f"[sys.executable, '-c', {look!r}]"
    child = f"import subprocess, sys\nprint(subprocess.check_output({run}, text=True))"
    with crowded(tmp_path) as gpu:
        kernel = gpu.kernel("kernel.ipynb", set_up=False, env={FRAMEWORKS[1]: "mine"})
        for code in (look, child):
            assert ast.literal_eval(kernel.run(code).ok().text.strip()) == ["false", "mine", "0"]
