"""Handles of mapped memory: what they hold alive, what they say, and what is refused.

"Documented": the expectation is what the driver API's reference says, not measured on a device.
"Measured": as an H200 with driver 580.159.04 has answered (asked/h200.json), where that is another
thing, or none, in the reference."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUdevice_attribute as DeviceAttribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, code, ok, raw
from tests.driver.test_mapped_memory import Mapper, properties
from tests.driver.test_shared_memory import FABRIC, POSIX

HOST, HOST_NUMA_CURRENT = 2, 4


def supports(gpu: Gpu, name: str) -> bool:
    which = getattr(DeviceAttribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return bool(ok(cuda.cuDeviceGetAttribute(which, gpu.device)))


def wanting(gpu: Gpu) -> Any:
    """What frameworks ask for: exportable, and capable of RDMA where the device is."""
    wanted = properties(gpu)
    wanted.requestedHandleTypes = POSIX
    if supports(gpu, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED"):
        wanted.allocFlags.gpuDirectRDMACapable = 1
    return wanted


def told(found: Any) -> tuple[int, ...]:
    flags = found.allocFlags
    return (
        int(found.type),
        int(found.requestedHandleTypes),
        int(found.location.type),
        found.location.id,
        int(flags.gpuDirectRDMACapable),
        int(flags.compressionType),
        int(flags.usage),
    )


def raw_properties(location: tuple[int, int], handle_types: int = 0) -> Any:
    """The struct itself: cuda.bindings lets no unknown value through."""
    return (ctypes.c_uint32 * 8)(1, handle_types, *location)


def created(wanted: Any, size: int = 2 * MIB) -> R:
    handle = ctypes.c_uint64()
    flags = ctypes.c_uint64(0)
    return R(raw().cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), wanted, flags))


@pytest.fixture
def mapper(gpu: Gpu) -> Mapper:
    return Mapper(gpu)


def give_back(mapper: Mapper, *addresses: int) -> None:
    for address in addresses:
        mapper.unmap(address)
        mapper.free(address)


@pytest.mark.promise("simulated-15", "Handles of mapped memory, as the driver's reference has them")
def test_either_address_keeps_a_released_chunk(gpu: Gpu, mapper: Mapper) -> None:
    """Documented: the memory is freed with its last mapping, whichever that is."""
    first, second, chunk = mapper.reserve(), mapper.reserve(), mapper.create()
    for address in (first, second):
        mapper.map(address, chunk)
        mapper.grant(address)
    ok(cuda.cuMemRelease(chunk))
    gpu.launch("fill", first, 61, mapper.words)
    ok(cuda.cuCtxSynchronize())
    give_back(mapper, first)
    assert gpu.download(second, 4).tolist() == [61] * 4
    give_back(mapper, second)


def test_each_mapping_has_access_of_its_own(mapper: Mapper) -> None:
    """Documented: a mapping starts without access, whatever other mappings of its chunk have."""
    first, second, chunk = mapper.reserve(), mapper.reserve(), mapper.create()
    mapper.map(first, chunk)
    mapper.grant(first)
    mapper.map(second, chunk)
    location = properties(mapper.gpu).location
    assert int(ok(cuda.cuMemGetAccess(location, second))) == 0
    ok(cuda.cuMemRelease(chunk))
    give_back(mapper, first, second)


def test_what_is_mapped_again_starts_without_access(mapper: Mapper) -> None:
    """Documented: access belongs to the mapping and ends with it."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    mapper.unmap(address)
    mapper.map(address, chunk)
    assert int(ok(cuda.cuMemGetAccess(properties(mapper.gpu).location, address))) == 0
    ok(cuda.cuMemRelease(chunk))
    give_back(mapper, address)


