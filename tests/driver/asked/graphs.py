"""Memory that graphs own: allocations in a capture."""

from __future__ import annotations

import ctypes
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.asked.pooled import figures
from tests.driver.asked.question import (
    MIB,
    attributes_of,
    call,
    difference,
    free_mib,
    question,
    word,
)
from tests.driver.harness import Gpu, ok

RELAXED = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def graph_figures() -> str:
    """Used and reserved MiB of graphs on device 0, with the most of each."""
    values = []
    for which in range(4):
        value = ctypes.c_uint64()
        answer = call("cuDeviceGetGraphMemAttribute", 0, which, ctypes.byref(value))
        values.append(f"{value.value / MIB:g}" if answer == "SUCCESS" else answer)
    return f"used {values[0]} (max {values[1]}) res {values[2]} (max {values[3]})"


class Captured:
    """A graph that allocates 64 MiB, fills it, and frees it if `freed`."""

    def __init__(self, gpu: Gpu, *, freed: bool, flags: int = 0) -> None:
        self.stream = ok(cuda.cuStreamCreate(1))
        ok(cuda.cuStreamBeginCapture(self.stream, RELAXED))
        self.pointer = int(ok(cuda.cuMemAllocAsync(64 * MIB, self.stream)))
        self.attributes = attributes_of(self.pointer)
        gpu.launch("fill", self.pointer, 7, 1024, stream=self.stream)
        if freed:
            ok(cuda.cuMemFreeAsync(self.pointer, self.stream))
        self.graph = ok(cuda.cuStreamEndCapture(self.stream))
        self.flags = flags
        self.executable: Any = None

    def instantiate(self) -> None:
        self.executable = ok(cuda.cuGraphInstantiate(self.graph, self.flags))

    def launch(self) -> str:
        answer = word(cuda.cuGraphLaunch(self.executable, self.stream))
        return f"{answer} {word(cuda.cuStreamSynchronize(self.stream))}"

    def destroy(self) -> None:
        ok(cuda.cuGraphExecDestroy(self.executable))
        ok(cuda.cuGraphDestroy(self.graph))


@question(
    "Graph memory and bytes taken: captured, instantiated, launched, twice, trimmed, again, gone",
    alone=True,
)
def life_of_graph_memory(gpu: Gpu) -> list[str]:
    before, steps = free_mib(), []

    def note(step: str) -> None:
        steps.append(f"{step}: {graph_figures()} taken {difference(before)}")

    captured = Captured(gpu, freed=True)
    note("captured")
    captured.instantiate()
    note("instantiated")
    for step in ("launched", "twice"):
        note(f"{step} {captured.launch()}")
    trim = call("cuDeviceGraphMemTrim", 0)
    note(f"trimmed {trim}")
    note(f"again {captured.launch()}")
    captured.destroy()
    note("destroyed")
    call("cuDeviceGraphMemTrim", 0)
    note("trimmed")
    pool = ok(cuda.cuDeviceGetDefaultMemPool(gpu.device))
    return [*steps, f"default pool {figures(pool)}"]


@question("Not freed in the graph: launched, read, launched again, freed, launched, freed plainly")
def unfreed_graph_memory(gpu: Gpu) -> list[str]:
    captured = Captured(gpu, freed=False)
    captured.instantiate()
    steps = [captured.launch(), str(gpu.download(captured.pointer, 1)[0]), captured.launch()]
    steps.append(graph_figures())
    steps.append(word(cuda.cuMemFreeAsync(captured.pointer, captured.stream)))
    steps += [captured.launch(), word(cuda.cuMemFree(captured.pointer)), graph_figures()]
    return [*steps, word(cuda.cuMemFree(captured.pointer))]


@question("Freed by each launch (AUTO_FREE_ON_LAUNCH): launched twice, figures, destroyed, figures")
def auto_free(gpu: Gpu) -> list[str]:
    captured = Captured(gpu, freed=False, flags=1)
    captured.instantiate()
    steps = [captured.launch(), captured.launch(), graph_figures()]
    captured.destroy()
    steps.append(graph_figures())
    call("cuDeviceGraphMemTrim", 0)
    return [*steps, graph_figures()]


@question("Attributes of graph memory: during the capture; after a launch without a free")
def attributes_of_graph_memory(gpu: Gpu) -> str:
    captured = Captured(gpu, freed=False)
    captured.instantiate()
    captured.launch()
    return f"{captured.attributes}\n     {attributes_of(captured.pointer)}"


