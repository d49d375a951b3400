"""Memory that leaves its process: descriptors, registrations, multicast, sparse arrays."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.asked.mapped import POSIX, raw_properties, retained, wanting
from tests.driver.asked.question import (
    MIB,
    attributes_of,
    call,
    difference,
    free_mib,
    question,
    u64,
    word,
)
from tests.driver.harness import Gpu, ok, raw
from tests.driver.test_mapped_memory import Mapper

SHARE = cuda.CUmemAllocationHandleType(POSIX)


def export(chunk: Any, kind: int = POSIX, flags: int = 0) -> str:
    out = (ctypes.c_uint8 * 64)()
    return call("cuMemExportToShareableHandle", out, u64(int(chunk)), kind, u64(flags))


def imported(fd: int) -> str:
    handle = ctypes.c_uint64()
    arguments = (ctypes.byref(handle), ctypes.c_void_p(fd), POSIX)
    return call("cuMemImportFromShareableHandle", *arguments)


@question(
    "Export: not asked for at creation; as FABRIC; with flags 1; of a released handle; type 0"
)
def exports(gpu: Gpu) -> list[str]:
    plain = ok(cuda.cuMemCreate(2 * MIB, wanting(gpu), 0))
    shareable, gone = (ok(cuda.cuMemCreate(2 * MIB, wanting(gpu, POSIX), 0)) for _ in range(2))
    ok(cuda.cuMemRelease(gone))
    answers = [export(plain), export(shareable, 8), export(shareable, POSIX, 1)]
    return [*answers, export(gone), export(shareable, 0)]


@question("Import: of descriptor -1, of a pipe, of /dev/null, of a file, with type 0")
def imports_of_nothing(gpu: Gpu) -> list[str]:
    reader, _ = os.pipe()
    places = (-1, reader, os.open("/dev/null", os.O_RDWR), os.open(__file__, os.O_RDONLY))
    handle = ctypes.c_uint64()
    untyped = call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(3), 0)
    return [*map(imported, places), untyped]


@question("Import in the same process: same handle value? twice? its properties; exported again?")
def import_here(gpu: Gpu) -> list[str]:
    chunk = ok(cuda.cuMemCreate(2 * MIB, wanting(gpu, POSIX, rdma=1), 0))
    fd = int(ok(cuda.cuMemExportToShareableHandle(chunk, SHARE, 0)))
    first, second = (ok(cuda.cuMemImportFromShareableHandle(fd, SHARE)) for _ in range(2))
    found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(first))
    flags = found.allocFlags
    return [
        f"same as original {int(first) == int(chunk)}, as each other {int(first) == int(second)}",
        f"types {int(found.requestedHandleTypes)} device {found.location.id}"
        f" rdma {int(flags.gpuDirectRDMACapable)}",
        export(first),
    ]


@question(
    "A chunk mapped, and its import mapped: block ids, allowed types, retained handles differ?"
)
def mapped_import(gpu: Gpu) -> str:
    mapper = Mapper(gpu)
    chunk = ok(cuda.cuMemCreate(2 * MIB, wanting(gpu, POSIX), 0))
    fd = int(ok(cuda.cuMemExportToShareableHandle(chunk, SHARE, 0)))
    again = ok(cuda.cuMemImportFromShareableHandle(fd, SHARE))
    lines = []
    for handle in (chunk, again):
        address = mapper.reserve()
        mapper.map(address, handle)
        mapper.grant(address)
        found = retained(address)
        lines.append(f"{attributes_of(address)} retained own {found.endswith(hex(int(handle)))}")
    return "\n     ".join(lines)


@question(
    "Bytes: exported; released with the descriptor open; mapped again; descriptor closed",
    alone=True,
)
def descriptor_keeps_memory(gpu: Gpu) -> list[str]:
    before = free_mib()
    chunk = ok(cuda.cuMemCreate(64 * MIB, wanting(gpu, POSIX), 0))
    fd = int(ok(cuda.cuMemExportToShareableHandle(chunk, SHARE, 0)))
    steps = [f"exported {difference(before)}"]
    ok(cuda.cuMemRelease(chunk))
    steps.append(f"released {difference(before)}")
    again = ok(cuda.cuMemImportFromShareableHandle(fd, SHARE))
    steps.append(f"imported {difference(before)}")
    ok(cuda.cuMemRelease(again))
    os.close(fd)
    return [*steps, f"closed {difference(before)}"]


def exporter(channel: socket.socket, size: int) -> int:
    """Another process, which sends the descriptor of filled memory and waits to be killed."""
    pid = os.fork()
    if pid:
        return pid
    gpu = Gpu()
    mapper = Mapper(gpu)
    chunk = ok(cuda.cuMemCreate(size, wanting(gpu, POSIX), 0))
    address = mapper.reserve(size // mapper.granule)
    ok(cuda.cuMemMap(address, size, 0, chunk, 0))
    mapper.grant(address, size // mapper.granule)
    ok(cuda.cuMemsetD32(address, 77, size // 4))
    ok(cuda.cuCtxSynchronize())
    fd = int(ok(cuda.cuMemExportToShareableHandle(chunk, SHARE, 0)))
    socket.send_fds(channel, [b"x"], [fd])
    signal.pause()
    os._exit(0)


@question(
    "The exporter is killed: the importer's bytes, free memory, a launch, a second import",
    alone=True,
)
def exporter_dies() -> list[str]:
    ours, theirs = socket.socketpair()
    size = 64 * MIB
    pid = exporter(theirs, size)
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    gpu = Gpu()
    mapper, before = Mapper(gpu), free_mib()
    chunk = ok(cuda.cuMemImportFromShareableHandle(fds[0], SHARE))
    address = mapper.reserve(size // mapper.granule)
    ok(cuda.cuMemMap(address, size, 0, chunk, 0))
    mapper.grant(address, size // mapper.granule)
    steps = [f"imported {difference(before)}"]
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    steps += [f"dead {difference(before)}", str(gpu.download(address, 1)[0]), imported(fds[0])]
    steps.append(word(gpu.try_launch("fill", address, 8, 64)))
    steps.append(word(cuda.cuCtxSynchronize()))
    os.close(fds[0])
    mapper.unmap(address, size // mapper.granule)
    ok(cuda.cuMemRelease(chunk))
    return [*steps, f"given back {difference(before)}"]


@question("A kernel of the importer runs while the exporter is killed: its end")
def exporter_dies_under_a_kernel() -> list[str]:
    ours, theirs = socket.socketpair()
    pid = exporter(theirs, 2 * MIB)
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    gpu = Gpu()
    mapper = Mapper(gpu)
    chunk = ok(cuda.cuMemImportFromShareableHandle(fds[0], SHARE))
    address = mapper.reserve()
    mapper.map(address, chunk)
    mapper.grant(address)
    gpu.launch("spin", 300_000_000)
    gpu.launch("fill", address, 9, 64)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return [word(cuda.cuCtxSynchronize()), str(gpu.download(address, 1)[0])]


def dma_buf(address: int, size: int) -> str:
    fd = ctypes.c_int(-1)
    arguments = (ctypes.byref(fd), u64(address), u64(size), 1, u64(0))
    return call("cuMemGetHandleForAddressRange", *arguments)


@question("dma-buf of: cuMemAlloc, a page of it, mapped, mapped RDMA, two chunks, pool memory")
def dma_buf_handles(gpu: Gpu) -> list[str]:
    mapper, plain = Mapper(gpu), gpu.allocate(2 * MIB)
    address = mapper.reserve(4)
    mapper.map(address, mapper.create())
    mapper.map(address + mapper.granule, mapper.create())
    capable = address + 2 * mapper.granule
    mapper.map(capable, ok(cuda.cuMemCreate(mapper.granule, wanting(gpu, rdma=1), 0)))
    mapper.grant(address, 3)
    pooled = int(ok(cuda.cuMemAllocAsync(2 * MIB, 0)))
    ok(cuda.cuCtxSynchronize())
    places = [(plain, 2 * MIB), (plain, 4096), (address, mapper.granule), (capable, 2 * MIB)]
    places += [(address, 2 * mapper.granule), (pooled, 2 * MIB)]
    return [dma_buf(*place) for place in places]


@question(
    "dma-buf descriptor open: does cuMemUnmap go through, does release give the bytes back?",
    alone=True,
)
def dma_buf_keeps_memory(gpu: Gpu) -> list[str]:
    mapper, before, size = Mapper(gpu), free_mib(), 64 * MIB
    chunk = ok(cuda.cuMemCreate(size, wanting(gpu, rdma=1), 0))
    address = mapper.reserve(32)
    ok(cuda.cuMemMap(address, size, 0, chunk, 0))
    mapper.grant(address, 32)
    made = dma_buf(address, size)
    unmapped = word(cuda.cuMemUnmap(address, size))
    return [made, unmapped, word(cuda.cuMemRelease(chunk)), difference(before)]


@question("Attributes of plain, managed, pinned and registered memory")
def attributes_of_plain(gpu: Gpu) -> str:
    managed = int(ok(cuda.cuMemAllocManaged(2 * MIB, cuda.CUmemAttach_flags(1))))
    pages = mmap.mmap(-1, 2 * MIB)
    registered = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    ok(cuda.cuMemHostRegister(registered, 2 * MIB, 0))
    places = (gpu.allocate(2 * MIB), managed, int(ok(cuda.cuMemHostAlloc(4096, 2))), registered)
    return "\n     ".join(map(attributes_of, places))


SYNC_MEMOPS = 6


def marked(address: int, value: int = 1) -> str:
    """Set, then read at the address and 4096 bytes further."""
    wanted = ctypes.c_uint32(value)
    answer = call("cuPointerSetAttribute", ctypes.byref(wanted), SYNC_MEMOPS, u64(address))
    found = []
    for place in (address, address + 4096):
        read = ctypes.c_uint32(9)
        raw().cuPointerGetAttribute(ctypes.byref(read), SYNC_MEMOPS, u64(place))
        found.append(str(read.value))
    return f"{answer} {'/'.join(found)}"


@question("SYNC_MEMOPS set and read: plain, plain to 2, to 0, mapped, pool, managed, host")
def sync_memops(gpu: Gpu) -> list[str]:
    mapper, plain = Mapper(gpu), gpu.allocate(2 * MIB)
    address = mapper.reserve()
    mapper.map(address, mapper.create())
    mapper.grant(address)
    pooled = int(ok(cuda.cuMemAllocAsync(2 * MIB, 0)))
    ok(cuda.cuCtxSynchronize())
    managed = int(ok(cuda.cuMemAllocManaged(2 * MIB, cuda.CUmemAttach_flags(1))))
    host = int(ok(cuda.cuMemHostAlloc(2 * MIB, 2)))
    first = [marked(plain), marked(plain, 2), marked(plain, 0)]
    return first + [marked(place) for place in (address, pooled, managed, host)]


@question(
    "Other attributes set (IS_MANAGED); P2P tokens of plain and mapped memory, mark afterwards"
)
def p2p_tokens(gpu: Gpu) -> list[str]:
    mapper, plain = Mapper(gpu), gpu.allocate(2 * MIB)
    address = mapper.reserve()
    mapper.map(address, ok(cuda.cuMemCreate(mapper.granule, wanting(gpu, rdma=1), 0)))
    mapper.grant(address)
    wanted = ctypes.c_uint32(1)
    answers = [call("cuPointerSetAttribute", ctypes.byref(wanted), 8, u64(plain))]
    for place in (plain, address):
        tokens, mark = (ctypes.c_uint8 * 16)(), ctypes.c_uint32(9)
        answers.append(call("cuPointerGetAttribute", tokens, 5, u64(place)))
        raw().cuPointerGetAttribute(ctypes.byref(mark), SYNC_MEMOPS, u64(place))
        answers.append(f"mark {mark.value}")
    return answers


@question("cuIpcGetMemHandle of: cuMemAlloc, inside of it, mapped, pool, managed memory")
def legacy_ipc(gpu: Gpu) -> list[str]:
    mapper, plain = Mapper(gpu), gpu.allocate(2 * MIB)
    address = mapper.reserve()
    mapper.map(address, mapper.create())
    mapper.grant(address)
    pooled = int(ok(cuda.cuMemAllocAsync(2 * MIB, 0)))
    ok(cuda.cuCtxSynchronize())
    managed = int(ok(cuda.cuMemAllocManaged(2 * MIB, cuda.CUmemAttach_flags(1))))
    out = (ctypes.c_uint8 * 64)()
    places = (plain, plain + MIB, address, pooled, managed)
    return [call("cuIpcGetMemHandle", out, u64(place)) for place in places]


@question("Multicast: granularity, create for one device of 2 MiB, for two, add device")
def multicast(gpu: Gpu) -> list[str]:
    size, handle, answers = ctypes.c_size_t(), ctypes.c_uint64(), []
    for devices in (1, 2):
        wanted = (ctypes.c_uint64 * 4)(devices, 2 * MIB, 0, 0)
        answers.append(call("cuMulticastGetGranularity", ctypes.byref(size), wanted, 0))
        answers.append(call("cuMulticastCreate", ctypes.byref(handle), wanted))
    return [*answers, call("cuMulticastAddDevice", u64(handle.value), 0)]


@question("cuMemMapArrayAsync of no entries, of NULL, of one zeroed entry")
def array_maps(gpu: Gpu) -> list[str]:
    entry = (ctypes.c_uint8 * 256)()
    return [
        call("cuMemMapArrayAsync", entry, 0, None),
        call("cuMemMapArrayAsync", None, 1, None),
        call("cuMemMapArrayAsync", entry, 1, None),
    ]


@question(
    "A second cuMemCreate with the properties read from a handle that asked for POSIX and RDMA"
)
def created_again(gpu: Gpu) -> list[str]:
    chunk = ok(cuda.cuMemCreate(2 * MIB, wanting(gpu, POSIX, rdma=1, compressed=1), 0))
    found = ok(cuda.cuMemGetAllocationPropertiesFromHandle(chunk))
    again = cuda.cuMemCreate(2 * MIB, found, 0)
    unknown = raw_properties(gpu, 0)
    unknown[7] = 1  # reserved bytes
    handle = ctypes.c_uint64()
    answer = call("cuMemCreate", ctypes.byref(handle), u64(2 * MIB), unknown, u64(0))
    return [word(again), f"reserved bytes set: {answer}"]
