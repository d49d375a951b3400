"""Mapped memory: handles, addresses, access."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.asked.question import (
    MIB,
    attributes_of,
    busy,
    call,
    difference,
    free_mib,
    question,
    said,
    u64,
    word,
)
from tests.driver.harness import Gpu, PinnedWord, ok, raw
from tests.driver.test_mapped_memory import Mapper, properties

NONE, POSIX, WIN32, FABRIC = 0, 1, 2, 8


def wanting(gpu: Gpu, handle_types: int = NONE, *, rdma: int = 0, compressed: int = 0) -> Any:
    wanted = properties(gpu)
    wanted.requestedHandleTypes = cuda.CUmemAllocationHandleType(handle_types)
    wanted.allocFlags.gpuDirectRDMACapable = rdma
    wanted.allocFlags.compressionType = compressed
    return wanted


def raw_properties(gpu: Gpu, handle_types: int, location: tuple[int, int] = (1, 0)) -> Any:
    """The struct itself, with values that the enumerations of cuda.bindings do not have."""
    wanted = (ctypes.c_uint32 * 8)()
    wanted[0], wanted[1], wanted[2], wanted[3] = 1, handle_types, *location
    return wanted


def create_raw(wanted: Any, size: int = 2 * MIB) -> str:
    handle = ctypes.c_uint64()
    return call("cuMemCreate", ctypes.byref(handle), u64(size), wanted, u64(0))


def granularity(wanted: Any) -> str:
    least, most = (
        said(cuda.cuMemGetAllocationGranularity(wanted, option))
        for option in (
            cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM,
            cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
        )
    )
    return f"{least} / {most}"


@question("Granularity, minimum / recommended: plain, POSIX, FABRIC, RDMA, compressed")
def granularities(gpu: Gpu) -> str:
    kinds = [wanting(gpu), wanting(gpu, POSIX), wanting(gpu, FABRIC)]
    kinds += [wanting(gpu, rdma=1), wanting(gpu, compressed=1)]
    return "; ".join(map(granularity, kinds))


@question("Granularity with an unknown option; for device -1, for device 1000")
def granularity_of_nothing(gpu: Gpu) -> list[str]:
    size = ctypes.c_size_t()
    asked = [(raw_properties(gpu, 0), 7)]
    asked += [(raw_properties(gpu, 0, (1, device)), 0) for device in (0xFFFFFFFF, 1000)]
    return [call("cuMemGetAllocationGranularity", ctypes.byref(size), p, o) for p, o in asked]


@question("cuMemCreate with handle types 0, POSIX, WIN32, FABRIC, POSIX|FABRIC, 0x40")
def handle_types(gpu: Gpu) -> list[str]:
    return [create_raw(raw_properties(gpu, kind)) for kind in (0, 1, 2, 8, 9, 0x40)]


@question(
    "cuMemCreate for device -1, device 1000, HOST, HOST_NUMA 0, HOST_NUMA_CURRENT, location 9"
)
def locations(gpu: Gpu) -> list[str]:
    where = [(1, 0xFFFFFFFF), (1, 1000), (2, 0), (3, 0), (4, 0), (9, 0)]
    return [create_raw(raw_properties(gpu, 0, location)) for location in where]


@question("cuMemCreate of HOST memory with POSIX; of the types INVALID and MANAGED; with flags 1")
def unusual_creations(gpu: Gpu) -> list[str]:
    answers = [create_raw(raw_properties(gpu, POSIX, (2, 0)))]
    for kind in (0, 2):
        wanted = raw_properties(gpu, 0)
        wanted[0] = kind
        answers.append(create_raw(wanted))
    handle = ctypes.c_uint64()
    flags = call("cuMemCreate", ctypes.byref(handle), u64(2 * MIB), raw_properties(gpu, 0), u64(1))
    return [*answers, flags]


@question("Properties read back (types, RDMA, compression): asked for all, for none")
def properties_read_back(gpu: Gpu) -> list[str]:
    answers = []
    for wanted in (wanting(gpu, POSIX, rdma=1, compressed=1), wanting(gpu)):
        chunk = ok(cuda.cuMemCreate(2 * MIB, wanted, 0))
        found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
        flags = found.allocFlags
        answers.append(
            f"{int(found.requestedHandleTypes)} {int(flags.gpuDirectRDMACapable)}"
            f" {int(flags.compressionType)} {int(found.location.type)}:{found.location.id}"
        )
    return answers


@question(
    "cuMemMap: offset 2 MiB, half the handle, twice its size, with flags 1, across reservations"
)
def unusual_maps(gpu: Gpu) -> list[str]:
    mapper = Mapper(gpu)
    granule, address = mapper.granule, mapper.reserve(8)
    chunk = ok(cuda.cuMemCreate(2 * granule, properties(gpu), 0))
    answers = [
        word(cuda.cuMemMap(address, granule, granule, chunk, 0)),
        word(cuda.cuMemMap(address, granule, 0, chunk, 0)),
        word(cuda.cuMemMap(address, 4 * granule, 0, chunk, 0)),
        word(cuda.cuMemMap(address, 2 * granule, 0, chunk, 1)),
    ]
    first = mapper.reserve()
    second = ok(cuda.cuMemAddressReserve(granule, 0, first + granule, 0))
    beside = int(second) == first + granule
    across = word(cuda.cuMemMap(first, 2 * granule, 0, chunk, 0)) if beside else "not adjacent"
    return [*answers, across]


def two_mapped(gpu: Gpu, gap: int = 0) -> tuple[Mapper, int]:
    """Two chunks in a reservation of eight granules, side by side or with a gap."""
    mapper = Mapper(gpu)
    address = mapper.reserve(8)
    for place in (0, 1 + gap):
        mapper.map(address + place * mapper.granule, mapper.create())
    return mapper, address


@question("cuMemUnmap: two mappings at once; one and a half; across a hole; more than was reserved")
def unusual_unmaps(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    answers = [word(cuda.cuMemUnmap(address, 2 * mapper.granule))]
    mapper, address = two_mapped(gpu)
    answers.append(word(cuda.cuMemUnmap(address, 3 * mapper.granule // 2)))
    mapper, address = two_mapped(gpu, gap=1)
    answers.append(word(cuda.cuMemUnmap(address, 3 * mapper.granule)))
    answers.append(word(cuda.cuMemUnmap(address, 64 * mapper.granule)))
    return answers


@question("cuMemUnmap that begins in a hole, that ends in a hole; of an address never reserved; 0")
def unmapping_holes(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu, gap=1)
    granule = mapper.granule
    return [
        word(cuda.cuMemUnmap(address + granule, 2 * granule)),
        word(cuda.cuMemUnmap(address, 2 * granule)),
        word(cuda.cuMemUnmap(0x7000 << 32, granule)),
        word(cuda.cuMemUnmap(address, 0)),
    ]


def access(gpu: Gpu, flags: int, location: tuple[int, int] = (1, 0)) -> Any:
    return (ctypes.c_uint32 * 3)(*location, flags)


def set_access(address: int, size: int, described: Any, count: int = 1) -> str:
    return call("cuMemSetAccess", u64(address), u64(size), described, u64(count))


def get_access(address: int, location: tuple[int, int] = (1, 0)) -> str:
    flags = ctypes.c_uint64(99)
    where = (ctypes.c_uint32 * 2)(*location)
    answer = call("cuMemGetAccess", ctypes.byref(flags), where, u64(address))
    return f"{answer} {flags.value}"


@question(
    "cuMemSetAccess: two mappings; one and a half; over a hole; half of a chunk; count 0; size 0"
)
def unusual_grants(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    granule, both = mapper.granule, access(gpu, 3)
    answers = [
        set_access(address, 2 * granule, both),
        set_access(address, 3 * granule // 2, both),
    ]
    _, apart = two_mapped(gpu, gap=1)
    answers.append(set_access(apart, 3 * granule, both))
    large = mapper.reserve(2)
    ok(
        cuda.cuMemMap(
            large, 2 * granule, 0, ok(cuda.cuMemCreate(2 * granule, properties(gpu), 0)), 0
        )
    )
    answers += [
        set_access(large, granule, both),
        f"then {get_access(large)} {get_access(large + granule)}",
        set_access(address, granule, both, 0),
        set_access(address, 0, both),
    ]
    return answers


@question("After a refused grant over a hole: access of the first mapping, of the second")
def refused_grant_leaves(gpu: Gpu) -> list[str]:
    mapper, apart = two_mapped(gpu, gap=1)
    refused = set_access(apart, 3 * mapper.granule, access(gpu, 3))
    return [refused, get_access(apart), get_access(apart + 2 * mapper.granule)]


@question("cuMemSetAccess READ (then GetAccess), back to NONE, 7; device 1000, HOST, HOST_NUMA")
def kinds_of_access(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    answers = []
    for flags in (1, 3, 0, 7, 2):
        granted = set_access(address, mapper.granule, access(gpu, flags))
        answers.append(f"{flags}: {granted} then {get_access(address)}")
    for location in ((1, 1000), (2, 0), (3, 0)):
        answers.append(set_access(address, mapper.granule, access(gpu, 3, location)))
    return answers


@question("A launch that writes through READ access: the synchronise, then the bytes' fate")
def writing_through_read_access(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    granted = set_access(address, mapper.granule, access(gpu, 1))
    tried = word(gpu.try_launch("fill", address, 5, 64))
    return [granted, tried, word(cuda.cuCtxSynchronize())]


@question("cuMemGetAccess: cuMemAlloc memory, reserved alone, host memory, device 1000, HOST")
def access_of_others(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    plain, reserved = gpu.allocate(MIB), mapper.reserve()
    host = int(ok(cuda.cuMemHostAlloc(4096, 2)))
    answers = [get_access(place) for place in (plain, reserved, host)]
    return answers + [get_access(address, where) for where in ((1, 1000), (2, 0))]


@question("Does cuMemSetAccess wait for work in flight? cuMemMap? cuMemRelease? cuMemCreate?")
def what_waits(gpu: Gpu) -> list[str]:
    mapper, flag = Mapper(gpu), PinnedWord()
    address, chunk, spare = mapper.reserve(), mapper.create(), mapper.create()
    stream = ok(cuda.cuStreamCreate(1))
    gpu.launch("poll_flag", flag.device, stream=stream)
    steps = []
    mapper.map(address, chunk)
    steps.append(f"map: busy {busy(gpu, stream)}")
    mapper.grant(address)
    steps.append(f"grant: busy {busy(gpu, stream)}")
    ok(cuda.cuMemRelease(spare))
    mapper.create()
    steps.append(f"release, create: busy {busy(gpu, stream)}")
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    return steps


def retained(address: int) -> str:
    return said(cuda.cuMemRetainAllocationHandle(address))


@question("cuMemRetainAllocationHandle of: cuMemAlloc, pool, reserved alone, host, managed memory")
def retaining_others(gpu: Gpu) -> list[str]:
    pooled = int(ok(cuda.cuMemAllocAsync(MIB, 0)))
    ok(cuda.cuCtxSynchronize())
    managed = int(ok(cuda.cuMemAllocManaged(MIB, cuda.CUmemAttach_flags(1))))
    host = int(ok(cuda.cuMemHostAlloc(4096, 2)))
    places = (gpu.allocate(MIB), pooled, Mapper(gpu).reserve(), host, managed)
    return [retained(place).split()[0] for place in places]


@question("Retained twice beside the creation: how many releases succeed? Same value each time?")
def releases_of_a_retained(gpu: Gpu) -> list[str]:
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    values = [int(ok(cuda.cuMemRetainAllocationHandle(address + 4096))) for _ in range(2)]
    releases = [word(cuda.cuMemRelease(chunk)) for _ in range(4)]
    return [f"same {all(v == int(chunk) for v in values)}", *releases]


@question("A handle released while mapped: properties, map, retain (same value?), export, release")
def handle_after_release(gpu: Gpu) -> list[str]:
    mapper = Mapper(gpu)
    address, second = mapper.reserve(), mapper.reserve()
    chunk = ok(cuda.cuMemCreate(mapper.granule, wanting(gpu, POSIX), 0))
    mapper.map(address, chunk)
    ok(cuda.cuMemRelease(chunk))
    found = word(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
    mapped = word(cuda.cuMemMap(second, mapper.granule, 0, chunk, 0))
    again = cuda.cuMemRetainAllocationHandle(address)
    same = f"same {int(again[1]) == int(chunk)}" if word(again) == "SUCCESS" else word(again)
    fd = ctypes.c_int()
    exported = call("cuMemExportToShareableHandle", ctypes.byref(fd), u64(int(chunk)), 1, u64(0))
    return [found, mapped, same, exported, word(cuda.cuMemRelease(chunk))]


@question("cuMemRelease of 0; of 0x1234; of an address that was never a handle")
def releasing_nothing(gpu: Gpu) -> list[str]:
    return [call("cuMemRelease", u64(value)) for value in (0, 0x1234, gpu.allocate(MIB))]


@question("Are handle values used again? Create and release five times: how many values")
def handle_values(gpu: Gpu) -> str:
    mapper, values = Mapper(gpu), []
    for _ in range(5):
        chunk = mapper.create()
        values.append(int(chunk))
        ok(cuda.cuMemRelease(chunk))
    return f"{len(set(values))} values, all of them addresses: {min(values) > 1 << 32}"


def reserve(size: int, alignment: int = 0, hint: int = 0, flags: int = 0) -> str:
    pointer = ctypes.c_uint64()
    arguments = (u64(size), u64(alignment), u64(hint), u64(flags))
    answer = call("cuMemAddressReserve", ctypes.byref(pointer), *arguments)
    if answer != "SUCCESS":
        return answer
    aligned = next(s for s in range(40, 0, -1) if pointer.value % (1 << s) == 0)
    return f"SUCCESS aligned 2^{aligned}" + (f" hint {pointer.value == hint}" if hint else "")


@question("cuMemAddressReserve of 4096, 64 KiB, 1 MiB, 3 MiB; alignment 3, 4096, 1 GiB; flags 1")
def reservations(gpu: Gpu) -> list[str]:
    sizes = [reserve(size) for size in (4096, 64 << 10, MIB, 3 * MIB)]
    return [*sizes, *(reserve(2 * MIB, a) for a in (3, 4096, 1 << 30)), reserve(2 * MIB, 0, 0, 1)]


@question("cuMemAddressReserve with a hint: taken by a reservation, not aligned, of the host, free")
def hints(gpu: Gpu) -> list[str]:
    taken = Mapper(gpu).reserve()
    free = Mapper(gpu).reserve(4)
    ok(cuda.cuMemAddressFree(free, 8 * MIB))
    pages = mmap.mmap(-1, 4 * MIB)
    host = ctypes.addressof(ctypes.c_char.from_buffer(pages)) & ~(2 * MIB - 1)
    return [reserve(2 * MIB, 0, hint) for hint in (taken, free + 4096, host, free)]


@question("cuMemAddressFree: with a mapping, half, its second half, never reserved, 0, twice")
def address_frees(gpu: Gpu) -> list[str]:
    mapper, mapped = two_mapped(gpu)
    granule, address = mapper.granule, mapper.reserve(2)
    places = [(mapped, 8), (address, 1), (address + granule, 1), (0x7000 << 32, 1), (0, 1)]
    frees = [word(cuda.cuMemAddressFree(place, n * granule)) for place, n in places]
    return frees + [word(cuda.cuMemAddressFree(address, 2 * granule)) for _ in range(2)]


@question("Attributes: mapped with access, second of two chunks, mapped without, reserved alone")
def attributes_of_mapped(gpu: Gpu) -> str:
    mapper, address = two_mapped(gpu)
    granted, second = address, address + mapper.granule
    mapper.grant(granted)
    places = (granted, second + 4096, address + 4 * mapper.granule)
    return "\n     ".join(attributes_of(place, address) for place in places)


@question("cuMemGetAddressRange: second of two chunks, reserved alone, inside a reservation's hole")
def ranges_of_mapped(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    answers = []
    for place in (address + mapper.granule + 4096, mapper.reserve(), address + 5 * mapper.granule):
        answer = cuda.cuMemGetAddressRange(place)
        known = word(answer) == "SUCCESS"
        answers.append(f"base{int(answer[1]) - address:+d} {answer[2]}" if known else word(answer))
    return answers


@question("cuMemFree and cuMemFreeAsync of mapped memory; is it mapped afterwards?")
def freeing_mapped(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    mapper.grant(address)
    frees = [word(cuda.cuMemFree(address)), word(cuda.cuMemFreeAsync(address, 0))]
    return [*frees, word(cuda.cuMemRetainAllocationHandle(address))]


@question("Copies that reach from a mapping into a hole; into a mapping without access; memset")
def copying_into_holes(gpu: Gpu) -> list[str]:
    mapper, address = two_mapped(gpu)
    mapper.grant(address)
    host = (ctypes.c_uint8 * 4096)()
    edge = address + mapper.granule - 2048
    return [
        word(cuda.cuMemcpyHtoD(edge, ctypes.addressof(host), 4096)),
        word(cuda.cuMemcpyDtoH(ctypes.addressof(host), edge, 4096)),
        word(cuda.cuMemsetD8(edge, 1, 4096)),
        word(cuda.cuMemsetD8(address + 3 * mapper.granule, 1, 16)),
        word(cuda.cuCtxSynchronize()),
    ]


@question("Without a current context: reserve, create, map, grant, retain, unmap, release, free")
def without_a_context() -> list[str]:
    ok(cuda.cuInit(0))
    gpu: Any = type("Device", (), {"device": ok(cuda.cuDeviceGet(0))})
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    steps = [word(cuda.cuMemMap(address, mapper.granule, 0, chunk, 0))]
    steps.append(set_access(address, mapper.granule, access(gpu, 3)))
    steps += [retained(address).split()[0], word(cuda.cuMemUnmap(address, mapper.granule))]
    releases = [word(cuda.cuMemRelease(chunk)), word(cuda.cuMemRelease(chunk))]
    return [*steps, *releases, word(cuda.cuMemAddressFree(address, mapper.granule))]


@question("Mapped memory after cuDevicePrimaryCtxReset: readable, handle valid, access kept?")
def mapped_after_reset(gpu: Gpu) -> list[str]:
    mapper = Mapper(gpu)
    address, chunk = mapper.reserve(), mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    ok(cuda.cuMemsetD32(address, 7, 64))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
    again = Gpu()
    word_ = ctypes.c_uint32()
    read = word(cuda.cuMemcpyDtoH(ctypes.addressof(word_), address, 4))
    found = word(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
    launched = word(again.try_launch("fill", address, 8, 64))
    return [
        read,
        str(word_.value),
        get_access(address),
        found,
        launched,
        word(cuda.cuCtxSynchronize()),
    ]


@question(
    "Bytes taken by: a chunk of 2 MiB, of 64 MiB, its mapping, its access, 4 GiB reserved",
    alone=True,
)
def bytes_of_mappings(gpu: Gpu) -> list[str]:
    mapper, before = Mapper(gpu), free_mib()
    small = mapper.create()
    steps = [difference(before)]
    large = ok(cuda.cuMemCreate(64 * MIB, properties(gpu), 0))
    steps.append(difference(before))
    address = mapper.reserve(2048)
    ok(cuda.cuMemMap(address, 64 * MIB, 0, large, 0))
    steps.append(difference(before))
    set_access(address, 64 * MIB, access(gpu, 3))
    steps.append(difference(before))
    mapper.unmap(address, 32)
    for chunk in (small, large):
        ok(cuda.cuMemRelease(chunk))
    return [*steps, f"after: {difference(before)}"]


@question("What this device and driver support (attributes)")
def supported(gpu: Gpu) -> str:
    names = (
        "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"
        " HANDLE_TYPE_FABRIC_SUPPORTED GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED DMA_BUF_SUPPORTED"
        " GPU_DIRECT_RDMA_SUPPORTED GENERIC_COMPRESSION_SUPPORTED MULTICAST_SUPPORTED"
        " SPARSE_CUDA_ARRAY_SUPPORTED DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED MEMORY_POOLS_SUPPORTED"
        " MEMPOOL_SUPPORTED_HANDLE_TYPES IPC_EVENT_SUPPORTED CONCURRENT_MANAGED_ACCESS"
        " PAGEABLE_MEMORY_ACCESS HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"
        " HOST_NUMA_MEMORY_POOLS_SUPPORTED HOST_MEMORY_POOLS_SUPPORTED"
        " HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"
    )
    version = ctypes.c_int()
    raw().cuDriverGetVersion(ctypes.byref(version))
    found = [f"driver {version.value}", str(ok(cuda.cuDeviceGetName(64, gpu.device)).rstrip(b"\0"))]
    for name in names.split():
        which = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        asked = "unknown" if which is None else said(cuda.cuDeviceGetAttribute(which, gpu.device))
        found.append(f"{name} {asked.removeprefix('SUCCESS ')}")
    return "; ".join(found)
