"""Stream-ordered memory under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode, TurnDropped, TurnRequested
from tests.hook.runtime.memory_shell import MIB
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_sanitizers import Sanitized, assert_clean, sanitized
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine

__all__ = ["sanitized"]


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim")


def take_turns(scheduler: FakeScheduler, program: GpuProcess) -> tuple[int, str]:
    """Until the program ends; most times its memory leaves in between. How many there were, and
    what it says last."""
    said = ""

    def has_ended() -> bool:
        nonlocal said
        with suppress(TimeoutError):
            said = program.expect("wrong", within_s=0.01)
        return said != ""

    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000, drain_stall_ms=10_000)
    device = client.expect(DeviceOpened).device
    turns = 0
    while client.hears(TurnRequested, unless=has_ended):
        client.budget(device, UNLIMITED)
        client.grant()
        turns += 1
        time.sleep(0.01)
        client.recall()
        client.expect(TurnDropped)
        client.budget(device, (0, 64 * MIB, UNLIMITED)[turns % 3])
    return turns, said


@pytest.mark.promise("hook-29")
@pytest.mark.full
def test_threads_share_a_pool_under_a_sanitizer(
    sanitized: Sanitized, scheduler: FakeScheduler
) -> None:
    """Six threads in a pool that is too small for them, with recalls: no report, nobody reads
    another one's number, and nothing is kept in the end."""
    program = sanitized("pools", 6, 40, 96)
    turns, said = take_turns(scheduler, program)
    assert (turns > 0, said) == (True, "wrong 0, left 0, much")
    program.say("end")
    assert_clean(program)
