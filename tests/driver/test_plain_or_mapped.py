"""Where the driver tells plain memory from mapped memory, as an H200 with driver 580.159.04 does.
Under the hook plain memory is mapped, so these cases do not hold there (docs/limits.md)."""

from __future__ import annotations

import ctypes

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, code, ok, raw
from tests.driver.test_mapped_memory import Mapper, properties


@pytest.fixture
def mapper(gpu: Gpu) -> Mapper:
    return Mapper(gpu)


def test_access_of_what_is_not_mapped(gpu: Gpu, mapper: Mapper) -> None:
    """None, without an error, for memory that the driver mapped; an error for addresses alone."""
    here, address = properties(gpu).location, mapper.reserve()
    assert int(ok(cuda.cuMemGetAccess(here, gpu.allocate(2 * MIB)))) == 0
    assert code(cuda.cuMemGetAccess(here, address)) is R.CUDA_ERROR_INVALID_VALUE
    mapper.free(address)


def test_mapped_memory_cannot_be_marked_for_synchronous_copies(gpu: Gpu, mapper: Mapper) -> None:
    """SYNC_MEMOPS is for memory that the driver has mapped, of pools too."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    sync_memops = 6
    answers = []
    for place in (address, gpu.allocate(2 * MIB), int(ok(cuda.cuMemAllocAsync(2 * MIB, 0)))):
        value = ctypes.c_uint32(1)
        at = ctypes.c_uint64(place)
        answers.append(R(raw().cuPointerSetAttribute(ctypes.byref(value), sync_memops, at)))
    assert answers == [R.CUDA_ERROR_NOT_SUPPORTED, R.CUDA_SUCCESS, R.CUDA_SUCCESS]
    ok(cuda.cuMemRelease(chunk))
    mapper.unmap(address)
    mapper.free(address)
