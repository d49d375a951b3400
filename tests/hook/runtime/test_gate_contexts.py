"""Which context a call works in: that of its stream, whatever is current on the thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import TwoDevices, program_of
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine

Opened = Callable[..., tuple[GpuProcess, HookedClient]]

NO_CONTEXT, ASSERT = 201, 710


@pytest.mark.promise("hook-26", "Work in a stream waits for the turn, whatever context is current")
def test_a_thread_without_a_context_waits_for_the_turn(opened: Opened) -> None:
    """The driver takes its work into a created stream, so the gate holds it up. Into a default
    stream it cannot launch: that fails at once."""
    shell, client = opened()
    shell.say("0 create 1")
    shell.expect("0 create 0")
    shell.say("1 set d")
    shell.expect(f"1 set {NO_CONTEXT}")
    assert client.count(TurnRequested) == 0
    shell.say("1 set 1")
    client.grant_request()
    shell.expect("1 set 0")
    client.recall_and_drop()
    shell.say("1 set 1")
    assert client.expect(TurnRequested).cause.startswith("cuMemsetD32Async")
    client.grant()
    shell.expect("1 set 0")


@pytest.mark.promise("hook-26")
def test_work_in_a_healthy_context_waits_though_the_current_one_has_failed(
    tmp_path: Path, scheduler: FakeScheduler
) -> None:
    """Calls in the failed context answer their error at once; those into a stream of the other
    one wait for the turn."""
    machine = SimulatedMachine(tmp_path / "sim", devices=2)
    process = program_of(tmp_path, scheduler, machine, "")
    both = TwoDevices(process, scheduler)
    try:
        both.say("on(OTHER); s, b = stream_create(), alloc(4096)")
        both.say("on(CONTEXT); launch('assert_fail', 0); print('f', call('cuCtxSynchronize'))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == str(ASSERT)
        both.client.expect(TurnDropped)
        fill = "call('cuMemsetD8Async', c_uint64(b), 1, c_size_t(64), c_void_p({stream}))"
        both.say(f"print('old', {fill.format(stream=0)})")
        assert both.hears("old") == str(ASSERT)
        both.say(f"print('other', {fill.format(stream='s')})")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("other") == "0"
    finally:
        process.end()
