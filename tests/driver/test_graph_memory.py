"""Memory that a captured graph allocates for itself.

"Documented": the expectation is what the driver API's reference says, not measured on a device."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, alone, code, ok, raw
from tests.driver.test_pool_memory import USED, attribute

RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
SIZE = 64 * MIB
USED_NOW, USED_HIGH, RESERVED_NOW = range(3)  # of CUgraphMem_attribute


def figure(which: int) -> int:
    value = ctypes.c_uint64()
    assert raw().cuDeviceGetGraphMemAttribute(0, which, ctypes.byref(value)) == 0
    return value.value


class Captured:
    """A graph that allocates, fills, and frees if it is told to."""

    def __init__(self, gpu: Gpu, *, freed: bool, flags: int = 0) -> None:
        self.stream = ok(cuda.cuStreamCreate(1))
        ok(cuda.cuStreamBeginCapture(self.stream, RELAXED))
        self.pointer = int(ok(cuda.cuMemAllocAsync(SIZE, self.stream)))
        gpu.launch("fill", self.pointer, 7, 1000, stream=self.stream)
        if freed:
            ok(cuda.cuMemFreeAsync(self.pointer, self.stream))
        self.graph = ok(cuda.cuStreamEndCapture(self.stream))
        self.executable: Any = ok(cuda.cuGraphInstantiate(self.graph, flags))

    def launch(self) -> R:
        answer = code(cuda.cuGraphLaunch(self.executable, self.stream))
        ok(cuda.cuStreamSynchronize(self.stream))
        return answer

    def destroy(self) -> None:
        ok(cuda.cuGraphExecDestroy(self.executable))
        ok(cuda.cuGraphDestroy(self.graph))


@pytest.mark.promise("simulated", "Graphs own what they allocate: counted, kept and trimmed")
@alone
def test_graph_memory_is_counted_apart_from_pools(gpu: Gpu) -> None:
    """Documented: what a graph has allocated is used by graphs, and by no pool."""
    captured = Captured(gpu, freed=False)
    pool = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    assert captured.launch() is R.CUDA_SUCCESS
    assert figure(USED_NOW) >= SIZE
    assert figure(RESERVED_NOW) >= SIZE
    assert attribute(pool, USED) == 0
    ok(cuda.cuMemFreeAsync(captured.pointer, captured.stream))
    ok(cuda.cuStreamSynchronize(captured.stream))
    assert figure(USED_HIGH) >= SIZE
    assert attribute(pool, USED) == 0


@pytest.mark.promise("Graphs own what they allocate: counted...")
@alone
def test_graph_memory_is_kept_until_it_is_trimmed(gpu: Gpu) -> None:
    """Documented: memory of graphs that do not run is given up by a trim, and the next launch takes
    it again under the same address."""
    captured = Captured(gpu, freed=True)
    for _ in range(2):
        assert captured.launch() is R.CUDA_SUCCESS
        assert figure(RESERVED_NOW) >= SIZE
        assert raw().cuDeviceGraphMemTrim(0) == 0
        assert figure(RESERVED_NOW) == 0
    captured.destroy()


@alone
def test_what_graphs_keep_is_not_free(gpu: Gpu) -> None:
    """Documented: the device has it back with a trim, not with the end of the graph."""
    captured = Captured(gpu, freed=True)
    captured.launch()
    raw().cuDeviceGraphMemTrim(0)
    before, _ = ok(cuda.cuMemGetInfo())
    assert captured.launch() is R.CUDA_SUCCESS
    assert before - ok(cuda.cuMemGetInfo())[0] >= SIZE
    captured.destroy()
    assert raw().cuDeviceGraphMemTrim(0) == 0
    assert before - ok(cuda.cuMemGetInfo())[0] < SIZE


@pytest.mark.promise("Graphs own what they allocate: counted...")
@alone
def test_memory_that_a_graph_leaves_is_freed_outside(gpu: Gpu) -> None:
    """Documented: until then it can be used by what comes after the launch, and the graph is not
    launched again."""
    captured = Captured(gpu, freed=False)
    for free in (lambda p: cuda.cuMemFreeAsync(p, 0), cuda.cuMemFree):
        assert captured.launch() is R.CUDA_SUCCESS
        assert gpu.download(captured.pointer, 1000).tolist() == [7] * 1000
        assert captured.launch() is not R.CUDA_SUCCESS
        ok(free(captured.pointer))
        ok(cuda.cuCtxSynchronize())


@alone
def test_graphs_that_free_at_each_launch(gpu: Gpu) -> None:
    """Documented: with the flag for it, a launch frees what the one before has left."""
    captured = Captured(gpu, freed=False, flags=1)
    for _ in range(3):
        assert captured.launch() is R.CUDA_SUCCESS
        assert figure(USED_NOW) < 2 * SIZE
    assert gpu.download(captured.pointer, 4).tolist() == [7] * 4
    ok(cuda.cuMemFree(captured.pointer))


@alone
def test_high_marks_of_graphs_are_reset(gpu: Gpu) -> None:
    """Documented: to what is there, by a zero; the current figures cannot be set."""
    captured, zero = Captured(gpu, freed=True), ctypes.c_uint64(0)
    captured.launch()
    assert figure(USED_HIGH) >= SIZE
    assert raw().cuDeviceSetGraphMemAttribute(0, USED_HIGH, ctypes.byref(zero)) == 0
    assert figure(USED_HIGH) == figure(USED_NOW)
    assert raw().cuDeviceSetGraphMemAttribute(0, USED_NOW, ctypes.byref(zero)) != 0


def test_graph_memory_of_a_device_that_is_not_there(gpu: Gpu) -> None:
    """Documented: it is an invalid device."""
    value, nowhere = ctypes.c_uint64(), ok(cuda.cuDeviceGetCount()) + 1000
    asked = raw().cuDeviceGetGraphMemAttribute(nowhere, 0, ctypes.byref(value))
    assert R(asked) is R.CUDA_ERROR_INVALID_DEVICE
    assert R(raw().cuDeviceGraphMemTrim(nowhere)) is R.CUDA_ERROR_INVALID_DEVICE


def test_a_graph_that_owns_memory_has_one_instance(gpu: Gpu) -> None:
    """Measured on an H200 (driver 580.159.04): neither a second one nor a clone is supported."""
    captured = Captured(gpu, freed=True)
    refused = [cuda.cuGraphInstantiate(captured.graph, 0), cuda.cuGraphClone(captured.graph)]
    assert [code(answer) for answer in refused] == [R.CUDA_ERROR_NOT_SUPPORTED] * 2
    ok(cuda.cuGraphExecDestroy(captured.executable))
    captured.executable = ok(cuda.cuGraphInstantiate(captured.graph, 0))
    assert captured.launch() is R.CUDA_SUCCESS
    captured.destroy()


@alone
def test_pool_memory_is_not_freed_in_a_capture(gpu: Gpu) -> None:
    """Documented: a capture frees memory of graphs alone."""
    pointer = ok(cuda.cuMemAllocAsync(MIB, 0))
    ok(cuda.cuCtxSynchronize())
    stream = ok(cuda.cuStreamCreate(1))
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    assert code(cuda.cuMemFreeAsync(pointer, stream)) is not R.CUDA_SUCCESS
    cuda.cuStreamEndCapture(stream)
    ok(cuda.cuMemFree(pointer))
