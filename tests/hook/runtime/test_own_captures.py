"""Captures in which a thread's own default stream takes part. It has two names, the same ones for
all threads, and only its thread can ask about it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler, HookedClient
from tests.support.sim import MIB

Opened = Callable[..., tuple[GpuProcess, HookedClient]]

NOT_BLOCKING, THREAD_LOCAL = "n", 1


@pytest.mark.promise("hook-13")
@pytest.mark.parametrize("begin, end", [("capture_by_null", "p"), ("capture p 1", "")])
def test_a_capture_that_ends_by_the_other_name_is_over(
    opened: Opened, begin: str, end: str
) -> None:
    """While one is open nobody can say whether the stream's work is done: the turn would stay."""
    shell, client = opened(tenants=1)
    shell.say("0 spin p 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.told(f"0 {begin}")
    shell.told(f"0 end_capture {end}")
    client.recall_and_drop()


@pytest.mark.promise("hook-13")
def test_who_ends_a_capture_that_it_never_began_ends_nobody_elses(opened: Opened) -> None:
    """The driver refuses it. The other thread's capture outlives the next recall."""
    shell, client = opened(window_ms=50)
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.told(f"0 capture p {THREAD_LOCAL}")
    shell.told("1 current")
    shell.say("1 end_capture p")
    assert shell.expect("1 end_capture") != "1 end_capture 0"
    client.recall_and_drop()
    shell.told("0 end_capture p")


@pytest.mark.promise("hook-13")
def test_captures_of_two_own_streams_end_one_by_one(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Each in a context of its own: the one that is left outlives the next recall."""
    program = start("own_captures")
    client = scheduler.accept()
    client.welcome(window_ms=50)
    client.grant_request()
    program.expect("captures")
    client.recall_and_drop()
    program.say("end")
    program.expect("right")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-13")
def test_a_capture_is_over_in_a_context_that_became_known_meanwhile(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """The end is the begin's, though the context had no number of ours before."""
    program = start("captures_in_found")
    client = scheduler.accept()
    client.welcome(tenants=1)
    client.grant_request()
    program.expect("captured")
    client.recall_and_drop()
    program.say("end")
    assert program.finish() == 0, program.errors()


@pytest.mark.promise("hook-13")
def test_a_capture_ends_with_the_thread_whose_own_stream_it_is(opened: Opened) -> None:
    """Nobody could end it any more, and the turn would stay."""
    shell, client = opened(tenants=1)
    shell.say("0 spin p 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.told("1 current")
    shell.told(f"1 capture p {THREAD_LOCAL}")
    shell.told("1 leave")
    client.recall_and_drop()


@pytest.mark.promise("hook-13")
def test_an_own_stream_that_joins_a_capture_by_an_event(opened: Opened) -> None:
    """The capture began in a stream that keeps no order with the default ones; with this, it is
    one of theirs, though no call but the wait has ever named it."""
    shell, client = opened(window_ms=50)
    shell.told(f"0 create 1 {NOT_BLOCKING}")
    shell.say("0 spin d 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.told(f"0 capture 1 {THREAD_LOCAL}")
    shell.told("0 join p 1")
    client.recall_and_drop()
    shell.told("0 join 1 p")
    shell.told("0 end_capture 1")


@pytest.mark.promise("hook-13")
def test_a_capture_that_no_own_stream_has_joined_keeps_no_turn(opened: Opened) -> None:
    """Though a thread has worked in its own stream, and nothing bounded that."""
    shell, client = opened(tenants=1)
    shell.told(f"0 create 1 {NOT_BLOCKING}")
    shell.say("0 spin p 1000")
    client.grant_request()
    shell.expect("0 spin 0")
    shell.told(f"0 capture 1 {THREAD_LOCAL}")
    client.recall_and_drop()
    shell.told("0 end_capture 1")


@pytest.mark.promise("hook-13")
def test_a_free_does_not_wait_for_a_capture_that_begins_meanwhile(opened: Opened) -> None:
    """Its own event says when the work is done; the other thread may wait for who frees."""
    shell, client = opened(window_ms=50, memory_mode=MemoryMode.SWAP)
    (device,) = [each.device for each in client.received if isinstance(each, DeviceOpened)]
    client.budget(device, UNLIMITED)
    shell.say(f"0 alloc {64 * MIB}")
    client.grant_request()
    shell.expect("0 alloc 0")
    shell.told(f"0 create 1 {NOT_BLOCKING}")
    shell.told("1 current")
    shell.told(f"0 spin d {500 * 1_000_000}")
    shell.say("0 free")
    assert shell.is_silent(for_s=0.1)
    shell.told(f"1 capture 1 {THREAD_LOCAL}")
    shell.told("1 join p 1")
    shell.expect("0 free 0")
    shell.told("1 join 1 p")
    shell.told("1 end_capture 1")
