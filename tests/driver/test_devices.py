"""Initialisation, devices and error names."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUdevice_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import Gpu, alone, code, ok, raw


@pytest.mark.promise("simulated-8")
@alone
def test_nothing_works_before_init() -> None:
    """Before cuInit only the version, the error names and cuGetProcAddress answer."""
    assert code(cuda.cuDeviceGetCount()) is R.CUDA_ERROR_NOT_INITIALIZED
    assert code(cuda.cuDeviceGet(0)) is R.CUDA_ERROR_NOT_INITIALIZED
    assert code(cuda.cuCtxGetCurrent()) is R.CUDA_ERROR_NOT_INITIALIZED
    assert code(cuda.cuMemAlloc(16)) is R.CUDA_ERROR_NOT_INITIALIZED
    assert code(cuda.cuDevicePrimaryCtxRetain(0)) is R.CUDA_ERROR_NOT_INITIALIZED
    assert ok(cuda.cuDriverGetVersion()) >= 12000
    assert ok(cuda.cuGetErrorName(R.CUDA_ERROR_NOT_INITIALIZED)) == b"CUDA_ERROR_NOT_INITIALIZED"


@alone
def test_init_takes_no_flags() -> None:
    """cuInit wants zero, may be called again, and a refused call leaves nothing initialised."""
    assert code(cuda.cuInit(1)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuDeviceGetCount()) is R.CUDA_ERROR_NOT_INITIALIZED
    ok(cuda.cuInit(0))
    ok(cuda.cuInit(0))
    assert ok(cuda.cuDeviceGetCount()) >= 1


def test_device_ordinals(gpu: Gpu) -> None:
    """Ordinals run from zero to the count; others are no devices."""
    count = ok(cuda.cuDeviceGetCount())
    assert [int(ok(cuda.cuDeviceGet(i))) for i in range(count)] == list(range(count))
    assert code(cuda.cuDeviceGet(count)) is R.CUDA_ERROR_INVALID_DEVICE
    assert code(cuda.cuDeviceGet(-1)) is R.CUDA_ERROR_INVALID_DEVICE


def test_device_name_is_cut_to_the_buffer(gpu: Gpu) -> None:
    """A name that does not fit is cut, and ends with a zero byte."""
    name = ok(cuda.cuDeviceGetName(64, gpu.device)).split(b"\0")[0]
    assert len(name) > 4
    short = ctypes.create_string_buffer(b"xxxxxx")
    assert raw().cuDeviceGetName(short, 4, int(gpu.device)) == 0
    assert short.raw[:4] == name[:3] + b"\0"
    assert short.raw[4:6] == b"xx"


def test_uuid_is_stable(gpu: Gpu) -> None:
    """Both versions of cuDeviceGetUuid name a whole device alike, and not with zeros."""
    first = bytes(ok(cuda.cuDeviceGetUuid(gpu.device)).bytes)
    old = (ctypes.c_ubyte * 16)()
    assert raw().cuDeviceGetUuid(old, int(gpu.device)) == 0
    assert first == bytes(old) != bytes(16)


def test_pci_bus_id_leads_back(gpu: Gpu) -> None:
    """A device is found by the PCI bus id that it gives; nonsense finds none."""
    bus_id = ok(cuda.cuDeviceGetPCIBusId(32, gpu.device))
    assert int(ok(cuda.cuDeviceGetByPCIBusId(bus_id))) == int(gpu.device)
    assert code(cuda.cuDeviceGetByPCIBusId(b"fedc:ba:98.7")) is R.CUDA_ERROR_INVALID_DEVICE
    assert code(cuda.cuDeviceGetByPCIBusId(b"not a bus id")) is R.CUDA_ERROR_INVALID_VALUE


def test_total_memory_is_what_contexts_report(gpu: Gpu) -> None:
    """cuDeviceTotalMem and cuMemGetInfo agree about the size of the device."""
    free, total = ok(cuda.cuMemGetInfo())
    assert ok(cuda.cuDeviceTotalMem(gpu.device)) == total
    assert 0 < free < total


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        (Attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (Attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (Attribute.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2**31 - 1),
        (Attribute.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
        (Attribute.CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
        (Attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
        (Attribute.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
        (Attribute.CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
        (Attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0),
    ],
)
def test_attributes_that_frameworks_rely_on(gpu: Gpu, attribute: Attribute, value: int) -> None:
    """Attributes that do not differ between the devices that we support."""
    assert ok(cuda.cuDeviceGetAttribute(attribute, gpu.device)) == value


def test_compute_capability_runs_the_builtins(gpu: Gpu) -> None:
    """The device is new enough for the architecture that the built-ins are translated from."""
    major = ok(
        cuda.cuDeviceGetAttribute(
            Attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.device
        )
    )
    minor = ok(
        cuda.cuDeviceGetAttribute(
            Attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu.device
        )
    )
    assert (major, minor) >= (7, 5)


def test_unknown_attribute_or_device_is_refused(gpu: Gpu) -> None:
    """An attribute that is none is an invalid value, a device that is none an invalid device."""
    value = ctypes.c_int()
    assert raw().cuDeviceGetAttribute(ctypes.byref(value), 100000, int(gpu.device)) == 1
    assert raw().cuDeviceGetAttribute(None, 1, int(gpu.device)) == 1
    assert raw().cuDeviceGetAttribute(ctypes.byref(value), 1, 12345) == 101


@pytest.mark.promise("simulated-8", "Errors carry the driver's own codes, names and texts")
def test_error_names_and_texts(gpu: Gpu) -> None:
    """Each error has a name and a text; a number that is none has neither."""
    assert ok(cuda.cuGetErrorName(R.CUDA_ERROR_OUT_OF_MEMORY)) == b"CUDA_ERROR_OUT_OF_MEMORY"
    assert ok(cuda.cuGetErrorString(R.CUDA_ERROR_OUT_OF_MEMORY)) == b"out of memory"
    assert ok(cuda.cuGetErrorString(R.CUDA_SUCCESS)) == b"no error"
    text = ctypes.c_char_p(b"before")
    assert raw().cuGetErrorName(123456, ctypes.byref(text)) == 1
    assert text.value is None


def test_stream_priorities(gpu: Gpu) -> None:
    """The greatest priority is a number not above the least."""
    least, greatest = ok(cuda.cuCtxGetStreamPriorityRange())
    assert least == 0
    assert greatest <= least
