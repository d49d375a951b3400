"""Allocations and frees that are wrong or cannot be served, where memory follows the turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.swapping import (
    DEVICE,
    HELD,
    SmallDevice,
    comes_true,
    small_device,
    somebody_else,
)
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS
from tests.support.sim import MIB

FOREIGN_BYTES = 8 * MIB


@pytest.fixture
def device(tmp_path: Path) -> Iterator[SmallDevice]:
    with small_device(tmp_path) as found:
        yield found


@pytest.mark.promise(
    "bad-memory",
    "A device full of somebody else's memory: tenants share the rest, and who needs more than "
    "that is out of memory",
)
def test_a_device_full_of_somebody_elses_memory(device: SmallDevice) -> None:
    """What a process without the hook has cannot be parked: tenants share the rest, and only who
    needs more than that by itself is out of memory. When it goes, there is room again."""
    alice = device.start("alice", seed=1)
    with somebody_else(device, FOREIGN_BYTES):
        device.scheduler.eventually(lambda s: s["devices"][0]["bytes_foreign"] >= FOREIGN_BYTES)
        bob = device.start("bob", seed=2)
        for tenant in (alice, bob, alice):
            tenant.verify()
        bob.ok("begin")
        assert bob.result(f"alloc 1 {DEVICE - HELD - FOREIGN_BYTES}") == OUT_OF_MEMORY
        bob.ok("end")
        bob.verify()
    bob.ok("begin")
    bob.hold(1, 3, 12 * MIB)
    bob.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@pytest.mark.promise(
    "bad-memory",
    "Host memory and control groups exhausted: whoever cannot be parked is no victim, the "
    "newcomer is out of memory until there is room",
)
def test_host_memory_exhausted(tmp_path: Path, device: SmallDevice) -> None:
    """A tenant whose control group has no room for the park is nobody's victim: the newcomer is out
    of memory, and gets it once there is room."""
    group = FakeCgroup(tmp_path / "group")
    group.limit(0)
    alice = device.start("alice", seed=1, env=group.env())
    bob = device.start("bob")
    bob.ok("begin")
    assert bob.result(f"alloc 0 {HELD}") == OUT_OF_MEMORY
    bob.ok("end")
    alice.verify()
    group.limit(None)
    bob.ok("begin")
    comes_true(lambda: bob.result(f"alloc 0 {HELD}") == SUCCESS, "alice tells of her room")
    bob.refill(0, 2, HELD)
    bob.ok("end")
    for tenant in (alice, bob, alice):
        tenant.verify()


@pytest.mark.promise(
    "bad-memory",
    "Allocations of 0 bytes, of more than the cap, of more than the device: the driver's own "
    "errors, at once",
)
def test_allocations_of_nothing_and_of_too_much(device: SmallDevice) -> None:
    """Zero bytes are an invalid value; more than the device has is out of memory, at once and for
    this tenant alone, whoever else has memory there."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    alice.ok("begin")
    assert alice.result("alloc 1 0") == INVALID_VALUE
    for size in (DEVICE, 10 * DEVICE, (1 << 63) + 1):
        assert alice.result(f"alloc 1 {size}", within_s=10) == OUT_OF_MEMORY
    alice.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@pytest.mark.promise("Allocations of 0 bytes, of more...")
def test_allocations_of_more_than_the_cap(tmp_path: Path) -> None:
    """A tenant's cap counts what it has parked too."""
    with small_device(tmp_path, f"--GPUShareScheduler.memory_cap_bytes={HELD + 4 * MIB}") as device:
        alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
        alice.ok("begin")
        assert alice.result(f"alloc 1 {5 * MIB}") == OUT_OF_MEMORY
        assert alice.result(f"alloc 1 {2 * MIB}") == SUCCESS
        alice.ok("free 1")
        alice.ok("end")
        for tenant in (bob, alice):
            tenant.verify()


@pytest.mark.promise(
    "bad-memory",
    "Double frees, frees of foreign pointers: invalid value, and nothing changes",
)
def test_frees_that_are_none(device: SmallDevice) -> None:
    """A second free, a pointer from elsewhere and one into the middle are invalid values; what is
    there stays there."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    alice.ok("begin")
    for slot, size in ((1, 2 * MIB), (2, 4096)):
        alice.ok(f"alloc {slot} {size}")
        alice.ok(f"free {slot}")
        assert alice.result(f"free {slot}") == INVALID_VALUE
    alice.hold(1, 5, 4096)
    (address,) = alice.ok("address 0")
    (small,) = alice.ok("address 1")
    for wrong in (4096, address + 4096, address + 2 * MIB, small + 512):
        assert alice.result(f"free_at {wrong}") == INVALID_VALUE, hex(wrong)
    alice.ok("end")
    for tenant in (bob, alice):
        tenant.verify()


@pytest.mark.promise("bad-memory", "A free while parked needs no turn and brings nothing back")
def test_a_free_while_parked(device: SmallDevice) -> None:
    """Memory that lies in host memory is freed without a turn and without coming back; the rest
    comes back as it was."""
    alice = device.start("alice", seed=1)
    alice.ok("begin")
    alice.hold(1, 4, 6 * MIB)
    alice.hold(2, 5, 8192)
    alice.ok("end")
    bob = device.start("bob", seed=2)
    bob.ok("begin")
    bob.ok("stamp")
    device.await_memory(alice, lambda memory: memory["bytes_parked"] > 0)
    mapped_before = device.bytes_moved(alice.process.pid, "MAP")
    alice.free(0)
    device.await_memory(alice, lambda memory: memory["bytes_allocated"] < HELD)
    assert device.bytes_moved(alice.process.pid, "MAP") == mapped_before
    assert alice.result("free 0") == INVALID_VALUE
    bob.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@pytest.mark.promise("Device reset and context destruction while...")
def test_processes_end_well(device: SmallDevice) -> None:
    """Who has parked memory and ends, ends: with status 0, and leaves the device to the others."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    device.park(alice, by=bob)
    assert alice.process.finish() == 0
    assert alice.process.errors() == ""
    bob.ok("begin")
    bob.hold(1, 3, DEVICE - HELD - 12 * MIB)
    bob.ok("end")
    bob.verify()
    assert bob.process.finish() == 0
