"""The hand-over benchmark measures and reports. Whether its bars are met is for the benchmark to
show, by its status, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.bench.bars import exit_status
from tests.bench.bench_handoff import Result, bars_of
from tests.support.paths import ROOT

ROUNDS = 20
GOOD = Result("", 300, 1.4, 2.1, 0.03, 20.0)


@pytest.mark.promise("The next kernel's cell starts within...")
@pytest.mark.promise(
    "speed",
    "`make bench-handoff` measures the hand-over between two ipykernels and the idle scheduler's "
    "CPU, with its bars",
)
def test_the_hand_over_is_measured() -> None:
    """A short run between two real kernels ends with one JSON object: as many hand-overs as were
    asked for, with their times, and the idle scheduler's share of a CPU."""
    options = [f"--rounds={ROUNDS}", "--idle-kernels=1", "--idle-s=1"]
    options += ["--flood-requests=50", "--flood-runs=1"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_handoff", *options],
        cwd=ROOT,
        env={**os.environ, "GPUSHARE_DRIVER": "sim"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["device"] == "simulated GPU"
    assert report["rounds"] >= ROUNDS
    assert 0 < report["handoff_ms_p50"] <= report["handoff_ms_p99"] < 1000
    assert 0 <= report["scheduler_idle_cpu_percent"] <= 100
    assert report["http_ms_p999_under_flood"] > 0


@pytest.mark.promise("A benchmark that misses a bar...")
@pytest.mark.parametrize(
    "slow",
    [
        replace(GOOD, handoff_ms_p50=3.1),
        replace(GOOD, handoff_ms_p99=15.1),
        replace(GOOD, scheduler_idle_cpu_percent=0.51),
        replace(GOOD, http_ms_p999_under_flood=101.0),
    ],
    ids=["median", "worst", "idle", "flood"],
)
def test_a_missed_bar_ends_with_status_1(slow: Result) -> None:
    """Each bar counts by itself."""
    assert exit_status(bars_of(GOOD, 20)) == 0
    assert exit_status(bars_of(slow, 20)) == 1
