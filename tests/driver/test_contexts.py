"""Contexts: current ones, the stack, primary ones, what happens when they go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, alone, code, ok
from tests.support.waits import wait_until


def in_thread(work: Callable[[], Any]) -> Any:
    """What `work` returns in a thread of its own, which has ended for the driver too."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()  # the driver's part of its end may be still to come
    wait_until(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
    return answers[0]


def create_context(gpu: Gpu) -> Any:
    return ok(cuda.cuCtxCreate(None, 0, gpu.device))


def test_new_threads_have_no_context(gpu: Gpu) -> None:
    """A thread starts without a context, and calls that need one say so."""
    assert int(in_thread(lambda: ok(cuda.cuCtxGetCurrent()))) == 0
    for call in (
        lambda: cuda.cuMemAlloc(16),
        lambda: cuda.cuStreamCreate(0),
        lambda: cuda.cuCtxSynchronize(),
        lambda: cuda.cuMemGetInfo(),
        lambda: cuda.cuCtxGetDevice(),
        lambda: cuda.cuCtxPopCurrent(),
    ):
        assert code(in_thread(call)) is R.CUDA_ERROR_INVALID_CONTEXT


@pytest.mark.promise(
    "simulated-3", "Contexts: creation, the stack, primary contexts and their reset"
)
def test_created_context_is_current_until_destroyed(gpu: Gpu) -> None:
    """cuCtxCreate pushes the new context; destroying it brings the one below back."""
    before = int(ok(cuda.cuCtxGetCurrent()))
    context = create_context(gpu)
    assert int(ok(cuda.cuCtxGetCurrent())) == int(context) != before
    assert int(ok(cuda.cuCtxGetDevice())) == int(gpu.device)
    ok(cuda.cuCtxDestroy(context))
    assert int(ok(cuda.cuCtxGetCurrent())) == before


@pytest.mark.promise("simulated-3")
def test_context_stack(gpu: Gpu) -> None:
    """Push and pop nest; set replaces the top alone."""
    base = int(gpu.context)
    context = create_context(gpu)
    ok(cuda.cuCtxPushCurrent(gpu.context))
    assert int(ok(cuda.cuCtxGetCurrent())) == base
    assert int(ok(cuda.cuCtxPopCurrent())) == base
    assert int(ok(cuda.cuCtxGetCurrent())) == int(context)
    ok(cuda.cuCtxSetCurrent(gpu.context))
    assert int(ok(cuda.cuCtxPopCurrent())) == base
    assert int(ok(cuda.cuCtxGetCurrent())) == base
    ok(cuda.cuCtxDestroy(context))
    assert int(ok(cuda.cuCtxGetCurrent())) == base


def test_setting_no_context(gpu: Gpu) -> None:
    """cuCtxSetCurrent(NULL) leaves the thread without one."""

    def work() -> tuple[int, R]:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        ok(cuda.cuCtxSetCurrent(0))
        return int(ok(cuda.cuCtxGetCurrent())), code(cuda.cuCtxSynchronize())

    assert in_thread(work) == (0, R.CUDA_ERROR_INVALID_CONTEXT)


def test_bad_arguments_of_context_calls(gpu: Gpu) -> None:
    """Unknown flags, unknown devices and NULL contexts are refused with their own codes."""
    assert code(cuda.cuCtxCreate(None, 0x4000, gpu.device)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuCtxCreate(None, 0, 4711)) is R.CUDA_ERROR_INVALID_DEVICE
    assert code(cuda.cuCtxDestroy(0)) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuDevicePrimaryCtxRetain(4711)) is R.CUDA_ERROR_INVALID_DEVICE


def test_context_knows_its_flags(gpu: Gpu) -> None:
    """The scheduling flag that a context was created with can be read back."""
    context = ok(cuda.cuCtxCreate(None, cuda.CUctx_flags.CU_CTX_SCHED_YIELD, gpu.device))
    flags = ok(cuda.cuCtxGetFlags())
    ok(cuda.cuCtxDestroy(context))
    assert flags & 0x7 == cuda.CUctx_flags.CU_CTX_SCHED_YIELD


