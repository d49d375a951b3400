"""Handles that are gone, and what waits for whom: what the hook must never ask, and what it may."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.asked.question import call, question, said, word
from tests.driver.harness import Gpu, PinnedWord, code, ok, raw
from tests.driver.test_contexts import create_context, in_thread

QUEUE_S = 0.5
"""So long nothing more is launched: the queue is full."""


def handle(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(value))


def elsewhere_current(gpu: Gpu, ask: Callable[[Any], Any]) -> Any:
    """What a thread hears whose current context another one has destroyed."""
    context = create_context(gpu)

    def work() -> Any:
        ok(cuda.cuCtxSetCurrent(context))
        in_thread(lambda: ok(cuda.cuCtxDestroy(context)))
        return ask(context)

    return in_thread(work)


def id_of(context: Any) -> str:
    number = ctypes.c_uint64()
    return call("cuCtxGetId", handle(context), ctypes.byref(number))


@question("A destroyed context that is current in another thread: get current, device, synchronise")
def gone_context_asked(gpu: Gpu) -> list[str]:
    def ask(context: Any) -> list[str]:
        same = int(ok(cuda.cuCtxGetCurrent())) == int(context)
        return [f"same {same}", said(cuda.cuCtxGetDevice()), word(cuda.cuCtxSynchronize())]

    return list(elsewhere_current(gpu, ask))


@question("The same: its number, asked of the current one")
def gone_context_number(gpu: Gpu) -> str:
    return str(elsewhere_current(gpu, lambda _: id_of(0)))


@question("The same: its number, asked by its handle")
def gone_context_number_by_handle(gpu: Gpu) -> str:
    return str(elsewhere_current(gpu, id_of))


@question("The same: its flags, its version")
def gone_context_flags(gpu: Gpu) -> list[str]:
    return list(
        elsewhere_current(
            gpu, lambda context: [said(cuda.cuCtxGetFlags()), said(cuda.cuCtxGetLimit(0))]
        )
    )


@question("The same: pushed once more")
def gone_context_pushed(gpu: Gpu) -> str:
    return str(elsewhere_current(gpu, lambda context: word(cuda.cuCtxPushCurrent(context))))


@question("The same: popped")
def gone_context_popped(gpu: Gpu) -> str:
    return str(elsewhere_current(gpu, lambda _: word(cuda.cuCtxPopCurrent())))


@question("A context that this thread has destroyed: pushed; with a new context made since")
def gone_context_pushed_later(gpu: Gpu) -> list[str]:
    context = create_context(gpu)
    ok(cuda.cuCtxDestroy(context))
    again = create_context(gpu)
    return [f"same handle {int(again) == int(context)}", word(cuda.cuCtxPushCurrent(context))]


@question("A primary context that was released and is retained anew: its handle, its number")
def primary_again(gpu: Gpu) -> list[str]:
    numbers = []
    for _ in range(3):
        number = ctypes.c_uint64()
        raw().cuCtxGetId(handle(gpu.context), ctypes.byref(number))
        numbers.append(number.value)
        ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
        before, gpu.context = gpu.context, ok(cuda.cuDevicePrimaryCtxRetain(gpu.device))
    return [f"same handle {int(before) == int(gpu.context)}", f"numbers {numbers}"]


@question("A primary context that was reset, and nothing retained: its number, by its handle")
def primary_gone(gpu: Gpu) -> str:
    ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
    return id_of(gpu.context)


def gone_event() -> ctypes.c_void_p:
    event = ok(cuda.cuEventCreate(0))
    ok(cuda.cuEventDestroy(event))
    return handle(event)


@question("A destroyed event: queried")
def gone_event_queried(gpu: Gpu) -> str:
    return call("cuEventQuery", gone_event())


@question("A destroyed event: recorded")
def gone_event_recorded(gpu: Gpu) -> str:
    return call("cuEventRecord", gone_event(), None)


@question("A destroyed event: waited for by a stream")
def gone_event_waited_for(gpu: Gpu) -> str:
    return call("cuStreamWaitEvent", None, gone_event(), 0)


def gone_stream() -> ctypes.c_void_p:
    stream = ok(cuda.cuStreamCreate(0))
    ok(cuda.cuStreamDestroy(stream))
    return handle(stream)


@question("A destroyed stream: queried")
def gone_stream_queried(gpu: Gpu) -> str:
    return call("cuStreamQuery", gone_stream())


@question("A destroyed stream: whether it captures")
def gone_stream_captures(gpu: Gpu) -> str:
    return call("cuStreamIsCapturing", gone_stream(), ctypes.byref(ctypes.c_int()))


@question("A destroyed stream: its context")
def gone_stream_context(gpu: Gpu) -> str:
    return call("cuStreamGetCtx", gone_stream(), ctypes.byref(ctypes.c_void_p()))


@question("A destroyed stream: an event recorded in it")
def gone_stream_recorded(gpu: Gpu) -> str:
    event = handle(ok(cuda.cuEventCreate(0)))
    return call("cuEventRecord", event, gone_stream())


class Behind:
    """Two streams, in the first of which something is to wait for a flag."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.flag = gpu, PinnedWord()
        self.stream, self.other = (ok(cuda.cuStreamCreate(1)) for _ in range(2))
        gpu.launch("spin", 1, stream=self.stream)
        gpu.launch("spin", 1, stream=self.other)
        ok(cuda.cuCtxSynchronize())
        self.thread = threading.current_thread()

    def timed(self, name: str, *arguments: Any) -> str:
        """A call in a thread of its own: it may wait as well."""
        said_: list[str] = []

        def work() -> None:
            ok(cuda.cuCtxSetCurrent(self.gpu.context))
            said_.append(call(name, *arguments))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(QUEUE_S)
        return f"{name} {said_[0] if said_ else 'waits'}"


