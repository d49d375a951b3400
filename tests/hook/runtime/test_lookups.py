"""Calls at which the driver looks up addresses, by threads that have no current context."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import TurnRequested
from tests.hook.runtime.memory_shell import MIB, MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import driver_with

Start = Callable[..., GpuProcess]
SIZE = 24 * MIB


@pytest.fixture
def newer_driver(tmp_path: Path) -> dict[str, str]:
    """The simulated driver with one function more, which no header has."""
    source = "int cuBrandNew(void) { return 0; }\n"
    return {"LD_LIBRARY_PATH": driver_with(tmp_path / "newer", source)}


def parked(start: Start, scheduler: FakeScheduler, env: dict[str, str]) -> MemoryShell:
    """A shell whose tensor is in host memory."""
    memory = open_memory_shell(start, scheduler.accept, env=env)
    memory.say(f"new 0 {SIZE}")
    memory.grant()
    assert memory.result("new") == 0
    memory.take_turn()
    memory.park_to(0)
    return memory


@pytest.mark.promise("park-24")
def test_a_node_is_added_by_a_thread_without_a_context(
    start: Start, scheduler: FakeScheduler
) -> None:
    """The node names its context, so the driver takes it (measured), but not while its memory is
    away: the thread waits for the turn."""
    memory = parked(start, scheduler, {})
    memory.say("node 0", thread=1)
    memory.grant()
    assert memory.result("node", thread=1) == 0


@pytest.mark.promise("hook-50")
def test_an_unknown_function_is_called_by_a_thread_without_a_context(
    start: Start, scheduler: FakeScheduler, newer_driver: dict[str, str]
) -> None:
    """It may use any memory of the process, so what is parked comes back first; later calls find it
    there."""
    memory = parked(start, scheduler, newer_driver)
    memory.say("new_function", thread=1)
    memory.grant()
    assert memory.result("new_function", thread=1) == 0
    memory.client.expect_memory(lambda report: report.bytes_parked == 0)
    assert memory.run("new_function") == 0
    assert memory.client.hears_none(TurnRequested, for_s=0.1)
