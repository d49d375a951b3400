"""The gate in a real process: asking, passing, shutting, and giving back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import (
    CellBegan,
    CellEnded,
    DeviceClosed,
    DeviceOpened,
    DrainStalled,
    DropReason,
    MemoryAnswered,
    MemoryQueried,
    MemoryReported,
    RequestWithdrawn,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import ClientGone, FakeScheduler, HookedClient
from tests.support.paths import HOOK_LIBRARY
from tests.support.sim import SimulatedMachine
from tests.support.stacks import threads_of
from tests.support.waits import WAIT_S_MAX, wait_until

Opened = Callable[..., tuple[GpuProcess, HookedClient]]
Start = Callable[..., GpuProcess]

MIB = 1 << 20
MS = 1_000_000
TURNS_ROBBED = 3
SOON_MS = 160
"""Four idle times of 40 ms: who asks within them has lost its turn too early."""


@pytest.mark.promise("hook-46")
def test_the_first_launch_waits_for_the_grant(opened: Opened) -> None:
    """A launch asks for the turn by name and returns only after it is granted."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    assert client.expect(TurnRequested).cause == "cuLaunchKernel"
    assert shell.is_silent(for_s=0.2)
    client.grant()
    shell.expect("0 spin 0")
    shell.say("0 sync")
    shell.expect("0 sync 0")
    assert shell.finish() == 0


def test_one_request_for_many_waiting_calls(opened: Opened) -> None:
    """Several threads that wait are one request, and one grant lets all of them through."""
    shell, client = opened()
    for thread in range(1, 5):
        shell.say(f"{thread} current")
        shell.expect(f"{thread} current 0")
        shell.say(f"{thread} spin d 1000")
    client.expect(TurnRequested)
    assert client.hears_none(TurnRequested, for_s=0.2)
    client.grant()
    answers = sorted(shell.expect("") for _ in range(4))
    assert answers == [f"{thread} spin 0" for thread in range(1, 5)]
    assert client.count(TurnRequested) == 1


@pytest.mark.promise(
    "hook-20",
    "A recall drains all work in flight before the turn is dropped, on every kind of stream",
)
@pytest.mark.promise("scheduler-49", "A recall drains before the next turn is granted")
def test_a_recall_shuts_drains_and_drops(opened: Opened, sim: SimulatedMachine) -> None:
    """The turn goes back when nothing is in flight, and the next launch asks again."""
    shell, client = opened(window_ms=1000)
    shell.say("0 poll d")
    turn = client.grant_request()
    shell.expect("0 poll 0")
    shell.say("0 spin d 1000")
    shell.expect("0 spin 0")
    client.recall()
    wait_until_shut(shell)
    assert client.hears_none(TurnDropped, for_s=0.05)
    shell.say("1 release")
    shell.expect("1 release 0")
    dropped = client.expect(TurnDropped)
    assert (dropped.turn_id, dropped.reason) == (turn, DropReason.RECALL)
    assert dropped.drained_at_ns - dropped.closed_at_ns > 5 * MS
    (spin,) = launches(sim)
    assert spin.ended_ns <= dropped.drained_at_ns
    shell.say("0 spin d 1000")
    client.expect(TurnRequested)
    assert shell.is_silent(for_s=0.1)
    client.grant()
    shell.expect("0 spin 0")


def wait_until_shut(shell: GpuProcess) -> None:
    wait_until(lambda: shell.log_lines("shut"))


def launches(sim: SimulatedMachine) -> list[Any]:
    return [record for record in sim.journal() if record.name == "spin"]


@pytest.mark.promise("hook-21", "Frees, destroys, synchronises and reports are never gated")
def test_frees_and_reports_pass_a_shut_gate(opened: Opened) -> None:
    """Only work and allocations wait: frees, stream calls and synchronises never do."""
    shell, client = opened()
    shell.say(f"0 alloc {MIB}")
    assert client.expect(TurnRequested).cause.startswith("cuMemAlloc")
    client.grant()
    shell.expect("0 alloc 0")
    client.recall_and_drop()
    for command in ("free", "create 1", "destroy 1", "sync"):
        shell.say(f"0 {command}")
        shell.expect(f"0 {command.split()[0]} 0")
    assert client.count(TurnRequested) == 1


