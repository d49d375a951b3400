"""Memory of graphs while the turn comes and goes, with the real mover."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    DeviceOpened,
    MemoryMode,
    MemoryReported,
    TurnRequested,
)
from tests.hook.runtime.mapping_program import MappingProgram, Opens, opening
from tests.hook.runtime.memory_shell import MIB, MemoryShell
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import GIB, SimulatedMachine

SIZE = 256 * MIB


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", devices=1, bytes_per_device=GIB)


@pytest.fixture
def opens(tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine) -> Iterator[Opens]:
    yield from opening(tmp_path, scheduler, sim, "pooled.graph_session")


def launched(opens: Opens) -> MappingProgram:
    """A program whose graph has run, and has its memory reserved."""
    program = opens()
    program.run(f"graph = executable({SIZE})")
    program.say("run(graph)")
    program.memory.grant()
    assert program.result() == "0"
    program.client.expect_memory(lambda report: report.bytes_fixed == SIZE)
    return program


def is_given_up(report: MemoryReported) -> bool:
    return report.bytes_allocated - report.bytes_parked == 0 and report.bytes_fixed == 0


@pytest.mark.promise("accounts-54")
@pytest.mark.parametrize("waits", [False, True])
def test_it_is_given_up_though_a_launch_waits(opens: Opens, waits: bool) -> None:
    """For the turn, as a program's next launch mostly does. It has its memory when that comes."""
    program = launched(opens)
    program.memory.take_turn()
    if waits:
        program.say("run(graph)")
        program.client.expect(TurnRequested)
    program.memory.budget(0)
    program.client.expect_memory(is_given_up)
    if waits:
        program.allow_all()
        assert program.result() == "0"
        program.client.expect_memory(lambda report: report.bytes_fixed == SIZE)


@pytest.mark.promise("accounts-54")
def test_it_is_given_up_though_the_mover_had_looked_before(opens: Opens) -> None:
    """When nothing had to leave yet: after the drop, before the budget."""
    program = launched(opens)
    program.say(f"a = alloc({64 * MIB})")
    assert program.result() == "None"
    program.memory.budget(UNLIMITED, hint_bytes=MIB)
    program.memory.take_turn()
    for _ in range(3):  # the mover is woken by each
        program.memory.limit(UNLIMITED, hint_bytes=MIB)
        program.wait_until_the_mover_waits()
    program.memory.budget(0)
    program.client.expect_memory(is_given_up)


@pytest.mark.promise("accounts-54")
def test_a_jump_out_of_a_launch_keeps_nothing(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Of the handler of SIGINT: when the graph is gone and its memory trimmed, none counts."""
    process = start("jumps_out_of_graphs")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=300)
    memory = MemoryShell(process, client, client.expect(DeviceOpened).device)
    memory.grant()
    process.expect("launched 0")
    process.expect("waited 0")
    memory.take_turn()
    process.say("go on")
    client.expect(TurnRequested)
    process.signal(signal.SIGINT)
    process.expect("jumped")
    process.say("go on")
    for said in ("destroyed 0", "trimmed 0", "waited 0"):
        process.expect(said)
    client.expect_memory(lambda report: report.bytes_allocated == 0)
