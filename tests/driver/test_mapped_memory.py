"""Virtual memory management: reserve, create, map, set access, and all of it backwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import Gpu, PinnedWord, alone, code, ok


def properties(gpu: Gpu) -> Any:
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = int(gpu.device)
    return wanted


class Mapper:
    """Chunks of one granule each, and addresses for them."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granule = int(ok(cuda.cuMemGetAllocationGranularity(properties(gpu), minimum)))
        self.words = self.granule // 4

    def reserve(self, granules: int = 1) -> int:
        return int(ok(cuda.cuMemAddressReserve(granules * self.granule, 0, 0, 0)))

    def more_than_there_is(self) -> int:
        _, total = ok(cuda.cuMemGetInfo())
        return int(2 * total // self.granule * self.granule)

    def create(self) -> Any:
        return ok(cuda.cuMemCreate(self.granule, properties(self.gpu), 0))

    def map(self, address: int, chunk: Any) -> None:
        ok(cuda.cuMemMap(address, self.granule, 0, chunk, 0))

    def grant(self, address: int, granules: int = 1) -> None:
        access = cuda.CUmemAccessDesc()
        access.location = properties(self.gpu).location
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ok(cuda.cuMemSetAccess(address, granules * self.granule, [access], 1))

    def unmap(self, address: int, granules: int = 1) -> None:
        ok(cuda.cuMemUnmap(address, granules * self.granule))

    def free(self, address: int, granules: int = 1) -> None:
        ok(cuda.cuMemAddressFree(address, granules * self.granule))


@pytest.fixture
def mapper(gpu: Gpu) -> Mapper:
    return Mapper(gpu)


@pytest.mark.promise("simulated-6")
def test_granularity_is_two_mebibytes(mapper: Mapper) -> None:
    """The smallest chunk of a device is 2 MiB."""
    assert mapper.granule == 2 << 20


def test_chunks_are_whole_granules(gpu: Gpu, mapper: Mapper) -> None:
    """Sizes that are no multiple of the granularity are refused, zero too."""
    for size in (0, 1, mapper.granule + 4096):
        created = cuda.cuMemCreate(size, properties(gpu), 0)
        assert code(created) is R.CUDA_ERROR_INVALID_VALUE, size
    assert code(cuda.cuMemAddressReserve(0, 0, 0, 0)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuMemAddressReserve(1000, 0, 0, 0)) is R.CUDA_ERROR_INVALID_VALUE


def test_creating_more_than_the_device_has(gpu: Gpu, mapper: Mapper) -> None:
    """Too large a chunk is out of memory."""
    size = mapper.more_than_there_is()
    assert code(cuda.cuMemCreate(size, properties(gpu), 0)) is R.CUDA_ERROR_OUT_OF_MEMORY


def test_reserved_addresses_take_no_memory(mapper: Mapper) -> None:
    """More of them than the device has memory can be had."""
    size = mapper.more_than_there_is()
    free, _ = ok(cuda.cuMemGetInfo())
    address = ok(cuda.cuMemAddressReserve(size, 0, 0, 0))
    assert ok(cuda.cuMemGetInfo())[0] == free
    ok(cuda.cuMemAddressFree(address, size))


@pytest.mark.promise("simulated-16", "Mapped memory, with strict rules for map, unmap and access")
def test_full_life_of_a_mapping(gpu: Gpu, mapper: Mapper) -> None:
    """Mapped memory with access works like any other, and everything can be given back."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    gpu.launch("fill", address, 21, mapper.words)
    assert (gpu.download(address, mapper.words) == 21).all()
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)


@pytest.mark.promise("simulated-16")
def test_memory_is_used_from_creation_to_release(mapper: Mapper) -> None:
    """A chunk takes device memory from its creation on, mapped or not."""
    before, _ = ok(cuda.cuMemGetInfo())
    chunk = mapper.create()
    assert before - ok(cuda.cuMemGetInfo())[0] == mapper.granule
    ok(cuda.cuMemRelease(chunk))
    assert ok(cuda.cuMemGetInfo())[0] == before


def test_released_chunk_lives_while_it_is_mapped(gpu: Gpu, mapper: Mapper) -> None:
    """Releasing the handle of a mapped chunk takes nothing until it is unmapped."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    ok(cuda.cuMemRelease(chunk))
    gpu.launch("fill", address, 22, mapper.words)
    assert gpu.download(address, 4).tolist() == [22] * 4
    mapper.unmap(address)
    mapper.free(address)


def test_released_chunk_is_free_once_it_is_unmapped(mapper: Mapper) -> None:
    """Its memory is used while it is mapped, and comes back with the unmap."""
    before, _ = ok(cuda.cuMemGetInfo())
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    ok(cuda.cuMemRelease(chunk))
    assert before - ok(cuda.cuMemGetInfo())[0] == mapper.granule
    mapper.unmap(address)
    assert ok(cuda.cuMemGetInfo())[0] == before
    mapper.free(address)


@pytest.mark.promise("simulated-17", "Data moves out and back under one address")
def test_data_moves_out_and_back_under_one_address(gpu: Gpu, mapper: Mapper) -> None:
    """After copy out, unmap, release, create, map and copy in, a launch finds its data again."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    kept = np.arange(mapper.words, dtype=np.uint32)
    ok(cuda.cuMemcpyHtoD(address, kept, kept.nbytes))
    parked = gpu.download(address, mapper.words)
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    chunk = mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    ok(cuda.cuMemcpyHtoD(address, parked, parked.nbytes))
    out = gpu.allocate(8)
    gpu.launch("checksum", out, address, 1000)
    assert gpu.download(out, 1, np.uint64)[0] == sum(i * (2 * i + 1) for i in range(1000))
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)


def test_one_chunk_at_two_addresses(gpu: Gpu, mapper: Mapper) -> None:
    """A chunk that is mapped twice is the same memory at both addresses."""
    first, second, chunk = mapper.reserve(), mapper.reserve(), mapper.create()
    for address in (first, second):
        mapper.map(address, chunk)
        mapper.grant(address)
    gpu.launch("fill", first, 23, mapper.words)
    ok(cuda.cuCtxSynchronize())
    assert gpu.download(second, 4).tolist() == [23] * 4
    for address in (first, second):
        mapper.unmap(address)
        mapper.free(address)
    ok(cuda.cuMemRelease(chunk))


def test_copies_span_neighbouring_chunks(gpu: Gpu, mapper: Mapper) -> None:
    """Two chunks side by side are one range for launches, copies and memsets."""
    address, chunks = mapper.reserve(2), [mapper.create(), mapper.create()]
    for place, chunk in enumerate(chunks):
        mapper.map(address + place * mapper.granule, chunk)
    mapper.grant(address, 2)
    ok(cuda.cuMemsetD32(address, 24, 2 * mapper.words))
    edge = address + mapper.granule - 400
    ok(cuda.cuMemcpyHtoD(edge, np.arange(200, dtype=np.uint32), 800))
    assert gpu.download(edge, 200).tolist() == list(range(200))
    assert gpu.download(edge - 4, 1).tolist() == [24]
    mapper.unmap(address, 2)
    for chunk in chunks:
        ok(cuda.cuMemRelease(chunk))
    mapper.free(address, 2)


@pytest.mark.promise("simulated-16")
def test_mapping_over_a_mapping_is_refused(mapper: Mapper) -> None:
    """A range that is mapped cannot be mapped again before it is unmapped."""
    address, first, second = mapper.reserve(), mapper.create(), mapper.create()
    mapper.map(address, first)
    again = cuda.cuMemMap(address, mapper.granule, 0, second, 0)
    assert code(again) is R.CUDA_ERROR_INVALID_VALUE
    mapper.unmap(address)
    mapper.free(address)
    for chunk in (first, second):
        ok(cuda.cuMemRelease(chunk))


def test_mapping_outside_a_reservation_is_refused(gpu: Gpu, mapper: Mapper) -> None:
    """Chunks are mapped into reserved addresses, aligned to the granularity, alone."""
    chunk, address, plain = mapper.create(), mapper.reserve(), gpu.allocate(mapper.granule)
    mapper.free(address)
    for place in (address, plain, address + 4096):
        mapped = cuda.cuMemMap(place, mapper.granule, 0, chunk, 0)
        assert code(mapped) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemRelease(chunk))


def test_mappings_are_unmapped_whole(mapper: Mapper) -> None:
    """Half a granule cannot be unmapped; unmapping addresses that are free of mappings may be."""
    address, chunk = mapper.reserve(2), mapper.create()
    mapper.map(address, chunk)
    half = cuda.cuMemUnmap(address, mapper.granule // 2)
    assert code(half) is R.CUDA_ERROR_INVALID_VALUE
    mapper.unmap(address)
    mapper.unmap(address)
    mapper.unmap(address + mapper.granule)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address, 2)


@pytest.mark.promise("simulated-16")
def test_half_a_chunk_cannot_be_unmapped(mapper: Mapper) -> None:
    """A chunk of two granules that is mapped as one is unmapped as one."""
    size = 2 * mapper.granule
    address = mapper.reserve(2)
    chunk = ok(cuda.cuMemCreate(size, properties(mapper.gpu), 0))
    ok(cuda.cuMemMap(address, size, 0, chunk, 0))
    half = cuda.cuMemUnmap(address, mapper.granule)
    assert code(half) is R.CUDA_ERROR_INVALID_VALUE
    mapper.unmap(address, 2)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address, 2)


def test_addresses_are_freed_unmapped_and_whole(mapper: Mapper) -> None:
    """A reservation is freed as it was made, and never with mappings inside."""
    address, chunk = mapper.reserve(2), mapper.create()
    mapper.map(address, chunk)
    assert code(cuda.cuMemAddressFree(address, 2 * mapper.granule)) is R.CUDA_ERROR_INVALID_VALUE
    mapper.unmap(address)
    assert code(cuda.cuMemAddressFree(address, mapper.granule)) is R.CUDA_ERROR_INVALID_VALUE
    mapper.free(address, 2)
    assert code(cuda.cuMemAddressFree(address, 2 * mapper.granule)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemRelease(chunk))


def test_chunks_are_released_once(mapper: Mapper) -> None:
    """Releasing a chunk that is gone is refused."""
    chunk = mapper.create()
    ok(cuda.cuMemRelease(chunk))
    assert code(cuda.cuMemRelease(chunk)) is R.CUDA_ERROR_INVALID_VALUE


def test_wanted_addresses_are_given(mapper: Mapper) -> None:
    """A free address that is asked for is the address that is reserved."""
    address = mapper.reserve(4)
    mapper.free(address, 4)
    assert int(ok(cuda.cuMemAddressReserve(4 * mapper.granule, 0, address, 0))) == address
    mapper.free(address, 4)


def test_handle_of_a_mapped_address(mapper: Mapper) -> None:
    """The chunk behind an address can be retained, and tells its properties and its access."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    location = properties(mapper.gpu).location
    assert int(ok(cuda.cuMemGetAccess(location, address))) == 0
    mapper.grant(address)
    assert int(ok(cuda.cuMemGetAccess(location, address))) == 3
    retained = ok(cuda.cuMemRetainAllocationHandle(address))
    assert int(retained) == int(chunk)
    found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(retained))
    assert found.location.id == int(mapper.gpu.device)
    for _ in range(2):
        ok(cuda.cuMemRelease(chunk))
    mapper.unmap(address)
    mapper.free(address)


