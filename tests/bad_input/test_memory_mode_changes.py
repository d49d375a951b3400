"""The setting memory_mode is changed while allocations wait for their turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.swapping import HELD, SmallDevice, small_device
from tests.support.memory_tenants import OUT_OF_MEMORY, SUCCESS, MemoryTenant
from tests.support.sim import MIB
from tests.support.waits import wait_until

PARKED = 10 * MIB
NEARLY_ALL = 54 * MIB
LONG_NS = 60_000_000_000


@pytest.fixture
def device(tmp_path: Path) -> Iterator[SmallDevice]:
    with small_device(tmp_path) as found:
        yield found


def change(device: SmallDevice, mode: str, *tenants: MemoryTenant) -> None:
    """These have heard of it when this returns."""
    device.scheduler.client.change_settings({"memory_mode": mode})
    wait_until(lambda: all(mode_of(tenant) == mode for tenant in tenants), f"all hear {mode}")


def mode_of(tenant: MemoryTenant) -> str:
    return tenant.process.log_lines("settings: ")[-1].split()[-1]


def wait_for_turn(tenant: MemoryTenant) -> None:
    """Begins an allocation of most of the device, whose call waits when this returns."""
    tenant.ok("begin")
    asked_before = len(tenant.process.log_lines("request: "))
    tenant.say(f"alloc 1 {HELD}")
    wait_until(lambda: len(tenant.process.log_lines("request: ")) > asked_before, tenant.name)


@pytest.mark.promise("accounts-49")
def test_memory_begins_to_follow_while_two_allocations_wait(device: SmallDevice) -> None:
    """Together they want more than the device has, and both have parked memory besides. Both are
    answered: what one waits to allocate is no memory that is in the other's way."""
    alice, bob = (device.start(name, seed=3, size=PARKED) for name in ("alice", "bob"))
    holder = device.start("holder", seed=4, size=NEARLY_ALL)
    for tenant in (alice, bob):
        device.await_memory(tenant, lambda memory: memory["bytes_parked"] > 0)
    holder.ok("begin")
    holder.ok(f"spin {LONG_NS}")
    change(device, "off", alice, bob)
    for tenant in (alice, bob):
        wait_for_turn(tenant)
    change(device, "swap", alice, bob)
    holder.process.end()
    results = [tenant.heard("alloc")[0] for tenant in (alice, bob)]
    assert sorted(results) == [SUCCESS, OUT_OF_MEMORY]
    for tenant, result in zip((alice, bob), results, strict=True):
        if result == SUCCESS:
            tenant.free(1)
        tenant.ok("end")
    for tenant in (alice, bob):
        tenant.verify()
