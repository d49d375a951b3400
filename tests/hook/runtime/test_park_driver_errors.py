"""A driver that refuses what a park or a restore needs: nothing is unmapped under a copy, nothing
is told as parked that is not, what can be tried again is, and nobody waits for what cannot."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DropReason, TurnDropped, TurnRequested
from tests.hook.runtime.memory_shell import MIB, MemoryShell, Opened, open_memory_shell
from tests.hook.runtime.process import ANSWER_S_MAX, GpuProcess
from tests.hook.runtime.two_devices import CHUNK, Files, TwoDevices, program_of
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine
from tests.support.stacks import threads_of

TENSORS = 8
SMALL = 8 * MIB
"""A tensor of this size is one chunk, of plain memory and of that which is mapped in pieces."""
SIZE = TENSORS * SMALL
"""A multiple of a pool's segment."""
MOVER = "thread=gpushare-mem"
LOOK_EVERY_S = 0.05
SLOW = 100_000_000
"""Bytes each second: a chunk is on its way for 80 ms."""


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", copy_bytes_per_s=SLOW)


@pytest.fixture(
    params=["plain", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("pieces", "pooled"))]
)
def opens(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, request: pytest.FixtureRequest
) -> Opened:
    """Starts a shell whose memory, of each kind, follows the turn, with these faults."""
    return lambda faults: open_memory_shell(
        start, scheduler.accept, env={"GPUSHARE_SIM_FAULTS": faults}, kind=request.param
    )


@pytest.fixture(params=["plain", pytest.param("pieces", marks=pytest.mark.full)])
def opens_in_chunks(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, request: pytest.FixtureRequest
) -> Opened:
    """The same, where each chunk is of 8 MiB."""
    return lambda faults: open_memory_shell(
        start, scheduler.accept, env={"GPUSHARE_SIM_FAULTS": faults}, kind=request.param
    )


def hold(memory: MemoryShell) -> MemoryShell:
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor in range(TENSORS):
        memory.fill(tensor, SMALL)
    memory.take_turn()
    return memory


def come_back(memory: MemoryShell) -> None:
    """All of its memory, for the command that waits: by this turn or, where that one is in vain, by
    the next."""
    memory.grant()
    until_s, drops = time.monotonic() + ANSWER_S_MAX, 0
    while not memory.shell.has_said({"0 spin 0"}):
        assert time.monotonic() < until_s
        with contextlib.suppress(TimeoutError):
            dropped = memory.client.expect(TurnDropped, within_s=LOOK_EVERY_S)
            drops += 1
            assert (dropped.reason, drops) == (DropReason.MEMORY_SHORT, 1)
            memory.grant()


def assert_comes_back(memory: MemoryShell, sim: SimulatedMachine) -> None:
    """By the turn that it was granted last or the next one, every byte of it."""
    memory.say("spin d 1000")
    come_back(memory)
    assert all(memory.is_whole(tensor) for tensor in range(TENSORS))
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


@pytest.mark.promise(
    "park-40",
    "Memory that the driver would not unmap or release is not told as parked, and is used again "
    "or freed",
)
@pytest.mark.full
@pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemRelease"])
def test_memory_that_the_driver_would_not_take_back(
    opens_in_chunks: Opened, sim: SimulatedMachine, call: str
) -> None:
    """It is not told as parked: where it could not be unmapped it stays for a while and is tried
    again, where it could not be released it is kept and counts as fixed until it is used again."""
    memory = hold(opens_in_chunks(f"fail {call} {MOVER} result=999"))
    memory.budget(0)
    report = memory.client.expect_memory(
        lambda report: report.bytes_parked + report.bytes_fixed == SIZE
    )
    assert report.bytes_fixed == SMALL
    if call == "cuMemUnmap":
        assert memory.client.expect_memory(lambda report: report.bytes_parked == SIZE)
    assert_comes_back(memory, sim)
    memory.take_turn()
    assert memory.park_to(0).bytes_parked == SIZE
    assert [memory.run(f"drop {tensor}") for tensor in range(TENSORS)] == [0] * TENSORS
    assert memory.shell.log_lines("could not be freed") == []


