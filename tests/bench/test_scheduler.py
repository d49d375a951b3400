"""The scheduler's benchmark measures and reports. Whether its bars are met is for the benchmark to
show, by its status, on a machine that does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.bench.bars import exit_status
from tests.bench.bench_scheduler import SHAPES, Cost, Result, bars_of, growth, measure
from tests.support.paths import ROOT
from tests.support.waits import WAIT_S_MAX

GOOD = Result(9000, 300.0, 1.2, 2.0, 0.29, 0.23, 20.0)


@pytest.mark.full
@pytest.mark.promise(
    "speed-6",
    "`make bench-scheduler` measures what an event and the status cost with 10 to 10,000 tenants, "
    "and requests under a flood, with its bars",
)
def test_the_cost_of_an_event_is_measured() -> None:
    """A short run ends with one JSON object; the mix is what the bars were set for."""
    options = ["--tenants", "10", "100", "--events=1000"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench.bench_scheduler", *options),
            *("--flood-requests=50", "--flood-runs=1"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["events_per_s_1000"] is None, "nobody measured so many"
    assert report["http_ms_p999_under_flood"] > 0
    assert report["grants_per_event"] >= 0.25
    assert report["recalls_per_grant"] >= 0.2


def test_the_same_seed_leads_to_the_same_mix() -> None:
    """So figures of two states can be compared."""
    first, second = (measure("node", 20, 500) for _ in range(2))
    assert first.grants_per_event == second.grants_per_event
    assert first.recalls_per_grant == second.recalls_per_grant


def test_growth_is_that_of_the_worse_node() -> None:
    """Ten thousand tenants by a hundred."""
    costs = [
        Cost(shape, tenants, 1, rate, 0, 0, 0, 0, 0, 0)
        for shape, rates in zip(SHAPES, ((9000, 8000), (9000, 3000)), strict=True)
        for tenants, rate in zip((100, 10_000), rates, strict=True)
    ]
    assert growth(costs) == 3.0


@pytest.mark.promise("speed-10")
@pytest.mark.parametrize(
    "slow",
    [
        replace(GOOD, events_per_s_1000=4999),
        replace(GOOD, decision_us_p99_1000=1000.1),
        replace(GOOD, growth_100_to_10000=3.01),
        replace(GOOD, status_ms_1000=5.01),
        replace(GOOD, grants_per_event=0.24),
        replace(GOOD, recalls_per_grant=0.19),
        replace(GOOD, http_ms_p999_under_flood=100.1),
    ],
    ids=["events", "decision", "growth", "status", "grants", "recalls", "flood"],
)
def test_a_missed_bar_ends_with_status_1(slow: Result) -> None:
    """Each bar counts by itself."""
    assert exit_status(bars_of(GOOD)) == 0
    assert exit_status(bars_of(slow)) == 1