@pytest.mark.promise("simulated-15")
def test_a_retained_handle_outlives_its_mapping(gpu: Gpu, mapper: Mapper) -> None:
    """Documented: it is the value that was mapped, from any address of the mapping, and needs a
    release of its own; until then the bytes stay."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    gpu.launch("fill", address, 62, mapper.words)
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemRelease(chunk))
    retained = ok(cuda.cuMemRetainAllocationHandle(address + mapper.granule - 1))
    assert int(retained) == int(chunk)
    mapper.unmap(address)
    mapper.map(address, retained)
    mapper.grant(address)
    assert gpu.download(address, 4).tolist() == [62] * 4
    ok(cuda.cuMemRelease(retained))
    give_back(mapper, address)


def test_memory_of_other_kinds_has_no_handle(gpu: Gpu, mapper: Mapper) -> None:
    """Documented: a handle can be retained of mapped addresses alone. Libraries tell mapped memory
    from other memory by this."""
    pooled = ok(cuda.cuMemAllocAsync(MIB, 0))
    ok(cuda.cuCtxSynchronize())
    reserved = mapper.reserve()
    for address in (gpu.allocate(MIB), int(pooled), reserved):
        assert code(cuda.cuMemRetainAllocationHandle(address)) is not R.CUDA_SUCCESS
    ok(cuda.cuMemFree(pooled))
    mapper.free(reserved)


@pytest.mark.promise("simulated-15")
def test_properties_are_those_of_the_creation(gpu: Gpu) -> None:
    """Documented: a handle tells handle types and the RDMA flag as they were asked for, and what is
    created with these properties has the same ones."""
    wanted = wanting(gpu)
    chunk = ok(cuda.cuMemCreate(2 * MIB, wanted, 0))
    found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
    assert told(found) == told(wanted)
    again = ok(cuda.cuMemCreate(2 * MIB, found, 0))
    assert told(ok(cuda.cuMemGetAllocationPropertiesFromHandle(again))) == told(found)
    for handle in (chunk, again):
        ok(cuda.cuMemRelease(handle))


def test_compression_is_a_wish(gpu: Gpu) -> None:
    """Documented: the properties of the handle say whether it was granted; never where the device
    has none."""
    wanted = properties(gpu)
    wanted.allocFlags.compressionType = 1
    chunk = ok(cuda.cuMemCreate(2 * MIB, wanted, 0))
    found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
    assert found.allocFlags.compressionType <= supports(gpu, "GENERIC_COMPRESSION_SUPPORTED")
    ok(cuda.cuMemRelease(chunk))


def test_the_recommended_granularity_is_a_multiple(gpu: Gpu) -> None:
    """Documented: both can be used for sizes and addresses."""
    options = cuda.CUmemAllocationGranularity_flags
    for wanted in (properties(gpu), wanting(gpu)):
        least, best = (
            int(ok(cuda.cuMemGetAllocationGranularity(wanted, option)))
            for option in (
                options.CU_MEM_ALLOC_GRANULARITY_MINIMUM,
                options.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
            )
        )
        assert best >= least
        assert best % least == 0


@pytest.mark.parametrize("ordinal", [-1, 1000])
def test_devices_that_are_not_there(gpu: Gpu, ordinal: int) -> None:
    """Measured: a granularity is told of them, and there is no memory."""
    wanted = raw_properties((1, ordinal & 0xFFFFFFFF))
    size = ctypes.c_size_t()
    assert raw().cuMemGetAllocationGranularity(ctypes.byref(size), wanted, 0) == 0
    assert created(wanted) is R.CUDA_ERROR_INVALID_DEVICE


def test_host_memory_is_not_shared(gpu: Gpu) -> None:
    """Documented: HOST memory has no handle types, and no memory is created where the caller runs
    (HOST_NUMA_CURRENT)."""
    assert created(raw_properties((HOST, 0), 1)) is R.CUDA_ERROR_INVALID_VALUE
    assert created(raw_properties((HOST_NUMA_CURRENT, 0))) is R.CUDA_ERROR_INVALID_VALUE


def test_fabric_handles_are_where_the_device_has_them(gpu: Gpu) -> None:
    """Documented: without them a handle that asks for one is refused."""
    wanted = properties(gpu)
    wanted.requestedHandleTypes = FABRIC
    if not supports(gpu, "HANDLE_TYPE_FABRIC_SUPPORTED"):
        assert code(cuda.cuMemCreate(2 * MIB, wanted, 0)) is not R.CUDA_SUCCESS


def test_handle_types_that_cannot_be(gpu: Gpu) -> None:
    """Measured: those of another system are refused, and what no driver knows is passed over."""
    win32, unknown = 2, 0x40
    here = (1, int(gpu.device))
    assert created(raw_properties(here, win32)) is R.CUDA_ERROR_INVALID_VALUE
    assert created(raw_properties(here, unknown)) is R.CUDA_SUCCESS


@pytest.mark.promise("simulated-15")
def test_chunks_are_mapped_whole(gpu: Gpu, mapper: Mapper) -> None:
    """Measured: neither an offset nor a part is supported, nor more than there is; flags are
    refused."""
    address, granule = mapper.reserve(4), mapper.granule
    chunk = ok(cuda.cuMemCreate(2 * granule, properties(gpu), 0))
    refused = [
        cuda.cuMemMap(address, granule, granule, chunk, 0),
        cuda.cuMemMap(address, granule, 0, chunk, 0),
        cuda.cuMemMap(address, 4 * granule, 0, chunk, 0),
    ]
    assert [code(answer) for answer in refused] == [R.CUDA_ERROR_NOT_SUPPORTED] * 3
    flagged = cuda.cuMemMap(address, 2 * granule, 0, chunk, 1)
    assert code(flagged) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address, 4)


def two_mapped(mapper: Mapper, gap: int = 0) -> int:
    """Two chunks in four granules of addresses, side by side or with a gap."""
    address = mapper.reserve(4)
    for place in (0, 1 + gap):
        chunk = mapper.create()
        mapper.map(address + place * mapper.granule, chunk)
        ok(cuda.cuMemRelease(chunk))
    return address


@pytest.mark.promise("simulated-15")
def test_part_of_a_mapping_is_neither_unmapped_nor_granted(gpu: Gpu, mapper: Mapper) -> None:
    """Documented: a range of whole mappings is unmapped, and access is set on such a range."""
    granule, address = mapper.granule, mapper.reserve(4)
    for place in (0, 2):
        chunk = ok(cuda.cuMemCreate(2 * granule, properties(gpu), 0))
        ok(cuda.cuMemMap(address + place * granule, 2 * granule, 0, chunk, 0))
        ok(cuda.cuMemRelease(chunk))
    access = cuda.CUmemAccessDesc()
    access.location = properties(gpu).location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    for part in (granule, 3 * granule):
        assert code(cuda.cuMemUnmap(address, part)) is R.CUDA_ERROR_INVALID_VALUE
        granted = cuda.cuMemSetAccess(address, part, [access], 1)
        assert code(granted) is R.CUDA_ERROR_INVALID_VALUE
    mapper.grant(address, 4)
    gpu.launch("fill", address, 63, 4 * mapper.words)
    assert gpu.download(address + 4 * granule - 16, 4).tolist() == [63] * 4
    mapper.unmap(address, 4)
    mapper.free(address, 4)


@pytest.mark.promise("simulated-15")
def test_access_is_set_as_far_as_a_hole(mapper: Mapper) -> None:
    """Measured: what is mapped behind it gets none, without an error."""
    address = two_mapped(mapper, gap=1)
    access = cuda.CUmemAccessDesc()
    access.location = properties(mapper.gpu).location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cuda.cuMemSetAccess(address, 3 * mapper.granule, [access], 1))
    flags = [
        int(ok(cuda.cuMemGetAccess(access.location, address + place * mapper.granule)))
        for place in (0, 2)
    ]
    assert flags == [3, 0]
    for place in (0, 2):
        mapper.unmap(address + place * mapper.granule)
    mapper.free(address, 4)


def test_access_can_be_taken_away(gpu: Gpu, mapper: Mapper) -> None:
    """Documented: of one of two mappings that got it together; copies are refused from then on."""
    address = two_mapped(mapper)
    mapper.grant(address, 2)
    access = cuda.CUmemAccessDesc()
    access.location = properties(gpu).location
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
    ok(cuda.cuMemSetAccess(address, mapper.granule, [access], 1))
    flags = [
        int(ok(cuda.cuMemGetAccess(access.location, address + place * mapper.granule)))
        for place in (0, 1)
    ]
    assert flags == [0, 3]
    assert code(cuda.cuMemsetD32(address, 0, 4)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemsetD32(address + mapper.granule, 0, 4))
    ok(cuda.cuCtxSynchronize())
    mapper.unmap(address, 2)
    mapper.free(address, 4)


def test_taken_addresses_are_only_a_wish(mapper: Mapper) -> None:
    """Documented: an address that is asked for is a hint. One that is reserved already is not
    given twice."""
    taken = mapper.reserve(2)
    other = int(ok(cuda.cuMemAddressReserve(2 * mapper.granule, 0, taken, 0)))
    assert other != taken
    for address in (taken, other):
        mapper.free(address, 2)


def test_handles_are_no_addresses(gpu: Gpu) -> None:
    """Measured on an H200 (driver 580.159.04), which used none again at once. An H100 gave out
    three in turn, and two others the same one again."""
    values = []
    for _ in range(5):
        chunk = ok(cuda.cuMemCreate(2 * MIB, properties(gpu), 0))
        values.append(int(chunk))
        ok(cuda.cuMemRelease(chunk))
    assert min(values) < 1 << 32


def test_a_hint_is_aligned(mapper: Mapper) -> None:
    """Measured on an H200 (driver 580.159.04)."""
    free = mapper.reserve(4)
    mapper.free(free, 4)
    refused = cuda.cuMemAddressReserve(mapper.granule, 0, free + 4096, 0)
    assert code(refused) is R.CUDA_ERROR_INVALID_VALUE


def test_reserved_bytes_of_properties_are_zero(gpu: Gpu) -> None:
    """Measured on an H200 (driver 580.159.04)."""
    wanted, handle = (ctypes.c_uint32 * 8)(), ctypes.c_uint64()  # CUmemAllocationProp
    wanted[0], wanted[2], wanted[3], wanted[7] = 1, 1, int(gpu.device), 1
    size = ctypes.c_size_t(2 * MIB)
    answer = raw().cuMemCreate(ctypes.byref(handle), size, wanted, ctypes.c_uint64(0))
    assert R(answer) is R.CUDA_ERROR_INVALID_VALUE


def test_alignment_of_addresses_is_kept(mapper: Mapper) -> None:
    """Documented: any power of two can be asked for; nothing else."""
    for alignment in (64 * MIB, 1024 * MIB):
        address = int(ok(cuda.cuMemAddressReserve(2 * mapper.granule, alignment, 0, 0)))
        assert address % alignment == 0
        mapper.free(address, 2)
    odd = cuda.cuMemAddressReserve(2 * mapper.granule, 3 * MIB, 0, 0)
    assert code(odd) is R.CUDA_ERROR_INVALID_VALUE


def test_multicast_and_sparse_arrays_where_the_device_has_them(gpu: Gpu) -> None:
    """Documented: the device's attributes say so; elsewhere the calls fail and harm nothing."""
    handle, wanted = ctypes.c_uint64(), (ctypes.c_uint64 * 4)(1, 2 * MIB, 0, 0)
    if not supports(gpu, "MULTICAST_SUPPORTED"):
        assert raw().cuMulticastCreate(ctypes.byref(handle), wanted) != 0
    if not supports(gpu, "SPARSE_CUDA_ARRAY_SUPPORTED"):
        entry = (ctypes.c_uint8 * 256)()
        assert raw().cuMemMapArrayAsync(entry, 1, None) != 0
    ok(cuda.cuCtxSynchronize())