@pytest.mark.promise("park-40")
@pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemRelease"])
def test_memory_that_the_driver_would_not_take_back_is_freed(
    opens_in_chunks: Opened, sim: SimulatedMachine, call: str
) -> None:
    """Where the program frees it meanwhile, all of the device's memory is free."""
    memory = hold(opens_in_chunks(f"fail {call} {MOVER} times=4 result=999"))
    memory.budget(0)
    memory.client.expect_memory(lambda report: report.bytes_fixed == 4 * SMALL)
    assert [memory.run(f"drop {tensor}") for tensor in range(TENSORS)] == [0] * TENSORS
    mapped = [record.amount for record in sim.journal() if record.kind.name == "MAP"]
    unmapped = [record.amount for record in sim.journal() if record.kind.name == "UNMAP"]
    assert sum(mapped) == sum(unmapped)
    assert "could not be freed" not in memory.shell.log.read_text()


@pytest.mark.promise("park-40")
@pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemRelease"])
def test_a_restore_that_cannot_be_rolled_back(
    opens: Opened, sim: SimulatedMachine, call: str
) -> None:
    """A copy in failed, and then the driver would not take the memory for it: the next restore uses
    that very memory."""
    memory = hold(
        opens(
            f"fail cuMemcpyHtoDAsync {MOVER} nth=2 result=1;"
            f"fail {call} {MOVER} from=comes times=3 result=999"
        )
    )
    memory.park_to(0)
    Files(sim).make("comes")
    assert_comes_back(memory, sim)


@pytest.mark.promise(
    "park-41",
    "Nothing is unmapped while a copy may run, whatever the driver answers",
)
@pytest.mark.full
@pytest.mark.parametrize("way", ["out", "in"])
def test_an_answer_that_says_nothing_of_a_copy_is_not_its_end(
    opens_in_chunks: Opened, sim: SimulatedMachine, way: str
) -> None:
    """The copy runs on; nothing is taken from under it, and the memory is whole in the end."""
    memory = hold(
        opens_in_chunks(f"fail cuEventQuery {MOVER} from=copies nth=3 result=999 times=2")
    )
    if way == "in":
        memory.park_to(0)
    Files(sim).make("copies")
    memory.budget(0)
    if way == "out":
        memory.client.expect_memory(lambda report: report.bytes_parked == SIZE)
    assert_comes_back(memory, sim)


@pytest.mark.promise("park-41")
@pytest.mark.full
@pytest.mark.parametrize("way", ["out", "in"])
def test_a_copy_whose_end_the_driver_never_tells(
    opens_in_chunks: Opened, sim: SimulatedMachine, way: str
) -> None:
    """After a second it is given up: on the way out its chunk is fixed, on the way in it is copied
    once more; no memory that it may use is given back."""
    queries = ("cuEventQuery", "cuStreamQuery")
    faults = [f"fail {call} {MOVER} from=copies until=clear times=0 result=999" for call in queries]
    memory = hold(opens_in_chunks(";".join(faults)))
    if way == "in":
        memory.park_to(0)
    files = Files(sim)
    files.make("copies")
    if way == "out":
        memory.budget(0)
        memory.client.expect_memory(lambda report: report.bytes_fixed > 0)
        files.make("clear")
        report = memory.client.expect_memory(
            lambda report: report.bytes_parked + report.bytes_fixed == SIZE
        )
        assert report.bytes_fixed >= SMALL
    else:
        memory.say("spin d 1000")
        memory.grant()
        assert memory.client.expect(TurnDropped).reason == DropReason.MEMORY_SHORT
        files.make("clear")
        come_back(memory)
        memory.take_turn()
    assert_comes_back(memory, sim)


@pytest.mark.promise("park-42", "A full device fixes nothing for want of a stream")
@pytest.mark.parametrize("call", ["cuStreamCreate", "cuEventCreate"])
def test_a_device_that_is_too_full_for_a_stream(opens: Opened, call: str) -> None:
    """Its stream is tried again until there is memory for it; nothing is fixed meanwhile."""
    memory = hold(opens(f"fail {call} {MOVER} times=6 result=2"))
    heard = len(memory.client.received)  # what is being allocated may count as fixed for a moment
    memory.budget(0)
    memory.client.expect_memory(lambda report: report.bytes_parked == SIZE)
    reports = [m for m in memory.client.received[heard:] if hasattr(m, "bytes_fixed")]
    assert [report.bytes_fixed for report in reports if report.bytes_fixed] == []


