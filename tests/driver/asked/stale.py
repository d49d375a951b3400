"""Handles that are gone: what each call says of them, or whether the process ends of it.

A question for each call, each way in which a handle goes, and each state of what it led to: it has
just been left, the program's heap has been written over since, or the driver has given the same
handle out again. Whether a process ends varies with what the heap has there, so a call is deadly
if it ever was (`deadly_calls`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.asked.question import QUESTIONS, Question, call
from tests.driver.harness import Gpu, ok
from tests.support.paths import BUILTINS_PTX

STATES = ("left", "written", "again")
AGAIN_TRIES = 64
HEAP_SIZES = range(16, 8192, 16)
HEAP_BLOCKS = 24
SIZE = 2 << 20

Argument = Any
Make = Callable[[Gpu], int]


def pointer(value: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)


def out() -> Any:
    """Room for what a call gives, more than any of them writes."""
    return ctypes.byref((ctypes.c_uint64 * 64)())


def made(name: str, *arguments: Argument) -> int:
    """The handle that a call gives in its first argument."""
    value = ctypes.c_uint64()
    answer = call(name, ctypes.byref(value), *arguments)
    if answer != "SUCCESS":
        raise RuntimeError(f"{name}: {answer}")
    return value.value


def ended(name: str, argument: Argument) -> None:
    answer = call(name, argument)
    if answer != "SUCCESS":
        raise RuntimeError(f"{name}: {answer}")


def new_graph(_: Gpu) -> int:
    graph = made("cuGraphCreate", 0)
    made("cuGraphAddEmptyNode", pointer(graph), None, ctypes.c_size_t(0))
    return graph


def new_executable(gpu: Gpu) -> int:
    graph = new_graph(gpu)
    return made("cuGraphInstantiateWithFlags", pointer(graph), ctypes.c_uint64(0))


def new_module(_: Gpu) -> int:
    return made("cuModuleLoadData", BUILTINS_PTX.read_bytes() + b"\0")


def new_pool(gpu: Gpu) -> int:
    properties = cuda.CUmemPoolProps()
    properties.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(gpu.device)
    return int(ok(cuda.cuMemPoolCreate(properties)))


def new_chunk(gpu: Gpu) -> int:
    properties = cuda.CUmemAllocationProp()
    properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = int(gpu.device)
    return int(ok(cuda.cuMemCreate(SIZE, properties, 0)))


def new_array(_: Gpu) -> int:
    described = cuda.CUDA_ARRAY_DESCRIPTOR()
    described.Width, described.Height, described.NumChannels = 64, 64, 1
    described.Format = cuda.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT32
    return int(ok(cuda.cuArrayCreate(described)))


@dataclass(frozen=True)
class Kind:
    """How a handle is made and ended, and what is asked of it: call -> its arguments, of which the
    first entry that is GONE stands for the handle."""

    make: Make
    end: str
    calls: Mapping[str, Callable[[Any, Gpu], tuple[Argument, ...]]]
    is_address: bool = False
    of_context: bool = True


def launched_in(stream: Any, gpu: Gpu) -> tuple[Argument, ...]:
    return launch_arguments(pointer(int(gpu.function("spin"))), stream)


def launched(function: Any, _: Gpu) -> tuple[Argument, ...]:
    return launch_arguments(function, None)


def launch_arguments(function: Any, stream: Any) -> tuple[Argument, ...]:
    nanoseconds = ctypes.c_uint64(1)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(nanoseconds))
    parameters._kept = nanoseconds  # type: ignore[attr-defined]
    return (function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)


def an_event() -> ctypes.c_void_p:
    return pointer(made("cuEventCreate", 0))


def address(gpu: Gpu) -> ctypes.c_uint64:
    return ctypes.c_uint64(gpu.allocate(SIZE))


def host() -> ctypes.c_void_p:
    return pointer(made("cuMemAllocHost_v2", ctypes.c_size_t(4096)))


NOTHING = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
"""A host function."""


ONLY: Callable[[Any, Gpu], tuple[Argument, ...]] = lambda gone, _: (gone,)  # noqa: E731
GIVES: Callable[[Any, Gpu], tuple[Argument, ...]] = lambda gone, _: (gone, out())  # noqa: E731
INTO: Callable[[Any, Gpu], tuple[Argument, ...]] = lambda gone, _: (out(), gone)  # noqa: E731
LONG = ctypes.c_size_t

STREAM = Kind(
    lambda _: made("cuStreamCreate", 1),
    "cuStreamDestroy_v2",
    {
        "cuStreamQuery": ONLY,
        "cuStreamSynchronize": ONLY,
        "cuStreamIsCapturing": GIVES,
        "cuStreamGetCtx": GIVES,
        "cuStreamGetFlags": GIVES,
        "cuStreamGetPriority": GIVES,
        "cuStreamGetId": GIVES,
        "cuEventRecord": lambda gone, _: (an_event(), gone),
        "cuStreamWaitEvent": lambda gone, _: (gone, an_event(), 0),
        "cuLaunchKernel": launched_in,
        "cuLaunchHostFunc": lambda gone, _: (gone, NOTHING, None),
        "cuMemcpyDtoHAsync_v2": lambda gone, gpu: (host(), address(gpu), LONG(64), gone),
        "cuMemcpyHtoDAsync_v2": lambda gone, gpu: (address(gpu), host(), LONG(64), gone),
        "cuMemcpyDtoDAsync_v2": lambda gone, gpu: (address(gpu), address(gpu), LONG(64), gone),
        "cuMemsetD8Async": lambda gone, gpu: (address(gpu), 0, LONG(64), gone),
        "cuMemAllocAsync": lambda gone, _: (out(), LONG(64), gone),
        "cuMemFreeAsync": lambda gone, _: (made_in_stream(), gone),
        "cuStreamBeginCapture_v2": lambda gone, _: (gone, 2),
        "cuStreamEndCapture": GIVES,
        "cuGraphLaunch": lambda gone, gpu: (pointer(new_executable(gpu)), gone),
        "cuStreamDestroy_v2": ONLY,
    },
)


def made_in_stream() -> ctypes.c_uint64:
    return ctypes.c_uint64(made("cuMemAllocAsync", LONG(64), None))


EVENT = Kind(
    lambda _: made("cuEventCreate", 0),
    "cuEventDestroy_v2",
    {
        "cuEventQuery": ONLY,
        "cuEventSynchronize": ONLY,
        "cuEventRecord": lambda gone, _: (gone, None),
        "cuStreamWaitEvent": lambda gone, _: (None, gone, 0),
        "cuEventElapsedTime": lambda gone, _: (out(), gone, an_event()),
        "cuEventDestroy_v2": ONLY,
    },
)

CONTEXT = Kind(
    lambda gpu: int(ok(cuda.cuCtxCreate(None, 0, gpu.device))),
    "cuCtxDestroy_v2",
    {
        "cuCtxPushCurrent_v2": ONLY,
        "cuCtxSetCurrent": ONLY,
        "cuCtxGetId": GIVES,
        "cuCtxGetApiVersion": GIVES,
        "cuCtxDestroy_v2": ONLY,
    },
    of_context=False,
)

GRAPH = Kind(
    new_graph,
    "cuGraphDestroy",
    {
        "cuGraphGetNodes": lambda gone, _: (gone, None, out()),
        "cuGraphAddEmptyNode": lambda gone, _: (out(), gone, None, LONG(0)),
        "cuGraphInstantiateWithFlags": lambda gone, _: (out(), gone, ctypes.c_uint64(0)),
        "cuGraphClone": INTO,
        "cuGraphDestroy": ONLY,
    },
    of_context=False,
)

EXECUTABLE = Kind(
    new_executable,
    "cuGraphExecDestroy",
    {
        "cuGraphLaunch": lambda gone, _: (gone, None),
        "cuGraphUpload": lambda gone, _: (gone, None),
        "cuGraphExecGetFlags": GIVES,
        "cuGraphExecDestroy": ONLY,
    },
    of_context=False,
)

MODULE = Kind(
    new_module,
    "cuModuleUnload",
    {
        "cuModuleGetFunction": lambda gone, _: (out(), gone, b"spin"),
        "cuModuleUnload": ONLY,
    },
)

FUNCTION_CALLS: dict[str, Callable[[Any, Gpu], tuple[Argument, ...]]] = {
    "cuLaunchKernel": launched,
    "cuFuncGetAttribute": lambda gone, _: (out(), 0, gone),
    "cuFuncGetModule": INTO,
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda gone, _: (out(), gone, 64, LONG(0)),
}

POOL = Kind(
    new_pool,
    "cuMemPoolDestroy",
    {
        "cuMemPoolGetAttribute": lambda gone, _: (gone, 4, out()),
        "cuMemPoolSetAttribute": lambda gone, _: (gone, 4, out()),
        "cuMemPoolTrimTo": lambda gone, _: (gone, LONG(0)),
        "cuMemAllocFromPoolAsync": lambda gone, _: (out(), LONG(64), gone, None),
        "cuMemPoolDestroy": ONLY,
    },
    of_context=False,
)

CHUNK = Kind(
    new_chunk,
    "cuMemRelease",
    {
        "cuMemMap": lambda gone, _: (reserved(), LONG(SIZE), LONG(0), gone, ctypes.c_uint64(0)),
        "cuMemExportToShareableHandle": lambda gone, _: (out(), gone, 1, ctypes.c_uint64(0)),
        "cuMemGetAllocationPropertiesFromHandle": INTO,
        "cuMemRelease": ONLY,
    },
    is_address=True,
    of_context=False,
)


def reserved() -> ctypes.c_uint64:
    return ctypes.c_uint64(
        made("cuMemAddressReserve", LONG(SIZE), LONG(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
    )


ARRAY = Kind(
    new_array,
    "cuArrayDestroy",
    {"cuArrayGetDescriptor_v2": INTO, "cuArrayDestroy": ONLY},
)

MEMORY = Kind(
    lambda _: made("cuMemAlloc_v2", LONG(SIZE)),
    "cuMemFree_v2",
    {
        "cuMemcpyDtoH_v2": lambda gone, _: (host(), gone, LONG(64)),
        "cuMemcpyDtoHAsync_v2": lambda gone, _: (host(), gone, LONG(64), None),
        "cuMemsetD8_v2": lambda gone, _: (gone, 0, LONG(64)),
        "cuMemGetAddressRange_v2": lambda gone, _: (out(), out(), gone),
        "cuPointerGetAttribute": lambda gone, _: (out(), 1, gone),
        "cuMemFree_v2": ONLY,
    },
    is_address=True,
)

KINDS: dict[str, Kind] = {
    "stream": STREAM,
    "event": EVENT,
    "context": CONTEXT,
    "graph": GRAPH,
    "executable": EXECUTABLE,
    "module": MODULE,
    "pool": POOL,
    "chunk": CHUNK,
    "array": ARRAY,
    "memory": MEMORY,
}


def write_over_the_heap() -> None:
    """Blocks of all sizes, full of what is no pointer: some lie where the handle led to."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for size in HEAP_SIZES:
        for _ in range(HEAP_BLOCKS):
            ctypes.memset(libc.malloc(LONG(size)), 0x5A, size)


