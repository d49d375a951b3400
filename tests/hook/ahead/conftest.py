"""Shells whose memory is parked in a control group, with a mover that stops where a test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.ahead.copier import HELD, SEGMENT, TENSORS, Copier, Copiers
from tests.hook.runtime.conftest import programs, scheduler, start
from tests.hook.runtime.memory_shell import MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_arena import Group
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine

__all__ = ["HELD", "SEGMENT", "TENSORS", "programs", "scheduler", "start"]

KINDS = ["plain", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("mapped", "pooled"))]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """With ample room."""
    made = Group(tmp_path)
    made.leave(4 * HELD)
    return made


@pytest.fixture
def files(sim: SimulatedMachine) -> Files:
    return Files(sim)


Opens = Callable[..., MemoryShell]


@pytest.fixture
def opens(start: Callable[..., GpuProcess], scheduler: FakeScheduler, group: Group) -> Opens:
    """Starts a process of the group that holds the turn and three tensors of a segment each."""

    def open_shell(kind: str = "plain", faults: str = "") -> MemoryShell:
        env = {**group.env, "GPUSHARE_SIM_FAULTS": faults}
        memory = open_memory_shell(start, scheduler.accept, env=env, kind=kind, reclaim_ms=500)
        memory.say("spin d 1000")
        memory.grant()
        assert memory.result("spin") == 0
        for tensor in range(TENSORS):
            memory.fill(tensor, SEGMENT)
        return memory

    return open_shell


@pytest.fixture
def copier_of(opens: Opens, files: Files, sim: SimulatedMachine, group: Group) -> Copiers:
    """Such a process, of that kind of memory, with faults of the driver. It holds the turn."""
    return lambda *words: Copier(opens(*words), files, sim, group)
