"""Park and restore under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped, TurnRequested
from tests.hook.runtime.memory_shell import MIB, MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_sanitizers import Sanitized, assert_clean, sanitized
from tests.support.fake_scheduler import FakeScheduler

__all__ = ["sanitized"]

SIZE = 12 * MIB
HELD = 2 * SIZE
CHURN = 2 * MIB


@pytest.fixture
def memory(sanitized: Sanitized, scheduler: FakeScheduler) -> MemoryShell:
    """A shell that holds the turn and two tensors."""

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


@pytest.mark.promise(
    "park",
    "Park and restore are clean under the address, undefined-behaviour and thread sanitizers",
)
@pytest.mark.full
def test_turns_that_park_under_a_sanitizer(memory: MemoryShell) -> None:
    """Threads that allocate, free and launch, a fork, budgets up and down, recalls in every phase:
    no report, and every byte is there in the end."""
    for thread in (1, 2):
        assert memory.run("current", thread=thread) == 0
    memory.say(f"churn 2 {CHURN} 200", thread=1)
    memory.say("loop p 20000", thread=2)
    client = memory.client
    for number in range(9):
        memory.budget(HELD + CHURN // (1 + number % 2))
        memory.take_turn()
        client.expect(TurnRequested)
        waits = number % 4 == 1
        memory.budget(0 if waits else (0, SIZE, HELD)[number % 3])
        if waits:
            client.expect_memory(lambda report: report.bytes_parked > 0)
        memory.say("describe", thread=3)
        memory.budget(HELD + 2 * CHURN, hint_bytes=SIZE)
        client.grant()
        if number % 5 == 2:
            client.recall()
            client.expect(TurnDropped)
            client.expect(TurnRequested)
            memory.budget(HELD + 2 * CHURN)
            client.grant()
        if number == 6:
            assert memory.run("fork", thread=4) == 0
    memory.shell.say("0 stop")
    for thread in (1, 2):
        assert memory.run("echo", thread=thread) == 0
    assert memory.is_whole(0)
    assert memory.is_whole(1)
    memory.take_turn()
    memory.park_to(0)
    assert memory.run("drop 0") == 0
    assert_clean(memory.shell)


@pytest.mark.promise("Park and restore are clean under...")
def test_a_process_that_ends_in_a_restore_under_a_sanitizer(memory: MemoryShell) -> None:
    """A wait that is cancelled in a restore, then the end of the process in another one."""
    memory.take_turn()
    memory.park_to(0)
    for _ in range(2):
        memory.say("spin d 1000")
        memory.grant(SIZE + 2 * MIB)
        memory.client.expect_memory(lambda report: report.bytes_parked < HELD)
        memory.client.cancel()
        assert memory.result("spin") == 800
        memory.client.expect(TurnDropped)
    assert_clean(memory.shell)
