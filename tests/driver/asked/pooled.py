"""Stream-ordered memory: pools, order and reuse."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUmemPool_attribute as PoolAttribute

from tests.driver.asked.question import (
    MIB,
    attributes_of,
    busy,
    call,
    difference,
    free_mib,
    question,
    u64,
    word,
)
from tests.driver.harness import Gpu, PinnedWord, ok, raw
from tests.driver.test_pool_memory import create_pool

RESERVED, RESERVED_HIGH, USED, USED_HIGH = 5, 6, 7, 8
FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL, THRESHOLD = 1, 2, 3, 4


def figure(pool: Any, which: int) -> int:
    return int(ok(cuda.cuMemPoolGetAttribute(pool, PoolAttribute(which))))


def figures(pool: Any) -> str:
    """Reserved and used MiB, with the most of each."""
    values = [f"{figure(pool, n) / MIB:g}" for n in (RESERVED, RESERVED_HIGH, USED, USED_HIGH)]
    return f"res {values[0]} (max {values[1]}) used {values[2]} (max {values[3]})"


def set_figure(pool: Any, which: int, value: int) -> str:
    wide = ctypes.c_uint64(value)
    return call("cuMemPoolSetAttribute", u64(int(pool)), which, ctypes.byref(wide))


def take(pool: Any, size: int, stream: Any = 0) -> int:
    return int(ok(cuda.cuMemAllocFromPoolAsync(size, pool, stream)))


@question("Zero bytes: cuMemAllocAsync, cuMemAllocFromPoolAsync; freeing 0 and the answer")
def zero_bytes(gpu: Gpu) -> list[str]:
    pointer, pool = ctypes.c_uint64(99), create_pool(gpu)
    first = call("cuMemAllocAsync", ctypes.byref(pointer), u64(0), None)
    answers = [f"{first} {pointer.value}"]
    second = call("cuMemAllocFromPoolAsync", ctypes.byref(pointer), u64(0), u64(int(pool)), None)
    answers.append(f"{second} {pointer.value}")
    return [*answers, word(cuda.cuMemFreeAsync(0, 0))]


@question("Figures of a pool with: 1 byte, 1000 bytes more, 1 MiB more, 33 MiB more")
def what_is_reserved(gpu: Gpu) -> list[str]:
    pool, steps = create_pool(gpu), []
    for size in (1, 1000, MIB, 33 * MIB):
        take(pool, size)
        ok(cuda.cuCtxSynchronize())
        steps.append(f"{figure(pool, RESERVED) / MIB:g} MiB, used {figure(pool, USED)}")
    return steps


@question(
    "Threshold 0, last free: reserved after the call, a query, a copy, event, stream, context"
)
def when_it_goes_back(gpu: Gpu) -> list[str]:
    pool, stream, event = create_pool(gpu), ok(cuda.cuStreamCreate(1)), ok(cuda.cuEventCreate(0))
    words = np.zeros(4, dtype=np.uint32)
    other = gpu.upload([1, 2, 3, 4])
    waits: dict[str, Callable[[], Any]] = {
        "call": lambda: None,
        "query": lambda: [cuda.cuStreamQuery(stream) for _ in range(2000)],
        "copy": lambda: ok(cuda.cuMemcpyDtoH(words, other, 16)),
        "free": lambda: cuda.cuMemFree(gpu.allocate(MIB)),
        "event": lambda: ok(cuda.cuEventSynchronize(event)),
        "stream": lambda: ok(cuda.cuStreamSynchronize(stream)),
        "legacy": lambda: ok(cuda.cuStreamSynchronize(0)),
        "context": lambda: ok(cuda.cuCtxSynchronize()),
    }
    steps = []
    for name, wait in waits.items():
        pointer = take(pool, 64 * MIB, stream)
        ok(cuda.cuMemFreeAsync(pointer, stream))
        ok(cuda.cuEventRecord(event, stream))
        wait()
        steps.append(f"{name} {figure(pool, RESERVED) / MIB:g}")
        ok(cuda.cuCtxSynchronize())
    return steps


@question(
    "Threshold 64 MiB, 192 MiB in three frees: reserved after a synchronise; after TrimTo 100 MiB"
)
def threshold_in_part(gpu: Gpu) -> list[str]:
    pool = create_pool(gpu)
    set_figure(pool, THRESHOLD, 64 * MIB)
    for pointer in [take(pool, 64 * MIB) for _ in range(3)]:
        ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    steps = [f"{figure(pool, RESERVED) / MIB:g}"]
    set_figure(pool, THRESHOLD, 1 << 40)
    for pointer in [take(pool, 64 * MIB) for _ in range(3)]:
        ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemPoolTrimTo(pool, 100 * MIB))
    return [*steps, f"{figure(pool, RESERVED) / MIB:g}"]


@question("TrimTo with a free that is queued behind a kernel; when the kernel is over, unobserved")
def trimming_early(gpu: Gpu) -> list[str]:
    pool, flag, stream = create_pool(gpu), PinnedWord(), ok(cuda.cuStreamCreate(1))
    set_figure(pool, THRESHOLD, 1 << 40)
    pointer = take(pool, 64 * MIB, stream)
    gpu.launch("poll_flag", flag.device, stream=stream)
    ok(cuda.cuMemFreeAsync(pointer, stream))
    steps = [f"used {figure(pool, USED) / MIB:g}"]
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    steps.append(f"queued {figure(pool, RESERVED) / MIB:g} busy {busy(gpu, stream)}")
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuMemPoolTrimTo(pool, 0))
    return [*steps, f"observed {figure(pool, RESERVED) / MIB:g}"]


def reused(gpu: Gpu, *, event: bool, done: bool, off: int = 0, size: int = 64 * MIB) -> str:
    """Freed in one stream behind a kernel, allocated in another: is it the same memory? Is the
    other stream held up by it?"""
    pool, flag = create_pool(gpu), PinnedWord(1 if done else 0)
    set_figure(pool, THRESHOLD, 1 << 40)
    if off:
        set_figure(pool, off, 0)
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    mark = ok(cuda.cuEventCreate(2))
    pointer = take(pool, 64 * MIB, first)
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuMemFreeAsync(pointer, first))
    ok(cuda.cuEventRecord(mark, first))
    if done:
        while busy(gpu, first):
            pass
    if event:
        ok(cuda.cuStreamWaitEvent(second, mark, 0))
    again = take(pool, size, second)
    held = busy(gpu, second) and not event
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    return f"same {again == pointer} held {held} max {figure(pool, RESERVED_HIGH) / MIB:g}"


@question(
    "Another stream takes it: after an event; with FOLLOW_EVENT_DEPENDENCIES off; 32 MiB of it"
)
def reuse_after_an_event(gpu: Gpu) -> list[str]:
    return [
        reused(gpu, event=True, done=False),
        reused(gpu, event=True, done=False, off=FOLLOW_EVENTS),
        reused(gpu, event=True, done=False, size=32 * MIB),
    ]


@question("Another stream takes it: free done and queried, no event; with OPPORTUNISTIC off")
def reuse_of_what_is_done(gpu: Gpu) -> list[str]:
    return [
        reused(gpu, event=False, done=True),
        reused(gpu, event=False, done=True, off=OPPORTUNISTIC),
    ]


@question("Another stream takes it: free pending, no event; with INTERNAL_DEPENDENCIES off")
def reuse_of_what_is_pending(gpu: Gpu) -> list[str]:
    return [
        reused(gpu, event=False, done=False),
        reused(gpu, event=False, done=False, off=INTERNAL),
    ]


def limited_pool(gpu: Gpu, size: int) -> Any:
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = int(gpu.device)
    wanted.maxSize = size
    return ok(cuda.cuMemPoolCreate(wanted))


@question("A pool of 64 MiB: 64 MiB; 1 byte more; when full, a free pending in another stream")
def full_pool(gpu: Gpu) -> list[str]:
    pool, flag = limited_pool(gpu, 64 * MIB), PinnedWord()
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    whole = take(pool, 64 * MIB, first)
    steps = [figures(pool), word(cuda.cuMemAllocFromPoolAsync(1, pool, first))]
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuMemFreeAsync(whole, first))
    again = cuda.cuMemAllocFromPoolAsync(64 * MIB, pool, second)
    steps.append(f"{word(again)} held {busy(gpu, second)}")
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    return steps


@question("Freed in the same stream, then smaller, same, larger: the same address?")
def reuse_in_a_stream(gpu: Gpu) -> list[str]:
    pool, answers = create_pool(gpu), []
    set_figure(pool, THRESHOLD, 1 << 40)
    for size in (32, 64, 96):
        pointer = take(pool, 64 * MIB)
        ok(cuda.cuMemFreeAsync(pointer, 0))
        again = take(pool, size * MIB)
        answers.append(f"{size}: {again == pointer} {figures(pool)}")
        ok(cuda.cuMemFreeAsync(again, 0))
    return answers


@question("Freed twice: async and async unsynchronised; async and cuMemFree; cuMemFree; inside; 0")
def freed_twice(gpu: Gpu) -> list[str]:
    pointer = int(ok(cuda.cuMemAllocAsync(MIB, 0)))
    inside = word(cuda.cuMemFreeAsync(pointer + 4096, 0))
    answers = [word(cuda.cuMemFreeAsync(pointer, 0)) for _ in range(2)]
    answers.append(word(cuda.cuMemFree(pointer)))
    ok(cuda.cuCtxSynchronize())
    return [*answers, word(cuda.cuMemFreeAsync(pointer, 0)), word(cuda.cuMemFree(pointer)), inside]


@question("Freed in another stream while its own still writes it: the synchronises")
def freed_elsewhere(gpu: Gpu) -> list[str]:
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    pointer = int(ok(cuda.cuMemAllocAsync(64 * MIB, first)))
    ok(cuda.cuStreamSynchronize(first))
    gpu.launch("spin", 100_000_000, stream=first)
    gpu.launch("fill", pointer, 1, 1 << 20, stream=first)
    freed = word(cuda.cuMemFreeAsync(pointer, second))
    answers = [freed, word(cuda.cuStreamSynchronize(second))]
    return [*answers, word(cuda.cuStreamSynchronize(first))]


@question("Used, figures and pointer attributes after cuMemFreeAsync, before a synchronise")
def after_an_async_free(gpu: Gpu) -> list[str]:
    pool, flag, stream = create_pool(gpu), PinnedWord(), ok(cuda.cuStreamCreate(1))
    pointer = take(pool, 64 * MIB, stream)
    gpu.launch("poll_flag", flag.device, stream=stream)
    ok(cuda.cuMemFreeAsync(pointer, stream))
    steps = [figures(pool), attributes_of(pointer)]
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    return [*steps, figures(pool)]


@question("High marks reset to 0, to 1; current figures set; an unknown attribute; 9 to 14 read")
def odd_attributes(gpu: Gpu) -> list[str]:
    pool = create_pool(gpu)
    take(pool, MIB)
    answers = [set_figure(pool, w, v) for w in (RESERVED_HIGH, USED_HIGH) for v in (0, 1)]
    answers += [set_figure(pool, which, 0) for which in (RESERVED, USED, 99)]
    for which in (0, *range(9, 15), 99):
        value = ctypes.c_uint64()
        answer = call("cuMemPoolGetAttribute", u64(int(pool)), which, ctypes.byref(value))
        answers.append(f"{which}: {answer} {value.value}")
    return answers


@question("Reuse attributes set to 2 and read; the threshold of the default pool")
def defaults(gpu: Gpu) -> list[str]:
    pool = create_pool(gpu)
    answers = [str(figure(pool, which)) for which in (1, 2, 3, 4)]
    answers += [set_figure(pool, 1, 2), str(figure(pool, 1))]
    return [*answers, str(figure(ok(cuda.cuDeviceGetDefaultMemPool(gpu.device)), THRESHOLD))]


@question("A pool destroyed with live memory: read it, its figures, allocate, destroy again, free")
def destroyed_pool(gpu: Gpu) -> list[str]:
    pool, before = create_pool(gpu), free_mib()
    pointer = take(pool, 64 * MIB)
    ok(cuda.cuMemsetD32(pointer, 5, 1 << 20))
    ok(cuda.cuMemPoolDestroy(pool))
    steps = [str(gpu.download(pointer, 1)[0]), attributes_of(pointer)]
    steps.append(word(cuda.cuMemFreeAsync(pointer, 0)))
    ok(cuda.cuCtxSynchronize())
    return [*steps, difference(before)]


@question("Using the handle of a destroyed pool: figures, allocation, trim, destroy")
def dead_pool_handle(gpu: Gpu) -> list[str]:
    pool, value = create_pool(gpu), ctypes.c_uint64()
    ok(cuda.cuMemPoolDestroy(pool))
    handle = u64(int(pool))
    return [
        call("cuMemPoolGetAttribute", handle, USED, ctypes.byref(value)),
        call("cuMemAllocFromPoolAsync", ctypes.byref(value), u64(MIB), handle, None),
        call("cuMemPoolTrimTo", handle, u64(0)),
        call("cuMemPoolDestroy", handle),
    ]


@question("Destroying the device's current pool: which one is current then?")
def destroyed_current_pool(gpu: Gpu) -> str:
    default, pool = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device)), create_pool(gpu)
    ok(cuda.cuDeviceSetMemPool(gpu.device, pool))
    ok(cuda.cuMemPoolDestroy(pool))
    return f"default {int(ok(cuda.cuDeviceGetMemPool(gpu.device))) == int(default)}"


def pool_properties(kind: int, types: int, location: tuple[int, int], size: int = 0) -> Any:
    wanted = (ctypes.c_uint64 * 11)()  # CUmemPoolProps, 88 bytes
    words = ctypes.cast(wanted, ctypes.POINTER(ctypes.c_uint32))
    words[0], words[1], words[2], words[3] = kind, types, *location
    wanted[3] = size
    return wanted


def pool_creation(kind: int, types: int, location: tuple[int, int], size: int = 0) -> str:
    handle = ctypes.c_uint64()
    wanted = pool_properties(kind, types, location, size)
    answer = call("cuMemPoolCreate", ctypes.byref(handle), wanted)
    if answer != "SUCCESS":
        return answer
    pointer = ctypes.c_uint64()
    arguments = (ctypes.byref(pointer), u64(MIB), handle, None)
    return f"SUCCESS, 1 MiB of it {call('cuMemAllocFromPoolAsync', *arguments)}"


@question("cuMemPoolCreate: POSIX, FABRIC, POSIX|FABRIC, HOST, HOST_NUMA, MANAGED, device 1000, -1")
def kinds_of_pools(gpu: Gpu) -> list[str]:
    kinds = [(1, 1, (1, 0)), (1, 8, (1, 0)), (1, 9, (1, 0)), (1, 0, (2, 0)), (1, 0, (3, 0))]
    kinds += [(2, 0, (1, 0)), (1, 0, (1, 1000)), (1, 0, (1, 0xFFFFFFFF))]
    return [pool_creation(*kind) for kind in kinds]


def pool_access(pool: Any, flags: int, location: tuple[int, int]) -> str:
    described = (ctypes.c_uint32 * 3)(*location, flags)
    granted = call("cuMemPoolSetAccess", u64(int(pool)), described, u64(1))
    found, where = ctypes.c_uint32(9), (ctypes.c_uint32 * 2)(*location)
    read = call("cuMemPoolGetAccess", ctypes.byref(found), u64(int(pool)), where)
    return f"{granted}, {read} {found.value}"


@question("cuMemPoolSetAccess then Get: own 3, own READ, own NONE, device 1000, HOST; count 0")
def access_of_a_pool(gpu: Gpu) -> list[str]:
    pool = create_pool(gpu)
    asked = [(3, (1, 0)), (1, (1, 0)), (0, (1, 0)), (3, (1, 1000)), (3, (2, 0))]
    answers = [pool_access(pool, *each) for each in asked]
    return [*answers, call("cuMemPoolSetAccess", u64(int(pool)), None, u64(0))]


def exporting_pool() -> ctypes.c_uint64:
    """A pool that was made to be exported; 0 where there is none."""
    handle = ctypes.c_uint64()
    raw().cuMemPoolCreate(ctypes.byref(handle), pool_properties(1, 1, (1, 0)))
    return handle


@question("Export of a pool: not made for it, the default one, made for it; with flags; as FABRIC")
def pool_exports(gpu: Gpu) -> list[str]:
    plain, default = create_pool(gpu), ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    shared, out = exporting_pool(), (ctypes.c_uint8 * 64)()
    asked = [(u64(int(plain)), 1, 0), (u64(int(default)), 1, 0), (shared, 1, 0)]
    asked += [(shared, 1, 1), (shared, 8, 0)]
    return [call("cuMemPoolExportToShareableHandle", out, p, t, u64(f)) for p, t, f in asked]


@question(
    "Import of pool and pointer in the same process: same pool, address? allocate, set, attributes"
)
def pool_imports(gpu: Gpu) -> list[str]:
    pool, fd, again = exporting_pool(), ctypes.c_int(), ctypes.c_uint64()
    pointer = ctypes.c_uint64()
    raw().cuMemAllocFromPoolAsync(ctypes.byref(pointer), u64(4 * MIB), pool, None)
    early = call("cuMemPoolExportPointer", (ctypes.c_uint8 * 64)(), pointer)
    raw().cuMemPoolExportToShareableHandle(ctypes.byref(fd), pool, 1, u64(0))
    data, second = (ctypes.c_uint8 * 64)(), ctypes.c_uint64()
    answers = [f"before the pool's export {early}", call("cuMemPoolExportPointer", data, pointer)]
    arguments = (ctypes.byref(again), ctypes.c_void_p(fd.value), 1, u64(0))
    answers.append(call("cuMemPoolImportFromShareableHandle", *arguments))
    answers.append(call("cuMemPoolImportPointer", ctypes.byref(second), again, data))
    if second.value == 0:
        return answers
    answers.append(f"same pool {again.value == pool.value} address {second.value == pointer.value}")
    other = ctypes.c_uint64()
    taken = call("cuMemAllocFromPoolAsync", ctypes.byref(other), u64(MIB), again, None)
    answers.append(f"allocate {taken}")
    answers.append(f"set current {call('cuDeviceSetMemPool', 0, again)}")
    answers.append(attributes_of(second.value))
    ok(cuda.cuMemsetD32(pointer.value, 3, 64))
    answers.append(f"reads {gpu.download(second.value, 1)[0]}")
    answers.append(f"free {word(cuda.cuMemFreeAsync(second.value, 0))}")
    return [*answers, f"destroy {call('cuMemPoolDestroy', again)}"]


@question("Pointer and address range of pool memory: inside, its attributes, freed")
def attributes_of_pooled(gpu: Gpu) -> list[str]:
    pointer = int(ok(cuda.cuMemAllocAsync(3 * MIB + 100, 0)))
    ok(cuda.cuCtxSynchronize())
    base, size = ok(cuda.cuMemGetAddressRange(pointer + MIB))
    answers = [f"base{int(base) - pointer:+d} {size}", attributes_of(pointer + MIB, pointer)]
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    return [*answers, word(cuda.cuMemGetAddressRange(pointer)), attributes_of(pointer)]


@question("A pool keeps most of the device: does cuMemAlloc take it? does cuMemCreate?", alone=True)
def kept_memory_is_taken(gpu: Gpu) -> list[str]:
    pool, free = create_pool(gpu), ok(cuda.cuMemGetInfo())[0]
    most = int(free * 0.8) // (2 * MIB) * 2 * MIB
    set_figure(pool, THRESHOLD, 1 << 60)
    steps = []
    for name in ("cuMemAlloc", "cuMemCreate"):
        ok(cuda.cuMemFreeAsync(take(pool, most), 0))
        ok(cuda.cuCtxSynchronize())
        before = figure(pool, RESERVED) >= most
        half = int(free * 0.5) // (2 * MIB) * 2 * MIB
        if name == "cuMemAlloc":
            answer = cuda.cuMemAlloc(half)
        else:
            wanted = cuda.CUmemAllocationProp()
            wanted.type = cuda.CUmemAllocationType(1)
            wanted.location.type = cuda.CUmemLocationType(1)
            wanted.location.id = int(gpu.device)
            answer = cuda.cuMemCreate(half, wanted, 0)
        steps.append(f"{name} (kept {before}): {word(answer)}, now {figures(pool)}")
        if word(answer) == "SUCCESS":
            ok(cuda.cuMemFree(answer[1]) if name == "cuMemAlloc" else cuda.cuMemRelease(answer[1]))
    return steps


@question(
    "The pool of a device set to the other one's (two devices); from a pool without a context"
)
def pools_of_others(gpu: Gpu) -> list[str]:
    answers = []
    if ok(cuda.cuDeviceGetCount()) > 1:
        answers.append(word(cuda.cuDeviceSetMemPool(1, create_pool(gpu))))
    pool, stream = create_pool(gpu), ok(cuda.cuStreamCreate(1))
    ok(cuda.cuCtxSetCurrent(0))
    answers.append(word(cuda.cuMemAllocFromPoolAsync(MIB, pool, stream)))
    return [*answers, word(cuda.cuMemAllocAsync(MIB, stream)), word(cuda.cuMemAllocAsync(MIB, 0))]


@question(
    "cuMemGetDefaultMemPool, cuMemGetMemPool: device 0 (same pool?), HOST, HOST_NUMA, MANAGED"
)
def pools_by_location(gpu: Gpu) -> list[str]:
    default, answers = int(ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))), []
    for name in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
        for kind, location in ((1, (1, 0)), (1, (2, 0)), (1, (3, 0)), (2, (1, 0))):
            pool, where = ctypes.c_uint64(), (ctypes.c_uint32 * 2)(*location)
            answer = call(name, ctypes.byref(pool), where, kind)
            answers.append(f"{answer} same {pool.value == default}")
    return answers
