"""A pool has its memory in segments of 32 MiB: measured on an H200 (driver 580.159.04).

The cases have processes of their own, as those of test_pool_reuse.py."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUpointer_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, PinnedWord, alone, attribute_number, code, ok
from tests.driver.test_pool_memory import RESERVED, USED, attribute, create_pool
from tests.driver.test_pool_reuse import RESERVED_HIGH, REUSE, keep, take

SEGMENT = 32 * MIB
FOREVER = 1 << 40
FOLLOW_EVENTS, OPPORTUNISTIC, _ = REUSE


@pytest.mark.promise("simulated-25", "Pools have their memory in segments, as the driver's do")
@alone
def test_segments_are_shared(gpu: Gpu) -> None:
    """What is used counts by the byte, what is reserved by the segment."""
    pool, figures = create_pool(gpu), []
    for size in (1, 1000, MIB, 33 * MIB):
        take(pool, size)
        figures.append((attribute(pool, USED), attribute(pool, RESERVED)))
    reserved = [SEGMENT, SEGMENT, SEGMENT, 2 * SEGMENT]
    used = [1, 1001, 1001 + MIB, 1001 + 34 * MIB]
    assert figures == list(zip(used, reserved, strict=True))


@pytest.mark.promise("simulated-25")
@alone
def test_freed_memory_serves_smaller_and_larger_sizes(gpu: Gpu) -> None:
    """In the stream that has freed it, at the same address; the pool grows by what is missing."""
    pool = create_pool(gpu)
    keep(pool, FOREVER)
    for size in (32 * MIB, 64 * MIB, 96 * MIB):
        pointer = take(pool, 64 * MIB)
        ok(cuda.cuMemFreeAsync(pointer, 0))
        again = take(pool, size)
        assert again == pointer
        assert attribute(pool, USED) == size
        assert attribute(pool, RESERVED) == max(size, 64 * MIB)
        ok(cuda.cuMemFreeAsync(again, 0))


@alone
def test_earlier_work_has_memory_of_which_a_part_is_taken_again(gpu: Gpu) -> None:
    """Documented: work before the free still has all of it."""
    pool, flag, stream = create_pool(gpu), PinnedWord(), ok(cuda.cuStreamCreate(1))
    keep(pool, FOREVER)
    pointer = take(pool, 8 * MIB, stream)
    gpu.launch("poll_flag", flag.device, stream=stream)
    gpu.launch("fill", pointer, 1, 2 * MIB, stream=stream)
    ok(cuda.cuMemFreeAsync(pointer, stream))
    parts = {value: take(pool, 2 * MIB, stream) for value in (2, 3)}
    for value, part in parts.items():
        gpu.launch("fill", part, value, MIB // 2, stream=stream)
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    assert parts[2] == pointer
    for value, part in parts.items():
        assert set(gpu.download(part, MIB // 2).tolist()) == {value}


@alone
def test_segments_are_kept_whole(gpu: Gpu) -> None:
    """A synchronise leaves what the threshold says, a trim at least what it is told to."""
    pool, left = create_pool(gpu), []
    for threshold in (64 * MIB, FOREVER):
        keep(pool, threshold)
        for pointer in [take(pool, 64 * MIB) for _ in range(3)]:
            ok(cuda.cuMemFreeAsync(pointer, 0))
        ok(cuda.cuCtxSynchronize())
        left.append(attribute(pool, RESERVED))
    ok(cuda.cuMemPoolTrimTo(pool, 100 * MIB))
    assert [*left, attribute(pool, RESERVED)] == [64 * MIB, 192 * MIB, 128 * MIB]


@pytest.mark.promise("simulated-25")
@alone
def test_freed_memory_is_not_used_any_more(gpu: Gpu) -> None:
    """Neither by the pool's figures nor for questions about the address, although the stream has
    yet to come to the free."""
    pool, flag, stream = create_pool(gpu), PinnedWord(), ok(cuda.cuStreamCreate(1))
    pointer = take(pool, 64 * MIB, stream)
    gpu.launch("poll_flag", flag.device, stream=stream)
    ok(cuda.cuMemFreeAsync(pointer, stream))
    assert (attribute(pool, USED), attribute(pool, RESERVED)) == (0, 64 * MIB)
    asked = [
        cuda.cuPointerGetAttribute(which, pointer)
        for which in (
            Attribute.CU_POINTER_ATTRIBUTE_CONTEXT,
            Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            Attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        )
    ]
    assert {code(answer) for answer in asked} == {R.CUDA_ERROR_INVALID_VALUE}
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    assert attribute(pool, RESERVED) == 0


@alone
def test_waiting_for_another_stream_gives_nothing_up(gpu: Gpu) -> None:
    """The legacy stream does not wait for a stream that does not block."""
    pool, stream = create_pool(gpu), ok(cuda.cuStreamCreate(1))
    ok(cuda.cuMemFreeAsync(take(pool, 64 * MIB, stream), stream))
    ok(cuda.cuStreamSynchronize(0))
    assert attribute(pool, RESERVED) == 64 * MIB
    ok(cuda.cuStreamSynchronize(stream))
    assert attribute(pool, RESERVED) == 0


def taken_elsewhere(gpu: Gpu, *, event: bool, size: int, off: Any = None) -> tuple[bool, int]:
    """Whether a second stream gets the address that the first one has freed, and the most that
    the pool has reserved; with an event behind the free, or after it is over."""
    pool, flag = create_pool(gpu), PinnedWord(0 if event else 1)
    keep(pool, FOREVER)
    if off is not None:
        ok(cuda.cuMemPoolSetAttribute(pool, off, 0))
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    mark = ok(cuda.cuEventCreate(2))
    pointer = take(pool, 64 * MIB, first)
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuMemFreeAsync(pointer, first))
    ok(cuda.cuEventRecord(mark, first))
    while not event and code(cuda.cuStreamQuery(first)) is R.CUDA_ERROR_NOT_READY:
        pass
    if event:
        ok(cuda.cuStreamWaitEvent(second, mark, 0))
    again = take(pool, size, second)
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    return again == pointer, attribute(pool, RESERVED_HIGH)


@pytest.mark.promise("simulated-25")
@alone
def test_a_part_of_what_was_freed_before_an_event(gpu: Gpu) -> None:
    """Another stream that waits for the event has it, unless the pool forbids that."""
    half = 32 * MIB
    assert taken_elsewhere(gpu, event=True, size=half) == (True, 64 * MIB)
    apart = taken_elsewhere(gpu, event=True, size=64 * MIB, off=FOLLOW_EVENTS)
    assert apart == (False, 128 * MIB)


@alone
def test_what_is_freed_and_over_may_be_taken(gpu: Gpu) -> None:
    """By any stream, unless the pool forbids that: then somebody has to wait for the free first."""
    assert taken_elsewhere(gpu, event=False, size=64 * MIB) == (True, 64 * MIB)
    apart = taken_elsewhere(gpu, event=False, size=64 * MIB, off=OPPORTUNISTIC)
    assert apart == (False, 128 * MIB)


@pytest.mark.promise("simulated-25")
@alone
def test_other_memory_takes_what_pools_keep(gpu: Gpu) -> None:
    """Before cuMemAlloc and cuMemCreate of the same process fail, pools give up all of it."""
    pool, (free, _) = create_pool(gpu), ok(cuda.cuMemGetInfo())
    keep(pool, 1 << 60)
    most, half = int(free * 0.8) // SEGMENT * SEGMENT, int(free * 0.5) // SEGMENT * SEGMENT
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = int(gpu.device)
    for make, give in (
        (lambda: cuda.cuMemAlloc(half), cuda.cuMemFree),
        (lambda: cuda.cuMemCreate(half, wanted, 0), cuda.cuMemRelease),
    ):
        ok(cuda.cuMemFreeAsync(take(pool, most), 0))
        ok(cuda.cuCtxSynchronize())
        assert attribute(pool, RESERVED) == most
        made = ok(make())
        assert attribute(pool, RESERVED) == 0
        ok(give(made))


@alone
def test_pool_memory_is_mapped_by_the_segment(gpu: Gpu) -> None:
    """Its range is the allocation, its mapping the segment."""
    pool, pointer = create_pool(gpu), 0
    for size in (MIB + 100, 3 * MIB):
        pointer = take(pool, size)
    ok(cuda.cuCtxSynchronize())
    answers = [
        attribute_number(which, pointer + MIB)
        for which in (
            Attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            Attribute.CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
            Attribute.CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
        )
    ]
    assert answers == [pointer, 3 * MIB, pointer // SEGMENT * SEGMENT, SEGMENT]


@alone
def test_earlier_frees_leave_memory_alone_that_came_back(gpu: Gpu) -> None:
    """Documented: memory is its owner's until it is freed. A trim gives up a part of what is freed,
    the rest is taken again bit by bit, and other frees take effect meanwhile."""
    pool, stream = create_pool(gpu), ok(cuda.cuStreamCreate(1))
    keep(pool, FOREVER)
    first, _ = take(pool, 48 * MIB, stream), take(pool, 8 * MIB, stream)
    ok(cuda.cuMemFreeAsync(first, stream))
    while code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY:
        pass
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    small, _ = take(pool, MIB, stream), take(pool, 32 * MIB, stream)
    gpu.launch("spin", 20_000_000, grid=(1, 1, 1), block=(1, 1, 1), stream=stream)
    ok(cuda.cuMemFreeAsync(small, stream))
    again = take(pool, MIB, stream)
    ok(cuda.cuMemsetD32Async(again, 7, 1000, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert set(gpu.download(again, 1000).tolist()) == {7}
    ok(cuda.cuMemFreeAsync(again, stream))
    ok(cuda.cuStreamSynchronize(stream))