@pytest.mark.promise(
    "scheduler-50", "The end of the cell gives the turn back, however the cell ends"
)
def test_the_end_of_a_cell_gives_the_turn_back(opened: Opened) -> None:
    """cell_ended drains off the caller's thread and drops the turn, with nobody waiting."""
    shell, client = opened()
    shell.say("0 hook cell_began")
    client.expect(CellBegan)
    shell.say(f"0 spin d {10 * MS}")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say("1 hook cell_ended")
    dropped = client.expect(TurnDropped)
    assert dropped.reason is DropReason.CELL_END
    assert shell.expect("1 hook")


def test_the_turn_is_given_back_before_the_end_of_its_cell_is_told(opened: Opened) -> None:
    """Where no work is left to drain: the scheduler serves the next in the queue first. The end of
    a cell comes before the next one's beginning all the same."""
    shell, client = opened()
    for _ in range(3):
        shell.say("0 hook cell_began")
        client.expect(CellBegan)
        shell.say("0 spin d 1000")
        client.grant_request()
        shell.expect("0 spin 0")
        shell.say("0 sync")
        shell.expect("0 sync 0")
        heard = len(client.received)
        shell.say("0 hook cell_ended")
        client.expect(CellEnded)
        told = [type(each) for each in client.received[heard:]]
        assert told[: told.index(CellEnded) + 1] == [TurnDropped, CellEnded]


@pytest.mark.full
def test_the_next_cell_takes_a_closing_turn_back(opened: Opened) -> None:
    """While the last cell's work still drains and nobody waits, the next cell's launch goes on."""
    shell, client = opened(window_ms=1000, drain_stall_ms=10_000)
    shell.say("0 hook cell_began")
    shell.say("0 poll d")
    client.grant_request()
    shell.expect("0 poll 0")
    shell.say("0 hook cell_ended")
    client.expect(CellEnded)
    shell.say("0 hook cell_began")
    shell.say("0 spin 1 1000")
    shell.expect("0 spin")
    assert client.count(TurnDropped) == 0
    assert client.count(TurnRequested) == 1


@pytest.mark.promise(
    "hook-22",
    "The turn goes back after idle time inside a cell while others wait; device work and waiting "
    "threads are not idle",
)
@pytest.mark.promise("scheduler-52")
def test_an_idle_turn_goes_back_while_others_wait(opened: Opened) -> None:
    """Inside a cell, with a waiter: dropped after idle_ms without work; with none: kept."""
    shell, client = opened(idle_ms=40)
    shell.say("0 hook cell_began")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    assert client.hears_none(TurnDropped, for_s=0.3)
    client.contention(waiters=1)
    assert client.expect(TurnDropped).reason is DropReason.IDLE


@pytest.mark.promise("hook-22")
def test_device_work_and_synchronises_are_not_idle(opened: Opened) -> None:
    """A long launch, and a thread that waits for it, keep the turn though no call is made."""
    shell, client = opened(idle_ms=20, window_ms=1000)
    shell.say("0 poll d")
    client.grant_request()
    shell.expect("0 poll 0")
    client.contention(waiters=1)
    assert client.hears_none(TurnDropped, for_s=0.2)
    shell.say("0 sync")
    assert client.hears_none(TurnDropped, for_s=0.1)
    shell.say("1 release")
    shell.expect("0 sync 0")
    assert client.expect(TurnDropped).reason is DropReason.IDLE