@pytest.mark.promise("simulated-3")
@alone
def test_primary_context_is_counted(gpu: Gpu) -> None:
    """The primary context is one per device, active while somebody retains it."""
    again = ok(cuda.cuDevicePrimaryCtxRetain(gpu.device))
    assert int(again) == int(gpu.context)
    ok(cuda.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cuda.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
    ok(cuda.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cuda.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0
    assert code(cuda.cuDevicePrimaryCtxRelease(gpu.device)) is R.CUDA_ERROR_INVALID_CONTEXT


@alone
def test_primary_context_comes_back(gpu: Gpu) -> None:
    """A primary context that was released for the last time works again when it is retained."""
    ok(cuda.cuDevicePrimaryCtxRelease(gpu.device))
    assert code(cuda.cuMemAlloc(16)) is R.CUDA_ERROR_CONTEXT_IS_DESTROYED
    fresh = Gpu()
    pointer = fresh.upload([1, 2, 3])
    assert fresh.download(pointer, 3).tolist() == [1, 2, 3]


@pytest.mark.promise("simulated-3")
@alone
def test_primary_reset_frees_memory_but_not_the_count(gpu: Gpu) -> None:
    """cuDevicePrimaryCtxReset takes all memory; the context works on for those who retain it."""
    pointer = gpu.allocate(MIB)
    ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
    fresh = ok(cuda.cuDevicePrimaryCtxRetain(gpu.device))
    ok(cuda.cuCtxSetCurrent(fresh))
    assert code(cuda.cuMemFree(pointer)) is R.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemFree(ok(cuda.cuMemAlloc(MIB))))


@pytest.mark.promise("simulated-3")
@alone
def test_primary_reset_does_not_release(gpu: Gpu) -> None:
    """Retained twice, reset and retained once more, a primary context takes three releases to
    end, and keeps until then what was allocated after the reset."""
    ok(cuda.cuDevicePrimaryCtxRetain(gpu.device))
    ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
    ok(cuda.cuCtxSetCurrent(ok(cuda.cuDevicePrimaryCtxRetain(gpu.device))))
    pointer = ok(cuda.cuMemAlloc(MIB))
    ok(cuda.cuMemsetD32(pointer, 9, MIB // 4))
    for _ in range(2):
        ok(cuda.cuDevicePrimaryCtxRelease(gpu.device))
        assert ok(cuda.cuDevicePrimaryCtxGetState(gpu.device))[1] == 1
        assert set(gpu.download(pointer, MIB // 4).tolist()) == {9}
    ok(cuda.cuDevicePrimaryCtxRelease(gpu.device))
    assert ok(cuda.cuDevicePrimaryCtxGetState(gpu.device))[1] == 0
    assert code(cuda.cuDevicePrimaryCtxRelease(gpu.device)) is R.CUDA_ERROR_INVALID_CONTEXT


@alone
def test_other_threads_see_that_their_context_is_gone(gpu: Gpu) -> None:
    """A context destroyed by one thread stays current in another, which is told so."""
    context = create_context(gpu)
    bound, gone = threading.Event(), threading.Event()

    def work() -> R:
        ok(cuda.cuCtxSetCurrent(context))
        bound.set()
        gone.wait()
        return code(cuda.cuMemAlloc(16))

    answers: list[R] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    bound.wait()
    ok(cuda.cuCtxDestroy(context))
    gone.set()
    thread.join()
    assert answers == [R.CUDA_ERROR_CONTEXT_IS_DESTROYED]


@pytest.mark.promise("simulated-3")
def test_destroying_a_context_frees_its_memory(gpu: Gpu) -> None:
    """What was allocated in a context goes with it."""
    context = create_context(gpu)
    free_before, _ = ok(cuda.cuMemGetInfo())
    ok(cuda.cuMemAlloc(256 * MIB))
    free_during, _ = ok(cuda.cuMemGetInfo())
    ok(cuda.cuCtxDestroy(context))
    free_after, _ = ok(cuda.cuMemGetInfo())
    assert free_before - free_during >= 256 * MIB
    assert free_after >= free_before


def test_memory_belongs_to_no_thread(gpu: Gpu) -> None:
    """One thread allocates, another frees, whatever context is current there."""
    pointer = ok(cuda.cuMemAlloc(MIB))
    context = create_context(gpu)
    assert code(cuda.cuMemFree(pointer)) is R.CUDA_SUCCESS
    ok(cuda.cuCtxDestroy(context))


def test_context_limits(gpu: Gpu) -> None:
    """Known limits can be set and read; unknown ones are refused."""
    limit = cuda.CUlimit.CU_LIMIT_STACK_SIZE
    ok(cuda.cuCtxSetLimit(limit, 4096))
    assert ok(cuda.cuCtxGetLimit(limit)) >= 4096
    ok(cuda.cuCtxSetLimit(limit, 1024))


def test_contexts_have_ids(gpu: Gpu) -> None:
    """Two contexts of a process have different ids."""
    context = create_context(gpu)
    ids = {ok(cuda.cuCtxGetId(context)), ok(cuda.cuCtxGetId(gpu.context))}
    ok(cuda.cuCtxDestroy(context))
    assert len(ids) == 2
