"""When a capture is over: by its end, by an end that is refused, by the end of its thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.asked.question import call, question, said, u64, word
from tests.driver.harness import LEGACY, MIB, Gpu, code, ok
from tests.driver.test_contexts import in_thread

GLOBAL, THREAD_LOCAL, RELAXED = (cuda.CUstreamCaptureMode(mode) for mode in (0, 1, 2))
OWN = cuda.CUstream(2)
NOT_BLOCKING = 1


def state(stream: Any) -> str:
    """Of the stream: none, active or invalidated."""
    code_, status = cuda.cuStreamIsCapturing(stream)
    return word(code_) if int(code_) else status.name.rsplit("_", 1)[1].lower()


def with_context(gpu: Gpu, work: Callable[[], Any]) -> Any:
    """What the work returns in a thread of its own, when that has ended."""
    return in_thread(lambda: (ok(cuda.cuCtxSetCurrent(gpu.context)), work())[1])


def joined(first: Any, second: Any) -> None:
    """The second stream joins the capture of the first one."""
    event = ok(cuda.cuEventCreate(2))
    ok(cuda.cuEventRecord(event, first))
    ok(cuda.cuStreamWaitEvent(second, event, 0))


def begun(mode: Any = GLOBAL) -> Any:
    stream = ok(cuda.cuStreamCreate(NOT_BLOCKING))
    ok(cuda.cuStreamBeginCapture(stream, mode))
    return stream


def ended(stream: Any) -> str:
    return f"{word(cuda.cuStreamEndCapture(stream))} then {state(stream)}"


@question("An end of a capture that the driver refuses: does the capture go on?")
def ends_that_are_refused(gpu: Gpu) -> list[str]:
    answers = []
    stream = begun()
    answers.append(f"wrong thread {with_context(gpu, lambda: ended(stream))}, {ended(stream)}")
    stream = begun()
    cuda.cuStreamQuery(stream)
    answers.append(f"invalidated, wrong thread {with_context(gpu, lambda: ended(stream))}")
    answers.append(f"invalidated {ended(stream)}")
    stream, other = begun(), ok(cuda.cuStreamCreate(NOT_BLOCKING))
    joined(stream, other)
    answers.append(f"unmatched {ended(other)}, origin {state(stream)}, {ended(stream)}")
    stream, other = begun(), ok(cuda.cuStreamCreate(NOT_BLOCKING))
    joined(stream, other)
    gpu.launch("spin", 0, stream=other)
    answers.append(f"unjoined {ended(stream)}, other {state(other)}")
    stream = ok(cuda.cuStreamCreate(NOT_BLOCKING))
    answers.append(f"never begun {ended(stream)}")
    stream = begun()
    nowhere = call("cuStreamEndCapture", ctypes.c_void_p(int(stream)), None)
    answers.append(f"no place for the graph {nowhere} then {state(stream)}, {ended(stream)}")
    answers.append(f"legacy {ended(LEGACY)}")
    graph = ok(cuda.cuGraphCreate(0))
    stream = ok(cuda.cuStreamCreate(NOT_BLOCKING))
    begin = cuda.cuStreamBeginCaptureToGraph(stream, graph, None, None, 0, GLOBAL)
    cuda.cuStreamQuery(stream)
    answers.append(f"to a graph {word(begin)}, invalidated {ended(stream)}")
    return answers


@question("A thread ends while its own default stream captures: what can others do?")
def own_captures_of_ended_threads(gpu: Gpu) -> list[str]:
    answers = []
    for mode in (RELAXED, THREAD_LOCAL, GLOBAL):
        memory, mapped = ok(cuda.cuMemAlloc(MIB)), ok(cuda.cuMemAlloc(MIB))
        blocking = ok(cuda.cuStreamCreate(0))
        begin = with_context(gpu, lambda mode=mode: code(cuda.cuStreamBeginCapture(OWN, mode)))
        told = [f"{mode.name.rsplit('_', 1)[1].lower()} begin {word(begin)}"]
        told.append(f"own stream here {state(OWN)}")
        told.append(f"of a new thread {with_context(gpu, lambda: state(OWN))}")
        told.append(f"legacy {word(cuda.cuStreamQuery(LEGACY))}")
        told.append(f"blocking {word(cuda.cuStreamQuery(blocking))}")
        told.append(f"free {word(cuda.cuMemFree(memory))}")
        told.append(f"allocate {said(cuda.cuMemAlloc(MIB))[:7]}")
        told.append(f"context {word(cuda.cuCtxSynchronize())}")
        told.append(f"legacy {word(cuda.cuStreamQuery(LEGACY))}")
        told.append(f"free {word(cuda.cuMemFree(mapped))}")
        told.append(f"own end here {ended(OWN)}")
        answers.append(", ".join(told))
    return answers


@question("cuMemFreeAsync of plain memory in an own stream that captures, by both names")
def plain_memory_freed_in_a_capture(gpu: Gpu) -> list[str]:
    answers = []
    for name, stream in (("cuMemFreeAsync", 2), ("cuMemFreeAsync_ptsz", 0)):
        memory = ok(cuda.cuMemAlloc(MIB))
        ok(cuda.cuStreamBeginCapture(OWN, RELAXED))
        freed = call(name, u64(int(memory)), ctypes.c_void_p(stream))
        answers.append(f"{name} {freed} then {state(OWN)}, end {ended(OWN)}")
        answers.append(f"after it {word(cuda.cuMemFree(memory))}")
    return answers
