"""Claims on the budget that end without memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.fields import Message
from jupyter_gpushare.protocol.messages import (
    DeviceOpened,
    DropReason,
    HoldChanged,
    MemoryKindsReported,
    MemoryLimit,
    MemoryMode,
    MemoryNeeded,
    MemoryReported,
    RequestWithdrawn,
    RoomRequested,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.mapping_program import opening
from tests.hook.runtime.memory_shell import MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_park_faults import CONTEXT, HELD, MIB, hold
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import ANSWER_S_MAX, UNLIMITED, FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine

Start = Callable[..., GpuProcess]
BIG = 256 * MIB
"""Four chunks, behind the two of what is held."""
REFUSED = 304  # CUDA_ERROR_OPERATING_SYSTEM, for which nobody makes room


def opened(start: Start, scheduler: FakeScheduler, faults: str) -> MemoryShell:
    env = {"GPUSHARE_SIM_FAULTS": faults}
    return hold(open_memory_shell(start, scheduler.accept, env=env, reclaim_ms=20_000))


@pytest.mark.promise("accounts-32")
def test_a_failed_allocation_is_no_longer_told(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Its claim was told while it was being made, as any great allocation's is."""
    faults = f"hold cuMemCreate nth=3 until=go;fail cuMemCreate nth=6 result={REFUSED}"
    memory = opened(start, scheduler, faults)
    memory.limit(HELD)
    memory.say(f"new 2 {BIG}")
    memory.need(BIG)
    memory.budget(2**40)
    memory.client.expect_memory(lambda report: report.bytes_allocated == HELD + BIG)
    Files(sim).make("go")
    assert memory.result("new") == REFUSED
    memory.client.expect_memory(lambda report: report.bytes_allocated == HELD)


