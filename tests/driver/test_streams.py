"""Streams: order inside one, order between them, and the two default streams.

A launch of `poll_flag` holds a stream until the host sets the flag, so that a case knows what is
still running without measuring time. Such cases run alone: a wrong driver would wait for ever."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import LEGACY, PER_THREAD, Gpu, PinnedWord, alone, code, ok

BLOCKING = 0
NON_BLOCKING = 1


@pytest.mark.promise(
    "simulated-45",
    "Streams keep order, and run side by side where nothing orders them",
)
def test_work_of_a_stream_runs_in_order(gpu: Gpu) -> None:
    """Each piece of work in a stream sees what the ones before it wrote."""
    stream = ok(cuda.cuStreamCreate(NON_BLOCKING))
    n = 50_000
    pointer, out = gpu.allocate(4 * n), gpu.allocate(8 * 20)
    for round_ in range(20):
        gpu.launch("fill", pointer, round_ + 1, n, stream=stream)
        gpu.launch("checksum", out + 8 * round_, pointer, n, stream=stream)
    ok(cuda.cuStreamSynchronize(stream))
    sums = gpu.download(out, 20, np.uint64)
    assert sums.tolist() == [(round_ + 1) * n * n for round_ in range(20)]
    ok(cuda.cuStreamDestroy(stream))


def test_flags_of_streams(gpu: Gpu) -> None:
    """A stream knows its flags; unknown ones are refused."""
    for flags in (BLOCKING, NON_BLOCKING):
        stream = ok(cuda.cuStreamCreate(flags))
        assert ok(cuda.cuStreamGetFlags(stream)) == flags
        ok(cuda.cuStreamDestroy(stream))
    assert code(cuda.cuStreamCreate(0x80)) is R.CUDA_ERROR_INVALID_VALUE


def test_priorities_are_clamped(gpu: Gpu) -> None:
    """A priority outside the range becomes the nearest one inside."""
    least, greatest = ok(cuda.cuCtxGetStreamPriorityRange())
    for asked, given in ((greatest, greatest), (greatest - 100, greatest), (least + 100, least)):
        stream = ok(cuda.cuStreamCreateWithPriority(NON_BLOCKING, asked))
        assert ok(cuda.cuStreamGetPriority(stream)) == given
        ok(cuda.cuStreamDestroy(stream))


def test_streams_know_their_context_and_have_ids(gpu: Gpu) -> None:
    """A stream leads to its context, and no two streams share an id."""
    streams = [ok(cuda.cuStreamCreate(BLOCKING)) for _ in range(3)]
    assert {int(ok(cuda.cuStreamGetCtx(s))) for s in streams} == {int(gpu.context)}
    assert len({ok(cuda.cuStreamGetId(s)) for s in [*streams, LEGACY]}) == 4
    for stream in streams:
        ok(cuda.cuStreamDestroy(stream))


def test_default_streams_are_not_destroyed(gpu: Gpu) -> None:
    """The default streams cannot be destroyed."""
    assert code(cuda.cuStreamDestroy(0)) is R.CUDA_ERROR_INVALID_HANDLE


@pytest.mark.promise("simulated-6")
@alone
def test_query_tells_whether_work_is_done(gpu: Gpu) -> None:
    """A stream is not ready while its work runs, and ready afterwards."""
    stream, flag = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord()
    ok(cuda.cuStreamQuery(stream))
    gpu.launch("poll_flag", flag.device, stream=stream)
    assert code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuStreamQuery(stream))


@pytest.mark.promise("simulated-45")
@alone
def test_streams_run_side_by_side(gpu: Gpu) -> None:
    """Work in one non-blocking stream does not wait for work in another."""
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    flag, pointer = PinnedWord(), gpu.allocate(4)
    gpu.launch("poll_flag", flag.device, stream=first)
    gpu.launch("fill", pointer, 1, 1, stream=second)
    ok(cuda.cuStreamSynchronize(second))
    assert code(cuda.cuStreamQuery(first)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuStreamSynchronize(first))


@pytest.mark.promise("simulated-45")
@alone
def test_a_launch_can_release_another(gpu: Gpu) -> None:
    """A launch that polls a flag ends when a launch in another stream sets it."""
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    flag = PinnedWord()
    gpu.launch("poll_flag", flag.device, stream=first)
    gpu.launch("fill", flag.device, 1, 1, stream=second)
    ok(cuda.cuStreamSynchronize(first))


@pytest.mark.promise(
    "simulated-46",
    "The legacy, blocking, non-blocking and per-thread streams wait for each other as the "
    "driver's do",
)
@alone
def test_legacy_stream_waits_for_blocking_streams(gpu: Gpu) -> None:
    """Work in the legacy default stream waits for earlier work in blocking streams."""
    stream, flag = ok(cuda.cuStreamCreate(BLOCKING)), PinnedWord()
    pointer = gpu.allocate(4)
    gpu.launch("poll_flag", flag.device, stream=stream)
    gpu.launch("fill", pointer, 1, 1, stream=LEGACY)
    assert code(cuda.cuStreamQuery(LEGACY)) is R.CUDA_ERROR_NOT_READY
    assert code(cuda.cuStreamQuery(0)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuStreamSynchronize(LEGACY))
    ok(cuda.cuStreamQuery(stream))


@pytest.mark.promise("simulated-46")
@alone
def test_blocking_streams_wait_for_the_legacy_stream(gpu: Gpu) -> None:
    """Work in a blocking stream waits for earlier work in the legacy default stream."""
    stream, flag = ok(cuda.cuStreamCreate(BLOCKING)), PinnedWord()
    pointer = gpu.upload([0])
    gpu.launch("poll_flag", flag.device, stream=0)
    gpu.launch("fill", pointer, 1, 1, stream=stream)
    assert code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    ok(cuda.cuStreamQuery(LEGACY))


@pytest.mark.promise("simulated-46")
@alone
def test_legacy_stream_does_not_wait_for_non_blocking_streams(gpu: Gpu) -> None:
    """Non-blocking streams and the legacy default stream do not wait for each other."""
    stream, flag, other = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord(), PinnedWord()
    gpu.launch("poll_flag", flag.device, stream=stream)
    gpu.launch("fill", other.device, 1, 1, stream=LEGACY)
    ok(cuda.cuStreamSynchronize(LEGACY))
    assert (other.value, code(cuda.cuStreamQuery(stream))) == (1, R.CUDA_ERROR_NOT_READY)
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))


@pytest.mark.promise("simulated-46")
@alone
def test_per_thread_stream_is_a_blocking_stream(gpu: Gpu) -> None:
    """The legacy stream waits for per-thread default streams."""
    flag, other = PinnedWord(), PinnedWord()
    gpu.launch("poll_flag", flag.device, stream=PER_THREAD)
    gpu.launch("fill", other.device, 1, 1, stream=LEGACY)
    assert code(cuda.cuStreamQuery(LEGACY)) is R.CUDA_ERROR_NOT_READY
    assert other.value == 0
    flag.value = 1
    ok(cuda.cuStreamSynchronize(LEGACY))
    assert other.value == 1


@pytest.mark.promise("simulated-46")
@alone
def test_each_thread_has_its_own_per_thread_stream(gpu: Gpu) -> None:
    """Work in one thread's default stream does not hold up another thread's."""
    flag, other = PinnedWord(), PinnedWord()
    gpu.launch("poll_flag", flag.device, stream=PER_THREAD)

    def work() -> None:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        gpu.launch("fill", other.device, 1, 1, stream=PER_THREAD)
        ok(cuda.cuStreamSynchronize(PER_THREAD))
        flag.value = 1

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ok(cuda.cuStreamSynchronize(PER_THREAD))
    assert other.value == 1


@alone
def test_context_synchronize_waits_for_all_streams(gpu: Gpu) -> None:
    """cuCtxSynchronize returns when the work of every stream is done, non-blocking ones too."""
    streams = [ok(cuda.cuStreamCreate(flags)) for flags in (BLOCKING, NON_BLOCKING)]
    for stream in streams:
        gpu.launch("spin", 50_000_000, stream=stream, grid=(1, 1, 1), block=(1, 1, 1))
    ok(cuda.cuCtxSynchronize())
    for stream in streams:
        ok(cuda.cuStreamQuery(stream))


@alone
def test_destroying_a_stream_lets_its_work_end(gpu: Gpu) -> None:
    """cuStreamDestroy returns at once; what was queued still runs."""
    stream, flag, other = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord(), PinnedWord()
    gpu.launch("poll_flag", flag.device, stream=stream)
    gpu.launch("fill", other.device, 1, 1, stream=stream)
    ok(cuda.cuStreamDestroy(stream))
    assert other.value == 0
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    assert other.value == 1


@alone
def test_the_legacy_stream_answers_for_those_it_waits_for(gpu: Gpu) -> None:
    """A query of the legacy stream is not ready while work runs in a blocking stream, in a thread's
    own default stream, or in a blocking one that was destroyed meanwhile, though nothing was
    queued in it; non-blocking streams are not its business."""
    for stream, destroyed, counts in (
        (ok(cuda.cuStreamCreate(BLOCKING)), False, True),
        (ok(cuda.cuStreamCreate(BLOCKING)), True, True),
        (PER_THREAD, False, True),
        (ok(cuda.cuStreamCreate(NON_BLOCKING)), False, False),
    ):
        flag = PinnedWord()
        gpu.launch("poll_flag", flag.device, stream=stream)
        if destroyed:
            ok(cuda.cuStreamDestroy(stream))
        answer = code(cuda.cuStreamQuery(LEGACY))
        flag.value = 1
        ok(cuda.cuCtxSynchronize())
        assert (answer is R.CUDA_ERROR_NOT_READY) == counts
        ok(cuda.cuStreamQuery(LEGACY))


@alone
def test_asynchronous_copies_wait_their_turn(gpu: Gpu) -> None:
    """A copy to pinned memory is not there before the work in front of it is done."""
    stream, flag, target = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord(), PinnedWord()
    pointer = gpu.upload([77])
    gpu.launch("poll_flag", flag.device, stream=stream)
    ok(cuda.cuMemcpyDtoHAsync(target.host, pointer, 4, stream))
    assert target.value == 0
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    assert target.value == 77


@alone
def test_memory_waits_for_a_stream_that_was_destroyed(gpu: Gpu) -> None:
    """Documented: the work of such a stream goes on. What another stream takes of memory that is
    freed behind that work comes after it."""
    wanted = cuda.CUmemPoolProps()
    wanted.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id, wanted.maxSize = int(gpu.device), 64 << 20
    pool, flag, read = ok(cuda.cuMemPoolCreate(wanted)), PinnedWord(), PinnedWord()
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    pointer = ok(cuda.cuMemAllocFromPoolAsync(64 << 20, pool, first))
    ok(cuda.cuMemsetD32Async(pointer, 1, 1000, first))
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuMemcpyAsync(read.device, pointer, 4, first))
    ok(cuda.cuMemFreeAsync(pointer, first))
    ok(cuda.cuStreamDestroy(first))
    answer = cuda.cuMemAllocFromPoolAsync(64 << 20, pool, second)
    if code(answer) is R.CUDA_SUCCESS:  # the pool may as well be full
        ok(cuda.cuMemsetD32Async(ok(answer), 2, 1000, second))
    for _ in range(2000):  # so often that it is done, if it does not wait
        cuda.cuStreamQuery(second)
    flag.value = 1
    ok(cuda.cuCtxSynchronize())
    assert read.value == 1
