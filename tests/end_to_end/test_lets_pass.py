"""A turn whose memory still comes back, beside a cell that could compute meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_tenants import MemoryTenants, faults, swapping_scheduler
from tests.support.sim import MIB, SimulatedMachine

DEVICE = 512 * MIB
LARGE, SMALL = 400 * MIB, 16 * MIB
COPY_BYTES_PER_S = 100 * MIB
SLOW = {"GPUSHARE_SIM_FAULTS": "stall cuMemcpyHtoDAsync ms=300 times=0 until=served"}
"""So slow that a restore lasts as long as the test needs: until the short cell has been served."""


@pytest.mark.full
@pytest.mark.promise("accounts-10")
def test_a_short_cell_does_not_wait_for_a_long_restore(tmp_path: Path) -> None:
    """It has its answer while the other one's memory comes back, ahead of its next turn."""
    machine = SimulatedMachine(
        tmp_path / "machine",
        bytes_per_device=DEVICE,
        context_bytes=MIB // 4,
        copy_bytes_per_s=COPY_BYTES_PER_S,
    )
    journal = tmp_path / "journal.jsonl"
    with (
        swapping_scheduler(
            tmp_path / "run", machine.env(), f"--journal={journal}", check=True
        ) as scheduler,
        MemoryTenants(scheduler, machine.env(), tmp_path) as tenants,
    ):
        one = tenants.start("one", env=SLOW)
        small, other = (tenants.start(name) for name in ("small", "other"))
        for tenant, size in ((one, LARGE), (small, SMALL), (other, LARGE)):
            tenant.ok("begin")
            tenant.hold(0, len(tenant.name), size)
            tenant.ok("end")

        def parked(status: dict[str, Any]) -> int:
            (row,) = (each for each in status["tenants"] if each["name"] == "one")
            return sum(int(each["bytes_parked"]) for each in row["memory"])

        def comes_back(status: dict[str, Any]) -> bool:
            (device,) = status["devices"]
            holders = [each["name"] for each in device["holders"]]
            return holders == ["one"] and 0 < parked(status) < LARGE

        for command in ("begin", "sums", "end"):
            one.say(command)
        assert one.heard("begin") == [0]
        scheduler.eventually(comes_back)
        small.verify()
        assert parked(scheduler.status()) > 0
        (machine.directory / "served").touch()
        assert one.heard_sums() == one.expected()
        one.heard("end")
        other.verify()
    reasons = [
        command["reason"]
        for entry in map(json.loads, journal.read_text().splitlines())
        for command in entry.get("commands", ())
        if command.get("type") == "RecallTurn"
    ]
    assert reasons.count("lets_pass") == 1
    assert faults(machine) == []
