"""Programs that make and map their memory themselves, with a fake scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.runtime.conftest import scheduler
from tests.hook.runtime.mapping_program import MappingProgram, Opens, start_mapping_program
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine

__all__ = ["scheduler"]


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """Slow enough for a test to come in the middle of a copy."""
    return SimulatedMachine(tmp_path / "sim", devices=2, copy_bytes_per_s=1_000_000_000)


@pytest.fixture
def opens(tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine) -> Iterator[Opens]:
    """Starts a program that has opened a device, and is welcomed with these settings."""
    started: list[GpuProcess] = []

    def start(faults: str = "", env: dict[str, str] | None = None, **more: int) -> MappingProgram:
        started.append(start_mapping_program(tmp_path, scheduler, sim, faults, env))
        return MappingProgram(started[-1], scheduler, Files(sim), **more)

    yield start
    for process in started:
        process.end()
