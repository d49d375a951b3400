"""Programs with managed memory that together hold more than the device, with a real scheduler."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.memory_tenants import (
    OUT_OF_MEMORY,
    MemoryTenant,
    MemoryTenants,
    faults,
    swapping_scheduler,
)
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import MIB, SimulatedMachine

DEVICE, CONTEXT, RESERVE = 128 * MIB, 4 * MIB, 16 * MIB
SIZE = 80 * MIB
SETTINGS = (
    f"--GPUShareScheduler.device_reserve_bytes={RESERVE}",
    "--GPUShareScheduler.probe_period_s=0.1",
    "--GPUShareScheduler.quantum_s=0.2",
    "--GPUShareScheduler.restore_ahead=off",
)


def machine_in(directory: Path) -> SimulatedMachine:
    return SimulatedMachine(
        directory / "machine",
        bytes_per_device=DEVICE,
        context_bytes=CONTEXT,
        copy_bytes_per_s=4_000_000_000,
    )


def hold(tenant: MemoryTenant, kind: str) -> None:
    tenant.ok("begin")
    tenant.ok(f"{kind} 0 {SIZE}")
    tenant.refill(0, 11, SIZE)
    tenant.ok("end")


def figures(scheduler: SchedulerUnderTest, tenant: MemoryTenant) -> tuple[int, int]:
    """What is parked, and what is fixed."""
    told = next(t for t in scheduler.status()["tenants"] if t["name"] == tenant.name)
    (memory,) = told["memory"]
    return memory["bytes_parked"], memory["bytes_fixed"]


@pytest.mark.promise(
    "together-9",
    "Programs with managed memory that together hold more than the device hand it over with every "
    "byte, all that has to leave is seen to leave, and nothing of it is taken for others'",
)
@pytest.mark.parametrize("other", ["managed", "alloc", "pool"])
def test_two_programs_hand_the_device_over(tmp_path: Path, other: str) -> None:
    """One has managed memory; the other one has that too, or another kind."""
    machine = machine_in(tmp_path)
    with (
        swapping_scheduler(tmp_path / "run", machine.env(), *SETTINGS, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), tmp_path) as tenants,
    ):
        alice, bob = tenants.start("alice"), tenants.start("bob")
        hold(alice, "managed")
        for _ in range(4):
            if not bob.held:
                hold(bob, other)
            bob.verify()
            parked, fixed = figures(scheduler, alice)
            assert fixed == 0 and parked >= 2 * SIZE - (DEVICE - RESERVE)
            alice.verify()
            # A hook that reports late makes its memory foreign until it has.
            scheduler.eventually(lambda s: s["devices"][0]["bytes_foreign"] <= 2 * CONTEXT)
    assert faults(machine) == []


@pytest.mark.promise("together-9")
def test_one_that_is_killed_while_its_memory_is_parked(tmp_path: Path) -> None:
    """What the driver has kept of it is free, and the other one goes on."""
    machine = machine_in(tmp_path)
    with (
        swapping_scheduler(tmp_path / "run", machine.env(), *SETTINGS, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), tmp_path) as tenants,
    ):
        alice, bob = tenants.start("alice"), tenants.start("bob")
        hold(alice, "managed")
        hold(bob, "managed")
        assert figures(scheduler, alice)[0] > 0
        alice.process.signal(signal.SIGKILL)
        alice.process.wait()
        bob.cell(f"managed 1 {24 * MIB}", "fill 1 5")
        bob.held[1] = (5, 24 * MIB)
        bob.verify()


@pytest.mark.promise(
    "together-10",
    "A managed allocation of more than the notebook may have is out of memory",
)
def test_managed_memory_is_not_oversubscribed(tmp_path: Path) -> None:
    """Although the driver alone would grant it."""
    machine = machine_in(tmp_path)
    with (
        swapping_scheduler(tmp_path / "run", machine.env(), *SETTINGS, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), tmp_path) as tenants,
    ):
        alice = tenants.start("alice")
        alice.ok("begin")
        assert alice.result(f"managed 0 {2 * DEVICE}") == OUT_OF_MEMORY
        alice.ok("end")
        hold(alice, "managed")
        alice.verify()
