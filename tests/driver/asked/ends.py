"""What a context's handles are worth in another one, and to handlers of exit."""

from __future__ import annotations

import ctypes
import subprocess
import sys

from cuda.bindings import driver as cuda

from tests.driver.asked.question import call, question, u64
from tests.driver.harness import Gpu, ok
from tests.driver.test_contexts import create_context
from tests.support.compiled import compiled_library

BYTES = 4096
NOT_BLOCKING = int(cuda.CUstream_flags.CU_STREAM_NON_BLOCKING)


class Handles:
    """Of the context that is current."""

    def __init__(self) -> None:
        self.context = int(ok(cuda.cuCtxGetCurrent()))
        self.memory = int(ok(cuda.cuMemAlloc(BYTES)))
        self.stream = int(ok(cuda.cuStreamCreate(NOT_BLOCKING)))
        self.event = int(ok(cuda.cuEventCreate(0)))


def pointer(value: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(value)


def in_another_context(gpu: Gpu) -> tuple[Handles, Handles]:
    """What was made in the first one, and in the one that is current now."""
    first = Handles()
    ok(cuda.cuCtxSetCurrent(create_context(gpu)))
    return first, Handles()


@question("Memory of another context: asked about, copied, set, freed")
def memory_of_another_context(gpu: Gpu) -> list[str]:
    first, _ = in_another_context(gpu)
    host = (ctypes.c_char * BYTES)()
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    owner = ctypes.c_uint64()
    address = u64(first.memory)
    ranged = call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), address)
    told = call("cuPointerGetAttribute", ctypes.byref(owner), 1, address)
    return [
        f"range {ranged}",
        f"context {told} same {owner.value == first.context}",
        f"copy {call('cuMemcpyDtoH_v2', host, address, ctypes.c_size_t(BYTES))}",
        f"set {call('cuMemsetD8_v2', address, ctypes.c_ubyte(1), ctypes.c_size_t(BYTES))}",
        f"free {call('cuMemFree_v2', address)}",
    ]


@question("Stream and event of another context: asked, recorded, waited for, crossed with our own")
def streams_of_another_context(gpu: Gpu) -> list[str]:
    first, own = in_another_context(gpu)
    theirs, ours = pointer(first.stream), pointer(own.stream)
    their_event, our_event = pointer(first.event), pointer(own.event)
    return [
        f"query {call('cuStreamQuery', theirs)}",
        f"record {call('cuEventRecord', their_event, theirs)}",
        f"event {call('cuEventQuery', their_event)}",
        f"their event in ours {call('cuEventRecord', their_event, ours)}",
        f"our event in theirs {call('cuEventRecord', our_event, theirs)}",
        f"wait {call('cuStreamWaitEvent', ours, their_event, 0)}",
        f"destroy event {call('cuEventDestroy_v2', their_event)}",
        f"destroy stream {call('cuStreamDestroy_v2', theirs)}",
    ]


AT_EXIT = """
#include <stdio.h>
#include <stdlib.h>

static int (*functions[8])();
static void *context, *stream, *event;
static unsigned long long memory;

static void at_exit(void) {
    static char host[4096];
    void *current = NULL;
    printf("current %d", functions[0](&current));
    printf(" same %d", current == context);
    printf(" query %d", functions[1](stream));
    printf(" event %d", functions[2](event));
    printf(" copy %d", functions[3](host, memory, sizeof host));
    printf(" free %d", functions[4](memory));
    printf(" event gone %d", functions[5](event));
    printf(" stream gone %d", functions[6](stream));
    printf(" synchronise %d\\n", functions[7]());
}

void at_exit_begins(void) { atexit(at_exit); }

void at_exit_knows(void **handles, void **found, unsigned long long address) {
    for (int i = 0; i < 8; i++)
        functions[i] = (int (*)())found[i];
    context = handles[0], stream = handles[1], event = handles[2], memory = address;
}
"""
CALLED = (
    "cuCtxGetCurrent",
    "cuStreamQuery",
    "cuEventQuery",
    "cuMemcpyDtoH_v2",
    "cuMemFree_v2",
    "cuEventDestroy_v2",
    "cuStreamDestroy_v2",
    "cuCtxSynchronize",
)
"""In the order of AT_EXIT."""


def hold(library: ctypes.CDLL) -> None:
    """Gives the handler of exit what it is to ask about."""
    handles = Handles()
    real = ctypes.CDLL("libcuda.so.1")
    found = [ctypes.cast(getattr(real, name), ctypes.c_void_p) for name in CALLED]
    known = (handles.context, handles.stream, handles.event)
    library.at_exit_knows(
        (ctypes.c_void_p * 3)(*known), (ctypes.c_void_p * 8)(*found), u64(handles.memory)
    )


def end(library_path: str, when: str) -> None:
    """A process of its own: it uses a context and ends, and its handler of exit asks."""
    library = ctypes.CDLL(library_path)
    if when == "before":
        library.at_exit_begins()
    ctypes.CDLL("libcuda.so.1")
    if when == "between":
        library.at_exit_begins()
    gpu = Gpu()
    assert gpu is not None
    if when == "after":
        library.at_exit_begins()
    hold(library)


def heard(when: str) -> str:
    path = str(compiled_library(AT_EXIT))
    text = f"from tests.driver.asked.ends import end; end({path!r}, {when!r})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    ended = f"ended with {done.returncode}: " if done.returncode else ""
    return ended + " ".join(done.stdout.split())


@question("At exit, in a handler older than the driver's library: each kind of handle")
def in_an_older_handler_of_exit() -> str:
    return heard("before")


@question("At exit, in a handler younger than the library and older than its first call")
def in_a_handler_of_exit_between() -> str:
    return heard("between")


@question("At exit, in a handler younger than the first call: each kind of handle")
def in_a_younger_handler_of_exit() -> str:
    return heard("after")
