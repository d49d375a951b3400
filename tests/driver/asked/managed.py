"""Managed memory: always far less than the device has free."""

from __future__ import annotations

import ctypes

from cuda.bindings import driver as cuda

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
from tests.driver.harness import Gpu, ok
from tests.driver.test_mapped_memory import Mapper

SIZE = 64 * MIB
CPU, DEVICE, HOST = 0xFFFFFFFF, 1, 2
ATTRIBUTES = {
    "read_mostly": (1, 4),
    "preferred": (2, 4),
    "accessed_by": (3, 12),
    "prefetched": (4, 4),
    "preferred_type": (5, 4),
    "preferred_id": (6, 4),
    "prefetched_type": (7, 4),
    "prefetched_id": (8, 4),
}


def managed(size: int = SIZE) -> int:
    return int(ok(cuda.cuMemAllocManaged(size, cuda.CUmemAttach_flags(1))))


def prefetch(pointer: int, device: int, size: int = SIZE) -> str:
    return call("cuMemPrefetchAsync", u64(pointer), u64(size), device, None)


def prefetch_to(pointer: int, location: tuple[int, int], flags: int = 0) -> str:
    where = u64(location[0] | location[1] << 32)  # a struct of two words goes in one register
    return call("cuMemPrefetchAsync_v2", u64(pointer), u64(SIZE), where, flags, None)


def advise(pointer: int, advice: int, device: int, size: int = SIZE) -> str:
    return call("cuMemAdvise", u64(pointer), u64(size), advice, device)