class FullQueue(Behind):
    """The queue of the first one is full behind a launch that polls the flag, and a thread waits in
    one call more."""

    def __init__(self, gpu: Gpu, record: bool = False) -> None:
        super().__init__(gpu)
        self.event, self.launched, self.answer = ok(cuda.cuEventCreate(0)), 0, "still waits"
        gpu.launch("poll_flag", self.flag.device, stream=self.stream)
        self.thread = threading.Thread(target=self.fill, args=(record,), daemon=True)
        self.thread.start()
        seen = -1
        while seen != self.launched:
            seen = self.launched
            time.sleep(QUEUE_S)

    def fill(self, record: bool) -> None:
        ok(cuda.cuCtxSetCurrent(self.gpu.context))
        while self.launched < 1 << 16 and not self.flag.value:
            if record:
                answer = code(cuda.cuEventRecord(self.event, self.stream))
            else:
                answer = code(self.gpu.try_launch("spin", 1, stream=self.stream))
            self.launched += 1
            if answer != cuda.CUresult.CUDA_SUCCESS:
                self.answer = word(answer)
                return
        self.answer = f"went on after {self.launched}"

    def end(self) -> str:
        self.flag.value = 1
        self.thread.join(5)
        return f"the thread {self.answer}"


@question("While a launch waits for room in a queue: what waits behind it?", alone=True)
def beside_a_full_queue(gpu: Gpu) -> list[str]:
    out, old = ctypes.byref(ctypes.c_void_p()), handle(ok(cuda.cuEventCreate(0)))
    full = FullQueue(gpu)
    answers = [
        full.timed("cuStreamQuery", handle(full.other)),
        full.timed("cuStreamQuery", handle(full.stream)),
        full.timed("cuEventQuery", old),
        full.timed("cuCtxPushCurrent_v2", handle(gpu.context)),
        full.timed("cuStreamIsCapturing", handle(full.stream), ctypes.byref(ctypes.c_int())),
        full.timed("cuEventCreate", ctypes.byref(ctypes.c_void_p()), 2),
        full.timed("cuEventRecord", old, handle(full.other)),
        full.timed("cuEventDestroy_v2", old),
        full.timed("cuStreamDestroy_v2", handle(full.other)),
        full.timed("cuStreamCreate", out, 1),
    ]
    return [*answers, full.end()]


@question("While cuMemFree waits for work behind a flag: what waits behind it?", alone=True)
def beside_a_waiting_free(gpu: Gpu) -> list[str]:
    events = [handle(ok(cuda.cuEventCreate(0))) for _ in range(2)]
    memory, out = gpu.allocate(1 << 21), ctypes.byref(ctypes.c_void_p())
    behind = Behind(gpu)
    gpu.launch("poll_flag", behind.flag.device, stream=behind.stream)
    freed: list[str] = []

    def free() -> None:
        ok(cuda.cuCtxSetCurrent(gpu.context))
        freed.append(call("cuMemFree_v2", ctypes.c_uint64(memory)))

    behind.thread = threading.Thread(target=free, daemon=True)
    behind.thread.start()
    time.sleep(QUEUE_S)
    waits = f"the free {freed or 'waits'}"
    answers = [
        behind.timed("cuStreamQuery", handle(behind.other)),
        behind.timed("cuStreamQuery", handle(behind.stream)),
        behind.timed("cuEventQuery", events[0]),
        behind.timed("cuEventRecord", events[0], handle(behind.other)),
        behind.timed("cuEventRecord", events[1], handle(behind.stream)),
        behind.timed("cuEventCreate", ctypes.byref(ctypes.c_void_p()), 2),
        behind.timed("cuStreamDestroy_v2", handle(behind.other)),
        behind.timed("cuStreamCreate", out, 1),
        behind.timed("cuStreamBeginCapture_v2", handle(behind.stream), 1),
    ]
    behind.flag.value = 1
    behind.thread.join(5)
    return [waits, *answers, f"then {freed}"]


@question("While a record waits for room in a stream's queue, that stream is destroyed", alone=True)
def destroyed_beside_a_record(gpu: Gpu) -> list[str]:
    full = FullQueue(gpu, record=True)
    answer = full.timed("cuStreamDestroy_v2", handle(full.stream))
    return [f"after {full.launched}", answer, full.end(), word(cuda.cuCtxSynchronize())]


@question("While a launch waits for room in a stream's queue, that stream is destroyed", alone=True)
def destroyed_beside_a_launch(gpu: Gpu) -> list[str]:
    full = FullQueue(gpu)
    answer = full.timed("cuStreamDestroy_v2", handle(full.stream))
    return [f"after {full.launched}", answer, full.end(), word(cuda.cuCtxSynchronize())]