@question(
    "Graph memory written by the device after the graph freed it: the launch, the synchronise"
)
def written_late(gpu: Gpu) -> list[str]:
    captured = Captured(gpu, freed=True)
    captured.instantiate()
    steps = [captured.launch(), word(gpu.try_launch("fill", captured.pointer, 1, 64))]
    return [*steps, word(cuda.cuCtxSynchronize())]


@question("Graph memory set and copied before any launch of its graph: the calls, the synchronise")
def touched_early(gpu: Gpu) -> list[str]:
    captured, words = Captured(gpu, freed=True), (ctypes.c_uint8 * 64)()
    captured.instantiate()
    copied = word(cuda.cuMemcpyDtoH(ctypes.addressof(words), captured.pointer, 64))
    return [copied, word(cuda.cuMemsetD8(captured.pointer, 1, 64)), word(cuda.cuCtxSynchronize())]


@question("In a capture: free of pool memory, of plain memory, of graph memory of another graph")
def frees_in_a_capture(gpu: Gpu) -> list[str]:
    other = Captured(gpu, freed=False)
    pooled, plain = int(ok(cuda.cuMemAllocAsync(MIB, 0))), gpu.allocate(MIB)
    ok(cuda.cuCtxSynchronize())
    answers = []
    for pointer in (pooled, plain, other.pointer):
        stream = ok(cuda.cuStreamCreate(1))
        ok(cuda.cuStreamBeginCapture(stream, RELAXED))
        freed = word(cuda.cuMemFreeAsync(pointer, stream))
        answers.append(f"{freed} end {word(cuda.cuStreamEndCapture(stream))}")
    return answers


@question("A second instantiation of a graph that allocates; a clone; cuMemFree before any launch")
def limits_of_such_graphs(gpu: Gpu) -> list[str]:
    captured = Captured(gpu, freed=True)
    captured.instantiate()
    second = word(cuda.cuGraphInstantiate(captured.graph, 0))
    clone = word(cuda.cuGraphClone(captured.graph))
    return [second, clone, word(cuda.cuMemFree(captured.pointer))]


@question("Two graphs of 64 MiB launched in one stream, and in two: reserved MiB")
def graphs_share_memory(gpu: Gpu) -> list[str]:
    first, second = Captured(gpu, freed=True), Captured(gpu, freed=True)
    first.instantiate()
    second.instantiate()
    for graph in (first, second):
        ok(cuda.cuGraphLaunch(graph.executable, first.stream))
    ok(cuda.cuCtxSynchronize())
    steps = [graph_figures()]
    for graph in (first, second):
        ok(cuda.cuGraphLaunch(graph.executable, graph.stream))
    ok(cuda.cuCtxSynchronize())
    return [*steps, graph_figures()]


@question(
    "More graph memory than the device has: the capture, the instantiation, the launch", alone=True
)
def too_much_graph_memory(gpu: Gpu) -> list[str]:
    stream = ok(cuda.cuStreamCreate(1))
    _, total = ok(cuda.cuMemGetInfo())
    ok(cuda.cuStreamBeginCapture(stream, RELAXED))
    answer = cuda.cuMemAllocAsync(2 * total, stream)
    steps = [word(answer)]
    if word(answer) == "SUCCESS":
        ok(cuda.cuMemFreeAsync(answer[1], stream))
    ended = cuda.cuStreamEndCapture(stream)
    steps.append(word(ended))
    if word(ended) == "SUCCESS":
        made = cuda.cuGraphInstantiate(ended[1], 0)
        steps.append(word(made))
        if word(made) == "SUCCESS":
            steps.append(word(cuda.cuGraphLaunch(made[1], stream)))
    return [*steps, word(cuda.cuCtxSynchronize())]


@question(
    "Figures of graphs: reset to 0, to 1, used set; unknown; device 1000; trim of device 1000"
)
def odd_graph_attributes(gpu: Gpu) -> list[str]:
    answers = []
    for which, value in ((1, 0), (3, 0), (1, 1), (0, 0), (9, 0)):
        wide = ctypes.c_uint64(value)
        answers.append(call("cuDeviceSetGraphMemAttribute", 0, which, ctypes.byref(wide)))
    wide = ctypes.c_uint64()
    answers.append(call("cuDeviceGetGraphMemAttribute", 0, 9, ctypes.byref(wide)))
    answers.append(call("cuDeviceGetGraphMemAttribute", 1000, 0, ctypes.byref(wide)))
    return [*answers, call("cuDeviceGraphMemTrim", 1000)]
