"""NVML answers for the tenant."""

from __future__ import annotations

import pytest

from tests.hook.session import MIB, Session

NVML = (
    "nvml = ctypes.CDLL('libnvidia-ml.so.1')",
    "class V1(ctypes.Structure): _fields_ = [(n, c_uint64) for n in ('total', 'free', 'used')]",
    "class V2(ctypes.Structure):",
    "    _fields_ = [(n, c_uint64) for n in ('version', 'total', 'reserved', 'free', 'used')]",
    "def show(name, kind):",
    "    memory = kind()",
    "    assert getattr(nvml, name)(None, byref(memory)) == 0",
    "    print([getattr(memory, n) // MIB for n, _ in kind._fields_ if n != 'version'])",
    "def both(): show('nvmlDeviceGetMemoryInfo', V1); show('nvmlDeviceGetMemoryInfo_v2', V2)",
)


@pytest.mark.promise("hook-9")
def test_nvml_agrees_with_cuda_in_one_process(session: Session) -> None:
    """With CUDA in the process, both memory answers of NVML are those of cuMemGetInfo."""
    capped = {"FAKE_CAP": str(1000 * MIB), "FAKE_OTHERS": str(300 * MIB)}
    lines = (*NVML, "alloc(100 * MIB)", "print(list(info()))", "both()")
    assert session.run(*lines, **capped) == [
        "[600, 1000]",
        "[1000, 600, 400]",
        "[1000, 0, 600, 400]",
    ]


@pytest.mark.promise("hook-9")
def test_nvml_without_a_cap_shows_the_tenants_use(session: Session) -> None:
    """The whole device is the tenant's to have. What others hold of it counts as reserved; the
    older answer knows no reserved memory, there it counts as used."""
    lines = (*NVML, "alloc(100 * MIB)", "both()")
    assert session.run(*lines) == ["[16384, 10240, 6144]", "[16384, 6044, 10240, 100]"]


@pytest.mark.promise("hook-9")
def test_nvml_without_cuda_asks_the_scheduler(session: Session) -> None:
    """nvidia-smi in a kernel shows the tenant's cap and use; without an answer NVML's own."""
    no_cuda = {"MEMORY_DRIVER_NO_CUDA": "1"}
    capped = {"FAKE_CAP": str(1000 * MIB), "FAKE_OTHERS": str(300 * MIB)}
    assert session.run(*NVML, "both()", **no_cuda, **capped) == [
        "[1000, 700, 300]",
        "[1000, 0, 700, 300]",
    ]
    # What others have there makes room, so that the driver's free memory does not count.
    full = {**capped, "FAKE_CAP": str(12_000 * MIB), "FAKE_SWAP": "1"}
    assert session.run(*NVML, "both()", **no_cuda, **full) == [
        "[12000, 11700, 300]",
        "[12000, 0, 11700, 300]",
    ]
    assert session.run(*NVML, "both()", **no_cuda) == [
        "[16384, 10240, 6144]",
        "[16384, 1024, 10240, 5120]",
    ]


@pytest.mark.promise("hook-39", "NVML lists the processes of the tenant only")
def test_nvml_lists_the_tenants_processes_only(session: Session) -> None:
    """Of this process, its parent (another tenant's) and process 1, this one is left, with the
    bytes that we count."""
    lines = (
        *NVML,
        "alloc(100 * MIB)",
        "count, records = ctypes.c_uint(8), (Process * 8)()",
        "assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(None, byref(count), records) == 0",
        "import os",
        "print([(r.pid == os.getpid(), r.used // MIB) for r in records[:count.value]])",
    )
    assert session.run(*lines, GPUSHARE_TOKEN="mine") == ["[(True, 100)]"]


@pytest.mark.promise("hook-39")
def test_nvml_lists_siblings_by_their_token(session: Session) -> None:
    """A child of the tenant sees its parent in the list, because both have the tenant's token."""
    child = (
        "import os, ctypes; n = ctypes.CDLL('libnvidia-ml.so.1'); "
        "count, records = ctypes.c_uint(8), (ctypes.c_uint64 * 24)(); "
        "n.nvmlDeviceGetComputeRunningProcesses_v3(None, ctypes.byref(count), records); "
        "pids = [records[3 * i] for i in range(count.value)]; "
        "print(pids == [os.getppid(), os.getpid()])"
    )
    lines = (
        "import subprocess, sys",
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)",
    )
    assert session.run(*lines, GPUSHARE_TOKEN="mine", MEMORY_DRIVER_NO_CUDA="1") == ["True"]
