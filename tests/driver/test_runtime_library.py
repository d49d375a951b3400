"""The CUDA runtime as a shared library, libcudart.so.13, over the driver under test."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.driver.harness import BUILTINS_PTX, alone, driver_kind, needs_private_tables

TO_DEVICE, TO_HOST = 1, 2
SYMBOL_NOT_FOUND = 500


def runtime_path() -> Path | None:
    """libcudart.so.13 as the package nvidia-cuda-runtime installs it."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(place) / "cu13/lib/libcudart.so.13" for place in places]
    return next((path for path in found if path.exists()), None)


pytestmark = pytest.mark.skipif(
    runtime_path() is None, reason="libcudart.so.13 (package nvidia-cuda-runtime) is not installed"
)


@functools.cache
def runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(str(runtime_path()))
    library.cudaGetErrorName.restype = ctypes.c_char_p
    return library


def done(error: int) -> None:
    assert error == 0, runtime().cudaGetErrorName(error)


def malloc(size: int) -> ctypes.c_void_p:
    pointer = ctypes.c_void_p()
    done(runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)))
    return pointer


def copy(target: object, source: object, size: int, direction: int) -> None:
    done(runtime().cudaMemcpy(target, source, ctypes.c_size_t(size), direction))


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@needs_private_tables
@alone
def test_devices() -> None:
    """The runtime initialises itself and counts the devices."""
    count = ctypes.c_int()
    done(runtime().cudaGetDeviceCount(ctypes.byref(count)))
    assert count.value >= 1
    done(runtime().cudaSetDevice(0))
    assert runtime().cudaSetDevice(count.value) == 101


@needs_private_tables
@alone
def test_memory() -> None:
    """Allocations, copies, memsets and frees reach the driver."""
    values, back = np.arange(1000, dtype=np.uint32), np.zeros(1000, dtype=np.uint32)
    pointer = malloc(4000)
    copy(pointer, address(values), 4000, TO_DEVICE)
    done(runtime().cudaMemset(pointer, 2, ctypes.c_size_t(400)))
    copy(address(back), pointer, 4000, TO_HOST)
    assert back.tolist() == [0x02020202] * 100 + list(range(100, 1000))
    done(runtime().cudaFree(pointer))
    assert runtime().cudaFree(ctypes.c_void_p(0xDEAD0000)) == 1


@needs_private_tables
@alone
def test_launches() -> None:
    """A kernel of a library that the runtime loaded is launched through the runtime."""
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    image = ctypes.create_string_buffer(BUILTINS_PTX.read_bytes())
    none = (None, None, 0, None, None, 0)
    done(runtime().cudaLibraryLoadData(ctypes.byref(library), image, *none))
    done(runtime().cudaLibraryGetKernel(ctypes.byref(kernel), library, b"fill"))
    pointer, back = malloc(400), np.zeros(100, dtype=np.uint32)
    values = [ctypes.c_uint64(pointer.value or 0), ctypes.c_uint32(6), ctypes.c_uint64(100)]
    parameters = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))

    class Dim3(ctypes.Structure):
        _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))

    shape = (Dim3(2, 1, 1), Dim3(32, 1, 1))
    done(runtime().cudaLaunchKernel(kernel, *shape, parameters, ctypes.c_size_t(0), None))
    copy(address(back), pointer, 400, TO_HOST)
    assert (back == 6).all()


@needs_private_tables
@alone
def test_streams_and_events() -> None:
    """Streams and events can be made, recorded, awaited and destroyed."""
    stream, event = ctypes.c_void_p(), ctypes.c_void_p()
    done(runtime().cudaStreamCreate(ctypes.byref(stream)))
    done(runtime().cudaEventCreate(ctypes.byref(event)))
    pointer = ctypes.c_void_p()
    done(runtime().cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(4000), stream))
    done(runtime().cudaMemsetAsync(pointer, 3, ctypes.c_size_t(4000), stream))
    done(runtime().cudaFreeAsync(pointer, stream))
    done(runtime().cudaEventRecord(event, stream))
    done(runtime().cudaStreamWaitEvent(None, event, 0))
    done(runtime().cudaEventSynchronize(event))
    done(runtime().cudaStreamSynchronize(stream))
    done(runtime().cudaEventDestroy(event))
    done(runtime().cudaStreamDestroy(stream))


@needs_private_tables
@alone
def test_errors() -> None:
    """Errors of the driver become the runtime's, are kept until they are asked for, and pass."""
    pointer = ctypes.c_void_p()
    assert runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 60)) == 2
    assert runtime().cudaGetLastError() == 2
    assert runtime().cudaGetLastError() == 0
    done(runtime().cudaDeviceSynchronize())


@pytest.mark.promise(
    "simulated-30",
    "The real `libcudart.so.13` does on it what docs/simulated-gpu.md says: it fails with one "
    "clear code, each time",
)
@pytest.mark.skipif(driver_kind() != "sim", reason="the real driver has its private tables")
@alone
def test_refusal_without_private_tables() -> None:
    """On the simulated driver every call of the runtime fails with one clear code, each time."""
    count, pointer = ctypes.c_int(), ctypes.c_void_p()
    for _ in range(2):
        assert runtime().cudaGetDeviceCount(ctypes.byref(count)) == SYMBOL_NOT_FOUND
        assert runtime().cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(16)) == SYMBOL_NOT_FOUND
        assert runtime().cudaDeviceSynchronize() == SYMBOL_NOT_FOUND