@pytest.mark.promise(
    "accounts-52",
    "An allocation that is refused counts at no time as memory that its process has",
)
def test_a_refused_claim_is_never_told(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """Other processes of the tenant would be refused for it. The thread is held up where it says in
    the log that it was refused, before its claim has ended."""
    log = tmp_path / "full"
    os.mkfifo(log)
    reader = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    env = {"GPUSHARE_LOG": "info", "GPUSHARE_LOG_FILE": str(log)}
    memory = hold(open_memory_shell(start, scheduler.accept, env=env))
    memory.limit(HELD)
    with suppress(BlockingIOError):
        while True:
            os.write(reader, bytes(4096))
    memory.say(f"new 2 {CONTEXT}")
    memory.need(CONTEXT)
    memory.budget(HELD, refused=True)
    memory.need(0)
    reports = [one for one in memory.client.received if isinstance(one, MemoryReported)]
    assert reports[-1].bytes_allocated == HELD
    os.read(reader, 1 << 20)
    assert memory.result("new") == 2
    os.close(reader)


@pytest.mark.promise("accounts-34")
def test_a_failed_claim_wakes_who_waits_for_its_room(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """One thread's claim fits and its call fails; another waits for the budget that this frees."""
    faults = f"hold cuMemCreate nth=3 until=go;fail cuMemCreate nth=6 result={REFUSED}"
    memory, files = opened(start, scheduler, faults), Files(sim)
    memory.run("current", thread=1)
    memory.limit(HELD + BIG)
    memory.say(f"new 2 {BIG}")
    files.wait_for_held("go")  # it is being made
    memory.say(f"new 3 {8 * MIB}", thread=1)
    memory.need(8 * MIB)
    files.make("go")
    lines = sorted(memory.shell.expect("") for _ in range(2))
    assert lines == [f"0 new {REFUSED}", "1 new 0"]


@pytest.mark.promise("accounts-34")
def test_a_need_that_another_thread_has_taken_is_told_again(
    start: Start, scheduler: FakeScheduler
) -> None:
    """A thread that waits is told that its bytes are there, and another thread's call takes them
    before it has looked. Its need is told once more, beyond what is there by then."""
    program = start("outrun")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.budget(device, 0)
    hear_all(client, {TurnRequested, MemoryNeeded})
    first = next(m for m in client.received if isinstance(m, MemoryNeeded))
    client.grant()
    serial = client.budget(device, 64 * MIB)
    client.expect_memory(lambda report: report.budget_serial == serial)
    program.say("go")
    program.expect("first 0")
    client.expect_memory(lambda report: report.bytes_allocated == 64 * MIB)
    assert client.expect(MemoryNeeded) == first
    client.budget(device, 128 * MIB)
    program.expect("late 0")
    assert program.finish() == 0


@pytest.mark.promise(
    "hook-57",
    "A thread that is cancelled in a call ends after it, and leaves nothing that is counted",
)
@pytest.mark.parametrize("waits_for", ["memory", "the turn"])
def test_a_thread_that_is_cancelled_while_it_waits(
    start: Start, scheduler: FakeScheduler, waits_for: str
) -> None:
    """It has its memory first, and may give it back; then the turn can end."""
    program = start("cancelled_claim")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=600_000)
    device = client.expect(DeviceOpened).device
    if waits_for == "memory":
        client.budget(device, 0)
        hear_all(client, {TurnRequested, MemoryNeeded})
        client.grant()
    else:
        client.budget(device, 64 * MIB)
        client.expect(TurnRequested)
    program.say("go")
    program.expect("cancels")
    if waits_for == "memory":
        client.budget(device, 64 * MIB)
    else:
        client.grant()
    program.expect("allocated")
    program.expect("ended")
    assert client.recall_and_drop().reason is DropReason.RECALL
    program.say("end")
    assert program.finish() == 0


@pytest.mark.promise("hook-57")
def test_a_thread_that_is_cancelled_while_its_window_is_full(
    start: Start, scheduler: FakeScheduler
) -> None:
    """It ends after its launch, and the turn goes back."""
    program = start("cancelled_claim", "launches")
    client = scheduler.accept()
    client.welcome(tenants=2)
    client.grant_request()
    program.expect("launched")
    program.say("go")
    program.expect("cancels")
    program.expect("ended")
    assert client.recall_and_drop().reason is DropReason.RECALL
    program.say("end")
    assert program.finish() == 0


@pytest.mark.promise(
    "park-24",
    "Graphs are made ready, and textures made, while their memory stays where it is",
)
def test_a_graph_is_made_ready_within_the_turn(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """A recall comes while a graph is instantiated: the turn goes back behind it, not before."""
    files = Files(sim)
    memory = opened(start, scheduler, "hold cuGraphInstantiateWithFlags nth=1 until=go")
    assert memory.run("create 1") == 0
    assert memory.run("capture 1 2") == 0
    assert memory.run("spin 1 1000") == 0
    memory.say("end_capture 1")
    files.wait_for_held("go")
    memory.client.recall()
    assert memory.client.hears_none(TurnDropped, for_s=0.3)
    files.make("go")
    assert memory.result("end_capture") == 0
    memory.client.expect(TurnDropped)


def test_a_graph_is_made_ready_when_memory_is_back(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Without the turn a graph is captured, and instantiated with the next one."""
    memory = opened(start, scheduler, "")
    assert memory.run("create 1") == 0
    memory.take_turn()
    assert memory.run("capture 1 2") == 0
    assert memory.run("spin 1 1000") == 0
    memory.say("end_capture 1")
    memory.grant()
    assert memory.result("end_capture") == 0


@pytest.mark.promise("accounts-32")
def test_what_comes_due_while_the_agent_is_held_up_is_told(
    start: Start, scheduler: FakeScheduler
) -> None:
    """Reports keep their distance. One that was put off is due when the agent has said something
    else, which has taken longer than that."""
    program = start("late_report")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000, tenants=1)
    client.budget(client.expect(DeviceOpened).device, UNLIMITED)
    client.grant_request()
    client.send(HoldChanged(hold_ms=60_000))  # else the turn ends with the cell
    program.say("")
    client.expect_memory(lambda report: report.bytes_allocated == 12 * MIB)
    assert program.finish() == 0


def hear_all(client: HookedClient, kinds: set[type]) -> None:
    """In whatever order."""
    while kinds:
        kinds = kinds - {type(client.expect(Message))}


@pytest.mark.promise("hook-12")
def test_a_handler_that_jumps_out_of_a_claim(start: Start, scheduler: FakeScheduler) -> None:
    """The claim that nobody comes back to is none, wherever the thread's stack is since: the next
    one waits, is told and is answered."""
    program = start("jumps_out")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.budget(device, 16 * MIB)
    hear_all(client, {TurnRequested, MemoryNeeded})
    program.signal(signal.SIGINT)
    program.expect("jumped")
    client.expect(RequestWithdrawn)
    heard = len(client.received)
    program.say("again")
    while not any(isinstance(m, MemoryNeeded) and m.bytes for m in client.received[heard:]):
        client.read_more(time.monotonic() + ANSWER_S_MAX)
    client.budget(device, UNLIMITED)
    client.grant_request()
    program.expect("allocated 0")
    client.expect_memory(lambda report: report.bytes_allocated == 64 * MIB)
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
@pytest.mark.parametrize("waits_for", [MemoryNeeded, RoomRequested, TurnRequested])
def test_a_claim_that_was_left_by_a_jump_counts_for_no_cap(
    start: Start, scheduler: FakeScheduler, waits_for: type
) -> None:
    """Under a cap that two such allocations exceed: the first was left in its wait (for budget, for
    room, for the turn), so the second one fits."""
    faults = "fail cuMemCreate nth=1 result=2" if waits_for is RoomRequested else ""
    program = start("jumps_out", env={"GPUSHARE_SIM_FAULTS": faults})
    client = scheduler.accept()
    swaps = waits_for is not TurnRequested
    client.welcome(memory_mode=MemoryMode.SWAP if swaps else MemoryMode.OFF, reclaim_ms=20_000)
    device = client.expect(DeviceOpened).device
    client.send(MemoryLimit(device=device, cap_bytes=96 * MIB, others_bytes=0))
    if waits_for is MemoryNeeded:
        client.budget(device, 16 * MIB)
    hear_all(client, {TurnRequested, waits_for} - {RoomRequested})
    if waits_for is RoomRequested:
        client.budget(device, UNLIMITED)
        client.grant()
        client.expect(RoomRequested)
    program.signal(signal.SIGINT)
    program.expect("jumped")
    if waits_for is not RoomRequested:
        client.expect(RequestWithdrawn)
    program.say("again")
    client.budget(device, UNLIMITED)
    if waits_for is not RoomRequested:
        client.grant_request()
    program.expect("allocated 0")
    client.expect_memory(lambda report: report.bytes_allocated == 64 * MIB)
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
@pytest.mark.parametrize("lock", [1, 2])
def test_a_handler_that_jumps_while_a_lock_is_held(
    start: Start, scheduler: FakeScheduler, lock: int
) -> None:
    """The signal reaches the thread within a lock of the hook's: nobody else waits for it for ever,
    and the next claim is as the first."""
    program = start("jumps_out_of_lock", env={"AT_LOCK": str(lock)})
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.budget(device, 16 * MIB)
    program.expect("jumped")
    program.say("again")
    client.budget(device, UNLIMITED)
    client.grant_request()
    program.expect("allocated 0")
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
@pytest.mark.parametrize("call", [1, 2])
def test_a_handler_that_jumps_while_dispositions_change(
    start: Start, scheduler: FakeScheduler, call: int
) -> None:
    """The hook looks at what the process does with the signal, or has just put its own in place."""
    program = start("jumps_in_dispositions", env={"AT_CALL": str(call)})
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.budget(device, 16 * MIB)
    program.expect("jumped")
    program.say("again")
    client.budget(device, UNLIMITED)
    client.grant_request()
    program.expect("allocated 0")
    assert program.finish() == 0


@pytest.mark.promise("hook-12")
def test_a_handler_that_jumps_when_its_claim_fits_leaves_the_turn_free(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """The signal comes while the thread sees that its claim fits. No call follows, and yet the turn
    goes back; the next claim is as the first."""
    armed = tmp_path / "armed"
    program = start("jumps_out_of_lock", env={"AT_LOCK": "1", "AT_FILE": str(armed)})
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.expect(TurnRequested)
    armed.touch()
    client.grant()
    program.expect("jumped")
    client.recall()
    client.expect(TurnDropped)
    program.say("again")
    client.budget(device, UNLIMITED)
    client.grant_request()
    program.expect("allocated 0")
    client.expect_memory(lambda report: report.bytes_allocated == 64 * MIB)
    client.recall()
    client.expect(TurnDropped)
    assert program.finish() == 0


@pytest.mark.promise(
    "accounts-53",
    "The hook tells of what kinds a process's memory is, before each report that it belongs to",
)
def test_kinds_of_memory_are_told(start: Start, scheduler: FakeScheduler) -> None:
    """By what was allocated, parked or not; and none when it is freed."""
    memory = opened(start, scheduler, "")
    memory.client.expect_memory(lambda report: report.bytes_allocated == HELD)
    told = [m for m in memory.client.received if isinstance(m, MemoryKindsReported)][-1]
    assert (told.bytes_plain, told.bytes_mapped, told.bytes_managed) == (HELD, 0, 0)
    place = memory.client.received.index(told)
    assert isinstance(memory.client.received[place + 1], MemoryReported)
    for tensor in (0, 1):
        assert memory.run(f"drop {tensor}") == 0
    memory.client.expect_memory(lambda report: report.bytes_allocated == 0)
    told = [m for m in memory.client.received if isinstance(m, MemoryKindsReported)][-1]
    assert told.bytes_plain == 0


@pytest.mark.promise("accounts-53")
def test_a_change_of_kinds_alone_is_told(
    tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Of as much memory as before: freed and allocated again between two reports."""
    for program in opening(tmp_path, scheduler, sim, "pooled_session"):
        opened_program = program()
        opened_program.say("a, b = alloc(64 * MIB), 0")
        opened_program.memory.grant()
        opened_program.result()
        opened_program.client.expect_memory(lambda report: report.bytes_allocated == 64 * MIB)
        opened_program.run("b = alloc(2 * MIB); free(a); a = take(64 * MIB)")
        while True:
            kinds = opened_program.client.expect(MemoryKindsReported)
            if (kinds.bytes_plain, kinds.bytes_pooled) == (2 * MIB, 64 * MIB):
                break
