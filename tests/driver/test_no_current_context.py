"""Work in a created stream needs no current context: the stream brings its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cuda.bindings import driver as cuda

from tests.driver.harness import BUILTINS_PTX, Gpu, PinnedWord, arguments, ok
from tests.driver.test_contexts import in_thread
from tests.driver.test_stream_memory_operations import HOST_FUNCTION, launch_host

NON_BLOCKING = 1
RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


@pytest.fixture
def stream(gpu: Gpu) -> Iterator[Any]:
    created = ok(cuda.cuStreamCreate(NON_BLOCKING))
    yield created
    ok(cuda.cuStreamSynchronize(created))
    ok(cuda.cuStreamDestroy(created))


def without_context(call: Any) -> None:
    """The call succeeds in a thread that has never had a context."""

    def work() -> Any:
        assert int(ok(cuda.cuCtxGetCurrent())) == 0
        return call()

    ok(in_thread(work))


@pytest.mark.promise("simulated-20", "Work in a created stream needs no current context")
def test_launch_of_a_kernel(gpu: Gpu, stream: Any) -> None:
    """A kernel of a library belongs to no context, and is launched in the stream's."""
    image = BUILTINS_PTX.read_bytes() + b"\0"
    library = ok(cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0))
    kernel = cuda.CUfunction(int(ok(cuda.cuLibraryGetKernel(library, b"fill"))))
    pointer = gpu.upload([0] * 10)
    fill = arguments("fill", pointer, 61, 10)
    without_context(lambda: cuda.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, fill, 0))
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(pointer, 10).tolist() == [61] * 10
    ok(cuda.cuLibraryUnload(library))


@pytest.mark.promise("simulated-20")
def test_launch_of_a_graph(gpu: Gpu, stream: Any) -> None:
    """A graph is launched into the stream."""
    pointer = gpu.upload([0] * 10)
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    gpu.launch("fill", pointer, 62, 10, stream=stream)
    graph = ok(cuda.cuStreamEndCapture(stream))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    without_context(lambda: cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(pointer, 10).tolist() == [62] * 10
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))


@pytest.mark.promise("simulated-20")
def test_memsets(gpu: Gpu, stream: Any) -> None:
    """Memsets of each width."""
    pointer = gpu.upload([0] * 3)
    without_context(lambda: cuda.cuMemsetD8Async(pointer, 0x11, 4, stream))
    without_context(lambda: cuda.cuMemsetD16Async(pointer + 4, 0x2222, 2, stream))
    without_context(lambda: cuda.cuMemsetD32Async(pointer + 8, 0x33333333, 1, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(pointer, 3).tolist() == [0x11111111, 0x22222222, 0x33333333]


@pytest.mark.promise("simulated-20")
def test_copies(gpu: Gpu, stream: Any) -> None:
    """Copies to the device, within it and back."""
    there, back = PinnedWord(63), PinnedWord()
    first, second, third = (gpu.upload([0]) for _ in range(3))
    without_context(lambda: cuda.cuMemcpyHtoDAsync(first, there.host, 4, stream))
    without_context(lambda: cuda.cuMemcpyDtoDAsync(second, first, 4, stream))
    without_context(lambda: cuda.cuMemcpyAsync(third, second, 4, stream))
    without_context(lambda: cuda.cuMemcpyDtoHAsync(back.host, third, 4, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert back.value == 63


@pytest.mark.promise("simulated-20")
def test_host_functions(gpu: Gpu, stream: Any) -> None:
    """A host function is called when the stream comes to it."""
    called: list[bool] = []
    function = HOST_FUNCTION(lambda _: called.append(True))
    assert in_thread(lambda: launch_host(stream, function)) == 0
    ok(cuda.cuStreamSynchronize(stream))
    assert called == [True]