def noted(pointer: int, size: int = SIZE) -> str:
    answers = []
    for name, (number, width) in ATTRIBUTES.items():
        data = (ctypes.c_int32 * 3)(9, 9, 9)
        arguments = (data, u64(width), number, u64(pointer), u64(size))
        answer = call("cuMemRangeGetAttribute", *arguments)
        values = "/".join(str(value) for value in data[: width // 4])
        answers.append(f"{name}={values if answer == 'SUCCESS' else answer}")
    return " ".join(answers)


@question(
    "Bytes taken by 64 MiB: new, host touches, a launch, host again, prefetched, back, freed",
    alone=True,
)
def bytes_of_managed(gpu: Gpu) -> list[str]:
    gpu.launch("fill", gpu.allocate(64), 0, 16)
    ok(cuda.cuCtxSynchronize())
    before, pointer = free_mib(), managed()
    steps = [f"new {difference(before)}"]
    ctypes.memset(pointer, 1, SIZE)
    steps.append(f"host {difference(before)}")
    gpu.launch("fill", pointer, 5, SIZE // 4)
    ok(cuda.cuCtxSynchronize())
    steps.append(f"launch {difference(before)}")
    ctypes.memset(pointer, 2, SIZE)
    steps.append(f"host {difference(before)}")
    for name, device in (("device", 0), ("cpu", CPU), ("device", 0)):
        answer = prefetch(pointer, device)
        ok(cuda.cuCtxSynchronize())
        steps.append(f"to {name} {answer} {difference(before)}")
    ok(cuda.cuMemFree(pointer))
    return [*steps, f"freed {difference(before)}"]


@question("Bytes taken after a host touch of one page of what is on the device", alone=True)
def one_page(gpu: Gpu) -> list[str]:
    before, pointer = free_mib(), managed()
    prefetch(pointer, 0)
    ok(cuda.cuCtxSynchronize())
    steps = [difference(before)]
    ctypes.memset(pointer, 2, 1)
    steps.append(difference(before))
    prefetch(pointer, CPU, 4096)
    ok(cuda.cuCtxSynchronize())
    return [*steps, difference(before)]


@question(
    "With READ_MOSTLY: bytes taken after prefetches to the device and to the host", alone=True
)
def read_mostly(gpu: Gpu) -> list[str]:
    before, pointer = free_mib(), managed()
    ctypes.memset(pointer, 1, SIZE)
    steps = [advise(pointer, 1, 0)]
    for device in (0, CPU):
        prefetch(pointer, device)
        ok(cuda.cuCtxSynchronize())
        steps.append(difference(before))
    ctypes.memset(pointer, 2, SIZE)
    return [*steps, f"host writes {difference(before)}"]


@question("Attributes of a range: new; each advice set; after prefetches; the first half; pointer")
def ranges(gpu: Gpu) -> str:
    pointer = managed()
    steps = [noted(pointer)]
    answers = [advise(pointer, 1, 0), advise(pointer, 3, 0), advise(pointer, 5, 0)]
    answers.append(prefetch(pointer, 0))
    steps.append(f"{answers} {noted(pointer)}")
    answers = [prefetch(pointer, CPU, SIZE // 2), advise(pointer, 3, CPU, SIZE // 2)]
    steps.append(f"{answers} whole {noted(pointer)} half {noted(pointer, SIZE // 2)}")
    answers = [advise(pointer, advice, 0) for advice in (2, 4, 6)]
    steps.append(f"{answers} {noted(pointer)}")
    return "\n     ".join([*steps, attributes_of(pointer)])


@question("Prefetch: plain, mapped, pool, host memory; 0 bytes; too many; device 1000; -2")
def refused_prefetches(gpu: Gpu) -> list[str]:
    mapper, pointer = Mapper(gpu), managed()
    address = mapper.reserve()
    mapper.map(address, mapper.create())
    mapper.grant(address)
    pooled = int(ok(cuda.cuMemAllocAsync(MIB, 0)))
    host = int(ok(cuda.cuMemHostAlloc(4096, 2)))
    answers = [prefetch(p, 0, 4096) for p in (gpu.allocate(MIB), address, pooled, host)]
    answers += [prefetch(pointer, 0, 0), prefetch(pointer, 0, 2 * SIZE)]
    return answers + [prefetch(pointer, device) for device in (1000, 0xFFFFFFFE)]


@question(
    "Prefetch, second version: device 0, HOST, HOST_NUMA 0, _CURRENT, device 1000, type 9; flags 1"
)
def prefetches_to(gpu: Gpu) -> list[str]:
    pointer, where = managed(), [(1, 0), (2, 0), (3, 0), (4, 0), (1, 1000), (9, 0)]
    answers = []
    for location in where:
        answers.append(
            f"{prefetch_to(pointer, location)} {noted(pointer).split('prefetched', 1)[1]}"
        )
    return [*answers, prefetch_to(pointer, (1, 0), 1)]


@question("Advice: 0, 7, device 1000, plain memory, 0 bytes, half a page, beyond the end")
def refused_advice(gpu: Gpu) -> list[str]:
    pointer = managed()
    answers = [advise(pointer, 0, 0), advise(pointer, 7, 0), advise(pointer, 3, 1000)]
    answers += [advise(pointer, 5, 1000), advise(pointer, 1, 1000), advise(gpu.allocate(MIB), 1, 0)]
    answers += [advise(pointer, 1, 0, 0), advise(pointer, 1, 0, 2048)]
    return [*answers, advise(pointer, 1, 0, 2 * SIZE), noted(pointer, 4096)]


@question(
    "Range attributes: width 8 for one of 4, width 0, width 5, unknown attribute, plain memory"
)
def refused_ranges(gpu: Gpu) -> list[str]:
    pointer, data = managed(), (ctypes.c_int32 * 4)()
    asked = [(8, 1, pointer), (0, 3, pointer), (5, 3, pointer), (4, 99, pointer)]
    asked.append((4, 1, gpu.allocate(MIB)))
    return [
        call("cuMemRangeGetAttribute", data, u64(width), which, u64(place), u64(4096))
        for width, which, place in asked
    ]


@question("Prefetch in a capture: the call, the end of the capture")
def captured_prefetch(gpu: Gpu) -> list[str]:
    stream, pointer = ok(cuda.cuStreamCreate(1)), managed()
    ok(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(2)))
    answer = call("cuMemPrefetchAsync", u64(pointer), u64(SIZE), 0, ctypes.c_void_p(int(stream)))
    return [answer, word(cuda.cuStreamEndCapture(stream))]
