"""Handles that the program has destroyed. The driver crashes on them: nobody asks it about one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from jupyter_gpushare.protocol.messages import (
    DeviceOpened,
    DrainStalled,
    MemoryMode,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine

STALE_AFTER_S = 2.1
"""The hook asks about captures that are older (streams.c)."""
Opened = Callable[..., tuple[GpuProcess, HookedClient]]


@pytest.mark.promise(
    "hook-15", "The driver is never asked about a stream that the program has destroyed"
)
def test_streams_that_come_and_go_beside_another_tenant(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """A thread uses more streams than the window can tell apart, and destroys them: the next ones
    take their places without a question about those that have gone."""
    program = start("streams_come_and_go")
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    program.expect("right")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-15")
@pytest.mark.parametrize(
    "words", ["destroyed_when_told", "captured_when_told own", "captured_when_told legacy"]
)
def test_streams_that_go_when_the_device_says_so(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, words: str
) -> None:
    """Another thread destroys each one, or captures in it, while the call that worked in it may
    still be under way."""
    program = start(*words.split())
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    program.expect("right")
    assert program.finish() == 0, program.errors()


@pytest.fixture
def ending(opened: Opened, sim: SimulatedMachine) -> Iterator[tuple[GpuProcess, HookedClient]]:
    """The driver has ended the capture of stream 1, and the call has yet to return: it does when
    the file `go` is there. Another thread has the context, and captures in stream 2."""
    faults = "hold cuStreamEndCapture.done until=go"
    shell, client = opened({"GPUSHARE_SIM_FAULTS": faults}, window_ms=50)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    for line in ("0 create 1 b", "1 current", "1 create 2", "1 capture 2 2", "0 capture 1 2"):
        shell.told(line)
    shell.say("0 end_capture 1")
    Files(sim).wait_for_held("go")
    yield shell, client


@pytest.mark.promise("hook-15")
def test_a_stream_goes_as_soon_as_its_capture_is_over(
    ending: tuple[GpuProcess, HookedClient], sim: SimulatedMachine
) -> None:
    """Another thread has looked, and destroys it: it is asked about no more."""
    shell, client = ending
    shell.told("1 destroy 1")
    Files(sim).make("go")
    shell.expect("0 end_capture 0")
    shell.told("1 end_capture 2")
    client.recall_and_drop()


@pytest.mark.promise("hook-13")
@pytest.mark.parametrize("first", ["that one", "this one"])
def test_a_stream_captures_anew_as_soon_as_its_capture_is_over(
    ending: tuple[GpuProcess, HookedClient], sim: SimulatedMachine, first: str
) -> None:
    """Two captures have begun there, and two have ended, whichever call returns first: none keeps
    the turn."""
    shell, client = ending
    shell.told("1 capture 1 2")
    if first == "this one":
        shell.told("1 end_capture 1")
    Files(sim).make("go")
    shell.expect("0 end_capture 0")
    if first == "that one":
        shell.told("1 end_capture 1")
    shell.told("1 end_capture 2")
    client.recall_and_drop()


@pytest.mark.promise("hook-13")
def test_an_end_takes_no_capture_of_a_stream_with_the_same_handle(
    ending: tuple[GpuProcess, HookedClient], sim: SimulatedMachine
) -> None:
    """The one that has it now captures on: its launches need no turn, and a recall leaves it."""
    shell, client = ending
    shell.told("1 end_capture 2")
    shell.told("1 again 1 b")
    shell.told("1 capture 1 1")
    Files(sim).make("go")
    shell.expect("0 end_capture 0")
    client.recall_and_drop()
    shell.told("1 spin 1 1000 3")
    shell.told("1 end_capture 1")


@pytest.mark.promise("hook-13")
def test_an_end_takes_no_capture_that_has_begun_since(
    ending: tuple[GpuProcess, HookedClient], sim: SimulatedMachine
) -> None:
    """Its own one was forgotten before its call has returned: whoever frees memory asks about one
    that is old. The new one captures on."""
    shell, client = ending
    time.sleep(STALE_AFTER_S)
    shell.told("1 alloc 1048576")
    shell.told("1 free")
    shell.told("1 capture 1 2")
    Files(sim).make("go")
    shell.expect("0 end_capture 0")
    shell.told("1 end_capture 2")
    client.recall_and_drop()
    shell.told("1 spin 1 1000 3")
    shell.told("1 end_capture 1")


@pytest.mark.promise("hook-13")
@pytest.mark.parametrize("beside", ["a stray end", "a late end", "a begin that is refused"])
def test_a_capture_ends_beside_a_call_that_is_refused(
    opened: Opened, sim: SimulatedMachine, beside: str
) -> None:
    """That one comes to the hook first, before the capture has begun or while it is under way, and
    to the driver later: neither stays in the table."""
    faults = "hold cuStreamBeginCapture until=begin; hold cuStreamEndCapture until=end"
    shell, client = opened({"GPUSHARE_SIM_FAULTS": faults}, window_ms=50)
    files = Files(sim)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    for line in ("0 create 1 b", "1 current"):
        shell.told(line)
    if beside == "a begin that is refused":
        shell.say("1 capture 1 2")
        files.wait_for_held("begin")
        shell.told("0 capture 1 2")
        shell.say("0 end_capture 1")
        files.wait_for_held("end")
        files.make("begin")
        assert shell.expect("1 capture") != "1 capture 0"
        files.make("end")
        shell.expect("0 end_capture")
    else:
        if beside == "a late end":
            files.make("begin")
        shell.say("0 capture 1 2")
        if beside == "a stray end":
            files.wait_for_held("begin")
        else:
            shell.expect("0 capture 0")
        shell.say("1 end_capture 1")
        files.wait_for_held("end")
        if beside == "a stray end":
            files.make("begin")
            shell.expect("0 capture 0")
        shell.told("0 end_capture 1")
        files.make("end")
        shell.expect("1 end_capture 401")
    client.recall_and_drop()


@pytest.mark.promise("hook-13")
@pytest.mark.parametrize("call", ["begin", "refused", "end"])
def test_a_handler_that_jumps_out_of_a_capture_leaves_none(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine, call: str
) -> None:
    """The drain stalls once and asks the driver: the turn goes back, and the next wait for it can
    be interrupted."""
    faults = {
        "begin": "hold cuEventRecord from=full until=go",
        "refused": "hold cuStreamBeginCapture until=go; fail cuStreamBeginCapture result=999",
        "end": "hold cuStreamEndCapture until=go",
    }
    program = start("jumps_out_of_captures", call, env={"GPUSHARE_SIM_FAULTS": faults[call]})
    client, files = scheduler.accept(), Files(sim)
    client.welcome(window_ms=20, drain_stall_ms=50)
    client.grant_request()
    program.expect("launched")
    if call == "begin":
        files.make("full")
        files.wait_for_held("go")
    program.say("now")
    program.expect("calls")
    if call == "begin":
        assert program.is_silent(for_s=0.2)
    else:
        files.wait_for_held("go")
    program.signal(signal.SIGINT)
    files.make("go")
    program.expect("jumped")
    program.expect("over")
    client.recall_and_drop()
    program.say("now")
    client.expect(TurnRequested)
    program.signal(signal.SIGINT)
    program.expect("interrupted")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-13")
def test_a_capture_that_is_left_at_any_lock_lets_the_turn_go(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Before the driver has begun it or ended it, and after. The table has several of one stream
    then, and none of them goes on."""
    program = start("leaves_captures", "jumps")
    client = scheduler.accept()
    client.welcome(window_ms=20, drain_stall_ms=50)
    client.grant_request()
    left = program.expect("left").removeprefix("left ")
    assert int(left) >= 4
    client.recall_and_drop()
    client.grant_request()
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-13")
def test_memory_freed_beside_a_capture_that_was_left_comes_back(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Nobody else wants the device, so no drain asks which captures are over: allocations do."""
    program = start("leaves_captures", "frees")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    client.budget(client.expect(DeviceOpened).device, UNLIMITED)
    client.grant_request()
    program.expect("left")
    client.expect_memory(lambda report: report.bytes_allocated >= 64 << 20)
    client.expect_memory(lambda report: report.bytes_allocated < 64 << 20)
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-13")
def test_a_capture_that_another_thread_has_ended_does_not_come_back(
    opened: Opened, sim: SimulatedMachine
) -> None:
    """It had begun, its call has yet to return, and its stream is destroyed. A drain that stalls
    has asked about another one meanwhile."""
    faults = "hold cuStreamBeginCapture.done from=second until=begun"
    shell, client = opened({"GPUSHARE_SIM_FAULTS": faults}, drain_stall_ms=50)
    files = Files(sim)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    for line in ("0 create 1", "0 create 2", "0 create 3", "0 poll 3"):
        shell.told(line)
    for line in ("1 current", "0 capture 1 2"):
        shell.told(line)
    asked_from_s = time.monotonic() + STALE_AFTER_S
    files.make("second")
    shell.say("1 capture 2 2")
    files.wait_for_held("begun")
    client.recall()
    while time.monotonic() < asked_from_s:
        client.expect(DrainStalled)
    client.expect(DrainStalled)
    client.reopen()
    shell.told("0 release")
    shell.told("0 end_capture 2")
    shell.told("0 destroy 2")
    files.make("begun")
    shell.expect("1 capture 0")
    shell.told("0 end_capture 1")
    client.contention(waiters=0, tenants=1)
    shell.told("0 spin p 1000")
    client.contention(waiters=1)
    client.recall_and_drop()


@pytest.mark.promise("hook-12")
def test_a_capture_leaves_the_handlers_of_the_process_alone(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Another thread may be about to set one: only a wait at the gate puts the hook's in place."""
    faults = "hold cuStreamBeginCapture until=go"
    program = start("jumps_out_of_captures", "looks", env={"GPUSHARE_SIM_FAULTS": faults})
    client, files = scheduler.accept(), Files(sim)
    client.welcome(window_ms=20)
    client.grant_request()
    program.expect("launched")
    files.wait_for_held("go")
    program.say("now")
    program.expect("in place")
    files.make("go")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-15")
@pytest.mark.parametrize("way", ["cancel", "jump", "beside"])
def test_a_stream_goes_after_a_recording_that_is_left(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine, way: str
) -> None:
    """The thread is cancelled there, or a signal's handler jumps out: it ends what it has begun
    first. A stream of another context does not wait for that."""
    faults = "hold cuEventRecord from=full until=go"
    program = start("cancelled_recording", way, env={"GPUSHARE_SIM_FAULTS": faults})
    client, files = scheduler.accept(), Files(sim)
    client.welcome(window_ms=20)
    client.grant_request()
    files.make("full")
    files.wait_for_held("go")
    if way != "jump":
        program.say("now")
        program.expect("told")
    else:
        program.signal(signal.SIGINT)
    files.make("go")
    program.expect("right")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-15")
def test_a_launch_that_a_jump_has_left_is_over(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """The hook records behind it, and another thread waits at the gate: the turn goes back."""
    faults = "hold cuEventRecord from=full until=go"
    program = start("cancelled_recording", "waits", env={"GPUSHARE_SIM_FAULTS": faults})
    client, files = scheduler.accept(), Files(sim)
    client.welcome(window_ms=20, drain_stall_ms=50)
    client.grant_request()
    files.make("full")
    files.wait_for_held("go")
    client.recall()
    client.expect(DrainStalled)  # the gate is shut
    program.say("now")
    program.expect("told")
    while client.expect(DrainStalled).calls_waiting == 0:
        pass
    program.signal(signal.SIGINT)
    files.make("go")
    program.expect("jumped")
    client.expect(TurnDropped)
    client.grant_request()
    program.expect("right")
    assert program.finish() == 0, program.errors()