def go(gpu: Gpu, kind: Kind, way: str, function: bool) -> int:
    """A handle that has gone in that way; the primary context is current then."""

    def make() -> tuple[int, int]:
        handle = kind.make(gpu)
        if not function:
            return handle, handle
        return handle, made("cuModuleGetFunction", pointer(handle), b"spin")

    if way == "destroyed":
        handle, asked = make()
        ended(kind.end, as_argument(kind, handle))
        if kind is CONTEXT:
            ok(cuda.cuCtxSetCurrent(gpu.context))
    elif way == "context":
        context = ok(cuda.cuCtxCreate(None, 0, gpu.device))
        _, asked = make()
        ok(cuda.cuCtxDestroy(context))
        ok(cuda.cuCtxSetCurrent(gpu.context))
    else:
        _, asked = make()
        ok(cuda.cuDevicePrimaryCtxReset(gpu.device))
        gpu.context = ok(cuda.cuDevicePrimaryCtxRetain(gpu.device))
        ok(cuda.cuCtxSetCurrent(gpu.context))
        gpu.module = ok(cuda.cuModuleLoadData(BUILTINS_PTX.read_bytes() + b"\0"))
    return asked


def as_argument(kind: Kind, handle: int) -> Argument:
    return ctypes.c_uint64(handle) if kind.is_address else pointer(handle)


