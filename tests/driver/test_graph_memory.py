"""Memory that a captured graph allocates for itself.

"Documented": the expectation is what the driver API's reference says, not measured on a device."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUpointer_attribute as Attribute
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import MIB, Gpu, PinnedWord, alone, attribute_number, code, ok, raw
from tests.driver.test_pool_memory import USED, attribute

RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
SIZE = 64 * MIB
SEGMENT = 32 * MIB
USED_NOW, USED_HIGH, RESERVED_NOW, RESERVED_HIGH = range(4)  # of CUgraphMem_attribute


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


@pytest.mark.promise("simulated-10", "Graphs own what they allocate: counted, kept and trimmed")
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


@pytest.mark.promise("simulated-10")
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


@pytest.mark.promise("simulated-10")
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


@pytest.mark.promise("simulated-10")
@alone
def test_what_was_launched_is_used_until_it_is_trimmed(gpu: Gpu) -> None:
    """Measured on an H200 (driver 580.159.04), like the rest of this file from here on: memory is
    used although the graph has freed it, and although the graph is gone."""
    captured, seen = Captured(gpu, freed=True), []

    def look() -> None:
        seen.append([figure(which) for which in (USED_NOW, RESERVED_NOW)])

    look()
    captured.launch()
    look()
    captured.destroy()
    look()
    assert raw().cuDeviceGraphMemTrim(0) == 0
    look()
    assert seen == [[0, 0], [SIZE, SIZE], [SIZE, SIZE], [0, 0]]
    assert [figure(which) for which in (USED_HIGH, RESERVED_HIGH)] == [SIZE, SIZE]


@pytest.mark.promise("simulated-10")
@alone
def test_graphs_share_memory(gpu: Gpu) -> None:
    """Those of one stream, which have it one after the other."""
    graphs = [Captured(gpu, freed=True) for _ in range(2)]
    for graph in graphs:
        ok(cuda.cuGraphLaunch(graph.executable, graphs[0].stream))
    ok(cuda.cuCtxSynchronize())
    assert figure(RESERVED_HIGH) == SIZE


@alone
def test_graphs_do_not_share_what_they_leave(gpu: Gpu) -> None:
    """Documented: it is the program's until it is freed."""
    left, other = Captured(gpu, freed=False), Captured(gpu, freed=True)
    for graph in (left, other):
        ok(cuda.cuGraphLaunch(graph.executable, left.stream))
    ok(cuda.cuMemsetD32Async(left.pointer, 8, 1000, left.stream))
    ok(cuda.cuGraphLaunch(other.executable, left.stream))
    ok(cuda.cuStreamSynchronize(left.stream))
    assert gpu.download(left.pointer, 1000).tolist() == [8] * 1000
    assert figure(RESERVED_NOW) == 2 * SIZE


@pytest.mark.promise("simulated-10")
@alone
def test_graph_memory_is_unknown_before_a_launch(gpu: Gpu) -> None:
    """Its address is there, and leads to nothing; afterwards it belongs to no pool."""
    captured, words = Captured(gpu, freed=False), (ctypes.c_uint8 * 64)()
    asked = (
        Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        Attribute.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        Attribute.CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    )
    invalid = R.CUDA_ERROR_INVALID_VALUE
    assert [attribute_number(which, captured.pointer) for which in asked] == [invalid] * 3
    assert [
        code(cuda.cuMemcpyDtoH(ctypes.addressof(words), captured.pointer, 64)),
        code(cuda.cuMemsetD8(captured.pointer, 1, 64)),
        code(cuda.cuMemFree(captured.pointer)),
    ] == [invalid] * 3
    ok(cuda.cuCtxSynchronize())
    assert captured.launch() is R.CUDA_SUCCESS
    known = [attribute_number(which, captured.pointer) for which in asked]
    assert known == [SIZE, 0, SEGMENT]
    assert gpu.download(captured.pointer, 4).tolist() == [7] * 4


@alone
def test_captured_copies_name_graph_memory(gpu: Gpu) -> None:
    """Documented: between its allocation and its free, work of the graph has it."""
    stream, words = ok(cuda.cuStreamCreate(1)), PinnedWord()
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    pointer = int(ok(cuda.cuMemAllocAsync(MIB, stream)))
    ok(cuda.cuMemsetD32Async(pointer, 6, 1, stream))
    ok(cuda.cuMemcpyAsync(words.device, pointer, 4, stream))
    ok(cuda.cuMemFreeAsync(pointer, stream))
    graph = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
    ok(cuda.cuGraphLaunch(graph, stream))
    ok(cuda.cuStreamSynchronize(stream))
    assert words.value == 6


def look_at(stream: Any) -> None:
    """So often that work which nothing holds up is done meanwhile."""
    for _ in range(2000):
        if code(cuda.cuStreamQuery(stream)) is R.CUDA_SUCCESS:
            return


class Slow:
    """A graph that writes a value to memory of its own, takes a while, and copies what it reads
    there then."""

    def __init__(self, gpu: Gpu, stream: Any, value: int) -> None:
        self.read = PinnedWord()
        ok(cuda.cuStreamBeginCapture(stream, RELAXED))
        pointer = int(ok(cuda.cuMemAllocAsync(SIZE, stream)))
        ok(cuda.cuMemsetD32Async(pointer, value, 1000, stream))
        gpu.launch("spin", 200_000_000, grid=(1, 1, 1), block=(1, 1, 1), stream=stream)
        ok(cuda.cuMemcpyAsync(self.read.device, pointer, 4, stream))
        ok(cuda.cuMemFreeAsync(pointer, stream))
        self.executable = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))


