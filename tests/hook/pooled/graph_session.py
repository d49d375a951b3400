"""As pooled_session, with graphs that allocate."""

from __future__ import annotations

from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

from tests.hook.backing_session import launch, stream_create
from tests.hook.memory_session import call, made
from tests.hook.pooled_session import *  # noqa: F403

s = stream_create()


def handed(name: str, *arguments: object) -> int:
    handle = c_uint64(0)
    assert call(name, *arguments[:1], byref(handle), *arguments[1:]) == 0
    return handle.value


def begin_graph() -> None:
    assert call("cuStreamBeginCapture_v2", c_void_p(s), 2) == 0


def captured() -> int:
    return handed("cuStreamEndCapture", c_void_p(s))


def end_graph() -> int:
    """What was captured, ready to be launched."""
    graph = captured()
    return made("cuGraphInstantiateWithFlags", c_void_p(graph), c_uint64(0))


def write_some(address: int) -> None:
    assert launch("fill", s, c_uint64(address), c_uint(7), c_uint64(1000)) == 0


def executable(size: int, freed: bool = True, times: int = 1) -> int:
    """A graph that allocates so much, so many times, each time when the last was freed."""
    begin_graph()
    for _ in range(times):
        at = made("cuMemAllocAsync", c_size_t(size), c_void_p(s))
        write_some(at)
        assert not freed or call("cuMemFreeAsync", c_uint64(at), c_void_p(s)) == 0
    return end_graph()


def plain(address: int) -> int:
    """One that does not."""
    begin_graph()
    write_some(address)
    return end_graph()


def within(graph: int) -> int:
    """A graph of which that one is a part."""
    whole = made("cuGraphCreate", 0)
    no_edges = (c_void_p(0), c_size_t(0))
    assert made("cuGraphAddChildGraphNode", c_void_p(whole), *no_edges, c_void_p(graph)) > 0
    return made("cuGraphInstantiateWithFlags", c_void_p(whole), c_uint64(0))


def go(graph: int) -> int:
    return call("cuGraphLaunch", c_void_p(graph), c_void_p(s))


def run(graph: int) -> int:
    return go(graph) or call("cuStreamSynchronize", c_void_p(s))


def upload(graph: int) -> int:
    return call("cuGraphUpload", c_void_p(graph), c_void_p(s))


def graph_trim() -> int:
    return call("cuDeviceGraphMemTrim", 0)


def destroy(graph: int) -> int:
    return call("cuGraphExecDestroy", c_void_p(graph))
