"""Managed memory: prefetches, advice, and what the driver remembers of them.

No case asks for more than a small part of what a device has free. "Documented": the expectation is
what the driver API's reference says, not measured on a device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, ok, raw
from tests.driver.test_mapped_memory import Mapper

SIZE = 8 * MIB
CPU, NOWHERE = -1, -2
DEVICE, HOST, HOST_NUMA, HOST_NUMA_CURRENT = 1, 2, 3, 4
READ_MOSTLY, PREFERRED, ACCESSED_BY, PREFETCHED = 1, 2, 3, 4
PREFERRED_TYPE, PREFERRED_ID, PREFETCHED_TYPE, PREFETCHED_ID = 5, 6, 7, 8
SET_READ_MOSTLY, UNSET_READ_MOSTLY, SET_PREFERRED, UNSET_PREFERRED = 1, 2, 3, 4
SET_ACCESSED_BY, UNSET_ACCESSED_BY = 5, 6


@pytest.fixture
def pointer(gpu: Gpu) -> Iterator[int]:
    address = int(ok(cuda.cuMemAllocManaged(SIZE, cuda.CUmemAttach_flags(1))))
    yield address
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemFree(address))


def prefetch(pointer: int, device: int, size: int = SIZE) -> R:
    """The first version of the call, which names devices alone."""
    arguments = (ctypes.c_uint64(pointer), ctypes.c_size_t(size), device, None)
    return R(raw().cuMemPrefetchAsync(*arguments))


def prefetch_to(pointer: int, kind: int, number: int = 0, flags: int = 0) -> R:
    """The second one. Its location is a struct of two words, which travels in one register."""
    location = ctypes.c_uint64(kind | number << 32)
    arguments = (ctypes.c_uint64(pointer), ctypes.c_size_t(SIZE), location, flags, None)
    return R(raw().cuMemPrefetchAsync_v2(*arguments))


def advise(pointer: int, advice: int, device: int, size: int = SIZE) -> R:
    return R(raw().cuMemAdvise(ctypes.c_uint64(pointer), ctypes.c_size_t(size), advice, device))


def advise_of(pointer: int, advice: int, kind: int, number: int = 0) -> R:
    location = ctypes.c_uint64(kind | number << 32)
    arguments = (ctypes.c_uint64(pointer), ctypes.c_size_t(SIZE), advice, location)
    return R(raw().cuMemAdvise_v2(*arguments))


def asked(pointer: int, which: int, *, size: int = SIZE, width: int = 4) -> tuple[R, list[int]]:
    data = (ctypes.c_int32 * 4)(9, 9, 9, 9)
    span = (ctypes.c_uint64(pointer), ctypes.c_size_t(size))
    answer = R(raw().cuMemRangeGetAttribute(data, ctypes.c_size_t(width), which, *span))
    return answer, list(data[: width // 4])


def noted(pointer: int, which: int, size: int = SIZE) -> int:
    answer, values = asked(pointer, which, size=size)
    assert answer is R.CUDA_SUCCESS
    return values[0]


@pytest.mark.promise(
    "simulated-14", "Managed memory goes where it is prefetched, and advice is kept"
)
def test_bytes_survive_each_prefetch(gpu: Gpu, pointer: int) -> None:
    """Documented: a prefetch changes where memory is, and nothing else, in stream order."""
    gpu.launch("fill", pointer, 51, SIZE // 4)
    assert prefetch(pointer, CPU) is R.CUDA_SUCCESS
    ok(cuda.cuCtxSynchronize())
    words = np.ctypeslib.as_array((ctypes.c_uint32 * 1000).from_address(pointer))
    assert (words == 51).all()
    words[:] = 52
    assert prefetch(pointer, int(gpu.device)) is R.CUDA_SUCCESS
    assert gpu.download(pointer, 1001).tolist() == [52] * 1000 + [51]


@pytest.mark.promise("simulated-14")
def test_the_last_prefetch_is_remembered(gpu: Gpu, pointer: int) -> None:
    """Documented: of all pages together; none where they went to different places."""
    device = int(gpu.device)
    assert noted(pointer, PREFETCHED) == NOWHERE
    for place in (device, CPU):
        assert prefetch(pointer, place) is R.CUDA_SUCCESS
        assert noted(pointer, PREFETCHED) == place
    assert prefetch(pointer, device, SIZE // 2) is R.CUDA_SUCCESS
    assert noted(pointer, PREFETCHED) == NOWHERE
    assert noted(pointer, PREFETCHED, SIZE // 2) == device


def test_both_versions_of_a_prefetch(gpu: Gpu, pointer: int) -> None:
    """Documented: the newer one names a kind of place, and knows no flags."""
    assert prefetch_to(pointer, DEVICE, int(gpu.device)) is R.CUDA_SUCCESS
    assert noted(pointer, PREFETCHED_TYPE) == DEVICE
    assert prefetch_to(pointer, HOST) is R.CUDA_SUCCESS
    assert noted(pointer, PREFETCHED_TYPE) == HOST
    assert noted(pointer, PREFETCHED) == CPU
    assert prefetch_to(pointer, HOST, flags=1) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-14")
def test_advice_is_kept_until_it_is_taken_back(gpu: Gpu, pointer: int) -> None:
    """Documented: each kind of its own."""
    device = int(gpu.device)
    for set_, unset, which, value, none in (
        (SET_READ_MOSTLY, UNSET_READ_MOSTLY, READ_MOSTLY, 1, 0),
        (SET_PREFERRED, UNSET_PREFERRED, PREFERRED, device, NOWHERE),
        (SET_ACCESSED_BY, UNSET_ACCESSED_BY, ACCESSED_BY, device, NOWHERE),
    ):
        assert noted(pointer, which) == none
        assert advise(pointer, set_, device) is R.CUDA_SUCCESS
        assert noted(pointer, which) == value
        assert advise(pointer, unset, device) is R.CUDA_SUCCESS
        assert noted(pointer, which) == none


def test_memory_may_prefer_the_host(pointer: int) -> None:
    """Documented: in both versions; where a part has no preference, the whole has none."""
    assert advise(pointer, SET_PREFERRED, CPU) is R.CUDA_SUCCESS
    assert noted(pointer, PREFERRED) == CPU
    assert advise(pointer, UNSET_PREFERRED, CPU) is R.CUDA_SUCCESS
    assert advise_of(pointer, SET_PREFERRED, HOST) is R.CUDA_SUCCESS
    assert noted(pointer, PREFERRED_TYPE) == HOST
    assert advise(pointer, UNSET_PREFERRED, CPU, SIZE // 2) is R.CUDA_SUCCESS
    assert noted(pointer, PREFERRED) == NOWHERE


def test_who_accesses_memory_is_a_list(gpu: Gpu, pointer: int) -> None:
    """Documented: it has as many places as are asked for, the last ones empty."""
    assert advise(pointer, SET_ACCESSED_BY, int(gpu.device)) is R.CUDA_SUCCESS
    answer, devices = asked(pointer, ACCESSED_BY, width=12)
    assert answer is R.CUDA_SUCCESS
    assert devices == [int(gpu.device), NOWHERE, NOWHERE]


def test_attributes_have_their_width(pointer: int) -> None:
    """Documented: four bytes, or a multiple of it for the list."""
    for which, width in ((READ_MOSTLY, 8), (ACCESSED_BY, 0), (ACCESSED_BY, 5)):
        assert asked(pointer, which, width=width)[0] is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-14")
def test_other_memory_is_not_prefetched(gpu: Gpu) -> None:
    """Documented: the range has to be managed. The device's own memory cannot go anywhere."""
    mapper, plain = Mapper(gpu), gpu.allocate(SIZE)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    for place in (plain, address):
        assert prefetch(place, CPU, 4096) is not R.CUDA_SUCCESS
        assert asked(place, PREFETCHED, size=4096)[0] is not R.CUDA_SUCCESS
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)


