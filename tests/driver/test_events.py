"""Events: states, order between streams, and time."""

from __future__ import annotations

import time

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import Gpu, PinnedWord, alone, code, ok

DISABLE_TIMING = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
NON_BLOCKING = 1
CLOCKS_APART_MS = 1.0


def test_an_event_never_recorded_is_done(gpu: Gpu) -> None:
    """Querying, awaiting and waiting for an event that was never recorded succeed."""
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventQuery(event))
    ok(cuda.cuEventSynchronize(event))
    ok(cuda.cuStreamWaitEvent(0, event, 0))
    ok(cuda.cuEventDestroy(event))


def test_flags_of_events(gpu: Gpu) -> None:
    """Unknown flags are refused, and an event for other processes must not keep time."""
    assert code(cuda.cuEventCreate(0x80)) is R.CUDA_ERROR_INVALID_VALUE
    interprocess = cuda.CUevent_flags.CU_EVENT_INTERPROCESS
    assert code(cuda.cuEventCreate(interprocess)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-9", "Events order streams and time work")
@alone
def test_event_follows_its_stream(gpu: Gpu) -> None:
    """A recorded event is done when the work before it is, and not sooner."""
    stream, flag = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord()
    event = ok(cuda.cuEventCreate(DISABLE_TIMING))
    gpu.launch("poll_flag", flag.device, stream=stream)
    ok(cuda.cuEventRecord(event, stream))
    assert code(cuda.cuEventQuery(event)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuEventSynchronize(event))
    ok(cuda.cuEventQuery(event))


@pytest.mark.promise("simulated-9")
@alone
def test_a_stream_waits_for_an_event_of_another(gpu: Gpu) -> None:
    """cuStreamWaitEvent holds back what comes after it in its stream."""
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    flag, other = PinnedWord(), PinnedWord()
    event = ok(cuda.cuEventCreate(DISABLE_TIMING))
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamWaitEvent(second, event, 0))
    gpu.launch("fill", other.device, 1, 1, stream=second)
    assert code(cuda.cuStreamQuery(second)) is R.CUDA_ERROR_NOT_READY
    assert other.value == 0
    flag.value = 1
    ok(cuda.cuStreamSynchronize(second))
    assert other.value == 1


@alone
def test_a_wait_is_for_the_record_before_it(gpu: Gpu) -> None:
    """Recording an event again does not prolong a wait that was queued before."""
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    flag = PinnedWord()
    event = ok(cuda.cuEventCreate(DISABLE_TIMING))
    ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamWaitEvent(second, event, 0))
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamSynchronize(second))
    assert code(cuda.cuEventQuery(event)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuEventSynchronize(event))


@alone
def test_destroying_an_event_that_is_waited_for(gpu: Gpu) -> None:
    """An event may be destroyed while it is pending; those who wait for it go on in time."""
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    flag = PinnedWord()
    event = ok(cuda.cuEventCreate(DISABLE_TIMING))
    gpu.launch("poll_flag", flag.device, stream=first)
    ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamWaitEvent(second, event, 0))
    ok(cuda.cuEventDestroy(event))
    assert code(cuda.cuStreamQuery(second)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuStreamSynchronize(second))


@pytest.mark.promise("simulated-9")
def test_elapsed_time_of_a_spin(gpu: Gpu) -> None:
    """The time between two events is that of the work between them, and not more than passes on the
    host meanwhile."""
    begin, end = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
    began_s = time.monotonic()
    ok(cuda.cuEventRecord(begin, 0))
    gpu.launch("spin", 30_000_000, grid=(1, 1, 1), block=(1, 1, 1))
    ok(cuda.cuEventRecord(end, 0))
    ok(cuda.cuEventSynchronize(end))
    taken_ms = (time.monotonic() - began_s) * 1000
    assert 29.9 <= ok(cuda.cuEventElapsedTime(begin, end)) <= taken_ms + CLOCKS_APART_MS


def test_elapsed_time_needs_timing_and_records(gpu: Gpu) -> None:
    """Events without timing, and events never recorded, have no time."""
    timed, untimed = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(DISABLE_TIMING))
    fresh = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(timed, 0))
    ok(cuda.cuEventRecord(untimed, 0))
    ok(cuda.cuStreamSynchronize(0))
    assert code(cuda.cuEventElapsedTime(timed, untimed)) is R.CUDA_ERROR_INVALID_HANDLE
    assert code(cuda.cuEventElapsedTime(timed, fresh)) is R.CUDA_ERROR_INVALID_HANDLE


@alone
def test_elapsed_time_of_a_pending_event(gpu: Gpu) -> None:
    """While the second event is pending, its time is not ready."""
    flag = PinnedWord()
    begin, end = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventRecord(begin, 0))
    gpu.launch("poll_flag", flag.device)
    ok(cuda.cuEventRecord(end, 0))
    assert code(cuda.cuEventElapsedTime(begin, end)) is R.CUDA_ERROR_NOT_READY
    flag.value = 1
    ok(cuda.cuEventSynchronize(end))
