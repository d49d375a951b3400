"""The launch path's cost that can be counted; times are the benchmark's business."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import bench_overhead
from tests.bench.bars import exit_status
from tests.support.machine import Machine
from tests.support.sim import SimulatedMachine
from tests.support.tenants import tenants

SHARED_INSTRUCTIONS = 230.0
"""Beside a second tenant; it was 173 to 231, by kind, when this was written."""
WIDE = {"window_ms": 1000}
"""Each step is slow, and a group of launches is as large as it is fast: so none is small."""


@pytest.fixture
def machine(sim: SimulatedMachine) -> Machine:
    return Machine(device="simulated GPU", env=sim.env(), sim=sim)


@pytest.mark.promise(
    "speed-3",
    "At most 71 instructions are added to a launch of each kind while the turn is held",
)
def test_at_most_71_instructions_are_added(machine: Machine, tmp_path: Path) -> None:
    """While the turn is held, the hook adds few instructions to a launch, and some: it is there."""
    bench_overhead.build_programs()
    with tenants(tmp_path / "run", machine.env, settings=WIDE) as scheduler:
        bare = bench_overhead.stepped_instructions(machine.env)
        hooked = bench_overhead.stepped_instructions(scheduler.env("notebook", machine.env))
        with bench_overhead.second_tenant(scheduler, machine.env):
            env = scheduler.env("beside another", machine.env)
            shared = bench_overhead.stepped_instructions(env)
    for kind in bench_overhead.KINDS:
        assert 5 <= hooked[kind] - bare[kind] <= bench_overhead.INSTRUCTIONS_BAR, kind
    # A launch that needs no event.
    assert min(shared[kind] - bare[kind] for kind in bench_overhead.KINDS) <= SHARED_INSTRUCTIONS


@pytest.mark.full
@pytest.mark.promise(
    "speed-4",
    "`make bench-overhead` measures launches bare, hooked and shared, and the start of a process",
)
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


@pytest.mark.promise("speed-10")
def test_a_missed_bar_ends_with_status_1() -> None:
    """The added time of each kind of launch, alone and shared, its instructions, and a start."""
    good: dict[str, float] = {"preload_ms_added": 0.08}
    for key in bench_overhead.KINDS.values():
        good |= {f"{key}_ns_bare": 3000.0, f"{key}_ns_hooked": 3050.0}
        good |= {f"{key}_ns_added_shared": 140.0, f"{key}_instructions_added": 47.0}
    assert exit_status(bench_overhead.bars_of(good)) == 0
    for figure in good.keys() - {f"{key}_ns_bare" for key in bench_overhead.KINDS.values()}:
        assert exit_status(bench_overhead.bars_of({**good, figure: good[figure] * 4})) == 1, figure
