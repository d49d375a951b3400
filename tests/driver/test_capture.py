"""Stream capture: what is captured, what ruins a capture, and who may do what beside it.

A capture in global mode forbids unsafe calls to all threads; the cases run alone, so that no
capture outlives a case that fails."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import LEGACY, MIB, Gpu, alone, code, ok
from tests.driver.test_contexts import in_thread
from tests.driver.test_mapped_memory import Mapper

BLOCKING = 0
NON_BLOCKING = 1
GLOBAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
THREAD_LOCAL = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
MODES = (GLOBAL, THREAD_LOCAL, RELAXED)
NONE = cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
ACTIVE = cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
INVALIDATED = cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED


def begin(mode: Any = GLOBAL, flags: int = NON_BLOCKING) -> Any:
    stream = ok(cuda.cuStreamCreate(flags))
    ok(cuda.cuStreamBeginCapture(stream, mode))
    return stream


def state(stream: Any) -> Any:
    return ok(cuda.cuStreamIsCapturing(stream))


def with_context(gpu: Gpu, work: Callable[[], Any]) -> Any:
    """What `work` returns in another thread that has the device's context."""

    def bound() -> Any:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        return work()

    return in_thread(bound)


def relaxed_thread(gpu: Gpu, call: Callable[[], tuple[Any, ...]]) -> R:
    """What the call answers in another thread that is in relaxed mode."""

    def relaxed() -> R:
        ok(cuda.cuThreadExchangeStreamCaptureMode(RELAXED))
        return code(call())

    answer = with_context(gpu, relaxed)
    assert isinstance(answer, R)
    return answer


