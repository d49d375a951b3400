"""Streams that wait for values in memory and write them, and functions of the host in a stream."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import Gpu, PinnedWord, alone, code, ok, raw

NON_BLOCKING = 1
EQ = cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
GEQ = cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def launch_host(stream: Any, function: Any, data: int = 0) -> int:
    return int(raw().cuLaunchHostFunc(ctypes.c_void_p(int(stream)), function, data))


@pytest.mark.promise("simulated-44", "Stream memory operations")
def test_a_stream_writes_values(gpu: Gpu) -> None:
    """Values of 32 and 64 bits are written in the order of the stream."""
    pointer = gpu.upload([0, 0, 0, 0])
    ok(cuda.cuStreamWriteValue32(0, pointer, 5, 0))
    ok(cuda.cuStreamWriteValue64(0, pointer + 8, 1 << 32, 0))
    assert gpu.download(pointer, 4).tolist() == [5, 0, 0, 1]


@pytest.mark.promise("simulated-44")
@alone
def test_a_stream_waits_for_the_host(gpu: Gpu) -> None:
    """A stream that waits for a value goes on when the host has written it."""
    stream, word, other = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord(), PinnedWord()
    ok(cuda.cuStreamWaitValue32(stream, word.device, 3, GEQ))
    gpu.launch("fill", other.device, 1, 1, stream=stream)
    word.value = 2
    assert code(cuda.cuStreamQuery(stream)) is R.CUDA_ERROR_NOT_READY
    word.value = 4
    ok(cuda.cuStreamSynchronize(stream))
    assert other.value == 1


@pytest.mark.promise("simulated-44")
@alone
def test_a_stream_waits_for_another(gpu: Gpu) -> None:
    """A stream that waits for a value goes on when another stream has written it."""
    first, second = (ok(cuda.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
    pointer = gpu.upload([0])
    ok(cuda.cuStreamWaitValue32(first, pointer, 9, EQ))
    assert code(cuda.cuStreamQuery(first)) is R.CUDA_ERROR_NOT_READY
    ok(cuda.cuStreamWriteValue32(second, pointer, 9, 0))
    ok(cuda.cuStreamSynchronize(first))


def test_values_are_aligned(gpu: Gpu) -> None:
    """Unaligned addresses and unknown flags are refused."""
    pointer = gpu.allocate(64)
    assert code(cuda.cuStreamWaitValue32(0, pointer + 2, 0, EQ)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuStreamWriteValue64(0, pointer + 4, 0, 0)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuStreamWriteValue32(0, pointer, 0, 0x40)) is R.CUDA_ERROR_INVALID_VALUE


@pytest.mark.promise("simulated-13")
@alone
def test_host_functions_run_in_order(gpu: Gpu) -> None:
    """A function of the host runs once, after the work before it and before the work after it."""
    stream, flag, other = ok(cuda.cuStreamCreate(NON_BLOCKING)), PinnedWord(), PinnedWord()
    seen: list[tuple[int | None, int]] = []
    function = HOST_FUNCTION(lambda data: seen.append((data, other.value)))
    gpu.launch("poll_flag", flag.device, stream=stream)
    gpu.launch("fill", other.device, 1, 1, stream=stream)
    assert launch_host(stream, function, 4711) == 0
    gpu.launch("fill", other.device, 2, 1, stream=stream)
    assert seen == []
    flag.value = 1
    ok(cuda.cuStreamSynchronize(stream))
    assert seen == [(4711, 1)]
    assert other.value == 2


@alone
def test_host_functions_may_not_call_the_driver(gpu: Gpu) -> None:
    """In a function of the host, calls to the driver are not permitted."""
    answers: list[R] = []
    function = HOST_FUNCTION(lambda _: answers.append(code(cuda.cuMemAlloc(16))))
    assert launch_host(0, function) == 0
    ok(cuda.cuStreamSynchronize(0))
    assert answers == [R.CUDA_ERROR_NOT_PERMITTED]


@alone
def test_stream_callbacks_get_their_stream(gpu: Gpu) -> None:
    """A callback of the older kind gets stream, status and data."""
    seen: list[tuple[int | None, int, int | None]] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    callback = kind(lambda stream, status, data: seen.append((stream, status, data)))
    stream = ok(cuda.cuStreamCreate(NON_BLOCKING))
    handle = ctypes.c_void_p(int(stream))
    assert raw().cuStreamAddCallback(handle, callback, ctypes.c_void_p(12), 0) == 0
    ok(cuda.cuStreamSynchronize(stream))
    assert seen == [(int(stream), 0, 12)]


def test_no_host_function_is_refused(gpu: Gpu) -> None:
    """NULL is no function."""
    assert launch_host(0, None) == R.CUDA_ERROR_INVALID_VALUE