def test_a_withdrawn_wait_gives_a_late_grant_back(opened: Opened) -> None:
    """A grant that crosses the withdrawal is dropped at once, without a call having passed."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.expect(TurnRequested)
    shell.say("1 hook cancel_waits")
    shell.expect("0 spin 800")
    client.expect(RequestWithdrawn)
    turn = client.grant()
    assert client.expect(TurnDropped).turn_id == turn


def test_the_last_context_takes_the_turn_with_it(start: Start, scheduler: FakeScheduler) -> None:
    """A process that gives up its device gives the turn back, and says both."""
    program = start("closes_context", 1000)
    client = scheduler.accept()
    client.welcome()
    client.grant_request()
    program.expect("launched")
    program.say("go")
    program.expect("released")
    until_s = time.monotonic() + WAIT_S_MAX
    while not (client.count(TurnDropped) and client.count(DeviceClosed)):
        client.read_more(until_s)
    assert program.finish() == 0


def test_a_context_that_is_taken_down_keeps_the_turn_until_its_work_is_done(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """The driver waits for the work of a context that is given up; until then nobody else is told
    that the device is free."""
    program = start("closes_context", 300 * MS)
    client = scheduler.accept()
    client.welcome(tenants=1)
    client.grant_request()
    program.expect("launched")
    program.say("go")
    dropped = client.expect(TurnDropped)
    (spin,) = [record for record in sim.journal() if record.name == "spin"]
    assert dropped.drained_at_ns >= spin.ended_ns
    program.expect("released")
    assert program.finish() == 0


def test_a_program_that_ends_during_a_drain_ends(start: Start, scheduler: FakeScheduler) -> None:
    """Launches of libraries that clean up at exit go through, though the turn is on its way back:
    nobody drains any more."""
    program = start("at_exit", 500 * MS)
    client = scheduler.accept()
    client.welcome()
    client.grant_request()
    program.expect("launched")
    client.recall()
    wait_until_shut(program)
    assert program.finish() == 0


def test_a_thread_that_is_cancelled_inside_a_call_holds_nothing_up(
    start: Start, scheduler: FakeScheduler
) -> None:
    """Its call counts as over, the turn goes back, and the thread that gets its place waits."""
    program = start("cancelled_thread")
    client = scheduler.accept()
    client.welcome(tenants=1)
    # Its first call may ask twice: before it knows that memory is not swapped, and at the gate.
    while client.hears(TurnRequested, unless=lambda: program.has_said({"cancelled"})):
        client.grant()
    client.recall_and_drop()
    program.say("")
    client.expect(TurnRequested)
    assert program.is_silent(for_s=0.1)
    client.grant()
    program.expect("launch 0")
    assert program.finish() == 0


def test_gaps_that_were_robbed_are_left_alone(opened: Opened) -> None:
    """A loop that asks again right after it lost its turn for idleness is given twice the time, and
    twice again. On a busy machine it may come too late: then that was the first time."""
    shell, client = opened(idle_ms=40)
    held_ms: list[float] = []
    dropped_ns = 0
    ends_s = time.monotonic() + WAIT_S_MAX
    while len(held_ms) < TURNS_ROBBED:
        assert time.monotonic() < ends_s, "it has never asked in time, so often in a row"
        shell.say("0 spin d 1000")
        client.expect(TurnRequested)
        if time.monotonic_ns() - dropped_ns > SOON_MS * MS:
            held_ms.clear()
        granted_s = time.monotonic()
        client.grant(waiters=1)
        shell.expect("0 spin 0")
        dropped = client.expect(TurnDropped)
        assert dropped.reason is DropReason.IDLE
        dropped_ns = dropped.drained_at_ns
        held_ms.append((time.monotonic() - granted_s) * 1000)
    grain_ms = 1  # the hook counts whole milliseconds
    wanted_ms = (40, 80, 160)
    assert all(held >= ms - grain_ms for held, ms in zip(held_ms, wanted_ms, strict=True)), held_ms


@pytest.mark.promise("hook-10")
def test_a_further_device_ends_the_turn_before_it_is_used(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """A turn covers the devices that were open when it was granted: when the call that opens
    another one returns, the gate is shut, and the next launch asks for both."""
    shell = start("shell", machine=SimulatedMachine(tmp_path / "two", devices=2))
    shell.say("0 open 0")
    client = scheduler.accept()
    client.welcome()
    first = client.expect(DeviceOpened)
    shell.expect("0 open 0")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.say("0 open 1")
    shell.expect("0 open 0")
    shell.say("0 spin d 1000")
    assert client.expect(DeviceOpened).device != first.device
    client.expect(TurnDropped)
    client.expect(TurnRequested)
    assert shell.is_silent(for_s=0.1)
    client.grant()
    shell.expect("0 spin 0")


def test_a_process_that_only_uses_nvml_asks_for_the_tenants_numbers(
    scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """nvmlDeviceGetMemoryInfo without CUDA: the scheduler's answer is what the program sees. It is
    given a second, so that it may have to be asked for again on a busy machine."""
    wanted = [str(1000 * MIB), str(250 * MIB)]
    with subprocess.Popen(
        [sys.executable, "-c", NVML_PROGRAM],
        env=sim.env(scheduler.env(hook=HOOK_LIBRARY)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin and program.stdout
        ends_s, said = time.monotonic() + WAIT_S_MAX, [""]
        while said != wanted and time.monotonic() < ends_s:
            program.stdin.write("\n")
            program.stdin.flush()
            client = scheduler.accept()
            with suppress(ClientGone):
                client.welcome()
                device = client.expect(MemoryQueried).device
                answer = MemoryAnswered(device=device, bytes_total=1000 * MIB, bytes_used=250 * MIB)
                client.send(answer)
            said = program.stdout.readline().split()
        program.stdin.close()
    assert said == wanted


NVML_PROGRAM = """
import ctypes, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
memory = (ctypes.c_ulonglong * 3)()
while sys.stdin.readline():
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    print(memory[0], memory[2], flush=True)
"""


@pytest.mark.promise("hook-35")
def test_memory_is_reported(opened: Opened) -> None:
    """What the process has allocated on a device reaches the scheduler."""
    shell, client = opened()
    shell.say(f"0 alloc {64 * MIB}")
    client.grant_request()
    shell.expect("0 alloc 0")
    assert client.expect(MemoryReported).bytes_allocated >= 64 * MIB
    shell.say("0 free")
    assert client.expect(MemoryReported).bytes_allocated < 64 * MIB


@pytest.mark.promise("hook-34")
def test_a_process_without_cuda_does_nothing(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """No thread, no socket, no file, though cells begin and end."""
    shell = start("shell")
    shell.say("0 hook cell_began")
    shell.expect("0 hook")
    shell.say("0 hook cell_ended")
    shell.expect("0 hook")
    assert "gpushare" not in threads_of(shell.pid).values()
    descriptors = [str(fd.readlink()) for fd in Path(f"/proc/{shell.pid}/fd").iterdir()]
    assert not [name for name in descriptors if name.startswith("socket:")]
    assert not shell.log.exists()
    assert scheduler.accepts_none(for_s=0.2)


@pytest.mark.promise("hook-23", "The agent thread has all signals blocked")
def test_the_agent_has_all_signals_blocked(opened: Opened) -> None:
    """The agent's thread, by its name, takes no signal from the program."""
    shell, _ = opened()
    for task, name in threads_of(shell.pid).items():
        if name == "gpushare":
            status = (task / "status").read_text()
            blocked = int(status.split("SigBlk:")[1].split()[0], 16)
            unblockable = 1 << (9 - 1) | 1 << (19 - 1)
            internal = 0b11 << (32 - 1)  # the C library keeps these two for itself
            assert blocked | unblockable | internal == 2**64 - 1
            return
    raise AssertionError("no agent thread")


