"""Allocations and frees that are wrong or cannot be served, where memory follows the turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.swapping import (
    EVERY_KIND,
    FIRST_FURTHER_SLOT,
    KINDS,
    SmallDevice,
    small_device,
    somebody_else,
)
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS
from tests.support.sim import MIB
from tests.support.waits import wait_until

FOREIGN_BYTES = 8 * MIB


@pytest.fixture
def kind() -> str:
    """Of the memory that alice and bob have."""
    return "plain"


@pytest.fixture
def device(tmp_path: Path, kind: str) -> Iterator[SmallDevice]:
    with small_device(tmp_path, kind=kind) as found:
        yield found


@pytest.mark.promise(
    "bad-memory-22",
    "A device full of somebody else's memory: tenants share the rest, and who needs more than "
    "that is out of memory",
)
@EVERY_KIND
def test_a_device_full_of_somebody_elses_memory(device: SmallDevice) -> None:
    """What a process without the hook has cannot be parked: tenants share the rest, and only who
    needs more than that by itself is out of memory. When it goes, there is room again."""
    alice = device.start("alice", seed=1)
    foreign = FOREIGN_BYTES * device.kind.scale
    with somebody_else(device, foreign):
        device.scheduler.eventually(lambda s: s["devices"][0]["bytes_foreign"] >= foreign)
        bob = device.start("bob", seed=2)
        for tenant in (alice, bob, alice):
            tenant.verify()
        bob.ok("begin")
        assert bob.result(f"alloc 1 {device.size - device.held - foreign}") == OUT_OF_MEMORY
        bob.ok("end")
        bob.verify()
    bob.ok("begin")
    bob.hold(1, 3, 10 * device.kind.scale * MIB)
    bob.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@pytest.mark.promise(
    "bad-memory-23",
    "Host memory and control groups exhausted: whoever cannot be parked is no victim, the "
    "newcomer is out of memory until there is room",
)
@EVERY_KIND
def test_host_memory_exhausted(tmp_path: Path, device: SmallDevice) -> None:
    """A tenant whose control group has no room for the park is nobody's victim: the newcomer is out
    of memory, and gets it once there is room."""
    group = FakeCgroup(tmp_path / "group")
    group.limit(0)
    alice = device.start("alice", seed=1, env=group.env())
    bob = device.start("bob")
    bob.ok("begin")
    assert bob.result(f"alloc 0 {device.held}") == OUT_OF_MEMORY
    bob.ok("end")
    alice.verify()
    group.limit(None)
    bob.ok("begin")
    wait_until(lambda: bob.result(f"alloc 0 {device.held}") == SUCCESS, "alice tells of her room")
    bob.refill(0, 2, device.held)
    bob.ok("end")
    for tenant in (alice, bob, alice):
        tenant.verify()


@pytest.mark.promise(
    "bad-memory-24",
    "Allocations of 0 bytes, of more than the cap, of more than the device: the driver's own "
    "errors, at once",
)
@EVERY_KIND
def test_allocations_of_nothing_and_of_too_much(device: SmallDevice) -> None:
    """Zero bytes are an invalid value; more than the device has is out of memory, at once and for
    this tenant alone, whoever else has memory there."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    alice.ok("begin")
    if device.kind.name == "async":  # measured: an address of nothing
        assert alice.result("alloc 1 0") == SUCCESS and alice.ok("address 1") == [0]
    else:
        assert alice.result("alloc 1 0") == INVALID_VALUE
    for size in (device.size, 10 * device.size, (1 << 63) + 1):
        assert alice.result(f"alloc 1 {size}") == OUT_OF_MEMORY
    alice.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@pytest.mark.promise("bad-memory-24")
@EVERY_KIND
def test_allocations_of_more_than_the_cap(tmp_path: Path, kind: str) -> None:
    """A tenant's cap counts what it has parked too."""
    held, charged = KINDS[kind].held, KINDS[kind].charged
    cap = f"--GPUShareScheduler.memory_cap_bytes={charged + 4 * MIB}"
    with small_device(tmp_path, cap, kind=kind) as device:
        alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
        alice.ok("begin")
        assert alice.result(f"alloc 1 {charged - held + 5 * MIB}") == OUT_OF_MEMORY
        assert alice.result(f"alloc 1 {2 * MIB}") == SUCCESS
        alice.ok("free 1")
        alice.ok("end")
        for tenant in (bob, alice):
            tenant.verify()


