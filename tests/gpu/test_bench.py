"""The benchmarks of moving memory on a real device meet their bars."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.bench_swap import FIRST_PARK_CORES
from tests.gpu.test_turns import record
from tests.support.paths import ROOT
from tests.support.sim import GIB

BENCH_S_MAX = 280


def report_of(name: str, *options: str) -> dict[str, Any]:
    """A benchmark's last line. A bar that it missed is in its table, which is printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.bench.bench_{name}", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BENCH_S_MAX,
    )
    print(done.stdout + done.stderr[-4000:])
    assert done.returncode in (0, 1)
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    record(f"bench_{name}", **report)
    return report


@pytest.mark.promise(
    "gpu-1",
    "On a real GPU with 16 GiB each way, a hand-over has at least 0.90 of the plain copy's rate "
    "both ways, park and restore 0.97 of it one way, and a first park 12 GB/s with 16 cores",
)
def test_swapping_is_as_fast_as_the_bus(tmp_path: Path) -> None:
    """With 16 GiB each way, a hand-over has nine tenths of the plain copy's rate both ways, a park
    and a restore 0.97 of it, and a first park 12 GB/s where there are 16 cores."""
    report = report_of("swap", f"--output={tmp_path}")
    assert report["checksums_ok"] is True
    assert report["bytes_each_way"] >= 14 * GIB  # the device has room for a bit of both
    assert report["ratio_to_limit"] >= 0.90
    assert report["park_ratio"] >= 0.97 and report["restore_ratio"] >= 0.97
    if (os.cpu_count() or 1) >= FIRST_PARK_CORES:
        assert report["first_park_gbps"] >= 12


@pytest.mark.promise("speed-11")
def test_allocating_costs_little(tmp_path: Path) -> None:
    """2 MiB cost at most twice the driver's own, small allocations a tenth more device memory."""
    report = report_of("alloc", f"--output={tmp_path}")
    assert report["alloc_ratio"] <= 2
    assert report["small_memory_ratio"] <= 1.10
