"""Waiting for budget and for room, and copies that fail, under the sanitizers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import MemoryNeeded, RoomRequested
from tests.hook.runtime.memory_shell import MIB, MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_sanitizers import Sanitized, assert_clean, sanitized
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine

__all__ = ["sanitized"]

SIZE = 12 * MIB
HELD = 2 * SIZE
FAULTS = """\
fail cuMemcpyDtoHAsync nth=1 times=2 result=1
fail cuMemCreate nth=5 times=4 result=2
"""
"""The first two copies out; and, after the two chunks of what is held came back once, the next
four allocations."""


@pytest.fixture
def memory(sanitized: Sanitized, scheduler: FakeScheduler, sim: SimulatedMachine) -> MemoryShell:
    """A shell that holds the turn and two tensors, on a device with faults."""
    (sim.directory / "faults").write_text(FAULTS)

    def start(name: str, **_: Any) -> GpuProcess:
        return sanitized(name)

    starts: Callable[..., GpuProcess] = start
    opened = open_memory_shell(starts, scheduler.accept)
    opened.say("spin d 1000")
    opened.grant()
    assert opened.result("spin") == 0
    opened.fill(0, SIZE)
    opened.fill(1, SIZE)
    return opened


def until_both_end(memory: MemoryShell, step: Callable[[], object]) -> list[str]:
    """Does this again and again, until both threads have answered."""
    answers: list[str] = []
    while len(answers) < 2:
        with suppress(TimeoutError):
            step()
        with suppress(TimeoutError):
            answers.append(memory.shell.expect("", within_s=0.05))
    return sorted(answers)


@pytest.mark.promise("park-60")
@pytest.mark.full
def test_needs_rooms_and_failed_copies_under_a_sanitizer(memory: MemoryShell) -> None:
    """Copies out that fail and are made again, room that is asked for again and again by two
    threads, interrupts and refusals of both: no report, and every byte is there in the end."""
    client = memory.client
    memory.take_turn()
    memory.budget(0)
    client.expect_memory(lambda report: report.bytes_fixed > 0)
    client.expect_memory(lambda report: report.bytes_parked == HELD)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    assert memory.run("current", thread=1) == 0

    memory.say(f"new 2 {SIZE // 2}")
    client.expect(RoomRequested)
    client.cancel()
    assert memory.result("new") == 800
    memory.begin_cell()
    for thread in (0, 1):
        memory.say(f"new {2 + thread} {SIZE // 2}", thread=thread)

    def make_room() -> None:
        client.expect(RoomRequested, within_s=0.05)
        client.room(memory.device, made=True)

    assert until_both_end(memory, make_room) == ["0 new 0", "1 new 0"]

    memory.limit(HELD + SIZE)
    for thread in (0, 1):
        memory.say(f"new {4 + thread} {SIZE}", thread=thread)
    memory.need(SIZE)
    assert until_both_end(memory, client.cancel) == ["0 new 800", "1 new 800"]
    memory.limit(HELD + SIZE)  # behind the last interrupt
    memory.begin_cell()

    def refuse() -> None:
        if client.expect(MemoryNeeded, within_s=0.05).bytes:
            memory.budget(HELD + SIZE, refused=True)

    for thread in (0, 1):
        memory.say(f"new {4 + thread} {SIZE}", thread=thread)
    assert until_both_end(memory, refuse) == ["0 new 2", "1 new 2"]
    assert memory.is_whole(0)
    assert memory.is_whole(1)
    assert_clean(memory.shell)
