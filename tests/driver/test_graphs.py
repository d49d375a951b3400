"""Graphs that are built by hand, changed, copied and replayed."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda
from cuda.bindings.driver import CUresult as R

from tests.driver.harness import SIGNATURES, Gpu, code, ok, raw
from tests.driver.test_contexts import in_thread
from tests.driver.test_mapped_memory import Mapper


class KernelNode:
    """Parameters of a kernel node; owns the memory that they point to."""

    def __init__(self, gpu: Gpu, name: str, *values: Any) -> None:
        self._values = [kind(v) for kind, v in zip(SIGNATURES[name], values, strict=True)]
        addresses = [ctypes.addressof(value) for value in self._values]
        self._pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        node = cuda.CUDA_KERNEL_NODE_PARAMS()
        node.func = gpu.function(name)
        node.gridDimX = node.gridDimY = node.gridDimZ = 1
        node.blockDimX, node.blockDimY, node.blockDimZ = 64, 1, 1
        node.kernelParams = ctypes.addressof(self._pointers)
        self.parameters = node


def add_kernel(graph: Any, after: list[Any], kernel: KernelNode) -> Any:
    return ok(cuda.cuGraphAddKernelNode(graph, after, len(after), kernel.parameters))


def run(executable: Any, stream: Any = 0) -> None:
    ok(cuda.cuGraphLaunch(executable, stream))
    ok(cuda.cuStreamSynchronize(stream))


@pytest.mark.promise("simulated-11", "Graphs that were built by hand replay their launches")
def test_nodes_run_in_the_order_of_their_edges(gpu: Gpu) -> None:
    """Memset, launch and copy nodes run one after the other as their edges say."""
    y, x = gpu.upload(np.ones(100), np.float32), gpu.upload(np.ones(100), np.float32)
    graph = ok(cuda.cuGraphCreate(0))
    clear = cuda.CUDA_MEMSET_NODE_PARAMS()
    clear.dst, clear.elementSize, clear.width, clear.height = y, 4, 100, 1
    first = ok(cuda.cuGraphAddMemsetNode(graph, [], 0, clear, gpu.context))
    kernel = KernelNode(gpu, "axpy", y, x, 3.0, 100)
    second = add_kernel(graph, [first], kernel)
    copy, back = cuda.CUDA_MEMCPY3D(), np.zeros(100, dtype=np.float32)
    copy.srcMemoryType, copy.srcDevice = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE, y
    copy.dstMemoryType, copy.dstHost = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, back.ctypes.data
    copy.WidthInBytes, copy.Height, copy.Depth = 400, 1, 1
    ok(cuda.cuGraphAddMemcpyNode(graph, [second], 1, copy, gpu.context))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        run(executable)
        assert back.tolist() == [3.0] * 100
    ok(cuda.cuGraphExecDestroy(executable))
    ok(cuda.cuGraphDestroy(graph))


@pytest.mark.promise("simulated-11")
def test_instances_outlive_their_graph(gpu: Gpu) -> None:
    """An instance can be launched after its graph was destroyed."""
    pointer = gpu.upload(np.zeros(10))
    graph = ok(cuda.cuGraphCreate(0))
    add_kernel(graph, [], KernelNode(gpu, "fill", pointer, 4, 10))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    ok(cuda.cuGraphDestroy(graph))
    ok(cuda.cuGraphUpload(executable, 0))
    run(executable)
    assert gpu.download(pointer, 10).tolist() == [4] * 10
    ok(cuda.cuGraphExecDestroy(executable))


@pytest.mark.promise("simulated-11")
def test_parameters_of_an_instance_can_be_changed(gpu: Gpu) -> None:
    """New kernel parameters hold for the launches that follow."""
    pointer = gpu.upload(np.zeros(10))
    graph = ok(cuda.cuGraphCreate(0))
    node = add_kernel(graph, [], KernelNode(gpu, "fill", pointer, 4, 10))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    run(executable)
    changed = KernelNode(gpu, "fill", pointer, 5, 5)
    ok(cuda.cuGraphExecKernelNodeSetParams(executable, node, changed.parameters))
    run(executable)
    assert gpu.download(pointer, 10).tolist() == [5] * 5 + [4] * 5


def test_parameters_are_taken_when_the_node_is_added(gpu: Gpu) -> None:
    """What parameters point to may change after the node was added."""
    pointer = gpu.upload(np.zeros(4))
    graph, kernel = ok(cuda.cuGraphCreate(0)), KernelNode(gpu, "fill", pointer, 4, 4)
    add_kernel(graph, [], kernel)
    kernel._values[1].value = 99
    run(ok(cuda.cuGraphInstantiate(graph, 0)))
    assert gpu.download(pointer, 4).tolist() == [4] * 4


def test_graphs_know_their_nodes(gpu: Gpu) -> None:
    """A graph counts nodes and roots, tells their types, and forgets destroyed ones."""
    graph = ok(cuda.cuGraphCreate(0))
    first = ok(cuda.cuGraphAddEmptyNode(graph, [], 0))
    second = add_kernel(graph, [first], KernelNode(gpu, "spin", 0))
    assert ok(cuda.cuGraphGetNodes(graph, 8))[1] == 2
    assert ok(cuda.cuGraphGetRootNodes(graph, 8))[1] == 1
    kinds = [ok(cuda.cuGraphNodeGetType(node)) for node in (first, second)]
    assert kinds == [
        cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY,
        cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL,
    ]
    ok(cuda.cuGraphDestroyNode(first))
    assert ok(cuda.cuGraphGetNodes(graph, 8))[1] == 1
    ok(cuda.cuGraphDestroy(graph))


def test_clones_are_independent(gpu: Gpu) -> None:
    """A clone does what the original did when it was cloned."""
    pointer = gpu.upload(np.zeros(4))
    graph = ok(cuda.cuGraphCreate(0))
    add_kernel(graph, [], KernelNode(gpu, "fill", pointer, 4, 4))
    clone = ok(cuda.cuGraphClone(graph))
    ok(cuda.cuGraphDestroy(graph))
    run(ok(cuda.cuGraphInstantiate(clone, 0)))
    assert gpu.download(pointer, 4).tolist() == [4] * 4


def test_graphs_inside_graphs(gpu: Gpu) -> None:
    """A child graph runs as a whole where its node stands."""
    y, x = gpu.upload(np.zeros(4), np.float32), gpu.upload(np.ones(4), np.float32)
    child = ok(cuda.cuGraphCreate(0))
    add_kernel(child, [], KernelNode(gpu, "axpy", y, x, 1.0, 4))
    graph = ok(cuda.cuGraphCreate(0))
    first = ok(cuda.cuGraphAddChildGraphNode(graph, [], 0, child))
    ok(cuda.cuGraphAddChildGraphNode(graph, [first], 1, child))
    run(ok(cuda.cuGraphInstantiate(graph, 0)))
    assert gpu.download(y, 4, np.float32).tolist() == [2.0] * 4


def test_host_nodes(gpu: Gpu) -> None:
    """A function of the host runs in its place in the graph."""
    seen: list[int] = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)

    class HostNode(ctypes.Structure):
        _fields_ = (("fn", ctypes.c_void_p), ("data", ctypes.c_void_p))

    node = HostNode(ctypes.cast(function, ctypes.c_void_p).value, 31)
    graph, handle = ok(cuda.cuGraphCreate(0)), ctypes.c_void_p()
    graph_handle = ctypes.c_void_p(int(graph))
    added = raw().cuGraphAddHostNode(
        ctypes.byref(handle), graph_handle, None, ctypes.c_size_t(0), ctypes.byref(node)
    )
    assert added == 0
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    run(executable)
    run(executable)
    assert seen == [31, 31]


@pytest.mark.promise("simulated-11")
def test_graphs_run_in_stream_order(gpu: Gpu) -> None:
    """A graph's work comes after what is in the stream before it and before what follows."""
    stream = ok(cuda.cuStreamCreate(1))
    pointer, sums = gpu.allocate(4000), gpu.allocate(24)
    graph = ok(cuda.cuGraphCreate(0))
    add_kernel(graph, [], KernelNode(gpu, "fill", pointer, 2, 1000))
    executable = ok(cuda.cuGraphInstantiate(graph, 0))
    gpu.launch("fill", pointer, 1, 1000, stream=stream)
    gpu.launch("checksum", sums, pointer, 1000, stream=stream)
    ok(cuda.cuGraphLaunch(executable, stream))
    gpu.launch("checksum", sums + 8, pointer, 1000, stream=stream)
    gpu.launch("fill", pointer, 3, 1000, stream=stream)
    gpu.launch("checksum", sums + 16, pointer, 1000, stream=stream)
    ok(cuda.cuStreamSynchronize(stream))
    assert gpu.download(sums, 3, np.uint64).tolist() == [1_000_000, 2_000_000, 3_000_000]
    ok(cuda.cuStreamDestroy(stream))


