"""Errors that stay with a context, and what works after them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import BUILTINS_PTX, Gpu, alone, code, ok
from tests.support.paths import ROOT

ANOTHER_PROCESS = """
from tests.driver.harness import Gpu, driver_under_test
with driver_under_test():
    gpu = Gpu()
    assert gpu.download(gpu.upload([1, 2]), 2).tolist() == [1, 2]
"""


def calls_that_use_the_context(pointer: int, stream: Any, event: Any) -> list[Callable[[], Any]]:
    words = np.zeros(4, dtype=np.uint32)
    return [
        lambda: cuda.cuCtxSynchronize(),
        lambda: cuda.cuStreamSynchronize(stream),
        lambda: cuda.cuStreamQuery(stream),
        lambda: cuda.cuEventQuery(event),
        lambda: cuda.cuEventSynchronize(event),
        lambda: cuda.cuEventRecord(event, stream),
        lambda: cuda.cuMemAlloc(16),
        lambda: cuda.cuMemFree(pointer),
        lambda: cuda.cuMemGetInfo(),
        lambda: cuda.cuMemcpyDtoH(words, pointer, 16),
        lambda: cuda.cuMemsetD32(pointer, 0, 4),
        lambda: cuda.cuStreamCreate(0),
        lambda: cuda.cuMemAllocAsync(16, stream),
    ]


def break_and_check(gpu: Gpu, launch: Callable[[Any], None], expected: R) -> None:
    """After a launch that fails, every call that uses the context answers its error."""
    pointer, stream, event = gpu.allocate(64), ok(cuda.cuStreamCreate(1)), ok(cuda.cuEventCreate(0))
    function = gpu.function("assert_fail")
    ok(cuda.cuEventRecord(event, stream))
    launch(stream)
    assert code(cuda.cuStreamSynchronize(stream)) is expected
    answers = [code(call()) for call in calls_that_use_the_context(pointer, stream, event)]
    assert answers == [expected] * len(answers)
    assert code(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)) is expected
    assert code(cuda.cuModuleGetFunction(gpu.module, b"fill")) is expected


@pytest.mark.promise(
    "simulated-43",
    "Errors are sticky where the driver's are, in their process alone",
)
@alone
def test_illegal_address(gpu: Gpu) -> None:
    """A launch that writes where nothing is leaves an error that every later call answers."""
    break_and_check(
        gpu,
        lambda stream: gpu.launch("fill", 0x10, 1, 64, stream=stream),
        R.CUDA_ERROR_ILLEGAL_ADDRESS,
    )


@pytest.mark.promise("simulated-43")
@alone
def test_failed_assertion(gpu: Gpu) -> None:
    """A failed device-side assertion leaves an error that every later call answers."""
    break_and_check(
        gpu, lambda stream: gpu.launch("assert_fail", stream=stream), R.CUDA_ERROR_ASSERT
    )


@pytest.mark.promise("simulated-43")
@alone
def test_the_launch_itself_succeeds(gpu: Gpu) -> None:
    """A launch that will fail is accepted; the error comes with the next synchronisation."""
    assert code(gpu.try_launch("assert_fail")) is R.CUDA_SUCCESS
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_ASSERT


@alone
def test_what_needs_no_context_still_works(gpu: Gpu) -> None:
    """After a sticky error, devices, versions, names and the current context can still be asked."""
    gpu.launch("assert_fail")
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_ASSERT
    ok(cuda.cuInit(0))
    assert ok(cuda.cuDriverGetVersion()) > 0
    assert ok(cuda.cuDeviceGetCount()) > 0
    ok(cuda.cuDeviceGetName(64, gpu.device))
    ok(cuda.cuDeviceTotalMem(gpu.device))
    assert int(ok(cuda.cuCtxGetCurrent())) == int(gpu.context)
    assert ok(cuda.cuGetErrorName(R.CUDA_ERROR_ASSERT)) == b"CUDA_ERROR_ASSERT"


@pytest.mark.promise("simulated-43")
@alone
def test_other_processes_do_not_notice(gpu: Gpu) -> None:
    """A sticky error is the matter of its process; others use the device as before."""
    gpu.launch("fill", 0x10, 1, 64)
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_ILLEGAL_ADDRESS
    other = subprocess.run(
        [sys.executable, "-c", ANOTHER_PROCESS], cwd=ROOT, capture_output=True, text=True
    )
    assert other.returncode == 0, other.stderr


@alone
def test_streams_of_the_context_fail_together(gpu: Gpu) -> None:
    """An error in one stream is the error of all streams of the context."""
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    gpu.launch("assert_fail", stream=first)
    assert code(cuda.cuStreamSynchronize(first)) is R.CUDA_ERROR_ASSERT
    assert code(cuda.cuStreamSynchronize(second)) is R.CUDA_ERROR_ASSERT


@pytest.mark.promise("simulated-43")
@alone
def test_a_broken_context_can_be_destroyed(gpu: Gpu) -> None:
    """A context with a sticky error can be destroyed, and takes its memory with it."""
    context = ok(cuda.cuCtxCreate(None, 0, gpu.device))
    module = ok(cuda.cuModuleLoadData(BUILTINS_PTX.read_bytes() + b"\0"))
    function = ok(cuda.cuModuleGetFunction(module, b"assert_fail"))
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    assert code(cuda.cuCtxSynchronize()) is R.CUDA_ERROR_ASSERT
    ok(cuda.cuCtxDestroy(context))
