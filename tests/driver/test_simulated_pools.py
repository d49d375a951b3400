"""Stream-ordered memory where only the simulated driver can be judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.driver.harness import run_program
from tests.support.paths import SIM_DRIVER
from tests.support.sim import GIB, MIB, SimulatedMachine

pytestmark = pytest.mark.skipif(not SIM_DRIVER.exists(), reason="run `make build` first")

SET_UP = """
import ctypes, os, threading, time
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R
from tests.driver.harness import MIB, Gpu, PinnedWord, code, ok
from tests.driver.test_pool_memory import attribute, create_pool
from tests.driver.test_pool_reuse import keep, take
from tests.driver.test_pool_sharing import export_pointer, export_pool, imported, shared_pool
gpu = Gpu()
stream, other = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
def limited(size):
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id, wanted.maxSize = int(gpu.device), size
    return ok(cuda.cuMemPoolCreate(wanted))
"""


def said(machine: SimulatedMachine, program: str) -> list[str]:
    """What a program prints on this machine."""
    done = run_program(machine.env({"GPUSHARE_DRIVER": "named"}), SET_UP + program)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_file_of_a_pool_has_room_again(tmp_path: Path) -> None:
    """Each round needs 600 GiB of the pool's file, which has 4 TiB: what is given up is used."""
    program = """
pool = shared_pool(gpu)
for round in range(8):
    pointer = take(pool, 600 << 30)
    ok(cuda.cuMemsetD32(pointer, round, 1000))
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    print(round)
"""
    machine = SimulatedMachine(tmp_path, bytes_per_device=1024 * GIB)
    assert said(machine, program) == [str(round) for round in range(8)]


def test_freed_memory_of_a_shared_pool_is_lost(sim: SimulatedMachine) -> None:
    """It comes again poisoned, or as zeros where there is much of it."""
    program = """
pool = shared_pool(gpu)
keep(pool, 1 << 40)
for size in (MIB, 40 * MIB):
    pointer = take(pool, size)
    ok(cuda.cuMemsetD32(pointer, 0x5ec7e7, size // 4))
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
    assert take(pool, size) == pointer
    print(*map(hex, set(gpu.download(pointer, size // 4).tolist())))
    ok(cuda.cuMemFreeAsync(pointer, 0))
"""
    assert said(sim, program) == ["0xdbdbdbdb", "0x0"]


def test_the_largest_sizes_of_pools(sim: SimulatedMachine) -> None:
    """A size at the end of all numbers is as good as none."""
    program = """
for size in ((1 << 64) - 1, (1 << 64) - 32 * MIB + 1, 1):
    pool = limited(size)
    print(*(code(cuda.cuMemAllocFromPoolAsync(32 * MIB, pool, 0)).name for _ in range(2)))
"""
    fits, full = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
    assert said(sim, program) == [fits, fits, fits, fits, fits, full]


FULL = """
pool, flag = limited(32 * MIB), PinnedWord()
gone = [take(pool, 2 * MIB, stream) for _ in range(16)]
gpu.launch("poll_flag", flag.device, stream=stream)
for pointer in gone:
    ok(cuda.cuMemFreeAsync(pointer, stream))
"""


