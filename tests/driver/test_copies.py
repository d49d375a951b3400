"""Copies and memsets in one, two and three dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, code, ok

HOST = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
DEVICE = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
ARRAY = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY


@pytest.mark.promise("simulated-4", "Copies of all shapes, between devices too")
def test_there_and_back(gpu: Gpu) -> None:
    """What is copied to the device and within it comes back unchanged."""
    values = np.random.default_rng(4).integers(0, 2**32, MIB, dtype=np.uint32)
    first, second = gpu.upload(values), gpu.allocate(values.nbytes)
    ok(cuda.cuMemcpyDtoD(second, first, values.nbytes))
    assert np.array_equal(gpu.download(second, MIB), values)


def test_unified_addresses_tell_the_direction(gpu: Gpu) -> None:
    """cuMemcpy finds out from the addresses which way to copy."""
    values = np.arange(1000, dtype=np.uint32)
    back = np.zeros_like(values)
    pointer = gpu.allocate(values.nbytes)
    ok(cuda.cuMemcpy(pointer, values.ctypes.data, values.nbytes))
    ok(cuda.cuMemcpy(back.ctypes.data, pointer, values.nbytes))
    assert np.array_equal(back, values)


def test_copying_nothing(gpu: Gpu) -> None:
    """Copies of zero bytes succeed."""
    pointer = gpu.allocate(64)
    ok(cuda.cuMemcpyHtoD(pointer, 0, 0))
    ok(cuda.cuMemcpyDtoDAsync(pointer, pointer, 0, 0))
    ok(cuda.cuMemsetD8(pointer, 0, 0))


@pytest.mark.promise("simulated-8")
def test_copying_past_the_end(gpu: Gpu) -> None:
    """A copy that leaves its allocation is refused, and breaks nothing."""
    pointer = gpu.allocate(1 << 25)
    words = np.zeros((1 << 25) + 1, dtype=np.uint8)
    copied = cuda.cuMemcpyHtoD(pointer + (1 << 24), words, (1 << 25) + 1)
    assert code(copied) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemcpyDtoH(words, 0xDEAD0000, 16)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuCtxSynchronize())


def test_asynchronous_copies_of_pageable_memory(gpu: Gpu) -> None:
    """Pageable memory may be changed as soon as an asynchronous copy from it has returned."""
    stream = ok(cuda.cuStreamCreate(1))
    values = np.arange(1000, dtype=np.uint32)
    pointer, back = gpu.allocate(values.nbytes), np.zeros_like(values)
    ok(cuda.cuMemcpyHtoDAsync(pointer, values, values.nbytes, stream))
    values[:] = 0
    ok(cuda.cuMemcpyDtoHAsync(back, pointer, back.nbytes, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert back.tolist() == list(range(1000))
    ok(cuda.cuStreamDestroy(stream))


@pytest.mark.promise("simulated-4")
def test_rectangles(gpu: Gpu) -> None:
    """A two-dimensional copy moves a rectangle and leaves the rest."""
    source = np.arange(100, dtype=np.uint8).reshape(10, 10)
    pointer, pitch = ok(cuda.cuMemAllocPitch(10, 10, 4))
    ok(cuda.cuMemsetD2D8(pointer, pitch, 200, 10, 10))
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType, copy.srcHost, copy.srcPitch = HOST, source.ctypes.data, 10
    copy.srcXInBytes, copy.srcY = 2, 3
    copy.dstMemoryType, copy.dstDevice, copy.dstPitch = DEVICE, pointer, pitch
    copy.dstXInBytes, copy.dstY = 1, 1
    copy.WidthInBytes, copy.Height = 4, 5
    ok(cuda.cuMemcpy2D(copy))
    rows = np.zeros((10, 10), dtype=np.uint8)
    for row in range(10):
        ok(cuda.cuMemcpyDtoH(rows[row], int(pointer) + row * pitch, 10))
    expected = np.full((10, 10), 200, dtype=np.uint8)
    expected[1:6, 1:5] = source[3:8, 2:6]
    assert np.array_equal(rows, expected)
    ok(cuda.cuMemFree(pointer))


def test_rectangles_wider_than_their_pitch(gpu: Gpu) -> None:
    """A rectangle does not fit into rows that are shorter than it is wide."""
    source = np.zeros(100, dtype=np.uint8)
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType, copy.srcHost, copy.srcPitch = HOST, source.ctypes.data, 10
    copy.dstMemoryType, copy.dstDevice, copy.dstPitch = DEVICE, gpu.allocate(1000), 5
    copy.WidthInBytes, copy.Height = 10, 5
    assert code(cuda.cuMemcpy2D(copy)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-4")
def test_boxes(gpu: Gpu) -> None:
    """A three-dimensional copy moves a box between layouts."""
    source = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
    pointer = gpu.allocate(8 * 8 * 4)
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType, copy.srcHost = HOST, source.ctypes.data
    copy.srcPitch, copy.srcHeight = 6, 5
    copy.srcXInBytes, copy.srcY, copy.srcZ = 1, 1, 1
    copy.dstMemoryType, copy.dstDevice, copy.dstPitch, copy.dstHeight = DEVICE, pointer, 8, 8
    copy.WidthInBytes, copy.Height, copy.Depth = 4, 3, 2
    ok(cuda.cuMemsetD8(pointer, 255, 8 * 8 * 4))
    ok(cuda.cuMemcpy3D(copy))
    box = gpu.download(pointer, 8 * 8 * 4, np.uint8).reshape(4, 8, 8)
    expected = np.full((4, 8, 8), 255, dtype=np.uint8)
    expected[:2, :3, :4] = source[1:3, 1:4, 1:5]
    assert np.array_equal(box, expected)


@pytest.mark.promise("simulated-4")
def test_arrays(gpu: Gpu) -> None:
    """An array tells its shape, and gives back what was copied into it."""
    descriptor = cuda.CUDA_ARRAY_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.NumChannels = 16, 4, 1
    descriptor.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    array = ok(cuda.cuArrayCreate(descriptor))
    found = ok(cuda.cuArrayGetDescriptor(array))
    assert (found.Width, found.Height, found.NumChannels) == (16, 4, 1)
    source = np.arange(64, dtype=np.uint32).reshape(4, 16)
    back = np.zeros_like(source)
    for there in (True, False):
        ok(cuda.cuMemcpy2D(array_copy(array, source if there else back, to_array=there)))
    assert np.array_equal(back, source)
    ok(cuda.cuArrayDestroy(array))


def array_copy(array: Any, host: Any, *, to_array: bool) -> Any:
    copy = cuda.CUDA_MEMCPY2D()
    copy.WidthInBytes, copy.Height = 64, 4
    if to_array:
        copy.srcMemoryType, copy.srcHost, copy.srcPitch = HOST, host.ctypes.data, 64
        copy.dstMemoryType, copy.dstArray = ARRAY, array
    else:
        copy.srcMemoryType, copy.srcArray = ARRAY, array
        copy.dstMemoryType, copy.dstHost, copy.dstPitch = HOST, host.ctypes.data, 64
    return copy


@pytest.mark.promise("simulated-4")
def test_copies_between_contexts(gpu: Gpu) -> None:
    """cuMemcpyPeer copies from the memory of one context into that of another."""
    source = gpu.upload([1, 2, 3])
    other = ok(cuda.cuCtxCreate(None, 0, gpu.device))
    target = ok(cuda.cuMemAlloc(12))
    ok(cuda.cuMemcpyPeer(target, other, source, gpu.context, 12))
    assert gpu.download(int(target), 3).tolist() == [1, 2, 3]
    ok(cuda.cuCtxDestroy(other))


@pytest.mark.promise("simulated-4")
@pytest.mark.parametrize(
    ("memset", "dtype", "value"),
    [
        (cuda.cuMemsetD8, np.uint8, 0xAB),
        (cuda.cuMemsetD16, np.uint16, 0xABCD),
        (cuda.cuMemsetD32, np.uint32, 0xABCDEF01),
    ],
)
def test_memsets(gpu: Gpu, memset: Any, dtype: Any, value: int) -> None:
    """A memset writes as many elements as it is told, of its width."""
    pointer = gpu.upload(np.zeros(101, dtype=dtype), dtype)
    ok(memset(pointer, value, 100))
    assert gpu.download(pointer, 101, dtype).tolist() == [value] * 100 + [0]


def test_memsets_are_aligned(gpu: Gpu) -> None:
    """A memset of wide elements wants an address aligned to them."""
    pointer = gpu.allocate(64)
    assert code(cuda.cuMemsetD32(pointer + 2, 0, 1)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemsetD16(pointer + 1, 0, 1)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemsetD8(0xDEAD0000, 0, 16)) is R.CUDA_ERROR_INVALID_VALUE


def test_rectangular_memsets(gpu: Gpu) -> None:
    """A two-dimensional memset leaves what lies between its rows."""
    pointer = gpu.upload(np.zeros(64))
    ok(cuda.cuMemsetD2D32Async(pointer, 32, 7, 3, 8, 0))
    rows = gpu.download(pointer, 64).reshape(8, 8)
    assert (rows[:, :3] == 7).all()
    assert (rows[:, 3:] == 0).all()