def test_describe_tells_the_state(opened: Opened) -> None:
    """gpushare_describe is JSON with the phase, the turn and the counts."""
    shell, client = opened(tenants=3)
    shell.say("0 spin d 1000")
    turn = client.grant_request()
    shell.expect("0 spin 0")
    shell.say("0 describe")
    described = json.loads(shell.expect("description ").partition(" ")[2])
    assert (described["phase"], described["turn"]) == ("held", turn)
    assert described["windowed"] and described["connected"]
    assert (described["tenants"], described["grants"]) == (3, 1)


@pytest.mark.promise(
    "hook-24",
    "`GPUSHARE_LOG=debug` writes request, grant, recall and drop lines with times",
)
def test_debug_lines_tell_the_story_with_times(opened: Opened) -> None:
    """GPUSHARE_LOG=debug: request, grant, recall and drop, each with monotonic milliseconds."""
    shell, client = opened()
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    client.recall_and_drop()
    times_ms = []
    for word in ("request", "grant", "recall", "drop"):
        (line,) = shell.log_lines(word)
        assert f"pid {shell.pid} debug" in line
        times_ms.append(float(line.split("gpushare: ")[1].split(" ms")[0]))
    assert times_ms == sorted(times_ms)
    assert shell.errors() == ""


def test_an_unread_pipe_of_messages_stops_nobody(opened: Opened) -> None:
    """Debug lines go to a stderr that nobody reads: when it is full, lines are lost, and turns go
    on."""
    shell, client = opened(env={"GPUSHARE_LOG_FILE": ""})
    for waiters in range(1500):
        client.contention(waiters=waiters % 2)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    client.recall_and_drop()
    assert len(shell.errors()) >= 60_000


@pytest.mark.promise("hook-25", "A drain that is merely long is waited for")
def test_nothing_stalls_where_nothing_waits(opened: Opened) -> None:
    """A drain that is merely long is reported with no call waiting."""
    shell, client = opened(window_ms=1000, drain_stall_ms=50)
    shell.say("0 poll d")
    client.grant_request()
    shell.expect("0 poll 0")
    client.recall()
    assert client.expect(DrainStalled).calls_waiting == 0
    shell.say("1 release")
    assert client.expect(TurnDropped).reason is DropReason.RECALL
