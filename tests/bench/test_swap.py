"""The benchmarks of moving memory measure and report. Whether their bars are met is for them to
show, on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.sim import MIB

HELD_MIB = 320


def last_line(name: str, *options: str) -> dict[str, Any]:
    """What a benchmark reports of the simulated device."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.bench_{name}", *options],
        cwd=ROOT,
        env={**os.environ, "GPUSHARE_DRIVER": "sim"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["device"] == "simulated GPU"
    return report


def test_swapping_is_measured(tmp_path: Path) -> None:
    """A short run ends with one JSON object: most of what each client holds has moved each way, no
    faster than the plain copy of the same run, and every byte was right; raw samples lie beside."""
    report = last_line("swap", f"--mib={HELD_MIB}", "--rounds=1", f"--output={tmp_path}")
    assert report["checksums_ok"] is True
    assert HELD_MIB * MIB * 0.5 <= report["bytes_each_way"] <= HELD_MIB * MIB
    assert 0.9 <= report["copy_gbps_limit"] <= 1.01
    assert 0.05 < report["ratio_to_limit"] <= 1.05
    for kind in ("handoff_gbps", "park_gbps", "restore_gbps", "first_park_gbps"):
        assert 0.05 < report[kind] <= 1.1, (kind, report)
    samples = json.loads((tmp_path / "swap-samples.json").read_text())
    assert len(samples["handoffs"]) == 2 and len(samples["plain_ns"]["both"]) == 1


def test_allocating_is_measured(tmp_path: Path) -> None:
    """A short run ends with one JSON object: both ratios, and what they were made from."""
    report = last_line("alloc", "--batches=2", f"--output={tmp_path}")
    assert report["alloc_ratio"] > 0 and report["alloc_us_bare"] > 0
    assert report["small_bytes_bare"] >= 10_000 * 4096
    assert report["small_memory_ratio"] <= 1.10
    samples = json.loads((tmp_path / "alloc-samples.json").read_text())
    assert len(samples["bare_ns"]) == len(samples["hooked_ns"]) == 200