@pytest.mark.promise(
    "bad-memory-25",
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


@pytest.mark.promise("bad-memory-25")
@pytest.mark.promise(
    "bad-memory-26",
    "A handle that is released twice, parked or not: invalid value, and what is mapped stays as it "
    "was",
)
@pytest.mark.parametrize("kind", ["mapped"])
def test_memory_that_is_given_back_twice(device: SmallDevice) -> None:
    """A handle that was released, part of a mapping, addresses that are in use or nobody's: all are
    refused, whether the memory is parked or not. It is there as long as it is mapped."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    (address,), (handle,) = alice.ok("address 0"), alice.ok("handle 0")
    size = device.held // device.kind.pieces
    alice.ok(f"release_at {handle}")
    wrong = [f"release_at {handle}", f"release_at {handle + 1000}", f"free_at {address}"]
    wrong += [f"unmap_at {address} {size // 2}", f"unmap_at {address + size // 2} {size // 2}"]
    wrong += [f"unreserve_at {address} {size}", f"unmap_at {1 << 40} {size}"]
    for _ in range(2):
        assert {alice.result(each) for each in wrong} == {INVALID_VALUE}
        alice.verify()
        device.park(alice, by=bob)
    assert {alice.result(each) for each in wrong} == {INVALID_VALUE}
    alice.ok(f"unmap_at {address} {size}")
    alice.ok(f"unreserve_at {address} {size}")
    wrong = [f"unmap_at {address} {size}", f"unreserve_at {address} {size}", f"free_at {address}"]
    assert {alice.result(each) for each in wrong} == {INVALID_VALUE}
    alice.ok("forget 0")
    del alice.held[0]
    for tenant in (bob, alice):
        tenant.verify()


@pytest.mark.promise("bad-memory-25")
@pytest.mark.parametrize("kind", ["async"])
def test_frees_in_a_stream_that_are_none(device: SmallDevice) -> None:
    """Twice, inside, of plain memory, of nothing: all are refused, parked or not."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    (address,) = alice.ok("address 0")
    alice.ok("begin")
    alice.ok(f"pool 2 {2 * MIB}")
    (freed,) = alice.ok("address 2")
    alice.ok("free 2")
    alice.ok("end")
    wrong = [
        f"{call} {at}" for call in ("free_at", "free_async_at") for at in (freed, address + 512)
    ]
    wrong += [f"free_async_at {1 << 40}", f"free_at {address + MIB}"]
    for _ in range(2):
        assert {alice.result(each) for each in wrong} == {INVALID_VALUE}
        alice.verify()
        device.park(alice, by=bob)
    assert {alice.result(each) for each in wrong} == {INVALID_VALUE}
    for tenant in (bob, alice):
        tenant.verify()


@pytest.mark.promise("bad-memory-27", "A free while parked needs no turn and brings nothing back")
@EVERY_KIND
def test_a_free_while_parked(device: SmallDevice, kind: str) -> None:
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
    allocated = device.memory_of(alice)["bytes_allocated"]
    for slot in (0, FIRST_FURTHER_SLOT)[: device.kind.pieces]:
        alice.free(slot)
    if kind == "async":  # a pool keeps what was freed until somebody waits
        alice.ok("sync")
    device.await_memory(alice, lambda memory: memory["bytes_allocated"] < allocated)
    assert device.bytes_moved(alice.process.pid, "MAP") == mapped_before
    assert alice.result("free 0") == INVALID_VALUE
    bob.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@pytest.mark.promise("bad-memory-16")
@EVERY_KIND
def test_processes_end_well(device: SmallDevice) -> None:
    """Who has parked memory and ends, ends: with status 0, and leaves the device to the others."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    device.park(alice, by=bob)
    assert alice.process.finish() == 0
    assert alice.process.errors() == ""
    bob.ok("begin")
    bob.hold(1, 3, 10 * device.kind.scale * MIB)
    bob.ok("end")
    bob.verify()
    assert bob.process.finish() == 0
