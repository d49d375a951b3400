"""An allocation that memory of others makes impossible, as the very first call of a cell: before
its tenant has the turn. It ends, and its user can read why."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bad_input.swapping import HELD, SmallDevice, small_device, somebody_else
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import CANCELLED, OUT_OF_MEMORY, SUCCESS, MemoryTenant
from tests.support.sim import MIB
from tests.support.waits import wait_until

FITS_BESIDE = 8 * MIB
STAYS = {"env": {"GPUSHARE_MEMORY": "off"}}


@pytest.fixture
def device(tmp_path: Path) -> Iterator[SmallDevice]:
    with small_device(tmp_path) as found:
        yield found


@contextmanager
def foreign(device: SmallDevice, directory: Path) -> Iterator[str]:
    """A program without the hook."""
    with somebody_else(device, HELD):
        device.scheduler.eventually(lambda s: s["devices"][0]["bytes_foreign"] >= HELD)
        yield "programs that are not under gpushare"


@contextmanager
def fixed(device: SmallDevice, directory: Path) -> Iterator[str]:
    """A tenant whose memory is to stay where it is."""
    alice = device.start("alice", seed=1, **STAYS)
    device.await_memory(alice, lambda memory: memory["bytes_fixed"] >= HELD)
    yield "alice has 40.0 MiB on"
    alice.verify()
    assert alice.process.finish() == 0


@contextmanager
def host(device: SmallDevice, directory: Path) -> Iterator[str]:
    """A tenant whose control group has no room for what it has."""
    group = FakeCgroup(directory / "group")
    group.limit(0)
    alice = device.start("alice", seed=1, env=group.env())
    yield "for which the host, or the memory limit of its server, has no room"
    alice.verify()
    group.limit(None)


@contextmanager
def holder(device: SmallDevice, directory: Path) -> Iterator[str]:
    """A tenant whose memory stays, and who has the turn for as long as this lasts."""
    alice = device.start("alice", seed=1, **STAYS)
    device.await_memory(alice, lambda memory: memory["bytes_fixed"] >= HELD)
    alice.ok("begin")
    alice.ok(f"spin {int(1e9)}")
    alice.say("sync")
    yield "alice has 40.0 MiB on"
    assert alice.heard("sync") == [SUCCESS]
    alice.ok("end")
    assert alice.process.finish() == 0


@pytest.mark.promise("accounts-41")
@pytest.mark.parametrize("in_the_way", [foreign, fixed, host, holder])
def test_an_allocation_that_begins_a_cell(
    device: SmallDevice,
    tmp_path: Path,
    in_the_way: Callable[[SmallDevice, Path], contextmanager[str]],
) -> None:
    """It is out of memory, and the hook's log and the status say what is wrong; what fits beside
    it is had, and all of it when what was in the way is gone."""
    bob = device.start("bob")
    with in_the_way(device, tmp_path) as sentence:
        bob.ok("begin")
        assert bob.result(f"alloc 0 {HELD}") == OUT_OF_MEMORY
        (told,) = (line for line in bob.process.log_lines("cuMemAlloc") if "error: " in line)
        assert "40.0 MiB on GPU 0 is out of memory, because" in told, told
        assert "see what is in the way: jupyter gpushare status" in told, told
        reason = device.blocked_reason(bob)
        assert sentence in reason and reason.count(". ") >= 1, reason
        bob.hold(1, 3, FITS_BESIDE)
        bob.ok("end")
        bob.verify()
    bob.ok("begin")
    wait_until(lambda: has_got(bob, HELD), "what was in the way is gone")
    bob.refill(0, 2, HELD)
    bob.ok("end")
    for tenant in (bob, device.bystander, bob):
        tenant.verify()


def has_got(tenant: MemoryTenant, size: int) -> bool:
    return tenant.result(f"alloc 0 {size}") == SUCCESS


@pytest.mark.promise("accounts-41")
def test_who_has_parked_memory_and_needs_more(device: SmallDevice) -> None:
    """What is parked can come back and what is needed besides cannot: that alone is refused."""
    with somebody_else(device, 12 * MIB):
        device.scheduler.eventually(lambda s: s["devices"][0]["bytes_foreign"] >= 12 * MIB)
        bob = device.start("bob", seed=2, size=20 * MIB)
        alice = device.start("alice", seed=1)
        device.await_memory(bob, lambda memory: memory["bytes_parked"] > 0)
        bob.ok("begin")
        assert bob.result(f"alloc 1 {36 * MIB}") == OUT_OF_MEMORY
        assert "programs that are not under gpushare" in device.blocked_reason(bob)
        bob.ok("end")
        for tenant in (bob, alice, bob):
            tenant.verify()


@pytest.mark.promise("accounts-34")
def test_an_allocation_in_doubt_can_be_interrupted(device: SmallDevice) -> None:
    """While it might still turn out to be possible, it is cancelled as any wait is."""
    bob = device.start("bob")
    with somebody_else(device, HELD):
        device.scheduler.eventually(lambda s: s["devices"][0]["bytes_foreign"] >= HELD)
        bob.ok("begin")
        bob.say(f"alloc 0 {HELD}")
        wait_until(lambda: bob.process.log_lines("need"), "the scheduler is told")
        bob.say("!cancel")
        assert bob.heard("alloc")[0] in (CANCELLED, OUT_OF_MEMORY)
        bob.ok("end")
    bob.ok("begin")
    wait_until(lambda: has_got(bob, HELD), "the other one is gone")
    bob.refill(0, 2, HELD)
    bob.ok("end")
    bob.verify()


@pytest.mark.promise("accounts-42")
def test_an_allocation_that_a_restart_meets(tmp_path: Path, device: SmallDevice) -> None:
    """Memory of tenants that are not back yet is not taken for a stranger's: an allocation that
    waits while the scheduler is replaced is met."""
    alice = device.start("alice", seed=1)
    bob = device.start("bob")
    alice.ok("begin")
    alice.ok(f"spin {int(1e9)}")
    bob.ok("begin")
    bob.say(f"alloc 0 {HELD}")
    wait_until(lambda: bob.process.log_lines("need"), "the scheduler is told")
    device.replace_scheduler()
    alice.ok("sync")
    alice.ok("end")
    assert bob.heard("alloc")[0] == SUCCESS
    bob.refill(0, 2, HELD)
    bob.ok("end")
    for tenant in (alice, bob):
        tenant.verify()


@contextmanager
def bob_waits(tmp_path: Path) -> Iterator[tuple[SmallDevice, MemoryTenant, MemoryTenant]]:
    """alice has what cannot be moved, and bob's call waits for it, without the turn."""
    with small_device(tmp_path) as device:
        device.scheduler.client.change_settings({"memory_wait_s": 600})
        alice = device.start("alice", seed=1, **STAYS)
        device.await_memory(alice, lambda memory: memory["bytes_fixed"] >= HELD)
        bob = device.start("bob", seed=2, size=FITS_BESIDE)
        bob.ok("begin")
        bob.say(f"alloc 1 {HELD}")
        wait_until(
            lambda: "Else this notebook is out of memory within" in device.blocked_reason(bob),
            "it waits",
        )
        yield device, alice, bob


@pytest.mark.promise("accounts-38")
def test_an_allocation_waits_for_what_cannot_be_moved(tmp_path: Path) -> None:
    """Others have their turns meanwhile; it goes on when the memory is freed."""
    with bob_waits(tmp_path) as (device, alice, bob):
        assert "alice has 40.0 MiB on" in device.blocked_reason(bob)
        for tenant in (device.bystander, alice, device.bystander):
            tenant.verify()
        assert alice.process.finish() == 0
        assert bob.heard("alloc")[0] == SUCCESS
        bob.refill(1, 3, HELD)
        bob.ok("end")
        for tenant in (device.bystander, bob):
            tenant.verify()


@pytest.mark.promise("accounts-38")
def test_an_allocation_that_waits_can_be_interrupted(tmp_path: Path) -> None:
    """As any wait; nothing of the tenant's memory is lost."""
    with bob_waits(tmp_path) as (_, alice, bob):
        bob.say("!cancel")
        assert bob.heard("alloc")[0] == CANCELLED
        bob.ok("end")
        for tenant in (bob, alice, bob):
            tenant.verify()
        assert alice.process.finish() == 0
