"""Ends of movable memory whose work is not done yet: who waits for it, and who does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

DESTROY, RESET = "cuCtxDestroy_v2", "cuDevicePrimaryCtxReset_v2"


@pytest.fixture
def backed(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    """A process whose memory follows the turn, with a mover that moves when it is told."""
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


@pytest.mark.promise("backing-32")
@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("end", [DESTROY, RESET])
def test_a_context_that_ends_beside_a_capture_has_done_its_work(
    backed: Session, sim: SimulatedMachine, end: str, mode: int
) -> None:
    """Its memory is not taken from under its work, and the capture in another context goes on."""
    ending, other = ("second.value", "CONTEXT")[:: 1 if end == DESTROY else -1]
    lines = [
        "second = c_void_p(0)",
        "assert call('cuCtxCreate_v2', byref(second), 0, 0) == 0",
        "on = lambda context: call('cuCtxSetCurrent', c_void_p(context))",
        f"on({other})",
        "s = stream_create()",
        f"on({ending})",
        "a, t = c_uint64(alloc(20 * MIB)), c_void_p(stream_create())",
        "fill = lambda: call('cuMemsetD32Async', a, 1, c_size_t(5 * MIB), t)",
        "assert fill() == 0",
        f"on({other})",
        f"assert call('cuStreamBeginCapture_v2', c_void_p(s), {mode}) == 0",
        f"on({ending})",
        "assert [fill() for _ in range(50)] == [0] * 50",
        f"print(call('{end}', {'second' if end == DESTROY else '0'}))",
        f"on({other})",
        "print(call('cuStreamEndCapture', c_void_p(s), byref(a)), a.value > 0, sums())",
    ]
    assert backed.run(*lines) == ["0", "0 True (0, 0)"]
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


@pytest.mark.promise("backing-32")
def test_a_context_that_ends_while_it_captures_has_done_its_work(
    backed: Session, sim: SimulatedMachine
) -> None:
    """The driver waits for the work; the memory goes after it."""
    lines = [
        "second = c_void_p(0)",
        "assert call('cuCtxCreate_v2', byref(second), 0, 0) == 0",
        "call('cuCtxSetCurrent', second)",
        "s, t = c_void_p(stream_create()), c_void_p(stream_create())",
        "a = c_uint64(alloc(20 * MIB))",
        "fill = lambda: call('cuMemsetD32Async', a, 1, c_size_t(5 * MIB), t)",
        "assert [fill() for _ in range(50)] == [0] * 50",
        "assert call('cuStreamBeginCapture_v2', s, 2) == 0",
        "print(call('cuCtxDestroy_v2', second), sums())",
    ]
    assert backed.run(*lines) == ["0 (0, 0)"]
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


FREE_LATER = [
    "s, t = stream_create(), stream_create()",
    "later = lambda address, stream: call('cuMemFreeAsync', c_uint64(address), c_void_p(stream))",
    "wait = lambda stream: call('cuStreamSynchronize', c_void_p(stream))",
    "busy = lambda stream: call('cuStreamQuery', c_void_p(stream)) == 600",
]


@pytest.mark.promise("backing-31")
@pytest.mark.parametrize("stream", ["s", "0"])
@pytest.mark.parametrize(
    "waits", ["wait(stream)", "call('cuCtxSynchronize')", "call('cuEventSynchronize', event)"]
)
def test_a_stream_ordered_free_ends_with_the_next_wait(
    backed: Session, stream: str, waits: str
) -> None:
    """What cuMemFreeAsync was given is off the device once the work before it was waited for."""
    lines = [
        *FREE_LATER,
        "before = info()",
        f"a, stream = alloc(20 * MIB), {stream}",
        "work = held(stream)",
        "print(later(a, stream), sums())",
        "event = c_void_p(made('cuEventCreate', 0))",
        "call('cuEventRecord', event, c_void_p(stream))",
        "threading.Timer(0.05, setattr, (work, 'value', 1)).start()",
        f"print({waits}, sums(), info() == before)",
    ]
    assert backed.run(*lines) == ["0 (10, 0)", "0 (0, 0) True"]


@pytest.mark.promise("backing-31")
def test_a_stream_ordered_free_is_seen_in_the_free_memory(backed: Session) -> None:
    """When its work is done, who asks for the free memory finds it, without a wait; and before that
    it still counts."""
    lines = [
        *FREE_LATER,
        "before = info()",
        "a = alloc(20 * MIB)",
        "work = held(s)",
        "print(later(a, s), info() == before, busy(s))",
        "work.value = 1",
        "while busy(s):",
        "    pass",
        "print(sums(), info() == before, sums())",
    ]
    assert backed.run(*lines) == ["0 False True", "(10, 0) True (0, 0)"]


@pytest.mark.promise("backing-31")
def test_a_wait_waits_for_nothing_more_because_of_a_free(backed: Session) -> None:
    """A wait for one stream frees what was freed there, although another one works on; what was
    freed in that one stays until it is done."""
    lines = [
        *FREE_LATER,
        "a, b = alloc(20 * MIB), alloc(4 * MIB)",
        "work = held(t)",
        "print(later(b, t), later(a, s), wait(s), sums(), busy(t))",
        "work.value = 1",
        "print(wait(t), sums())",
    ]
    assert backed.run(*lines) == ["0 0 0 (2, 0) True", "0 (0, 0)"]


@pytest.mark.promise("backing-31")
def test_many_stream_ordered_frees(backed: Session) -> None:
    """More than are looked at in one go, some done and some not, small and large."""
    lines = [
        *FREE_LATER,
        "mine = [alloc(2 * MIB) for _ in range(100)]",
        "others = [alloc(4096) for _ in range(100)] + [alloc(2 * MIB) for _ in range(10)]",
        "work = held(t)",
        "print({later(a, t) for a in others}, {later(a, s) for a in mine})",
        "print(wait(s), sums()[0] < 40, busy(t))",
        "work.value = 1",
        "print(wait(t), sums()[0])",
    ]
    assert backed.run(*lines) == ["{0} {0}", "0 True True", "0 1"]


@pytest.mark.promise("backing-31")
def test_a_stream_ordered_free_beside_a_capture(backed: Session) -> None:
    """It does not disturb the capture, in whichever stream, and ends with it."""
    lines = [
        *FREE_LATER,
        "a, b = alloc(20 * MIB), alloc(20 * MIB)",
        "print(later(a, 0))",
        "assert call('cuStreamBeginCapture_v2', c_void_p(s), 0) == 0",
        "print(later(b, t), wait(t), info()[0] > 0, sums())",
        "graph = c_uint64(0)",
        "print(call('cuStreamEndCapture', c_void_p(s), byref(graph)), graph.value > 0, sums())",
    ]
    assert backed.run(*lines) == ["0", "0 0 True (20, 0)", "0 True (0, 0)"]
