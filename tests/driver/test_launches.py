"""Modules, functions, and launches of all kinds; results checked against plain arithmetic."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import BUILTINS_PTX, SIGNATURES, Gpu, arguments, code, ok, raw

SHAPES = [((1, 1, 1), (1, 1, 1)), ((3, 1, 1), (33, 1, 1)), ((2, 3, 2), (4, 2, 8))]


def expected_checksum(values: Any) -> int:
    return sum(int(v) * (2 * i + 1) for i, v in enumerate(values)) % 2**64


@pytest.mark.promise(
    "simulated-12",
    "Modules with the named built-in launches compute what a real device computes",
)
@pytest.mark.parametrize(("grid", "block"), SHAPES)
def test_fill(gpu: Gpu, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """fill writes n words and no more, whatever the shape of the launch."""
    pointer = gpu.upload(np.zeros(1001))
    gpu.launch("fill", pointer, 0xFFFFFFFE, 1000, grid=grid, block=block)
    assert gpu.download(pointer, 1001).tolist() == [0xFFFFFFFE] * 1000 + [0]


@pytest.mark.promise("simulated-12")
@pytest.mark.parametrize(("grid", "block"), SHAPES)
def test_axpy(gpu: Gpu, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """axpy adds a multiple, each operation rounded to single precision."""
    random = np.random.default_rng(1)
    x, y = random.random((2, 1000), dtype=np.float32)
    a = np.float32(0.3)
    at_x, at_y = gpu.upload(x, np.float32), gpu.upload(y, np.float32)
    gpu.launch("axpy", at_y, at_x, float(a), 1000, grid=grid, block=block)
    assert np.array_equal(gpu.download(at_y, 1000, np.float32), a * x + y)


@pytest.mark.promise("simulated-12")
@pytest.mark.promise("simulated-6")
@pytest.mark.parametrize(("grid", "block"), SHAPES)
def test_matmul(gpu: Gpu, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """matmul multiplies row-major matrices and sums upwards in single precision."""
    n = 17
    a, b = np.random.default_rng(2).random((2, n, n), dtype=np.float32)
    expected = np.zeros((n, n), dtype=np.float32)
    for k in range(n):
        expected += a[:, k : k + 1] * b[k : k + 1, :]
    at_a, at_b, at_c = gpu.upload(a, np.float32), gpu.upload(b, np.float32), gpu.allocate(4 * n * n)
    gpu.launch("matmul", at_c, at_a, at_b, n, grid=grid, block=block)
    assert np.array_equal(gpu.download(at_c, n * n, np.float32), expected.ravel())


@pytest.mark.promise("simulated-12")
@pytest.mark.parametrize(("grid", "block"), SHAPES)
def test_checksum(gpu: Gpu, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """checksum writes its sum, modulo 2 to the 64th, over whatever was there."""
    values = np.random.default_rng(3).integers(0, 2**32, 5000, dtype=np.uint32)
    pointer, out = gpu.upload(values), gpu.upload([1, 1])
    gpu.launch("checksum", out, pointer, len(values), grid=grid, block=block)
    assert gpu.download(out, 1, np.uint64)[0] == expected_checksum(values)


def test_nothing_to_do(gpu: Gpu) -> None:
    """A launch over zero elements touches nothing, not even a pointer that is none."""
    gpu.launch("fill", 0, 1, 0)
    ok(cuda.cuCtxSynchronize())


@pytest.mark.promise("simulated-13")
def test_arguments_in_one_buffer(gpu: Gpu) -> None:
    """Arguments may come packed in a buffer instead of one by one."""
    pointer = gpu.upload(np.zeros(10))

    class Packed(ctypes.Structure):
        _fields_ = (
            ("out", ctypes.c_uint64),
            ("value", ctypes.c_uint32),
            ("n", ctypes.c_uint64),
        )

    packed = Packed(pointer, 6, 10)
    size = ctypes.c_size_t(ctypes.sizeof(packed))
    extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
    function = ctypes.c_void_p(int(gpu.function("fill")))
    shape = (1, 1, 1, 32, 1, 1)
    assert raw().cuLaunchKernel(function, *shape, 0, None, None, extra) == 0
    assert gpu.download(pointer, 10).tolist() == [6] * 10


def launch_config(grid: int = 2, block: int = 32) -> Any:
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
    return config


@pytest.mark.promise(
    "simulated-13",
    "Launches of every kind: plain, with attributes, cooperative, host functions",
)
def test_launch_kernel_ex(gpu: Gpu) -> None:
    """cuLaunchKernelEx launches with and without attributes."""
    pointer = gpu.upload(np.zeros(100))
    config = launch_config()
    ok(cuda.cuLaunchKernelEx(config, gpu.function("fill"), arguments("fill", pointer, 1, 50), 0))
    attribute = cuda.CUlaunchAttribute()
    attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 1
    config.attrs, config.numAttrs = [attribute], 1
    parameters = arguments("fill", pointer + 200, 2, 50)
    ok(cuda.cuLaunchKernelEx(config, gpu.function("fill"), parameters, 0))
    assert gpu.download(pointer, 100).tolist() == [1] * 50 + [2] * 50


@pytest.mark.promise("simulated-13")
def test_cooperative_launch(gpu: Gpu) -> None:
    """A cooperative launch runs when it fits, and is too large when it does not."""
    pointer = gpu.upload(np.zeros(100))
    function, parameters = gpu.function("fill"), arguments("fill", pointer, 3, 100)
    ok(cuda.cuLaunchCooperativeKernel(function, 2, 1, 1, 32, 1, 1, 0, 0, parameters))
    assert gpu.download(pointer, 100).tolist() == [3] * 100
    large = cuda.cuLaunchCooperativeKernel(function, 1 << 20, 1, 1, 1024, 1, 1, 0, 0, parameters)
    assert code(large) is R.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((0, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (1025, 1, 1)),
        ((1, 1, 1), (64, 64, 1)),
        ((1, 1, 1), (1, 1, 65)),
        ((1, 65536, 1), (1, 1, 1)),
        ((1, 1, 65536), (1, 1, 1)),
    ],
)
def test_impossible_shapes(
    gpu: Gpu, grid: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    """Shapes beyond the device's limits are refused when they are launched."""
    launched = gpu.try_launch("spin", 0, grid=grid, block=block)
    assert code(launched) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuCtxSynchronize())


