"""Stream-ordered memory: default and own pools."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUmemPool_attribute as PoolAttribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, alone, code, ok, raw

RESERVED = PoolAttribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
USED = PoolAttribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
THRESHOLD = PoolAttribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD


def create_pool(gpu: Gpu) -> Any:
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(gpu.device)
    return ok(cuda.cuMemPoolCreate(properties))


def attribute(pool: Any, which: PoolAttribute) -> int:
    return int(ok(cuda.cuMemPoolGetAttribute(pool, which)))


@pytest.mark.promise("simulated-23", "Stream-ordered memory")
def test_memory_follows_the_order_of_its_stream(gpu: Gpu) -> None:
    """Memory is there for what comes after its allocation in the stream, until its free."""
    stream = ok(cuda.cuStreamCreate(1))
    words = np.zeros(1000, dtype=np.uint32)
    pointer = int(ok(cuda.cuMemAllocAsync(4000, stream)))
    gpu.launch("fill", pointer, 11, 1000, stream=stream)
    ok(cuda.cuMemcpyDtoHAsync(words, pointer, 4000, stream))
    ok(cuda.cuMemFreeAsync(pointer, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert (words == 11).all()
    ok(cuda.cuStreamDestroy(stream))


@pytest.mark.promise("simulated-23")
def test_freed_pool_memory_is_used_again_in_its_stream(gpu: Gpu) -> None:
    """An allocation after a free in the same stream gets the same memory."""
    stream = ok(cuda.cuStreamCreate(1))
    pointers = set()
    for _ in range(5):
        pointer = ok(cuda.cuMemAllocAsync(MIB, stream))
        ok(cuda.cuMemFreeAsync(pointer, stream))
        pointers.add(int(pointer))
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuStreamDestroy(stream))
    assert len(pointers) == 1


def test_pool_memory_may_be_freed_plainly(gpu: Gpu) -> None:
    """cuMemFree takes stream-ordered memory too; it is freed once."""
    pointer = ok(cuda.cuMemAllocAsync(MIB, 0))
    ok(cuda.cuStreamSynchronize(0))
    ok(cuda.cuMemFree(pointer))
    assert code(cuda.cuMemFreeAsync(pointer, 0)) is R.CUDA_ERROR_INVALID_VALUE


def test_foreign_pointers_are_refused_by_async_free(gpu: Gpu) -> None:
    """cuMemFreeAsync refuses what is no allocation."""
    assert code(cuda.cuMemFreeAsync(0xDEAD0000, 0)) is R.CUDA_ERROR_INVALID_VALUE


def test_plain_memory_may_be_freed_in_stream_order(gpu: Gpu) -> None:
    """cuMemFreeAsync takes what cuMemAlloc gave."""
    pointer = ok(cuda.cuMemAlloc(MIB))
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuStreamSynchronize(0))
    assert code(cuda.cuMemFree(pointer)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-23")
def test_too_much_pool_memory(gpu: Gpu) -> None:
    """Too large a stream-ordered allocation is out of memory when it is asked for."""
    _, total = ok(cuda.cuMemGetInfo())
    assert code(cuda.cuMemAllocAsync(2 * total, 0)) is R.CUDA_ERROR_OUT_OF_MEMORY
    ok(cuda.cuCtxSynchronize())


def test_default_pool_is_current_at_first(gpu: Gpu) -> None:
    """A device allocates from its default pool until another one is set."""
    default = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    assert int(ok(cuda.cuDeviceGetMemPool(gpu.device))) == int(default)
    pool = create_pool(gpu)
    ok(cuda.cuDeviceSetMemPool(gpu.device, pool))
    assert int(ok(cuda.cuDeviceGetMemPool(gpu.device))) == int(pool)
    ok(cuda.cuDeviceSetMemPool(gpu.device, default))
    ok(cuda.cuMemPoolDestroy(pool))


def test_pool_counts_what_is_used(gpu: Gpu) -> None:
    """A pool knows the bytes in use and the bytes that it keeps."""
    pool = create_pool(gpu)
    pointer = ok(cuda.cuMemAllocFromPoolAsync(4 * MIB, pool, 0))
    ok(cuda.cuStreamSynchronize(0))
    assert attribute(pool, USED) == 4 * MIB
    assert attribute(pool, RESERVED) >= 4 * MIB
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuStreamSynchronize(0))
    assert attribute(pool, USED) == 0
    ok(cuda.cuMemPoolDestroy(pool))


@pytest.mark.promise("simulated-23")
def test_release_threshold_keeps_memory(gpu: Gpu) -> None:
    """Below its release threshold a pool keeps freed memory until it is trimmed."""
    pool = create_pool(gpu)
    assert attribute(pool, THRESHOLD) == 0
    ok(cuda.cuMemPoolSetAttribute(pool, THRESHOLD, cuda.cuuint64_t(1 << 40)))
    ok(cuda.cuMemFreeAsync(ok(cuda.cuMemAllocFromPoolAsync(64 * MIB, pool, 0)), 0))
    ok(cuda.cuStreamSynchronize(0))
    assert attribute(pool, RESERVED) >= 64 * MIB
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    assert attribute(pool, RESERVED) == 0
    ok(cuda.cuMemPoolDestroy(pool))


def used_and_freed(gpu: Gpu) -> Any:
    """The device's pool, with the threshold that frameworks set, after 256 MiB were freed and
    everything was synchronised."""
    pool = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    forever = cuda.cuuint64_t(2**64 - 1)
    ok(cuda.cuMemPoolSetAttribute(pool, THRESHOLD, forever))
    stream = ok(cuda.cuStreamCreate(1))
    for pointer in [ok(cuda.cuMemAllocAsync(128 * MIB, stream)) for _ in range(2)]:
        ok(cuda.cuMemFreeAsync(pointer, stream))
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuCtxSynchronize())
    return pool


@pytest.mark.promise("simulated-23")
@alone
def test_a_pool_keeps_what_it_reserved(gpu: Gpu) -> None:
    """Below its threshold a pool keeps its memory after the last free, until it is trimmed."""
    pool = used_and_freed(gpu)
    assert attribute(pool, USED) == 0
    assert attribute(pool, RESERVED) >= 256 * MIB
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    assert attribute(pool, RESERVED) == 0


@alone
def test_what_a_pool_keeps_is_not_free(gpu: Gpu) -> None:
    """The device has it back when the pool is trimmed, and not before."""
    before, _ = ok(cuda.cuMemGetInfo())
    pool = used_and_freed(gpu)
    assert before - ok(cuda.cuMemGetInfo())[0] >= 256 * MIB
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    assert before - ok(cuda.cuMemGetInfo())[0] < 64 * MIB


def test_the_default_pool_cannot_be_destroyed(gpu: Gpu) -> None:
    """Destroying a device's default pool is refused."""
    default = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    assert code(cuda.cuMemPoolDestroy(default)) is R.CUDA_ERROR_INVALID_VALUE