def test_access_needs_a_mapping(mapper: Mapper) -> None:
    """Access cannot be set on addresses that are not mapped."""
    address = mapper.reserve()
    access = cuda.CUmemAccessDesc()
    access.location = properties(mapper.gpu).location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    granted = cuda.cuMemSetAccess(address, mapper.granule, [access], 1)
    assert code(granted) is R.CUDA_ERROR_INVALID_VALUE
    mapper.free(address)


@alone
def test_unmapping_does_not_wait(gpu: Gpu) -> None:
    """Memory that no work touches is unmapped at once, whatever runs on the device."""
    mapper, flag = Mapper(gpu), PinnedWord()
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    for flags in (0, 1):
        stream = ok(cuda.cuStreamCreate(flags))
        flag.value = 0
        gpu.launch("poll_flag", flag.device, stream=stream)
        mapper.unmap(address)
        assert code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY
        mapper.map(address, chunk)
        mapper.grant(address)
        assert code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY
        flag.value = 1
        ok(cuda.cuStreamSynchronize(stream))


@pytest.mark.promise("simulated-17")
def test_captured_work_follows_its_address(gpu: Gpu, mapper: Mapper) -> None:
    """A captured memset and a captured copy within the device are right when they are replayed
    after other memory was mapped at their addresses."""
    stream = ok(cuda.cuStreamCreate(1))
    address, half = mapper.reserve(), mapper.words // 2
    copied = address + 4 * half

    def replay(value: int) -> tuple[set[int], set[int]]:
        ok(cuda.cuMemsetD32(address, value, half))
        ok(cuda.cuMemsetD32(copied, 1, half))
        ok(cuda.cuCtxSynchronize())
        ok(cuda.cuGraphLaunch(executable, stream))
        ok(cuda.cuStreamSynchronize(stream))
        words = gpu.download(address, 2 * half).tolist()
        return set(words[:half]), set(words[half:])

    chunk = mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    ok(cuda.cuStreamBeginCapture(stream, relaxed))
    ok(cuda.cuMemcpyDtoDAsync(copied, address, 4 * half, stream))
    ok(cuda.cuMemsetD32Async(address, 7, half, stream))
    graph = ok(cuda.cuStreamEndCapture(stream))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    assert replay(17) == ({7}, {17})
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    chunk = mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    assert replay(34) == ({7}, {34})
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))
    ok(cuda.cuStreamDestroy(stream))


@alone
def test_copying_without_access_is_refused(gpu: Gpu) -> None:
    """A copy to memory that is mapped but not accessible is an invalid value, not a fault."""
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    words = np.zeros(4, dtype=np.uint32)
    assert code(cuda.cuMemcpyHtoD(address, words, 16)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuCtxSynchronize())


@pytest.mark.promise("simulated-16")
@alone
def test_launching_on_unmapped_memory_is_a_fault(gpu: Gpu) -> None:
    """A launch that touches what was unmapped leaves the context with a sticky error."""
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    gpu.launch("fill", address, 1, mapper.words)
    ok(cuda.cuCtxSynchronize())
    mapper.unmap(address)
    gpu.launch("fill", address, 1, mapper.words)
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_ILLEGAL_ADDRESS
    assert code(cuda.cuMemAlloc(16)) is R.CUDA_ERROR_ILLEGAL_ADDRESS


@pytest.mark.promise("simulated-16")
@alone
def test_launching_without_access_is_a_fault(gpu: Gpu) -> None:
    """A launch that touches memory without access leaves the context with a sticky error."""
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    gpu.launch("fill", address, 1, mapper.words)
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_ILLEGAL_ADDRESS