def test_a_legacy_allocation_beside_a_capture(sim: SimulatedMachine) -> None:
    """It is refused as other work is in that stream, and invalidates the capture. No memory is
    taken."""
    program = """
capturing = ok(cuda.cuStreamCreate(0))
relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
def beside(work):
    ok(cuda.cuStreamBeginCapture(capturing, relaxed))
    answer = code(work())
    print(answer.name, code(cuda.cuStreamEndCapture(capturing)).name)
pointer = take(pool := create_pool(gpu), MIB, stream)
beside(lambda: cuda.cuMemsetD32Async(pointer, 1, 10, 0))
beside(lambda: cuda.cuMemAllocFromPoolAsync(MIB, pool, 0))
print(attribute(pool, cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT) // MIB)
"""
    refused = ["CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    assert said(sim, program) == [*refused, *refused, "1"]


def test_a_stream_waits_once_for_many_frees_of_another(sim: SimulatedMachine) -> None:
    """A full pool: what another stream has yet to free is one stream to wait for."""
    program = """
again = take(pool, 32 * MIB, other)
print(again == gone[0], code(cuda.cuStreamQuery(other)).name)
flag.value = 1
ok(cuda.cuCtxSynchronize())
"""
    assert said(sim, FULL + program) == ["True", "CUDA_ERROR_NOT_READY"]


def test_memory_of_closed_descriptors_serves_pools(tmp_path: Path) -> None:
    """Before stream-ordered memory is refused, as before other memory is."""
    program = """
wanted = cuda.CUmemAllocationProp()
wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
wanted.location.id = int(gpu.device)
posix = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
wanted.requestedHandleTypes = posix
for _ in range(5):
    handle = ok(cuda.cuMemCreate(320 * MIB, wanted, 0))
    descriptor = int(ok(cuda.cuMemExportToShareableHandle(handle, posix, 0)))
    ok(cuda.cuMemRelease(handle))
    os.close(descriptor)
    pointer = ok(cuda.cuMemAllocAsync(320 * MIB, 0))
    ok(cuda.cuMemFreeAsync(pointer, 0))
    ok(cuda.cuCtxSynchronize())
print("done")
"""
    machine = SimulatedMachine(tmp_path, bytes_per_device=512 * MIB)
    assert said(machine, program) == ["done"]


def test_the_journal_has_each_free_of_a_pool(sim: SimulatedMachine) -> None:
    """Also of memory that its stream has again before the free takes effect. What another process
    has allocated is neither its importer's allocation nor its free."""
    program = """
pool, flag = shared_pool(gpu), PinnedWord()
gpu.launch("poll_flag", flag.device, stream=stream)
for size in (3, 2, 3):
    ok(cuda.cuMemFreeAsync(take(pool, size * MIB, stream), stream))
flag.value = 1
pointer, descriptor = take(pool, 5 * MIB, stream), export_pool(pool)
again, same = imported(descriptor, export_pointer(pointer))
ok(cuda.cuMemFreeAsync(same, stream))
ok(cuda.cuMemFreeAsync(pointer, stream))
ok(cuda.cuCtxSynchronize())
"""
    said(sim, program)
    records = [(r.kind.name, r.amount // MIB) for r in sim.journal() if r.name == "pool"]
    assert records == [(kind, size) for size in (3, 2, 3, 5) for kind in ("ALLOC", "FREE")]


def test_calls_take_no_longer_beside_much_live_memory(sim: SimulatedMachine) -> None:
    """Beside 10,000 live allocations of a pool at most five times what they take beside ten."""
    program = """
# Many calls a round, for a wait takes 2 or 20 us as the machine likes; and the quickest round, for
# other work makes rounds slower, never quicker.
def round_us():
    before = time.perf_counter_ns()
    for _ in range(20):
        ok(cuda.cuMemFreeAsync(take(pool, 4096, stream), stream))
    ok(cuda.cuStreamSynchronize(stream))
    return (time.perf_counter_ns() - before) / 1000
for threshold in (0, 1 << 40):
    pool = create_pool(gpu)
    keep(pool, threshold)
    few = [take(pool, 4096, stream) for _ in range(10)]
    beside_few = min(round_us() for _ in range(100))
    many = [take(pool, 4096, stream) for _ in range(10_000)]
    beside_many = min(round_us() for _ in range(100))
    print(round(beside_many / beside_few, 2))
"""
    ratios = [float(ratio) for ratio in said(sim, program)]
    assert max(ratios) <= 5


def test_memory_is_whole_whatever_comes_and_goes(sim: SimulatedMachine) -> None:
    """Random sizes in two streams, trims and waits between them: each live allocation keeps its
    words, and no two of them overlap."""
    program = """
import random
chance, pool, live = random.Random(7), create_pool(gpu), {}
keep(pool, 1 << 40)
for number in range(1, 1500):
    stream_of = chance.choice((stream, other))
    if live and chance.random() < 0.5:
        pointer = chance.choice(list(live))
        size, mark, its_stream = live.pop(pointer)
        while code(cuda.cuStreamQuery(its_stream)) is R.CUDA_ERROR_NOT_READY:
            pass  # without a wait that the pool knows of
        ends = {int(gpu.download(at, 1)[0]) for at in (pointer, pointer + size - 512)}
        assert ends == {mark}, (number, ends, mark)
        if chance.random() < 0.3:
            gpu.launch("spin", 300_000, grid=(1, 1, 1), block=(1, 1, 1), stream=its_stream)
        ok(cuda.cuMemFreeAsync(pointer, its_stream))
    else:
        size = chance.choice((512, 4096, MIB, 3 * MIB, 20 * MIB, 40 * MIB, 90 * MIB))
        answer = cuda.cuMemAllocFromPoolAsync(size, pool, stream_of)
        if code(answer) is R.CUDA_SUCCESS:
            pointer = int(answer[1])
            assert not any(at < pointer + size and pointer < at + live[at][0] for at in live)
            for at in (pointer, pointer + size - 512):
                ok(cuda.cuMemsetD32Async(at, number, 128, stream_of))
            live[pointer] = (size, number, stream_of)
    if chance.random() < 0.1:
        ok(cuda.cuMemPoolTrimTo(pool, chance.randrange(512 * MIB)))
    if chance.random() < 0.05:
        ok(cuda.cuStreamSynchronize(stream_of))
ok(cuda.cuCtxSynchronize())
print("whole")
"""
    assert said(sim, program) == ["whole"]


def test_shared_memory_that_no_file_has(sim: SimulatedMachine) -> None:
    """The data of an allocation may be broken on its way: sizes and places that cannot be are
    refused."""
    program = """
pool = shared_pool(gpu)
descriptor, data = export_pool(pool), export_pointer(take(pool, MIB))
again, _ = imported(descriptor, data)
for place, size in ((1 << 42, MIB), (1 << 25, (1 << 64) - 1), (1 << 25, 0), (1 << 25, MIB)):
    broken = cuda.CUmemPoolPtrExportData()
    words = data[:16] + place.to_bytes(8, "little") + size.to_bytes(8, "little") + data[32:]
    ctypes.memmove(broken.getPtr(), words, 64)
    print(code(cuda.cuMemPoolImportPointer(again, broken)).name)
"""
    assert said(sim, program) == 3 * ["CUDA_ERROR_INVALID_VALUE"] + ["CUDA_SUCCESS"]
