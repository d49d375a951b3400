"""What questions share: how they are noted down, and short words for what a driver answers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver as cuda

from tests.driver.harness import Gpu, code, ok, raw

MIB = 1 << 20


@dataclass(frozen=True)
class Question:
    """`ask` gets a Gpu if it asks for one, and returns the answer, for people."""

    name: str
    text: str
    ask: Callable[..., Any]
    alone: bool  # nothing else may use the device meanwhile: it looks at free memory


QUESTIONS: dict[str, Question] = {}


def question(text: str, *, alone: bool = False) -> Callable[..., Any]:
    """Notes a function down as a question."""

    def note(ask: Callable[..., Any]) -> Callable[..., Any]:
        QUESTIONS[ask.__name__] = Question(ask.__name__, text, ask, alone)
        return ask

    return note


def word(result: Any) -> str:
    """`OUT_OF_MEMORY` for that result code; a number that has no name stays one."""
    if isinstance(result, tuple):
        result = code(result)
    try:
        return str(cuda.CUresult(int(result)).name).removeprefix("CUDA_").removeprefix("ERROR_")
    except ValueError:
        return f"result {int(result)}"


def said(answer: tuple[Any, ...]) -> str:
    """The result code, or the value that a call gave besides success."""
    if code(answer) is not cuda.CUresult.CUDA_SUCCESS:
        return word(answer)
    values = [int(v) if hasattr(v, "__int__") else v for v in answer[1:]]
    return "SUCCESS" + "".join(f" {shown(value)}" for value in values)


def shown(value: Any) -> str:
    return hex(value) if isinstance(value, int) and value > 1 << 32 else str(value)


def call(name: str, *arguments: Any) -> str:
    """A call through the exported function itself, for what cuda.bindings does not let through."""
    return word(getattr(raw(), name)(*arguments))


def u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def free_mib() -> float:
    free, _ = ok(cuda.cuMemGetInfo())
    return float(free) / MIB


def difference(before: float) -> str:
    """How much less is free than before."""
    return f"{before - free_mib():+.1f} MiB"


POINTER_ATTRIBUTES = {
    "context": (1, ctypes.c_uint64),
    "type": (2, ctypes.c_uint32),
    "device_pointer": (3, ctypes.c_uint64),
    "host_pointer": (4, ctypes.c_uint64),
    "sync_memops": (6, ctypes.c_uint32),
    "managed": (8, ctypes.c_uint32),
    "ordinal": (9, ctypes.c_int32),
    "ipc": (10, ctypes.c_uint32),
    "range_start": (11, ctypes.c_uint64),
    "range_size": (12, ctypes.c_uint64),
    "mapped": (13, ctypes.c_uint32),
    "handle_types": (14, ctypes.c_uint64),
    "rdma": (15, ctypes.c_uint32),
    "access": (16, ctypes.c_uint32),
    "pool": (17, ctypes.c_uint64),
    "mapping_size": (18, ctypes.c_uint64),
    "mapping_base": (19, ctypes.c_uint64),
    "block_id": (20, ctypes.c_uint64),
}


def attributes_of(pointer: int, base: int | None = None) -> str:
    """All that the driver knows about an address; addresses near `base` as their distance."""
    base = pointer if base is None else base
    answers = []
    for name, (number, kind) in POINTER_ATTRIBUTES.items():
        value = kind(0)
        result = raw().cuPointerGetAttribute(ctypes.byref(value), number, u64(pointer))
        if result:
            answers.append(f"{name}={word(result)}")
        elif abs(value.value - base) < 1 << 30:
            answers.append(f"{name}=base{value.value - base:+d}")
        else:
            known = {True: "some", False: "0"}[value.value != 0]
            answers.append(f"{name}={known if name in ('context', 'pool') else value.value}")
    return " ".join(answers)


def busy(gpu: Gpu, stream: Any) -> bool:
    return code(cuda.cuStreamQuery(stream)) is cuda.CUresult.CUDA_ERROR_NOT_READY
