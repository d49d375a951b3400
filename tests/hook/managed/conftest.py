"""Shells whose tensors are managed memory, on a small simulated device, with a fake scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.managed.tensors import HELD, SIZE, Managed
from tests.hook.runtime.conftest import programs, scheduler, start
from tests.hook.runtime.memory_shell import MIB, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine

__all__ = ["programs", "scheduler", "start"]
CONTEXT = 32 * MIB


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """Two contexts, what a shell holds, and a little more."""
    return SimulatedMachine(tmp_path / "sim", bytes_per_device=HELD + 3 * CONTEXT)


@pytest.fixture
def opens(start: Callable[..., GpuProcess], scheduler: FakeScheduler) -> Callable[..., Managed]:
    """Starts a shell that holds the turn and has said nothing of its memory yet."""

    def open_shell(**options: object) -> Managed:
        memory = open_memory_shell(start, scheduler.accept, kind="managed", **options)
        memory.say("spin d 1000")
        memory.grant()
        assert memory.result("spin") == 0
        return Managed(memory)

    return open_shell


@pytest.fixture
def holder(opens: Callable[..., Managed]) -> Managed:
    """One that holds two tensors besides."""
    managed = opens()
    managed.fill()
    return managed


@pytest.fixture
def stranger(start: Callable[..., GpuProcess]) -> Callable[[int], bool]:
    """A process without the hook that takes so much plain memory, and says whether it got it."""
    other = start("shell", env={"GPUSHARE_DISABLE": "1"})
    other.say("0 open")
    other.expect("0 open 0")

    def takes(size: int) -> bool:
        if size == 0:
            other.say("0 drop 0")
            return other.expect("0 drop ") == "0 drop 0"
        other.say(f"0 new 0 {size}")
        return other.expect("0 new ") == "0 new 0"

    return takes


assert SIZE % (8 * MIB) == 0
