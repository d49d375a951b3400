"""Runs workloads on the real device, alone or as tenants of a scheduler beside a rival."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.paths import ROOT
from tests.support.tenants import Tenants

TIMEOUT_S = 240


def command(workload: str, *arguments: object) -> list[str]:
    """The command line of a workload module."""
    return [sys.executable, "-m", f"tests.gpu.workloads.{workload}", *map(str, arguments)]


def run(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Run a workload to its end; its report."""
    result = subprocess.run(
        argv, env=dict(env), cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert result.returncode == 0, result.stderr[-4000:]
    report: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return report


class Rival:
    """A process that never stops asking for the device."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process


@contextmanager
def rival(
    scheduler: Tenants, *, launch_ms: float, env: Mapping[str, str] | None = None
) -> Iterator[Rival]:
    """A training loop in a tenant of its own, for as long as the block lasts."""
    process = subprocess.Popen(
        command("rival_loop", launch_ms, TIMEOUT_S),
        env=scheduler.env("rival", env if env is not None else dict(os.environ)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield Rival(process)
        assert process.poll() is None, "the rival died"
    finally:
        process.terminate()
        process.wait(timeout=30)


def counters(scheduler: Tenants, name: str) -> dict[str, Any]:
    """What the scheduler has counted for the tenant of this name."""
    tenants = [t for t in scheduler.status()["tenants"] if t["name"] == name]
    assert tenants, f"the scheduler knows no tenant named {name}"
    found: dict[str, Any] = tenants[0]["counters"]
    return found
