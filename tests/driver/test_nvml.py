"""NVML, through pynvml: what it says about devices and their memory agrees with the driver.

The library is found by its name: each case runs in a process that started with the path to it."""

from __future__ import annotations

import ctypes

import pynvml
import pytest
from cuda.bindings import driver as cuda

from tests.driver.harness import MIB, Gpu, alone, ok


def nvml_handle(gpu: Gpu) -> ctypes.c_void_p:
    """The device of the driver, found by its PCI bus id."""
    pynvml.nvmlInit()
    bus_id = ok(cuda.cuDeviceGetPCIBusId(32, gpu.device)).split(b"\0")[0].decode()
    return pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)


def expect(error: int, call: str, *arguments: object) -> None:
    with pytest.raises(pynvml.NVMLError) as raised:
        getattr(pynvml, call)(*arguments)
    assert raised.value.value == error, pynvml.NVMLError(raised.value.value)


@alone
def test_nothing_works_before_init() -> None:
    """Before nvmlInit, and after as many shutdowns, every question is answered Uninitialized."""
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlShutdown()
    pynvml.nvmlDeviceGetName(handle)
    pynvml.nvmlShutdown()
    uninitialized = pynvml.NVML_ERROR_UNINITIALIZED
    expect(uninitialized, "nvmlDeviceGetCount")
    expect(uninitialized, "nvmlDeviceGetHandleByIndex", 0)
    expect(uninitialized, "nvmlDeviceGetName", handle)
    expect(uninitialized, "nvmlSystemGetDriverVersion")
    expect(uninitialized, "nvmlShutdown")
    assert str(pynvml.NVMLError(uninitialized)) == "Uninitialized"


@alone
def test_versions(gpu: Gpu) -> None:
    """NVML and the driver name the same CUDA version."""
    pynvml.nvmlInit()
    assert pynvml.nvmlSystemGetCudaDriverVersion() == ok(cuda.cuDriverGetVersion())
    assert pynvml.nvmlSystemGetDriverVersion()
    assert pynvml.nvmlSystemGetNVMLVersion()


@pytest.mark.promise("simulated-21", "The simulated NVML answers `pynvml`")
@alone
def test_devices_are_found_in_every_way() -> None:
    """Index, UUID and PCI bus id lead to the same device."""
    pynvml.nvmlInit()
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
        for found in (
            pynvml.nvmlDeviceGetHandleByUUID(uuid),
            pynvml.nvmlDeviceGetHandleByPciBusId(bus_id),
        ):
            assert pynvml.nvmlDeviceGetIndex(found) == index


@alone
def test_devices_that_are_none() -> None:
    """Indices beyond the count and handles that are none are invalid, unknown names not found."""
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    expect(pynvml.NVML_ERROR_INVALID_ARGUMENT, "nvmlDeviceGetHandleByIndex", count)
    nobody = "GPU-00000000-0000-0000-0000-000000000000"
    expect(pynvml.NVML_ERROR_NOT_FOUND, "nvmlDeviceGetHandleByUUID", nobody)
    expect(pynvml.NVML_ERROR_NOT_FOUND, "nvmlDeviceGetHandleByPciBusId", "0000fedc:ba:18.0")
    expect(pynvml.NVML_ERROR_INVALID_ARGUMENT, "nvmlDeviceGetName", None)


@pytest.mark.promise("simulated-21")
@alone
def test_driver_and_nvml_name_one_device(gpu: Gpu) -> None:
    """Name and UUID of a device are the same for the driver and for NVML."""
    handle = nvml_handle(gpu)
    name = ok(cuda.cuDeviceGetName(96, gpu.device)).split(b"\0")[0].decode()
    assert pynvml.nvmlDeviceGetName(handle) == name
    uuid = bytes(ok(cuda.cuDeviceGetUuid(gpu.device)).bytes).hex()
    assert pynvml.nvmlDeviceGetUUID(handle).replace("GPU-", "").replace("-", "") == uuid


@pytest.mark.promise("simulated-21")
@alone
def test_memory_follows_allocations(gpu: Gpu) -> None:
    """Used memory grows by an allocation, and free and used make up the total."""
    handle = nvml_handle(gpu)
    before = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    gpu.allocate(256 * MIB)
    during = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    first = pynvml.nvmlDeviceGetMemoryInfo(handle)
    assert during.used - before.used == 256 * MIB
    assert before.free - during.free == 256 * MIB
    assert during.used + during.free + during.reserved == during.total
    assert first.used + first.free == first.total == during.total


@alone
def test_memory_info_wants_its_version(gpu: Gpu) -> None:
    """The second form of memory information must say which version it is."""
    handle, memory = nvml_handle(gpu), pynvml.c_nvmlMemory_v2_t()
    memory.version = 77
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryInfo_v2")
    assert function(handle, ctypes.byref(memory)) == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND


@alone
def test_processes_with_a_context_are_listed(gpu: Gpu) -> None:
    """This process has a context on the device, so the device lists a process."""
    handle = nvml_handle(gpu)
    assert len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) >= 1


@alone
def test_room_for_processes(gpu: Gpu) -> None:
    """Too little room is an error that tells how much is needed."""
    handle, count = nvml_handle(gpu), ctypes.c_uint(0)
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetComputeRunningProcesses_v3")
    answer = function(handle, ctypes.byref(count), None)
    assert answer == pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert count.value >= 1


@alone
def test_short_buffers(gpu: Gpu) -> None:
    """A text that does not fit is an error."""
    handle, short = nvml_handle(gpu), ctypes.create_string_buffer(4)
    function = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetUUID")
    answer = function(handle, short, ctypes.c_uint(4))
    assert answer == pynvml.NVML_ERROR_INSUFFICIENT_SIZE


@alone
def test_without_mig(gpu: Gpu) -> None:
    """A whole device is no MIG handle and has no instances."""
    handle = nvml_handle(gpu)
    assert pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_DISABLE
    is_mig = pynvml.nvmlDeviceIsMigDeviceHandle(handle)
    assert getattr(is_mig, "value", is_mig) == 0
    expect(pynvml.NVML_ERROR_NOT_FOUND, "nvmlDeviceGetMigDeviceHandleByIndex", handle, 0)


@alone
def test_load_is_a_percentage(gpu: Gpu) -> None:
    """Utilisation is a number from 0 to 100."""
    load = pynvml.nvmlDeviceGetUtilizationRates(nvml_handle(gpu))
    assert 0 <= load.gpu <= 100
    assert 0 <= load.memory <= 100
