"""What only a simulated machine can be told: MIG instances, devices that fall off the bus, clients
that die. Each case has a machine of its own, and asks it from fresh processes."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.harness import run_program
from tests.support.paths import ROOT, SIM_NVML
from tests.support.sim import GIB, MIB, SimulatedMachine

pytestmark = pytest.mark.skipif(not SIM_NVML.exists(), reason="run `make build` first")

HOLDER = """
import sys
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxCreate(None, 0, 0)
error, pointer = cuda.cuMemAlloc(512 << 20)
print(int(error), flush=True)
sys.stdin.readline()
"""

LOSER = """
from cuda.bindings import driver as cuda
cuda.cuInit(0)
cuda.cuCtxCreate(None, 0, 0)
print(int(cuda.cuMemAlloc(1 << 20)[0]))
"""


def ask(machine: SimulatedMachine, program: str, **extra: str) -> str:
    """What a fresh process on this machine prints."""
    program = f"import pynvml\npynvml.nvmlInit()\n{program}"
    done = run_program(machine.env(extra), program)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.promise("simulated-48")
def test_machines_have_the_devices_they_were_given(tmp_path: Path) -> None:
    """NVML alone, before any use of CUDA, brings the machine to life as it was configured."""
    machine = SimulatedMachine(tmp_path, devices=3, bytes_per_device=GIB)
    program = """
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print(*(pynvml.nvmlDeviceGetMemoryInfo(h).total for h in handles))
"""
    assert ask(machine, program).split() == [str(GIB)] * 3


@pytest.mark.promise(
    "simulated-52",
    "The simulated NVML has every function of nvml.h; what it does not simulate is not supported",
)
def test_every_function_of_the_header_is_there(tmp_path: Path) -> None:
    """Other tools look them up when they start. A real driver may be older than the header."""
    find = [sys.executable, ROOT / "hook/spec/find_headers.py"]
    folder = subprocess.run(find, capture_output=True, text=True, check=True).stdout.strip()
    names = set(re.findall(r"DECLDIR[\s\w*]*?(nvml\w+)\(", (Path(folder) / "nvml.h").read_text()))
    library = ctypes.CDLL(str(SIM_NVML))
    assert len(names) > 400
    assert not {name for name in names if not hasattr(library, name)}
    machine = SimulatedMachine(tmp_path, devices=1, bytes_per_device=GIB)
    program = """
device = pynvml.nvmlDeviceGetHandleByIndex(0)
for each in (True, False):
    try:
        pynvml.nvmlDeviceGetNvLinkVersion(device, 0)
    except pynvml.NVMLError as error:
        print(type(error).__name__)
    pynvml.nvmlShutdown() if each else None
"""
    told = ["NVMLError_NotSupported", "NVMLError_Uninitialized"]
    assert ask(machine, program).splitlines() == told


@pytest.mark.promise("simulated-37", "The simulated NVML has MIG instances")
def test_mig_instances(tmp_path: Path) -> None:
    """A device in MIG mode has instances with UUIDs, memory and ids of their own."""
    machine = SimulatedMachine(tmp_path, bytes_per_device=4 * GIB, mig_instances=2)
    program = """
device = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetMigMode(device)[0], pynvml.nvmlDeviceGetMaxMigDeviceCount(device))
for index in range(2):
    instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instance)
    uuid = pynvml.nvmlDeviceGetUUID(instance)
    found = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    print(
        uuid[:4],
        pynvml.nvmlDeviceGetMemoryInfo(instance).total,
        pynvml.nvmlDeviceGetGpuInstanceId(found),
        pynvml.nvmlDeviceGetIndex(parent),
    )
"""
    assert ask(machine, program).splitlines() == [
        "1 2",
        f"MIG- {2 * GIB} 1 0",
        f"MIG- {2 * GIB} 2 0",
    ]


@pytest.mark.promise("simulated-29")
def test_processes_and_their_memory(tmp_path: Path) -> None:
    """NVML names the process that holds memory, and forgets it once it was killed."""
    machine = SimulatedMachine(tmp_path, context_bytes=32 * MIB)
    program = """
device = pynvml.nvmlDeviceGetHandleByIndex(0)
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
print(pynvml.nvmlDeviceGetMemoryInfo(device).used)
print(*(f"{process.pid} {process.usedGpuMemory}" for process in processes))
"""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env=machine.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "0\n"
        used = 544 * MIB
        assert ask(machine, program).splitlines() == [str(used), f"{holder.pid} {used}"]
        holder.kill()
    assert ask(machine, program).split() == ["0"]


@pytest.mark.promise("simulated-38", "A fault plan makes a device disappear")
def test_lost_devices(tmp_path: Path) -> None:
    """A device that fell off the bus is lost for NVML too; its neighbour is not."""
    machine = SimulatedMachine(tmp_path, devices=2)
    faults = {"GPUSHARE_SIM_FAULTS": "lose device=0 call=cuMemAlloc nth=1"}
    lost = subprocess.run(
        [sys.executable, "-c", LOSER], env=machine.env(faults), capture_output=True, text=True
    )
    assert lost.returncode == 0, lost.stderr
    assert lost.stdout.strip() != "0"
    program = """
try:
    pynvml.nvmlDeviceGetHandleByIndex(0)
except pynvml.NVMLError as error:
    print(error.value == pynvml.NVML_ERROR_GPU_IS_LOST)
print(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByIndex(1)))
"""
    assert ask(machine, program).splitlines() == ["True", "1"]


EXPORTED = """
import os, time
from cuda.bindings import driver as cuda
wanted = cuda.CUmemAllocationProp()
wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
kind = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
wanted.requestedHandleTypes = kind
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
used = lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20
before = used()
_, chunk = cuda.cuMemCreate(64 << 20, wanted, 0)
_, fd = cuda.cuMemExportToShareableHandle(chunk, kind, 0)
cuda.cuMemRelease(chunk)
print(used() - before)
"""
IDLE = """
os.close(fd)
ends_s = time.monotonic() + 600
while used() > before and time.monotonic() < ends_s:
    time.sleep(0.001)
print(used() - before)
"""
BUSY = """
_, graph = cuda.cuGraphCreate(0)
for _ in range(1000):
    cuda.cuGraphAddEmptyNode(graph, None, 0)
_, executable = cuda.cuGraphInstantiate(graph, 0)
_, stream = cuda.cuStreamCreate(1)
for _ in range(4000):
    cuda.cuGraphLaunch(executable, stream)
os.close(fd)
while True:
    left = used() - before
    if left == 0 or cuda.cuStreamQuery(stream)[0] != cuda.CUresult.CUDA_ERROR_NOT_READY:
        break
print(left)
"""


@pytest.mark.parametrize("context", ["", "cuda.cuCtxCreate(None, 0, 0)"], ids=["none", "one"])
def test_memory_of_a_closed_descriptor_comes_back(tmp_path: Path, context: str) -> None:
    """Also where its process makes no further call, and where it has no context."""
    begin = f"from cuda.bindings import driver as cuda\ncuda.cuInit(0)\n{context}\n"
    assert ask(SimulatedMachine(tmp_path), begin + EXPORTED + IDLE).split() == ["64", "0"]


def test_memory_of_a_closed_descriptor_comes_back_to_a_busy_device(tmp_path: Path) -> None:
    """It does not wait for the end of the work: short pieces follow each other without a rest."""
    begin = (
        "from cuda.bindings import driver as cuda\ncuda.cuInit(0)\ncuda.cuCtxCreate(None, 0, 0)\n"
    )
    assert ask(SimulatedMachine(tmp_path), begin + EXPORTED + BUSY).split() == ["64", "0"]
