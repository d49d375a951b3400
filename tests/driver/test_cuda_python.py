"""cuda-python, a client that nobody here wrote, from its first call to its results.

`cuda.bindings.runtime` brings the CUDA runtime along, so these cases ask the driver what that
runtime asks it, private tables included."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings import runtime as cudart

from tests.driver.harness import BUILTINS_PTX, alone, arguments, needs_private_tables, ok
from tests.support.paths import ROOT

PROGRAM = """
import ctypes
from cuda.bindings import driver as cuda
assert cuda.cuInit(0)[0] == 0
error, count = cuda.cuDeviceGetCount()
print(int(error), count)
"""


def done(answer: tuple[Any, ...]) -> Any:
    """What a call of the runtime answered besides success."""
    assert answer[0] is cudart.cudaError_t.cudaSuccess, answer[0]
    values = answer[1:]
    return values[0] if len(values) == 1 else values or None


@pytest.mark.promise("simulated-5", "cuda-python works on it, unmodified")
@pytest.mark.promise(
    "simulated-6",
    "A conformance suite runs against the simulated and, where there is one, the real driver, "
    "with equal results",
)
@alone
def test_a_program_for_the_driver() -> None:
    """Context, module, asynchronous copies, a launch and events, as a user would write it."""
    n, a = 10_000, np.float32(2.0)
    x, y = np.random.default_rng(5).random((2, n), dtype=np.float32)
    ok(cuda.cuInit(0))
    context = ok(cuda.cuCtxCreate(None, 0, ok(cuda.cuDeviceGet(0))))
    module = ok(cuda.cuModuleLoadData(BUILTINS_PTX.read_bytes() + b"\0"))
    kernel = ok(cuda.cuModuleGetFunction(module, b"axpy"))
    at_x, at_y = ok(cuda.cuMemAlloc(x.nbytes)), ok(cuda.cuMemAlloc(y.nbytes))
    stream, result = ok(cuda.cuStreamCreate(0)), np.empty_like(y)
    begin, end = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(begin, stream))
    ok(cuda.cuMemcpyHtoDAsync(at_x, x.ctypes.data, x.nbytes, stream))
    ok(cuda.cuMemcpyHtoDAsync(at_y, y.ctypes.data, y.nbytes, stream))
    parameters = arguments("axpy", int(at_y), int(at_x), float(a), n)
    ok(cuda.cuLaunchKernel(kernel, 40, 1, 1, 256, 1, 1, 0, stream, parameters, 0))
    ok(cuda.cuMemcpyDtoHAsync(result.ctypes.data, at_y, y.nbytes, stream))
    ok(cuda.cuEventRecord(end, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert np.array_equal(result, a * x + y)
    assert ok(cuda.cuEventElapsedTime(begin, end)) > 0
    for pointer in (at_x, at_y):
        ok(cuda.cuMemFree(pointer))
    ok(cuda.cuStreamDestroy(stream))
    ok(cuda.cuModuleUnload(module))
    ok(cuda.cuCtxDestroy(context))


@needs_private_tables
@alone
def test_runtime_counts_devices() -> None:
    """The runtime finds the devices that the driver has, and its own version."""
    assert done(cudart.cudaGetDeviceCount()) >= 1
    assert done(cudart.cudaDriverGetVersion()) >= 12000
    done(cudart.cudaSetDevice(0))
    assert done(cudart.cudaGetDevice()) == 0


@needs_private_tables
@alone
def test_runtime_describes_devices() -> None:
    """The runtime's description of a device agrees with the driver's."""
    properties = done(cudart.cudaGetDeviceProperties(0))
    ok(cuda.cuInit(0))
    device = ok(cuda.cuDeviceGet(0))
    assert properties.totalGlobalMem == ok(cuda.cuDeviceTotalMem(device))
    assert bytes(properties.uuid.bytes) == bytes(ok(cuda.cuDeviceGetUuid(device)).bytes)


@needs_private_tables
@alone
def test_runtime_memory() -> None:
    """Memory of the runtime is filled, copied and freed; too much of it is refused."""
    values, back = np.arange(1000, dtype=np.uint32), np.zeros(1000, dtype=np.uint32)
    to_device = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
    to_host = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    pointer = done(cudart.cudaMalloc(4000))
    done(cudart.cudaMemcpy(pointer, values.ctypes.data, 4000, to_device))
    done(cudart.cudaMemset(pointer, 1, 400))
    done(cudart.cudaMemcpy(back.ctypes.data, pointer, 4000, to_host))
    assert back.tolist() == [0x01010101] * 100 + list(range(100, 1000))
    done(cudart.cudaFree(pointer))
    _, total = done(cudart.cudaMemGetInfo())
    error, _ = cudart.cudaMalloc(2 * total)
    assert error is cudart.cudaError_t.cudaErrorMemoryAllocation


@needs_private_tables
@alone
def test_runtime_streams_and_events() -> None:
    """Streams and events of the runtime order work, asynchronous memory included."""
    values, back = np.arange(1000, dtype=np.uint32), np.zeros(1000, dtype=np.uint32)
    stream, event = done(cudart.cudaStreamCreate()), done(cudart.cudaEventCreate())
    default = cudart.cudaMemcpyKind.cudaMemcpyDefault
    pointer = done(cudart.cudaMallocAsync(4000, stream))
    done(cudart.cudaMemcpyAsync(pointer, values.ctypes.data, 4000, default, stream))
    done(cudart.cudaMemcpyAsync(back.ctypes.data, pointer, 4000, default, stream))
    done(cudart.cudaFreeAsync(pointer, stream))
    done(cudart.cudaEventRecord(event, stream))
    done(cudart.cudaEventSynchronize(event))
    done(cudart.cudaStreamSynchronize(stream))
    assert np.array_equal(back, values)
    done(cudart.cudaStreamDestroy(stream))
    done(cudart.cudaDeviceSynchronize())


@needs_private_tables
@alone
def test_runtime_and_driver_share_a_context() -> None:
    """A launch of the driver uses memory that the runtime allocated, in the primary context."""
    pointer = done(cudart.cudaMalloc(400))
    context = ok(cuda.cuCtxGetCurrent())
    assert int(context) == int(ok(cuda.cuDevicePrimaryCtxRetain(0)))
    module = ok(cuda.cuModuleLoadData(BUILTINS_PTX.read_bytes() + b"\0"))
    kernel = ok(cuda.cuModuleGetFunction(module, b"fill"))
    parameters = arguments("fill", int(pointer), 9, 100)
    ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0))
    back = np.zeros(100, dtype=np.uint32)
    to_host = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
    done(cudart.cudaMemcpy(back.ctypes.data, pointer, 400, to_host))
    assert (back == 9).all()


@pytest.mark.promise("simulated-5")
def test_a_program_finds_the_driver_by_its_name() -> None:
    """A fresh program that knows nothing of us loads the driver under test and sees its devices."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True
    )
    error, count = map(int, found.stdout.split())
    assert error == 0
    assert count >= 1
