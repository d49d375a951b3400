"""Managed memory, its contexts and its graphs, while the turn comes and goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import RequestWithdrawn, TurnRequested
from tests.hook.managed.tensors import SIZE
from tests.hook.runtime.mapping_program import MappingProgram, start_mapping_program
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine

ALLOCATES = f"at = made('cuMemAllocManaged', c_size_t({SIZE}), 1)"
WORDS = 1000
"""Of which a launch writes some."""


@pytest.fixture
def program(
    tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine
) -> Iterator[MappingProgram]:
    """It has the turn, and managed memory `at` a place."""
    process = start_mapping_program(tmp_path, scheduler, sim)
    running = MappingProgram(process, scheduler, Files(sim))
    running.say(ALLOCATES)
    running.memory.grant()
    assert running.result() == "None"
    yield running
    process.end()


def fill(value: int, stream: str = "0") -> str:
    return f"launch('fill', {stream}, c_uint64(at), c_uint({value}), c_uint64({WORDS}))"


def words(program: MappingProgram) -> str:
    return program.run(f"set((c_uint * {WORDS}).from_address(at))")


@pytest.mark.promise(
    "park-8",
    "Managed memory goes with its context, wherever it is, and new memory of the next one moves",
)
@pytest.mark.parametrize(
    "end", ["call('cuDevicePrimaryCtxReset_v2', 0)", "call('cuDevicePrimaryCtxRelease_v2', 0)"]
)
@pytest.mark.parametrize("parks", [False, True])
def test_a_context_ends(program: MappingProgram, end: str, parks: bool) -> None:
    """For which nobody needs the turn."""
    if parks:
        program.park()
    assert program.run(end) == "0"
    program.expect_nothing_allocated()
    program.run("opened()")
    program.say(ALLOCATES)
    program.memory.grant()  # without a context there was nothing to keep a turn for
    assert program.result() == "None"
    program.park()


@pytest.mark.promise(
    "park-9",
    "A graph that was captured before managed memory left finds it afterwards",
)
def test_a_captured_graph(program: MappingProgram) -> None:
    """At the same address, and the launch waits for the turn."""
    program.run("stream = stream_create()")
    assert program.run("call('cuStreamBeginCapture_v2', c_void_p(stream), 2)") == "0"
    assert program.run(fill(51, "stream")) == "0"
    program.run("graph = c_void_p()")
    assert program.run("call('cuStreamEndCapture', c_void_p(stream), byref(graph))") == "0"
    program.run("made_ready = made('cuGraphInstantiateWithFlags', graph, c_uint64(0))")
    program.park()
    program.say("call('cuGraphLaunch', c_void_p(made_ready), c_void_p(stream))")
    program.memory.grant()
    assert program.result() == "0"
    assert program.run("call('cuCtxSynchronize')") == "0"
    assert words(program) == "{51}"


@pytest.mark.promise("park-16")
def test_the_host_reads_what_the_device_wrote(program: MappingProgram) -> None:
    """Also while it is parked."""
    assert program.run(f"{fill(52)}, call('cuCtxSynchronize')") == "(0, 0)"
    program.park()
    assert words(program) == "{52}"


@pytest.mark.promise("park-13")
def test_it_is_freed_only_once(program: MappingProgram) -> None:
    """The second answer is the driver's."""
    program.park()
    assert program.run("free(at)") == "0"
    assert program.run("free(at) > 0") == "True"
    program.expect_nothing_allocated()


@pytest.mark.promise("park-18")
def test_the_wait_of_advice_can_be_cancelled(program: MappingProgram) -> None:
    """As each wait for the turn; and nothing is advised then."""
    program.park()
    advice = f"call('cuMemAdvise', c_uint64(at), c_size_t({SIZE}), 1, 0)"
    program.say(advice)
    program.client.expect(TurnRequested)
    program.cancel_waits()
    assert program.result() == "800"
    program.client.expect(RequestWithdrawn)  # else the next one may go on with this request
    program.begin_cell()
    program.say(advice)
    program.memory.grant()
    assert program.result() == "0"
    assert program.client.expect_memory(lambda report: report.bytes_fixed == SIZE)