@alone
def test_no_two_graphs_have_memory_at_one_time(gpu: Gpu) -> None:
    """Documented: a launch comes after all earlier ones of its graph. Its memory may have been
    given to another graph behind those, and belongs to that one until it is over. (The driver lets
    the launch wait for that, so nothing here may wait for the thread that launches.)"""
    first, second = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
    graphs = [Slow(gpu, first, value) for value in (10, 11)]
    over = ok(cuda.cuEventCreate(2))
    ok(cuda.cuGraphLaunch(graphs[0].executable, first))
    ok(cuda.cuEventRecord(over, first))
    ok(cuda.cuGraphLaunch(graphs[1].executable, first))
    ok(cuda.cuStreamWaitEvent(second, over, 0))
    ok(cuda.cuGraphLaunch(graphs[0].executable, second))
    ok(cuda.cuCtxSynchronize())
    assert [graph.read.value for graph in graphs] == [10, 11]


@alone
def test_a_graph_does_not_overlap_itself(gpu: Gpu) -> None:
    """Documented: a launch comes after all earlier ones of its graph, in other streams too, and
    whether the graph has memory or not."""
    one = gpu.upload([1.0], np.float32)
    for owns_memory in (False, True):
        streams = [ok(cuda.cuStreamCreate(1)) for _ in range(2)]
        flag, launches = PinnedWord(), PinnedWord()
        ok(cuda.cuStreamBeginCapture(streams[0], RELAXED))
        pointer = int(ok(cuda.cuMemAllocAsync(MIB, streams[0]))) if owns_memory else 0
        gpu.launch("axpy", launches.device, one, 1.0, 1, stream=streams[0])
        gpu.launch("poll_flag", flag.device, stream=streams[0])
        if owns_memory:
            ok(cuda.cuMemFreeAsync(pointer, streams[0]))
        graph = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(streams[0])), 0))
        counts = []
        for stream in streams:
            ok(cuda.cuGraphLaunch(graph, stream))
        while launches.value == 0:
            pass
        look_at(streams[1])
        counts.append(launches.value)
        flag.value = 1
        ok(cuda.cuCtxSynchronize())
        counts.append(launches.value)
        assert [struct.pack("I", count) for count in counts] == [
            struct.pack("f", count) for count in (1, 2)
        ]


@alone
def test_memory_is_not_lost_by_a_launch_that_fails(gpu: Gpu) -> None:
    """What it was to free is there, and is freed by somebody else. (What such a launch had got of
    its own stays reserved on an H100, also after a trim.)"""
    left, much = Captured(gpu, freed=False), int(ok(cuda.cuMemGetInfo())[1] * 0.6)
    ok(cuda.cuGraphLaunch(left.executable, left.stream))
    stream = ok(cuda.cuStreamCreate(1))
    ok(cuda.cuStreamSynchronize(left.stream))
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    ok(cuda.cuMemFreeAsync(left.pointer, stream))
    ok(cuda.cuMemFreeAsync(ok(cuda.cuMemAllocAsync(much, stream)), stream))
    graph = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
    in_the_way = gpu.allocate(much)
    assert code(cuda.cuGraphLaunch(graph, stream)) is R.CUDA_ERROR_OUT_OF_MEMORY
    ok(cuda.cuMemFree(in_the_way))
    reserved = figure(RESERVED_NOW)
    assert gpu.download(left.pointer, 4).tolist() == [7] * 4
    ok(cuda.cuMemFreeAsync(left.pointer, stream))
    ok(cuda.cuStreamSynchronize(stream))
    left.destroy()
    assert raw().cuDeviceGraphMemTrim(0) == 0
    assert [figure(which) for which in (USED_NOW, RESERVED_NOW)] == [0, reserved - SIZE]


@pytest.mark.parametrize("size", [1 << 63, 2**64 - 4 * MIB, 2**64 - 1])
def test_graph_memory_is_not_larger_than_all_addresses(gpu: Gpu, size: int) -> None:
    """Documented: a capture takes addresses, and there are not so many."""
    stream = ok(cuda.cuStreamCreate(1))
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    assert code(cuda.cuMemAllocAsync(size, stream)) is not R.CUDA_SUCCESS
    cuda.cuStreamEndCapture(stream)
    ok(cuda.cuStreamDestroy(stream))


@alone
def test_what_a_graph_allocates_can_be_asked(gpu: Gpu) -> None:
    """Documented: of the node, with where it is; of no other kind of node."""
    captured = Captured(gpu, freed=True)
    count = ok(cuda.cuGraphGetNodes(captured.graph))[1]
    nodes = ok(cuda.cuGraphGetNodes(captured.graph, count))[0]
    answers = [cuda.cuGraphMemAllocNodeGetParams(node) for node in nodes]
    told = [answer[1] for answer in answers if code(answer) is R.CUDA_SUCCESS]
    assert {code(answer) for answer in answers} == {R.CUDA_SUCCESS, R.CUDA_ERROR_INVALID_VALUE}
    assert [(node.bytesize, int(node.dptr)) for node in told] == [(SIZE, captured.pointer)]
    assert told[0].poolProps.location.id == int(gpu.device)