def test_a_chunk_is_mapped_over_two_reservations(gpu: Gpu, mapper: Mapper) -> None:
    """Measured, where they lie beside each other; an unmap may reach beyond what is reserved."""
    granule = mapper.granule
    whole = mapper.reserve(2)
    mapper.free(whole, 2)
    halves = [int(ok(cuda.cuMemAddressReserve(granule, 0, whole + at, 0))) for at in (0, granule)]
    if halves[1] == halves[0] + granule:  # the hints were taken
        chunk = ok(cuda.cuMemCreate(2 * granule, properties(gpu), 0))
        ok(cuda.cuMemMap(halves[0], 2 * granule, 0, chunk, 0))
        ok(cuda.cuMemRelease(chunk))
        mapper.unmap(halves[0], 3)
    for half in halves:
        mapper.free(half)


def test_a_handle_that_was_released_while_it_is_mapped(gpu: Gpu, mapper: Mapper) -> None:
    """Measured: it still tells its properties, and can be mapped once more."""
    address, chunk = mapper.reserve(2), mapper.create()
    mapper.map(address, chunk)
    ok(cuda.cuMemRelease(chunk))
    found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
    assert found.location.id == int(gpu.device)
    mapper.map(address + mapper.granule, chunk)
    mapper.unmap(address, 2)
    mapper.free(address, 2)


def test_mapped_memory_without_access_has_no_pointer(gpu: Gpu, mapper: Mapper) -> None:
    """Measured: there is no device pointer for its address, and its kind is told all the same."""
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    found = ctypes.c_uint64()
    kind, pointer = 2, 3
    ask = raw().cuPointerGetAttribute
    at = ctypes.c_uint64(address)
    assert R(ask(ctypes.byref(found), pointer, at)) is R.CUDA_ERROR_INVALID_VALUE
    assert R(ask(ctypes.byref(found), kind, at)) is R.CUDA_SUCCESS
    mapper.grant(address)
    assert R(ask(ctypes.byref(found), pointer, at)) is R.CUDA_SUCCESS
    assert found.value == address
    ok(cuda.cuMemRelease(chunk))
    mapper.unmap(address)
    mapper.free(address)
