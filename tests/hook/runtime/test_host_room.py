"""Host memory that is full, or was told and is not to be had."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.hook.runtime.memory_shell import open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler

SEGMENT = 64 << 20
"""Chunks of so much in all fill one segment of host memory to the last byte."""
HOUSEKEEPING_S = 1.0

Start = Callable[..., GpuProcess]


@pytest.mark.promise("A free while parked gives host...")
def test_what_is_freed_ends_a_restore_at_once(start: Start, scheduler: FakeScheduler) -> None:
    """What is still parked is freed by another thread: nothing is left to wait for, however full
    the host memory is. One that waited for the mover's next look would wait most of its period, so
    the shortest of three waits tells it on a slow machine too."""
    memory = open_memory_shell(start, scheduler.accept, reclaim_ms=20_000)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SEGMENT)
    assert memory.run("current", thread=1) == 0
    waits_s = []
    for _ in range(3):
        memory.fill(1, SEGMENT)
        memory.take_turn()
        memory.park_to(0)
        memory.say("spin d 1000")
        memory.grant(SEGMENT)
        memory.client.expect_memory(lambda report: report.bytes_parked == SEGMENT)
        began_s = time.monotonic()
        memory.say("drop 1", thread=1)
        assert {memory.shell.expect("") for _ in range(2)} == {"1 drop 0", "0 spin 0"}
        waits_s.append(time.monotonic() - began_s)
        memory.limit(UNLIMITED)
    assert min(waits_s) < HOUSEKEEPING_S / 2
    assert memory.is_whole(0)


@pytest.mark.promise("Host memory is never taken beyond...")
def test_room_that_is_not_there_after_all_is_told(start: Start, scheduler: FakeScheduler) -> None:
    """The driver registers no host memory, so nothing can be parked: the scheduler hears it, and
    waits for nobody in vain."""
    env = {"GPUSHARE_SIM_FAULTS": "fail cuMemHostRegister nth=1 result=2 times=0"}
    memory = open_memory_shell(start, scheduler.accept, env=env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SEGMENT)
    memory.take_turn()
    memory.budget(0)
    report = memory.client.expect_memory(lambda report: report.bytes_host_room == 0)
    assert (report.bytes_allocated, report.bytes_parked) == (SEGMENT, 0)
