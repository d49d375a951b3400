"""What pools keep, give up and hand out again.

"Documented": the expectation is what the driver API's reference says, not measured on a device.

The cases have processes of their own. In one process with those of all other files, the driver of
an H200 (580.159.04) crashed in cuMemPoolDestroy; this file by itself passes there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUmemPool_attribute as PoolAttribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, PinnedWord, alone, code, ok, raw
from tests.driver.test_mapped_handles import HOST, HOST_NUMA_CURRENT, supports
from tests.driver.test_pool_memory import RESERVED, THRESHOLD, USED, attribute, create_pool

RESERVED_HIGH = PoolAttribute.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
USED_HIGH = PoolAttribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
REUSE = [PoolAttribute(number) for number in (1, 2, 3)]
PINNED, MANAGED = 1, 2


def take(pool: Any, size: int, stream: Any = 0) -> int:
    return int(ok(cuda.cuMemAllocFromPoolAsync(size, pool, stream)))


def keep(pool: Any, size: int) -> None:
    ok(cuda.cuMemPoolSetAttribute(pool, THRESHOLD, cuda.cuuint64_t(size)))


def made_pool(kind: int, location: tuple[int, int], types: int = 0, size: int = 0) -> R:
    """The answer to a pool with these properties: cuda.bindings lets no unknown value through."""
    wanted, handle = (ctypes.c_uint64 * 11)(), ctypes.c_uint64()  # CUmemPoolProps has 88 bytes
    words = ctypes.cast(wanted, ctypes.POINTER(ctypes.c_uint32))
    words[0], words[1], words[2], words[3] = kind, types, *location
    wanted[3] = size
    answer = R(raw().cuMemPoolCreate(ctypes.byref(handle), wanted))
    if answer is R.CUDA_SUCCESS:
        raw().cuMemPoolDestroy(handle)
    return answer


def wait_for_event(stream: Any) -> None:
    event = ok(cuda.cuEventCreate(2))
    ok(cuda.cuEventRecord(event, stream))
    ok(cuda.cuEventSynchronize(event))
    ok(cuda.cuEventDestroy(event))


WAITS: dict[str, Callable[[Any], Any]] = {
    "stream": lambda stream: ok(cuda.cuStreamSynchronize(stream)),
    "event": wait_for_event,
    "context": lambda _: ok(cuda.cuCtxSynchronize()),
}


@pytest.mark.promise("simulated-24", "Pools reuse, keep and give up memory when the driver does")
@pytest.mark.parametrize("wait", WAITS)
def test_a_pool_gives_up_memory_when_somebody_waits(gpu: Gpu, wait: str) -> None:
    """Documented: above its threshold, at the next wait for a stream, an event or a context."""
    pool, stream = create_pool(gpu), ok(cuda.cuStreamCreate(1))
    pointer = take(pool, 64 * MIB, stream)
    ok(cuda.cuStreamSynchronize(stream))
    assert attribute(pool, RESERVED) >= 64 * MIB
    ok(cuda.cuMemFreeAsync(pointer, stream))
    WAITS[wait](stream)
    assert attribute(pool, USED) == 0
    assert attribute(pool, RESERVED) == 0
    ok(cuda.cuMemPoolDestroy(pool))
    ok(cuda.cuStreamDestroy(stream))


@alone
def test_queued_frees_are_not_given_up(gpu: Gpu) -> None:
    """Documented: what backs memory that is still in use cannot be trimmed."""
    pool, flag, stream = create_pool(gpu), PinnedWord(), ok(cuda.cuStreamCreate(1))
    keep(pool, 1 << 40)
    pointer = take(pool, 64 * MIB, stream)
    gpu.launch("poll_flag", flag.device, stream=stream)
    gpu.launch("fill", pointer, 8, 1000, stream=stream)
    ok(cuda.cuMemcpyDtoDAsync(pointer + 4000, pointer, 4000, stream))
    ok(cuda.cuMemFreeAsync(pointer, stream))
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    assert attribute(pool, RESERVED) >= 64 * MIB
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    assert attribute(pool, RESERVED) == 0


@alone
def test_trimming_keeps_what_it_is_told_to(gpu: Gpu) -> None:
    """Documented: at least so many bytes are kept, and a pool that has less stays as it is."""
    pool = create_pool(gpu)
    keep(pool, 1 << 40)
    for pointer in [take(pool, 64 * MIB) for _ in range(3)]:
        ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    before = attribute(pool, RESERVED)
    ok(cuda.cuMemPoolTrimTo(pool, 2 * before))
    assert attribute(pool, RESERVED) == before
    ok(cuda.cuMemPoolTrimTo(pool, 100 * MIB))
    assert 100 * MIB <= attribute(pool, RESERVED) <= before
    ok(cuda.cuMemPoolDestroy(pool))


@alone
def test_high_marks_are_reset_to_what_is_there(gpu: Gpu) -> None:
    """Documented: they tell the most since the last reset, which is a zero."""
    pool = create_pool(gpu)
    first, second = take(pool, 64 * MIB), take(pool, 64 * MIB)
    ok(cuda.cuMemFreeAsync(second, 0))
    ok(cuda.cuCtxSynchronize())
    assert attribute(pool, USED_HIGH) == 128 * MIB
    assert attribute(pool, RESERVED_HIGH) >= 128 * MIB
    for mark in (USED_HIGH, RESERVED_HIGH):
        ok(cuda.cuMemPoolSetAttribute(pool, mark, cuda.cuuint64_t(0)))
    assert attribute(pool, USED_HIGH) == 64 * MIB
    assert attribute(pool, RESERVED_HIGH) == attribute(pool, RESERVED)
    refused = cuda.cuMemPoolSetAttribute(pool, RESERVED_HIGH, cuda.cuuint64_t(1))
    assert code(refused) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemFreeAsync(first, 0))
    ok(cuda.cuMemPoolDestroy(pool))


@alone
def test_reuse_is_allowed_at_first(gpu: Gpu) -> None:
    """Documented: all three kinds, and each can be turned off."""
    pool = create_pool(gpu)
    assert [attribute(pool, kind) for kind in REUSE] == [1, 1, 1]
    for kind in REUSE:
        ok(cuda.cuMemPoolSetAttribute(pool, kind, 0))
    assert [attribute(pool, kind) for kind in REUSE] == [0, 0, 0]
    ok(cuda.cuMemPoolDestroy(pool))


def most_reserved(gpu: Gpu, reuse: int) -> int:
    """What a pool has reserved at most, where a stream allocates after another one's free that has
    not happened yet, but for which it waits."""
    pool, flag = create_pool(gpu), PinnedWord()
    keep(pool, 1 << 40)
    for kind in REUSE:
        ok(cuda.cuMemPoolSetAttribute(pool, kind, reuse))
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    freed = ok(cuda.cuEventCreate(2))
    pointer = take(pool, 64 * MIB, first)
    gpu.launch("poll_flag", flag.device, stream=first)
    gpu.launch("fill", pointer, 4, 1000, stream=first)
    ok(cuda.cuMemFreeAsync(pointer, first))
    ok(cuda.cuEventRecord(freed, first))
    ok(cuda.cuStreamWaitEvent(second, freed, 0))
    again = take(pool, 64 * MIB, second)
    gpu.launch("fill", again, 5, 1000, stream=second)
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    assert gpu.download(again, 1000).tolist() == [5] * 1000
    return attribute(pool, RESERVED_HIGH)


@pytest.mark.promise("simulated-24")
@alone
def test_memory_that_was_freed_before_an_event(gpu: Gpu) -> None:
    """Documented: it may be used by a stream that waits for the event, unless the pool allows no
    reuse. Either way each stream has its own bytes while it uses them."""
    assert most_reserved(gpu, reuse=0) >= 128 * MIB
    assert most_reserved(gpu, reuse=1) <= 128 * MIB


@pytest.mark.promise("simulated-24")
@alone
def test_a_free_that_is_queued_counts_once(gpu: Gpu) -> None:
    """Documented: what was freed is no allocation any more, whenever its stream comes to the free;
    and freeing an address inside an allocation is refused."""
    pool, flag, stream = create_pool(gpu), PinnedWord(), ok(cuda.cuStreamCreate(1))
    pointer = take(pool, MIB, stream)
    assert code(cuda.cuMemFreeAsync(pointer + 4096, stream)) is R.CUDA_ERROR_INVALID_VALUE
    gpu.launch("poll_flag", flag.device, stream=stream)
    ok(cuda.cuMemFreeAsync(pointer, stream))
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    assert code(cuda.cuMemFreeAsync(pointer, stream)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuCtxSynchronize())
    assert attribute(pool, USED) == 0


@alone
def test_memory_may_be_freed_in_another_stream(gpu: Gpu) -> None:
    """Documented: in any stream that comes after its use."""
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    pool, event = create_pool(gpu), ok(cuda.cuEventCreate(2))
    pointer = take(pool, 4 * MIB, first)
    gpu.launch("fill", pointer, 9, MIB, stream=first)
    ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamWaitEvent(second, event, 0))
    ok(cuda.cuMemFreeAsync(pointer, second))
    ok(cuda.cuCtxSynchronize())
    assert attribute(pool, USED) == 0


@pytest.mark.promise("simulated-24")
@alone
def test_a_destroyed_pool_lives_with_its_memory(gpu: Gpu) -> None:
    """Documented: what was allocated from it stays until it is freed."""
    pool = create_pool(gpu)
    keep(pool, 1 << 40)
    pointer = take(pool, 4 * MIB)
    ok(cuda.cuMemsetD32(pointer, 6, 1000))
    ok(cuda.cuMemPoolDestroy(pool))
    assert gpu.download(pointer, 1000).tolist() == [6] * 1000
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())


@alone
def test_the_handle_of_a_destroyed_pool_is_none(gpu: Gpu) -> None:
    """Also while memory of it is in use; a second destroy is refused."""
    pool = create_pool(gpu)
    pointer = take(pool, MIB)
    ok(cuda.cuMemPoolDestroy(pool))
    answers = (
        cuda.cuMemPoolGetAttribute(pool, USED),
        cuda.cuMemAllocFromPoolAsync(MIB, pool, 0),
        cuda.cuMemPoolTrimTo(pool, 0),
        cuda.cuMemPoolDestroy(pool),
    )
    assert {code(answer) for answer in answers} == {R.CUDA_ERROR_INVALID_VALUE}
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())


@alone
def test_memory_of_a_destroyed_pool_comes_back(gpu: Gpu) -> None:
    """Documented: with the last free of it, whatever threshold the pool had."""
    before, _ = ok(cuda.cuMemGetInfo())
    pool = create_pool(gpu)
    keep(pool, 1 << 40)
    pointer = take(pool, 256 * MIB)
    ok(cuda.cuMemPoolDestroy(pool))
    assert before - ok(cuda.cuMemGetInfo())[0] >= 256 * MIB
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    assert before - ok(cuda.cuMemGetInfo())[0] < 64 * MIB


@alone
def test_destroying_the_current_pool_brings_the_default_one_back(gpu: Gpu) -> None:
    """Documented: a device always has a pool."""
    default, pool = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device)), create_pool(gpu)
    ok(cuda.cuDeviceSetMemPool(gpu.device, pool))
    ok(cuda.cuMemPoolDestroy(pool))
    assert int(ok(cuda.cuDeviceGetMemPool(gpu.device))) == int(default)


@alone
def test_a_limited_pool_is_full(gpu: Gpu) -> None:
    """Documented: a pool never has more than its largest size, which the driver may round up."""
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = int(gpu.device)
    wanted.maxSize = 64 * MIB
    pool = ok(cuda.cuMemPoolCreate(wanted))
    pointer = take(pool, 32 * MIB)
    over = cuda.cuMemAllocFromPoolAsync(256 * MIB, pool, 0)
    assert code(over) is R.CUDA_ERROR_OUT_OF_MEMORY
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuMemPoolDestroy(pool))


@alone
def test_pools_that_cannot_be(gpu: Gpu) -> None:
    """Documented: host memory is not shared, nor told by where the caller runs; managed pools
    neither shared nor limited."""
    assert made_pool(PINNED, (HOST, 0), types=1) is R.CUDA_ERROR_INVALID_VALUE
    assert made_pool(PINNED, (HOST_NUMA_CURRENT, 0)) is R.CUDA_ERROR_INVALID_VALUE
    for types, size in ((1, 0), (0, 64 * MIB)):
        refused = made_pool(MANAGED, (1, int(gpu.device)), types, size)
        assert refused is not R.CUDA_SUCCESS


@alone
def test_host_pools_where_the_device_has_them(gpu: Gpu) -> None:
    """Documented: an attribute of the device says so; elsewhere they are refused."""
    made = made_pool(PINNED, (HOST, 0)) is R.CUDA_SUCCESS
    assert made == supports(gpu, "HOST_MEMORY_POOLS_SUPPORTED")


@alone
def test_a_pool_of_its_device_alone(gpu: Gpu) -> None:
    """Documented: the memory of a new pool is accessible from its own device."""
    pool, location = create_pool(gpu), cuda.CUmemLocation()
    location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = int(gpu.device)
    assert int(ok(cuda.cuMemPoolGetAccess(pool, location))) == 3
    ok(cuda.cuMemPoolDestroy(pool))


@alone
def test_pools_by_their_place(gpu: Gpu) -> None:
    """Documented: the calls that name a place and a kind of memory mean the same pools of a device
    as those that name the device."""
    place, pool = (ctypes.c_uint32 * 2)(1, int(gpu.device)), create_pool(gpu)
    default, found = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device)), ctypes.c_uint64()
    assert raw().cuMemGetDefaultMemPool(ctypes.byref(found), place, PINNED) == 0
    assert found.value == int(default)
    for current in (pool, default):
        assert raw().cuMemSetMemPool(place, PINNED, ctypes.c_uint64(int(current))) == 0
        assert raw().cuMemGetMemPool(ctypes.byref(found), place, PINNED) == 0
        assert found.value == int(current) == int(ok(cuda.cuDeviceGetMemPool(gpu.device)))
    ok(cuda.cuMemPoolDestroy(pool))