def test_places_that_are_not_there(pointer: int) -> None:
    """Documented: neither a prefetch nor advice names a device that is not there, and no prefetch
    reaches beyond the memory."""
    assert prefetch(pointer, 1000) is R.CUDA_ERROR_INVALID_DEVICE
    for advice in (SET_PREFERRED, SET_ACCESSED_BY):
        assert advise(pointer, advice, 1000) is not R.CUDA_SUCCESS
    assert prefetch(pointer, CPU, 4 * SIZE) is not R.CUDA_SUCCESS
    assert advise(pointer, 7, 0) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-14")
def test_a_place_has_a_type_and_a_number(gpu: Gpu, pointer: int) -> None:
    """Measured on an H200 (driver 580.159.04): without a place the number is that of no device, and
    the host's is always the same."""
    device = int(gpu.device)
    assert (noted(pointer, PREFERRED_TYPE), noted(pointer, PREFERRED_ID)) == (0, NOWHERE)
    assert (noted(pointer, PREFETCHED_TYPE), noted(pointer, PREFETCHED_ID)) == (0, NOWHERE)
    for kind, number, last in (
        (DEVICE, device, device),
        (HOST, CPU, CPU),
        (HOST_NUMA, 0, CPU),
        (HOST_NUMA_CURRENT, 0, CPU),
    ):
        asked_for = device if kind == DEVICE else 0
        assert prefetch_to(pointer, kind, asked_for) is R.CUDA_SUCCESS
        seen = [noted(pointer, which) for which in (PREFETCHED_TYPE, PREFETCHED_ID, PREFETCHED)]
        assert seen == [kind, number, last]
    assert advise(pointer, SET_PREFERRED, device) is R.CUDA_SUCCESS
    assert advise(pointer, SET_PREFERRED, CPU, SIZE // 2) is R.CUDA_SUCCESS
    assert (noted(pointer, PREFERRED_TYPE), noted(pointer, PREFERRED_ID)) == (0, NOWHERE)
    assert noted(pointer, PREFERRED_ID, SIZE // 2) == CPU
    assert advise(pointer, UNSET_PREFERRED, device) is R.CUDA_SUCCESS
    assert noted(pointer, PREFERRED_ID) == NOWHERE


@pytest.mark.promise("simulated-14")
def test_what_has_left_a_device_is_kept_there(gpu: Gpu, pointer: int) -> None:
    """Measured on an H100 (driver 580): the device does not count it as free. An allocation that
    needs it gets it."""
    gpu.launch("fill", pointer, 51, SIZE // 4)
    ok(cuda.cuCtxSynchronize())
    before, _ = ok(cuda.cuMemGetInfo())
    for place in (CPU, int(gpu.device), CPU):
        assert prefetch(pointer, place) is R.CUDA_SUCCESS
        ok(cuda.cuCtxSynchronize())
        assert ok(cuda.cuMemGetInfo())[0] == before