@pytest.mark.promise("park-42")
def test_streams_are_made_before_memory_has_to_leave(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """While the turn is held and others could want the room, so that a full device holds up none of
    it."""
    faults = f"fail cuStreamCreate {MOVER} from=full times=0;hold cuStreamCreate {MOVER} until=seen"
    memory = open_memory_shell(start, scheduler.accept, env={"GPUSHARE_SIM_FAULTS": faults})
    files = Files(sim)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SIZE)
    memory.budget(UNLIMITED, hint_bytes=SIZE)
    files.wait_for_held("seen")
    files.make("full")
    files.make("seen")
    memory.take_turn()
    memory.park_to(0)


Healthy = Callable[[str], TwoDevices]


@pytest.fixture
def two(tmp_path: Path, scheduler: FakeScheduler) -> Iterator[Healthy]:
    """Starts a program with memory on two devices, filled and parked."""
    started: list[GpuProcess] = []

    def start(faults: str) -> TwoDevices:
        machine = SimulatedMachine(tmp_path / "sim", devices=2)
        started.append(program_of(tmp_path, scheduler, machine, faults))
        both = TwoDevices(started[0], scheduler)
        both.say(f"b = alloc({2 * CHUNK}); on(CONTEXT); a = alloc({2 * CHUNK})")
        both.say(f"f = fill(a, 7, {2 * CHUNK}); on(OTHER); print('f', f, fill(b, 8, {2 * CHUNK}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == "0 0"
        both.drop()
        both.budgets(0, 0)
        both.expect_all_parked()
        return both

    yield start
    for process in started:
        process.end()


@pytest.mark.promise(
    "park-43",
    "A sticky error in one context keeps neither the memory of others away nor the mover busy",
)
def test_what_is_lost_with_its_context_keeps_no_gate_shut(two: Healthy) -> None:
    """A sticky error in one context during a restore: the memory of the healthy one comes back, the
    gate opens, the mover rests, and the context can be destroyed."""
    both = two(f"fail cuMemcpyHtoDAsync {MOVER} result=700")
    both.say(f"on(OTHER); print('w', words(b, {2 * CHUNK}))")
    assert wait_for_words(both) == "[8]"
    before = mover_ticks(both.process.pid)
    assert both.process.is_silent(for_s=0.5)
    assert mover_ticks(both.process.pid) - before < 0.1 * os.sysconf("SC_CLK_TCK")
    both.say("print('reset', call('cuDevicePrimaryCtxReset_v2', 0))")
    both.hears("reset")
    both.say(f"on(OTHER); print('w', words(b, {2 * CHUNK}))")
    assert both.hears("w") == "[8]"


@pytest.mark.promise("park-41")
@pytest.mark.parametrize(
    "nth", [2, *(pytest.param(nth, marks=pytest.mark.full) for nth in (3, 4)), 5]
)
def test_a_context_that_cannot_be_made_current(two: Healthy, tmp_path: Path, nth: int) -> None:
    """Each device's copies are asked for in its own context: where that cannot be made current,
    they may run on."""
    both = two(f"fail cuCtxPushCurrent {MOVER} from=copies nth={nth} result=201")
    (tmp_path / "sim" / "copies").touch()
    both.say(f"on(CONTEXT); w = words(a, {2 * CHUNK}); on(OTHER)")
    both.say(f"print('w', w, words(b, {2 * CHUNK}))")
    assert wait_for_words(both) == "[7] [8]"
    machine = SimulatedMachine(tmp_path / "sim", devices=2)
    assert [record for record in machine.journal() if record.kind.name == "FAULT"] == []


def wait_for_words(both: TwoDevices) -> str:
    """Turns that are given back for the failure are granted again."""
    until_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < until_s:
        with contextlib.suppress(TimeoutError):
            return both.hears("w", within_s=LOOK_EVERY_S)
        with contextlib.suppress(TimeoutError):
            both.client.expect(TurnRequested, within_s=LOOK_EVERY_S)
            both.budgets(UNLIMITED, UNLIMITED)
            both.client.grant()
    raise AssertionError("the words never came")


def mover_ticks(pid: int) -> int:
    """Processor time that the mover has used, in the system's clock ticks."""
    for task, name in threads_of(pid).items():
        if name == "gpushare-mem":
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])
    raise AssertionError("no mover")
