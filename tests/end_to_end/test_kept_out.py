"""A program whose words make the scheduler fail, under the real hook."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.scheduler.test_core_fails import FailingScheduler
from tests.support.memory_tenants import MemoryTenants
from tests.support.sim import MIB, SimulatedMachine

LETS_CALLS_RUN = (
    "--GPUShareScheduler.fallback=run",
    "--GPUShareScheduler.reconnect_s=1",
    "--GPUShareScheduler.memory_mode=swap",
)
ADMITTED_AFTER_S = 10.0
ADMITTED_S_MAX = 25.0
"""The hook tries again every 5 s."""


@pytest.mark.promise("scheduler-108")
def test_its_calls_wait_although_the_fallback_lets_calls_run(
    sim: SimulatedMachine, tmp_path: Path
) -> None:
    """The other one computes meanwhile. Later it is admitted, goes on, and has lost nothing."""
    env = sim.env()
    scheduler = FailingScheduler(
        tmp_path / "run", *LETS_CALLS_RUN, env={"CUDA_VISIBLE_DEVICES": "0", **env}
    )
    try:
        with MemoryTenants(scheduler, env, tmp_path) as tenants:
            bad, good = tenants.start("bad"), tenants.start("good")
            good.hold(0, 2, 4 * MIB)
            bad.ok("begin")
            bad.hold(0, 1, 4 * MIB)
            bad.ok("end")
            scheduler.eventually(lambda status: "does not hear" in scheduler.log)
            failed_s = time.monotonic()
            bad.say("sums")
            while time.monotonic() < failed_s + ADMITTED_AFTER_S / 2:
                assert good.sums() == good.expected()
            assert bad.heard_sums(within_s=ADMITTED_S_MAX) == bad.expected()
            assert time.monotonic() > failed_s + ADMITTED_AFTER_S - 1
            said = bad.process.log.read_text() + bad.process.errors()
            assert "lets it in again at" in said and "10 s after that" in said
            assert "without taking turns" not in said
    finally:
        assert scheduler.stop() == 0, scheduler.log