@pytest.mark.promise(
    "simulated-1",
    "Graphs that were captured replay their launches, with the driver's rules for captures",
)
@alone
def test_captured_work_runs_when_its_graph_does(gpu: Gpu) -> None:
    """Captured launches, copies and memsets run once for each launch of the graph, not before."""
    x, y = gpu.upload(np.ones(100), np.float32), gpu.upload(np.zeros(100), np.float32)
    stream = begin()
    gpu.launch("axpy", y, x, 2.0, 100, stream=stream)
    graph = ok(cuda.cuStreamEndCapture(stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(y, 1, np.float32)[0] == 0
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    for _ in range(3):
        ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(y, 100, np.float32).tolist() == [6.0] * 100


@alone
def test_state_of_a_stream(gpu: Gpu) -> None:
    """A stream is capturing from the begin of its capture to its end."""
    stream = ok(cuda.cuStreamCreate(NON_BLOCKING))
    assert state(stream) == NONE
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    assert state(stream) == ACTIVE
    ok(cuda.cuStreamEndCapture(stream))
    assert state(stream) == NONE


@alone
def test_legacy_stream_cannot_be_captured(gpu: Gpu) -> None:
    """The legacy default stream captures nothing."""
    for stream in (0, LEGACY):
        began = cuda.cuStreamBeginCapture(stream, GLOBAL)
        assert code(began) is R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED


@alone
def test_capturing_twice_and_ending_without_begin(gpu: Gpu) -> None:
    """A capture cannot begin inside itself, nor end where there is none."""
    stream = begin()
    assert code(cuda.cuStreamBeginCapture(stream, GLOBAL)) is R.CUDA_ERROR_ILLEGAL_STATE
    ok(cuda.cuStreamEndCapture(stream))
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_ILLEGAL_STATE


@pytest.mark.promise("simulated-1")
@alone
def test_a_refused_begin_leaves_the_capture_as_it_is(gpu: Gpu) -> None:
    """A second begin, in whatever mode, is refused; the first capture goes on, with what it had."""
    pointer = gpu.upload([0, 0])
    for mode in MODES:
        stream = begin(mode)
        gpu.launch("fill", pointer, 5, 1, stream=stream)
        for again in MODES:
            assert code(cuda.cuStreamBeginCapture(stream, again)) is R.CUDA_ERROR_ILLEGAL_STATE
        assert state(stream) == ACTIVE
        gpu.launch("fill", pointer + 4, 6, 1, stream=stream)
        graph = ok(cuda.cuStreamEndCapture(stream))
        assert state(stream) == NONE
        assert ok(cuda.cuGraphGetNodes(graph, 8))[1] == 2
    ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(graph, 0)), stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(pointer, 2).tolist() == [5, 6]


@alone
def test_asking_a_capturing_stream_invalidates_its_capture(gpu: Gpu) -> None:
    """Querying or synchronising a capturing stream is unsupported and ruins the capture."""
    for call in (cuda.cuStreamQuery, cuda.cuStreamSynchronize):
        stream = begin(RELAXED)
        assert code(call(stream)) is R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        assert state(stream) == INVALIDATED
        answer = cuda.cuStreamEndCapture(stream)
        assert code(answer) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        assert state(stream) == NONE


@alone
def test_synchronising_the_context_invalidates_captures(gpu: Gpu) -> None:
    """Synchronising a context with a capturing stream is unsupported and ruins the capture."""
    stream = begin(RELAXED)
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


@pytest.mark.promise(
    "simulated-2",
    "A call of a thread in relaxed mode harms a capture exactly where it does on a real device",
)
@alone
def test_synchronising_the_context_from_a_relaxed_thread(gpu: Gpu) -> None:
    """That another thread is in relaxed mode does not help: captures of every mode are ruined, of
    blocking and of non-blocking streams."""
    for flags in (BLOCKING, NON_BLOCKING):
        for mode in MODES:
            stream = begin(mode, flags)
            answer = relaxed_thread(gpu, cuda.cuCtxSynchronize)
            assert answer is R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            assert state(stream) == INVALIDATED
            ended = code(cuda.cuStreamEndCapture(stream))
            assert ended is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


@pytest.mark.promise("simulated-2")
@alone
def test_asking_the_legacy_stream_from_a_relaxed_thread(gpu: Gpu) -> None:
    """While only non-blocking streams capture, a thread in relaxed mode may query the legacy stream
    and record events in it; the captures stay valid."""
    event = ok(cuda.cuEventCreate(2))
    for mode in MODES:
        stream = begin(mode)
        for call in (
            lambda: cuda.cuStreamQuery(LEGACY),
            lambda: cuda.cuEventRecord(event, LEGACY),
            lambda: cuda.cuEventQuery(event),
        ):
            assert relaxed_thread(gpu, call) in (R.CUDA_SUCCESS, R.CUDA_ERROR_NOT_READY)
            assert state(stream) == ACTIVE
        ok(cuda.cuStreamEndCapture(stream))


@pytest.mark.promise("simulated-2")
@alone
def test_freeing_from_a_relaxed_thread(gpu: Gpu) -> None:
    """A thread in relaxed mode may free memory while another captures, in whatever mode and stream,
    and the capture stays valid."""
    for flags in (BLOCKING, NON_BLOCKING):
        for mode in MODES:
            small, large = ok(cuda.cuMemAlloc(4096)), ok(cuda.cuMemAlloc(8 * MIB))
            stream = begin(mode, flags)
            gpu.launch("spin", 0, stream=stream)
            for pointer in (small, large):
                freed = relaxed_thread(gpu, functools.partial(cuda.cuMemFree, pointer))
                assert freed is R.CUDA_SUCCESS
            assert state(stream) == ACTIVE
            ok(cuda.cuStreamEndCapture(stream))


@pytest.mark.promise("simulated-2")
@alone
def test_mapping_during_a_capture(gpu: Gpu) -> None:
    """Chunks may be created, mapped, unmapped and released while streams capture, by the capturing
    thread too, in whatever mode."""
    mapper = Mapper(gpu)
    for mode in MODES:
        address, stream = mapper.reserve(), begin(mode)
        chunk = mapper.create()
        mapper.map(address, chunk)
        mapper.grant(address)
        mapper.unmap(address)
        ok(cuda.cuMemRelease(chunk))
        assert state(stream) == ACTIVE
        ok(cuda.cuStreamEndCapture(stream))
        mapper.free(address)


@alone
def test_launching_into_an_invalidated_capture(gpu: Gpu) -> None:
    """An invalidated capture takes no more work."""
    stream = begin(RELAXED)
    cuda.cuStreamQuery(stream)
    launched = gpu.try_launch("spin", 0, stream=stream)
    assert code(launched) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


@pytest.mark.promise("simulated-1")
@alone
def test_unsafe_calls_invalidate_a_global_capture(gpu: Gpu) -> None:
    """Allocating during a capture in global mode is unsupported and ruins it."""
    stream = begin(GLOBAL)
    assert code(cuda.cuMemAlloc(MIB)) is R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    ok(cuda.cuMemFree(ok(cuda.cuMemAlloc(MIB))))


@alone
def test_unsafe_calls_of_other_threads(gpu: Gpu) -> None:
    """A global capture forbids unsafe calls to other threads, a thread-local one does not."""
    stream = begin(THREAD_LOCAL)
    assert with_context(gpu, lambda: code(cuda.cuMemAlloc(MIB))) is R.CUDA_SUCCESS
    ok(cuda.cuStreamEndCapture(stream))
    stream = begin(GLOBAL)
    unsupported = R.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert with_context(gpu, lambda: code(cuda.cuMemAlloc(MIB))) is unsupported
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


@alone
def test_relaxed_threads_may_allocate(gpu: Gpu) -> None:
    """A thread in relaxed mode may do what a capture forbids, and the capture survives."""

    def allocate() -> R:
        assert ok(cuda.cuThreadExchangeStreamCaptureMode(RELAXED)) == GLOBAL
        answer = code(cuda.cuMemAlloc(MIB))
        assert ok(cuda.cuThreadExchangeStreamCaptureMode(GLOBAL)) == RELAXED
        return answer

    stream = begin(GLOBAL)
    assert with_context(gpu, allocate) is R.CUDA_SUCCESS
    assert allocate() is R.CUDA_SUCCESS
    ok(cuda.cuStreamEndCapture(stream))


@alone
def test_relaxed_captures_forbid_nothing(gpu: Gpu) -> None:
    """During a capture in relaxed mode allocations and synchronous copies go on."""
    stream = begin(RELAXED)
    pointer = ok(cuda.cuMemAlloc(MIB))
    ok(cuda.cuMemFree(pointer))
    ok(cuda.cuStreamEndCapture(stream))


@alone
def test_legacy_work_during_a_capture(gpu: Gpu) -> None:
    """Legacy work would wait for a capturing blocking stream: it is refused, the capture ruined."""
    stream = begin(RELAXED, flags=0)
    assert code(gpu.try_launch("spin", 0, stream=0)) is R.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED


@alone
def test_legacy_work_beside_a_non_blocking_capture(gpu: Gpu) -> None:
    """Legacy work has nothing to do with a capture of a non-blocking stream."""
    stream = begin(RELAXED)
    gpu.launch("spin", 0, stream=0)
    ok(cuda.cuStreamSynchronize(0))
    ok(cuda.cuStreamEndCapture(stream))


@alone
def test_another_thread_may_not_end_a_capture(gpu: Gpu) -> None:
    """Only the thread that began a capture gets its graph, unless it is relaxed. The end of another
    thread is its end all the same."""
    stream = begin(GLOBAL)
    ended = with_context(gpu, lambda: code(cuda.cuStreamEndCapture(stream)))
    assert ended is R.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
    assert state(stream) == NONE
    assert code(cuda.cuStreamEndCapture(stream)) is R.CUDA_ERROR_ILLEGAL_STATE
    stream = begin(RELAXED)
    assert with_context(gpu, lambda: code(cuda.cuStreamEndCapture(stream))) is R.CUDA_SUCCESS


@alone
def test_a_capture_in_an_own_default_stream_ends_with_its_thread(gpu: Gpu) -> None:
    """Nobody could end it any more: what it forbade is allowed again."""
    own = cuda.CUstream(2)
    for mode in MODES:
        pointer = ok(cuda.cuMemAlloc(MIB))
        begun = with_context(gpu, lambda mode=mode: code(cuda.cuStreamBeginCapture(own, mode)))
        assert begun is R.CUDA_SUCCESS
        ok(cuda.cuStreamQuery(LEGACY))
        ok(cuda.cuMemFree(pointer))
        ok(cuda.cuCtxSynchronize())


@pytest.mark.promise("simulated-1")
@alone
def test_streams_join_a_capture_by_events(gpu: Gpu) -> None:
    """A stream that waits for a captured event captures too, until it is joined again."""
    pointer = gpu.allocate(400)
    first, second = begin(), ok(cuda.cuStreamCreate(NON_BLOCKING))
    fork, join = ok(cuda.cuEventCreate(2)), ok(cuda.cuEventCreate(2))
    ok(cuda.cuEventRecord(fork, first))
    ok(cuda.cuStreamWaitEvent(second, fork, 0))
    assert state(second) == ACTIVE
    gpu.launch("fill", pointer, 1, 50, stream=first)
    gpu.launch("fill", pointer + 200, 2, 50, stream=second)
    ok(cuda.cuEventRecord(join, second))
    ok(cuda.cuStreamWaitEvent(first, join, 0))
    graph = ok(cuda.cuStreamEndCapture(first))
    assert state(second) == NONE
    ok(cuda.cuGraphLaunch(ok(cuda.cuGraphInstantiate(graph, 0)), first))
    ok(cuda.cuStreamSynchronize(first))
    assert gpu.download(pointer, 100).tolist() == [1] * 50 + [2] * 50


@alone
def test_captures_that_are_not_joined(gpu: Gpu) -> None:
    """A capture whose second stream was not joined ends in an error."""
    first, second = begin(), ok(cuda.cuStreamCreate(NON_BLOCKING))
    fork = ok(cuda.cuEventCreate(2))
    ok(cuda.cuEventRecord(fork, first))
    ok(cuda.cuStreamWaitEvent(second, fork, 0))
    gpu.launch("spin", 0, stream=second)
    assert code(cuda.cuStreamEndCapture(first)) is R.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    assert (state(first), state(second)) == (NONE, NONE)


@alone
def test_captured_events_cannot_be_asked(gpu: Gpu) -> None:
    """An event recorded in a capture has nothing to wait for."""
    for call in (cuda.cuEventQuery, cuda.cuEventSynchronize):
        stream, event = begin(RELAXED), ok(cuda.cuEventCreate(2))
        ok(cuda.cuEventRecord(event, stream))
        assert code(call(event)) is R.CUDA_ERROR_CAPTURED_EVENT
        assert state(stream) == INVALIDATED
        cuda.cuStreamEndCapture(stream)


@alone
def test_captures_have_ids(gpu: Gpu) -> None:
    """A capture tells its id and its graph, and each capture has another id."""
    ids = set()
    for _ in range(2):
        stream = begin()
        status, capture_id, *_ = ok(cuda.cuStreamGetCaptureInfo(stream))
        assert status == ACTIVE
        ids.add(int(capture_id))
        ok(cuda.cuStreamEndCapture(stream))
    assert len(ids) == 2
    assert ok(cuda.cuStreamGetCaptureInfo(stream))[0] == NONE


@pytest.mark.promise("simulated-1")
@alone
def test_captured_allocations_belong_to_the_graph(gpu: Gpu) -> None:
    """Memory allocated and freed in a capture is there in every launch of the graph."""
    out, stream = gpu.allocate(8), begin()
    pointer = int(ok(cuda.cuMemAllocAsync(4000, stream)))
    gpu.launch("fill", pointer, 3, 1000, stream=stream)
    gpu.launch("checksum", out, pointer, 1000, stream=stream)
    ok(cuda.cuMemFreeAsync(pointer, stream))
    executable = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
    for _ in range(2):
        ok(cuda.cuMemsetD32Async(out, 0, 2, stream))
        ok(cuda.cuGraphLaunch(executable, stream))
        ok(cuda.cuStreamSynchronize(stream))
        assert gpu.download(out, 1, np.uint64)[0] == 3 * 1000 * 1000


@alone
def test_captures_of_two_threads(gpu: Gpu) -> None:
    """Two threads capture at the same time without disturbing each other."""
    both, graphs = threading.Barrier(2), []

    def capture() -> None:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        stream = begin(THREAD_LOCAL)
        both.wait()
        gpu.launch("spin", 0, stream=stream)
        both.wait()
        graphs.append(ok(cuda.cuStreamEndCapture(stream)))

    gpu.launch("spin", 0)
    threads = [threading.Thread(target=capture) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ok(cuda.cuGraphGetNodes(graph, 4))[1] for graph in graphs] == [1, 1]
