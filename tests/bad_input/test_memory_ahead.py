"""Memory that comes back ahead of its tenant's turn: the real hook, scheduler and mover together,
and what can go wrong meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bad_input.swapping import (
    EACH_KIND,
    OTHERS_AT_LENGTH,
    SLOW_BYTES_PER_S,
    SmallDevice,
    small_device,
)
from tests.support.fake_cgroup import FakeCgroup
from tests.support.memory_tenants import CANCELLED, MemoryTenant
from tests.support.sim import MIB
from tests.support.waits import wait_until

HELD, SMALL, GROWN = 36 * MIB, 16 * MIB, 30 * MIB
PATIENT = {"idle_ms": 600_000, "quantum_s": 600}
"""A holder that computes nothing keeps its turn all the same, also beside a new cell: its own one
is new for ten minutes."""


@pytest.fixture
def kind() -> str:
    """Of the memory that alice and bob have."""
    return "plain"


@pytest.fixture
def device(tmp_path: Path, kind: str) -> Iterator[SmallDevice]:
    with small_device(tmp_path, kind=kind) as found:
        yield found


@pytest.fixture
def slow(tmp_path: Path, kind: str) -> Iterator[SmallDevice]:
    """On this bus a restore can be met half-way."""
    with small_device(tmp_path, copy_bytes_per_s=SLOW_BYTES_PER_S, kind=kind) as found:
        yield found


def with_parked_memory(
    device: SmallDevice, *, env_of_alice: dict[str, str] | None = None, **of_bob: Any
) -> tuple[MemoryTenant, MemoryTenant]:
    """Bob's memory is parked, and alice has the turn and so little memory that there is space."""
    bob = device.start("bob", seed=2, size=HELD, **of_bob)
    alice = device.start("alice", seed=1, size=HELD, env=env_of_alice)
    device.await_memory(bob, lambda memory: memory["bytes_parked"] > 0)
    device.scheduler.client.change_settings(PATIENT)
    alice.ok("begin")
    device.give_up(alice)
    device.hold(alice, 3, SMALL // 2 if device.kind.name == "async" else SMALL)
    return alice, bob


def waits(bob: MemoryTenant) -> None:
    bob.ok("begin")
    bob.say("sums")


def copied(device: SmallDevice, tenant: MemoryTenant, kind: str) -> int:
    pid = tenant.process.pid
    records = (r for r in device.machine.journal() if r.pid == pid and r.kind.name == kind)
    return sum(r.amount for r in records)


def ends(device: SmallDevice, alice: MemoryTenant, bob: MemoryTenant) -> None:
    """Alice's cell ends, bob's goes on with all that he had, and so does hers afterwards."""
    alice.ok("end")
    assert bob.heard_sums() == bob.expected()
    bob.ok("end")
    alice.verify()
    bob.verify()


@pytest.mark.promise(
    "together-1",
    "While one tenant computes, the parked memory of the next one comes back, and its turn finds "
    "every byte",
)
@EACH_KIND
def test_memory_is_back_before_the_turn(device: SmallDevice) -> None:
    """Bob waits, and all of his memory comes back while alice keeps her turn; it is not copied
    again when his turn comes."""
    alice, bob = with_parked_memory(device)
    waits(bob)
    device.await_memory(bob, lambda memory: memory["bytes_parked"] == 0)
    before = device.bytes_moved(bob.process.pid, "UNMAP")
    wait_until(lambda: copied(device, bob, "COPY_H2D") == before, "all of it is copied")
    (holder,) = device.scheduler.status()["devices"][0]["holders"]
    assert holder["name"] == "alice"
    alice.ok("end")
    assert bob.heard_sums() == bob.expected()
    assert copied(device, bob, "COPY_H2D") == before
    bob.ok("end")
    alice.verify()


@pytest.mark.promise("together-1")
def test_it_is_switched_off(device: SmallDevice) -> None:
    """Then it comes with the turn."""
    device.scheduler.client.change_settings({"restore_ahead": "off"})
    alice, bob = with_parked_memory(device)
    parked = device.memory_of(bob)["bytes_parked"]
    waits(bob)
    alice.refill(0, 4, alice.held[0][1])
    assert device.memory_of(bob)["bytes_parked"] == parked
    ends(device, alice, bob)


@pytest.mark.promise(
    "together-2",
    "A holder that grows gets the space of what came back ahead, which leaves without a copy",
)
def test_a_holder_grows(device: SmallDevice) -> None:
    """Bob's memory leaves again for alice's, and nothing of it is copied out a second time."""
    alice, bob = with_parked_memory(device)
    waits(bob)
    device.await_memory(bob, lambda memory: memory["bytes_parked"] == 0)
    before = copied(device, bob, "COPY_D2H")
    alice.hold(1, 5, GROWN - SMALL)
    assert device.memory_of(bob)["bytes_parked"] > 0
    assert copied(device, bob, "COPY_D2H") == before
    ends(device, alice, bob)


@pytest.mark.promise(
    "bad-memory-6",
    "Whatever happens while memory comes back ahead of a turn (an interrupt, the turn, an "
    "end, a new scheduler, a driver that refuses), nobody loses a byte",
)
@pytest.mark.full
@pytest.mark.parametrize("what", ["grant", "end", "no scheduler"])
@EACH_KIND
def test_what_happens_meanwhile(slow: SmallDevice, what: str) -> None:
    """In the middle of it bob gets his turn, or ends; or the scheduler does."""
    alice, bob = with_parked_memory(slow)
    mapped = slow.bytes_moved(bob.process.pid, "MAP")
    waits(bob)
    slow.await_moved(bob.process.pid, "MAP", mapped + 1)
    match what:
        case "end":
            bob.process.signal(signal.SIGKILL)
            bob.process.wait()
            alice.ok("end")
            alice.verify()
            return
        case "no scheduler":
            slow.replace_scheduler()
    ends(slow, alice, bob)


@pytest.mark.promise("bad-memory-6")
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
@OTHERS_AT_LENGTH
def test_a_driver_that_refuses(device: SmallDevice, call: str) -> None:
    """The first chunk that would come ahead is refused; all comes back with the turn."""
    chunks = device.chunks_of_an_allocation()
    plan = f"fail {call} nth={chunks + 1} result=2 times=1"
    alice, bob = with_parked_memory(device, env={"GPUSHARE_SIM_FAULTS": plan})
    waits(bob)
    alice.refill(0, 4, alice.held[0][1])
    ends(device, alice, bob)


@pytest.mark.promise(
    "bad-memory-7",
    "A cell that is interrupted in the middle of a restore ahead ends at once; nobody loses a byte",
)
@EACH_KIND
def test_an_interrupt_in_the_middle_of_it(slow: SmallDevice) -> None:
    """What has come leaves again or stays; the next cell finds all of it, and so does alice's."""
    alice, bob = with_parked_memory(slow)
    mapped = slow.bytes_moved(bob.process.pid, "MAP")
    waits(bob)
    slow.await_moved(bob.process.pid, "MAP", mapped + 1)
    bob.say("!cancel")
    assert bob.process.expect("sums ") == f"sums {CANCELLED}"
    bob.ok("end")
    alice.ok("end")
    for tenant in (alice, bob, alice):
        tenant.verify()


@pytest.mark.promise(
    "bad-memory-8",
    "A host that runs out of memory in the middle of a restore ahead: what came leaves again if it "
    "must, nobody loses a byte, and all goes on when there is host memory",
)
@pytest.mark.parametrize("who", ["bob", "alice"])
@EACH_KIND
def test_a_host_that_runs_out_in_the_middle_of_it(
    slow: SmallDevice, tmp_path: Path, who: str
) -> None:
    """Bob, whose memory comes, needs no more of the host for it to leave again, for alice's. While
    she, who computes, has no room to park, he has his turn as far as both fit."""
    group = FakeCgroup(tmp_path / "group")
    env = {f"{'env' if who == 'bob' else 'env_of_alice'}": group.env()}
    alice, bob = with_parked_memory(slow, **env)
    mapped = slow.bytes_moved(bob.process.pid, "MAP")
    waits(bob)
    slow.await_moved(bob.process.pid, "MAP", mapped + 1)
    group.limit(0)
    if who == "bob":
        alice.hold(1, 5, (GROWN - SMALL) * slow.kind.scale)
        alice.ok("end")
        group.limit(None)
        assert bob.heard_sums() == bob.expected()
        bob.ok("end")
    else:
        alice.ok("end")
        assert bob.heard_sums() == bob.expected()
        bob.ok("end")
        alice.verify()
        group.limit(None)
    slow.bystander.verify()
    for tenant in (alice, bob, alice):
        tenant.verify()