def comes_again(gpu: Gpu, kind: Kind, handle: int, function: bool) -> bool:
    tries = 4 if kind is CONTEXT else AGAIN_TRIES
    for _ in range(tries):
        new = kind.make(gpu)
        if function:
            new = made("cuModuleGetFunction", pointer(new), b"spin")
        if new == handle:
            return True
    return False


def stale(name: str, kind: Kind, way: str, state: str, function: bool) -> Callable[[Gpu], str]:
    calls = FUNCTION_CALLS if function else kind.calls

    def ask(gpu: Gpu) -> str:
        handle = go(gpu, kind, way, function)
        note = ""
        if state == "written":
            write_over_the_heap()
        elif state == "again" and not comes_again(gpu, kind, handle, function):
            note = "not again: "
        arguments = calls[name](as_argument(kind, handle), gpu)
        return note + call(name, *arguments)

    return ask


def note_questions() -> None:
    subjects = [(name, kind, kind.calls, False) for name, kind in KINDS.items()]
    subjects.append(("function", MODULE, FUNCTION_CALLS, True))
    for subject, kind, calls, function in subjects:
        for way in ("destroyed", "context", "reset") if kind.of_context else ("destroyed",):
            for state in STATES:
                for name in calls:
                    question = f"stale-{subject}-{way}-{state}-{name}"
                    text = f"{name} of a {subject} that is gone ({way}), {state}"
                    ask = stale(name, kind, way, state, function)
                    QUESTIONS[question] = Question(question, text, ask, alone=False)


def deadly_calls(answers: Mapping[str, str]) -> dict[str, list[str]]:
    """For each kind of handle, the calls that ended a process at least once."""
    deadly: dict[str, list[str]] = {}
    for name, answer in sorted(answers.items()):
        if name.startswith("stale-") and answer.startswith("ended by signal"):
            _, subject, _, _, asked = name.split("-")
            calls = deadly.setdefault(subject, [])
            if asked not in calls:
                calls.append(asked)
    return deadly


note_questions()
