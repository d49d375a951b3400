"""The hand-over benchmark measures and reports. Whether its bars are met is for the benchmark to
show, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.support.paths import ROOT

ROUNDS = 20


def test_the_hand_over_is_measured() -> None:
    """A short run between two real kernels ends with one JSON object: as many hand-overs as were
    asked for, with their times, and the idle scheduler's share of a CPU."""
    options = [f"--rounds={ROUNDS}", "--idle-kernels=1", "--idle-s=1"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.bench_handoff", *options],
        cwd=ROOT,
        env={**os.environ, "GPUSHARE_DRIVER": "sim"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["device"] == "simulated GPU"
    assert report["rounds"] >= ROUNDS
    assert 0 < report["handoff_ms_p50"] <= report["handoff_ms_p99"] < 1000
    assert 0 <= report["scheduler_idle_cpu_percent"] <= 100