def test_nodes_of_memory_that_is_not_mapped_are_refused(gpu: Gpu) -> None:
    """Whatever context is current: memsets and copies are looked at when their nodes are added."""
    mapper = Mapper(gpu)
    address, graph = mapper.reserve(), ok(cuda.cuGraphCreate(0))
    clear, copy, back = cuda.CUDA_MEMSET_NODE_PARAMS(), cuda.CUDA_MEMCPY3D(), np.zeros(64, np.uint8)
    clear.dst, clear.elementSize, clear.width, clear.height = address, 4, 16, 1
    copy.srcMemoryType, copy.srcDevice = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE, address
    copy.dstMemoryType, copy.dstHost = cuda.CUmemorytype.CU_MEMORYTYPE_HOST, back.ctypes.data
    copy.WidthInBytes, copy.Height, copy.Depth = 64, 1, 1

    def answers() -> list[Any]:
        assert int(ok(cuda.cuCtxGetCurrent())) == 0
        return [
            code(cuda.cuGraphAddMemsetNode(graph, [], 0, clear, gpu.context)),
            code(cuda.cuGraphAddMemcpyNode(graph, [], 0, copy, gpu.context)),
        ]

    assert in_thread(answers) == [R.CUDA_ERROR_INVALID_VALUE] * 2
    chunk = mapper.create()
    mapper.map(address, chunk)
    mapper.grant(address)
    assert in_thread(answers) == [R.CUDA_SUCCESS] * 2
    ok(cuda.cuGraphDestroy(graph))
    mapper.unmap(address)
    ok(cuda.cuMemRelease(chunk))
    mapper.free(address)


def test_bad_nodes_are_refused(gpu: Gpu) -> None:
    """Edges to nodes of other graphs, and circles, are refused."""
    graph, other = ok(cuda.cuGraphCreate(0)), ok(cuda.cuGraphCreate(0))
    foreign = ok(cuda.cuGraphAddEmptyNode(other, [], 0))
    added = cuda.cuGraphAddEmptyNode(graph, [foreign], 1)
    assert code(added) is R.CUDA_ERROR_INVALID_VALUE
    assert code(cuda.cuGraphCreate(1)) is R.CUDA_ERROR_INVALID_VALUE
