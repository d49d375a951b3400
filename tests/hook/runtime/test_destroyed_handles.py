"""Handles that the program has destroyed. The driver crashes on them: nobody asks it about one."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine


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


@pytest.mark.promise("hook-15")
@pytest.mark.parametrize("then", ["destroy", "begin"])
def test_streams_that_go_when_their_capture_is_over(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, then: str
) -> None:
    """Another thread asks for that, and destroys the stream, or captures in it anew. No capture is
    counted twice: the turn goes back at the end."""
    program = start("ended_when_told", then)
    client = scheduler.accept()
    client.welcome(window_ms=20)
    client.grant_request()
    program.expect("right")
    client.recall_and_drop()
    program.say("end")
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