def test_nothing_may_be_freed(gpu: Gpu) -> None:
    """Measured on an H200, with driver 580.159.04, like the rest of this file from here on."""
    ok(cuda.cuMemFreeAsync(0, 0))


def test_nothing_is_allocated_from_a_pool_that_is_gone(gpu: Gpu) -> None:
    pool = create_pool(gpu)
    ok(cuda.cuMemPoolDestroy(pool))
    refused = cuda.cuMemAllocFromPoolAsync(MIB, pool, 0)
    assert code(refused) is R.CUDA_ERROR_INVALID_VALUE


def test_a_rule_of_reuse_is_on_or_off(gpu: Gpu) -> None:
    """Whatever number it was set to."""
    pool, which = create_pool(gpu), PoolAttribute.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
    ok(cuda.cuMemPoolSetAttribute(pool, which, cuda.cuuint64_t(2)))
    assert attribute(pool, which) == 1
    ok(cuda.cuMemPoolDestroy(pool))


def test_a_capture_goes_on_after_a_free_of_what_is_not_its_own(gpu: Gpu) -> None:
    """Memory of pools and plain memory are refused in it."""
    pooled, plain = int(ok(cuda.cuMemAllocAsync(MIB, 0))), gpu.allocate(MIB)
    ok(cuda.cuCtxSynchronize())
    stream = ok(cuda.cuStreamCreate(1))
    for pointer in (pooled, plain):
        ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(2)))
        assert code(cuda.cuMemFreeAsync(pointer, stream)) is R.CUDA_ERROR_INVALID_VALUE
        ok(cuda.cuGraphDestroy(ok(cuda.cuStreamEndCapture(stream))))
    ok(cuda.cuMemFreeAsync(pooled, stream))
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuStreamDestroy(stream))


def test_access_of_a_pool_that_cannot_be(gpu: Gpu) -> None:
    """Its own device keeps it, to read and write."""
    pool, access = create_pool(gpu), cuda.CUmemAccessDesc()
    flags = cuda.CUmemAccess_flags
    access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    answers = []
    for ordinal, wanted in [
        (int(gpu.device), flags.CU_MEM_ACCESS_FLAGS_PROT_READ),
        (int(gpu.device), flags.CU_MEM_ACCESS_FLAGS_PROT_NONE),
        (1000, flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
    ]:
        access.location.id, access.flags = ordinal, wanted
        answers.append(code(cuda.cuMemPoolSetAccess(pool, [access], 1)))
    invalid = R.CUDA_ERROR_INVALID_DEVICE
    assert answers == [R.CUDA_ERROR_NOT_SUPPORTED, invalid, invalid]
    assert code(cuda.cuMemPoolSetAccess(pool, [access], 0)) is R.CUDA_SUCCESS
    nothing = raw().cuMemPoolSetAccess(ctypes.c_void_p(int(pool)), None, ctypes.c_size_t(0))
    assert R(nothing) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemPoolDestroy(pool))
