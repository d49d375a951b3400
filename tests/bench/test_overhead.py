"""The launch path's cost that can be counted; times are the benchmark's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import bench_overhead
from tests.support.machine import Machine
from tests.support.sim import SimulatedMachine
from tests.support.tenants import tenants

INSTRUCTIONS_ADDED_BAR = 120


@pytest.fixture
def machine(sim: SimulatedMachine) -> Machine:
    return Machine(device="simulated GPU", env=sim.env(), sim=sim)


def test_at_most_120_instructions_are_added(machine: Machine, tmp_path: Path) -> None:
    """While the turn is held, the hook adds few instructions to a launch, and some: it is there."""
    bench_overhead.build_programs()
    with tenants(tmp_path / "run", machine.env) as scheduler:
        bare = bench_overhead.stepped_instructions(machine.env)
        hooked = bench_overhead.stepped_instructions(scheduler.env("notebook", machine.env))
    for kind in bench_overhead.KINDS:
        assert 5 <= hooked[kind] - bare[kind] <= INSTRUCTIONS_ADDED_BAR, kind


def test_the_report_has_the_keys_that_others_read(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark's last line is one JSON object with all its figures."""
    monkeypatch.setattr(bench_overhead, "choose_machine", lambda _: machine)
    monkeypatch.setattr(bench_overhead, "BATCHES", 20)
    report = bench_overhead.run(rounds=1, starts=10)
    added = [f"{key}_ns_{what}" for key in bench_overhead.KINDS.values() for what in
             ("bare", "hooked", "added_shared")]  # fmt: skip
    counted = [f"{key}_instructions_added" for key in bench_overhead.KINDS.values()]
    assert set(report) == {"device", "preload_ms_added", *added, *counted}