def test_too_much_shared_memory(gpu: Gpu) -> None:
    """More dynamic shared memory than a function may have is refused."""
    launched = gpu.try_launch("spin", 0, shared_bytes=1 << 20)
    assert code(launched) is R.CUDA_ERROR_INVALID_VALUE


def test_launching_nothing(gpu: Gpu) -> None:
    """NULL is no function to launch."""
    launched = cuda.cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    assert code(launched) is R.CUDA_ERROR_INVALID_HANDLE


def test_functions_have_names(gpu: Gpu) -> None:
    """A function knows its name and its module; a module does not know other names, "" is none."""
    function = gpu.function("axpy")
    assert ok(cuda.cuFuncGetName(function)) == b"axpy"
    assert int(ok(cuda.cuFuncGetModule(function))) == int(gpu.module)
    assert code(cuda.cuModuleGetFunction(gpu.module, b"fil")) is R.CUDA_ERROR_NOT_FOUND
    assert code(cuda.cuModuleGetFunction(gpu.module, b"")) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_functions_know_their_parameters(gpu: Gpu, name: str) -> None:
    """A function tells the offset and size of each of its parameters, and where they end."""
    offset = 0
    function = gpu.function(name)
    for place, kind in enumerate(SIGNATURES[name]):
        size = ctypes.sizeof(kind)
        offset = -(-offset // size) * size
        assert ok(cuda.cuFuncGetParamInfo(function, place)) == (offset, size)
        offset += size
    beyond = cuda.cuFuncGetParamInfo(function, len(SIGNATURES[name]))
    assert code(beyond) is R.CUDA_ERROR_INVALID_VALUE


def test_attributes_of_functions(gpu: Gpu) -> None:
    """A function tells the largest block that it can be launched with."""
    which = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert 0 < ok(cuda.cuFuncGetAttribute(which, gpu.function("fill"))) <= 1024


def test_occupancy(gpu: Gpu) -> None:
    """At least one block of 128 threads of a small function fits on a multiprocessor."""
    answer = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(gpu.function("fill"), 128, 0)
    assert ok(answer) >= 1


@pytest.mark.promise("simulated-12")
def test_modules_that_are_none(gpu: Gpu) -> None:
    """Text that is no PTX is refused as such; what is nothing known is an invalid image."""
    broken = b".version 7.0\n.target sm_75\n.address_size 64\nthis is no PTX\n\0"
    assert code(cuda.cuModuleLoadData(broken)) is R.CUDA_ERROR_INVALID_PTX
    assert code(cuda.cuModuleLoad(b"/nonexistent/file")) is R.CUDA_ERROR_FILE_NOT_FOUND


@pytest.mark.promise("simulated-12")
def test_modules_from_files(gpu: Gpu) -> None:
    """A module loads from a file, and goes when it is unloaded."""
    module = ok(cuda.cuModuleLoad(str(BUILTINS_PTX).encode()))
    ok(cuda.cuModuleGetFunction(module, b"fill"))
    ok(cuda.cuModuleUnload(module))


@pytest.mark.promise("simulated-12")
def test_libraries(gpu: Gpu) -> None:
    """A library's kernel can be launched as it is, and leads to its function in a context."""
    image = BUILTINS_PTX.read_bytes() + b"\0"
    library = ok(cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0))
    kernel = ok(cuda.cuLibraryGetKernel(library, b"fill"))
    assert ok(cuda.cuKernelGetName(kernel)) == b"fill"
    assert code(cuda.cuLibraryGetKernel(library, b"nothing")) is R.CUDA_ERROR_NOT_FOUND
    pointer = gpu.upload(np.zeros(20))
    parameters = arguments("fill", pointer, 8, 10)
    handle = cuda.CUfunction(int(kernel))
    ok(cuda.cuLaunchKernel(handle, 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0))
    function = ok(cuda.cuKernelGetFunction(kernel))
    parameters = arguments("fill", pointer + 40, 9, 10)
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, parameters, 0))
    assert gpu.download(pointer, 20).tolist() == [8] * 10 + [9] * 10
    ok(cuda.cuLibraryUnload(library))
