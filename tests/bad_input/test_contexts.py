"""CUDA contexts on a device that is full: whose they are, and what the first one of a process waits
for."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hook.runtime.two_devices import Files
from tests.support.memory_tenants import (
    CANCELLED,
    OUT_OF_MEMORY,
    SUCCESS,
    MemoryTenant,
    MemoryTenants,
    bare_tenant,
    swapping_scheduler,
)
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX, wait_until

DEVICE = 2048 * MIB
CONTEXT = 256 * MIB
MUCH = 1600 * MIB
"""Beside it and its context, no other context fits."""
STAYS: dict[str, Any] = {"env": {"GPUSHARE_MEMORY": "off"}}
SETTINGS = (
    "--GPUShareScheduler.device_reserve_bytes=2097152",
    "--GPUShareScheduler.probe_period_s=0.1",
    "--GPUShareScheduler.reclaim_s=1",
    "--GPUShareScheduler.park_timeout_s=20",  # nobody is passed over on a busy machine
)


@dataclass
class Crowded:
    """A device on which contexts take much."""

    machine: SimulatedMachine
    scheduler: SchedulerUnderTest
    tenants: MemoryTenants

    def with_much(self, name: str, count: int = MUCH, **options: Any) -> MemoryTenant:
        tenant = self.tenants.start(name, **options)
        tenant.ok("begin")
        tenant.ok(f"alloc 0 {count}")
        tenant.ok("end")
        return tenant

    def opening(self, name: str) -> MemoryTenant:
        """Its first call opens a context, and has not been answered."""
        tenant = self.tenants.start(name, opened="")
        tenant.say("open")
        return tenant

    def device(self) -> dict[str, Any]:
        (device,) = self.scheduler.status()["devices"]
        return dict(device)

    def reason(self, tenant: MemoryTenant) -> str:
        records = self.scheduler.status()["tenants"]
        (reason,) = (each["blocked_reason"] for each in records if each["name"] == tenant.name)
        return str(reason or "")

    def await_reason(self, tenant: MemoryTenant, words: str) -> None:
        wait_until(lambda: words in self.reason(tenant), f"{tenant.name}: {words}")


@contextmanager
def crowded(directory: Path, wait_s: float) -> Iterator[Crowded]:
    machine = SimulatedMachine(
        directory / "machine", bytes_per_device=DEVICE, context_bytes=CONTEXT
    )
    options = (*SETTINGS, f"--GPUShareScheduler.memory_wait_s={wait_s}")
    with (
        swapping_scheduler(directory / "run", machine.env(), *options, check=True) as scheduler,
        MemoryTenants(scheduler, machine.env(), directory) as tenants,
    ):
        yield Crowded(machine, scheduler, tenants)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Crowded]:
    with crowded(tmp_path, WAIT_S_MAX) as found:
        yield found


@pytest.mark.promise("accounts-56")
def test_contexts_are_told_from_a_program_outside(patient: Crowded) -> None:
    """NVML says what each process has; what a tenant has allocated is none of it."""
    alice = patient.tenants.start("alice")
    alice.ok("begin")
    alice.ok(f"alloc 0 {64 * MIB}")
    alice.ok("end")
    patient.tenants.start("bob")
    with bare_tenant(patient.machine.env()):
        wait_until(lambda: patient.device()["bytes_contexts"] == 2 * CONTEXT, "two contexts")
        wait_until(lambda: patient.device()["bytes_foreign"] == 3 * CONTEXT, "a third one")
    tenants = {each["name"]: each for each in patient.scheduler.status()["tenants"]}
    assert [each["bytes_context"] for each in tenants["alice"]["memory"]] == [CONTEXT]
    assert alice.process.finish() == 0
    wait_until(lambda: patient.device()["bytes_contexts"] == CONTEXT, "one context")


@pytest.mark.promise(
    "bad-memory-1",
    "The first context of a process on a full device waits for memory of others for "
    "`memory_wait_s`, can be interrupted, and is out of memory afterwards",
)
def test_a_context_waits_for_memory_that_cannot_be_moved(patient: Crowded) -> None:
    """Its user reads whose it is; it goes on when that is freed."""
    alice = patient.with_much("alice", **STAYS)
    bob = patient.opening("bob")
    patient.await_reason(bob, "alice has 1.6 GiB on")
    assert "out of memory within" in patient.reason(bob)
    alice.ok("free 0")
    assert bob.heard("open") == [SUCCESS]
    wait_until(lambda: not patient.reason(bob), "nothing is in the way")


@pytest.mark.promise("bad-memory-1")
def test_memory_that_moves_makes_room_for_a_context(patient: Crowded) -> None:
    """At once: nobody waits."""
    patient.with_much("alice", 1000 * MIB)
    patient.with_much("carol", 300 * MIB)
    bob = patient.opening("bob")
    assert bob.heard("open") == [SUCCESS]


@pytest.mark.promise(
    "bad-memory-2",
    "A context takes no space to which memory of a notebook has to come back: it waits, and is out "
    "of memory afterwards",
)
def test_a_context_locks_nobodys_memory_out(patient: Crowded) -> None:
    """What alice has can be parked, and could never come back beside one more context."""
    alice = patient.with_much("alice")
    bob = patient.opening("bob")
    patient.await_reason(bob, "alice has 1.6 GiB that could not come back to")
    alice.ok("begin")
    alice.ok("stamp")
    alice.ok("free 0")
    alice.ok("end")
    assert bob.heard("open") == [SUCCESS]


@pytest.mark.promise("bad-memory-1")
def test_a_wait_for_a_context_can_be_interrupted(patient: Crowded) -> None:
    """By the word of the scheduler; the next try waits again."""
    alice = patient.with_much("alice", **STAYS)
    bob = patient.opening("bob")
    patient.await_reason(bob, "alice has")
    patient.scheduler.client.interrupt_tenant(bob.tenant_id)
    assert bob.heard("open") == [CANCELLED]
    wait_until(lambda: not patient.reason(bob), "it waits no more")
    time.sleep(0.3)  # calls of a library that tries other ways are cancelled for a moment, too
    bob.say("open")
    patient.await_reason(bob, "alice has")
    alice.ok("free 0")
    assert bob.heard("open") == [SUCCESS]


@pytest.mark.promise("bad-memory-1")
def test_a_context_that_waits_in_vain_is_out_of_memory(tmp_path: Path) -> None:
    """Once: the next try is answered sooner, until others have released something."""
    with crowded(tmp_path, 2) as device:
        alice = device.with_much("alice", **STAYS)
        began_s = time.monotonic()
        bob = device.opening("bob")
        assert bob.heard("open") == [OUT_OF_MEMORY]
        assert time.monotonic() - began_s >= 1.5
        assert bob.result("open") == OUT_OF_MEMORY
        alice.ok("free 0")
        wait_until(lambda: bob.result("open") == SUCCESS, "there is room")


@pytest.mark.promise("bad-memory-1")
def test_a_context_does_not_wait_for_a_scheduler_that_is_gone(patient: Crowded) -> None:
    """It ends within `reclaim_s`."""
    patient.with_much("alice", **STAYS)
    bob = patient.opening("bob")
    patient.await_reason(bob, "alice has")
    patient.scheduler.kill()
    assert bob.heard("open") == [OUT_OF_MEMORY]


@pytest.mark.promise("bad-memory-3", "A context is not waited for behind programs outside")
def test_a_program_outside_is_not_waited_for(patient: Crowded) -> None:
    """Nobody can say when it ends."""
    patient.tenants.start("alice")  # nothing is looked at before somebody is there
    with bare_tenant(patient.machine.env()) as stranger:
        stranger.ok(f"alloc 0 {MUCH - CONTEXT}")
        wait_until(lambda: patient.device()["bytes_foreign"] >= MUCH + CONTEXT, "it is seen")
        bob = patient.opening("bob")
        assert bob.heard("open") == [OUT_OF_MEMORY]


@pytest.mark.promise(
    "bad-memory-4",
    "A call that lacks memory because of contexts of others waits, and goes on when they end",
)
def test_an_allocation_waits_for_contexts_of_others(patient: Crowded) -> None:
    """Idle notebooks have nothing but their contexts there."""
    idle = [patient.tenants.start(f"idle{number}") for number in range(5)]
    wait_until(lambda: patient.device()["bytes_contexts"] == 5 * CONTEXT, "five contexts")
    bob = patient.tenants.start("bob")
    left = DEVICE - 6 * CONTEXT
    wait_until(lambda: patient.device()["bytes_usable"] <= left, "bob's own is counted")
    bob.ok("begin")
    bob.say(f"alloc 0 {700 * MIB}")
    patient.await_reason(bob, "CUDA contexts of notebooks take")
    assert "has most of them" in patient.reason(bob)
    assert idle[0].process.finish() == 0
    assert idle[1].process.finish() == 0
    assert bob.heard("alloc 0") == [SUCCESS]
    bob.ok("end")


@pytest.mark.promise("accounts-11")
@pytest.mark.parametrize("count", [700 * MIB, 1100 * MIB], ids=["most is there", "little is there"])
def test_an_allocation_waits_for_contexts_that_open_just_then(patient: Crowded, count: int) -> None:
    """While the driver is busy with it, others open their first contexts. What it was to have
    counts as there meanwhile, so they seem to have less. The driver refuses it, again and again,
    and there seems to be room each time; or there does not even seem to be."""
    bob = patient.tenants.start(
        "bob", env={"GPUSHARE_SIM_FAULTS": "hold cuMemCreate nth=1 from=start until=go"}
    )
    wait_until(lambda: patient.device()["bytes_contexts"] == CONTEXT, "bob's own is counted")
    files = Files(patient.machine)
    files.make("start")
    bob.ok("begin")
    bob.say(f"alloc 0 {count}")
    files.wait_for_held("go")
    idle = [patient.tenants.start(f"idle{number}") for number in range(5)]
    wait_until(lambda: patient.device()["bytes_used"] == 6 * CONTEXT, "six contexts")
    files.make("go")
    patient.await_reason(bob, "CUDA contexts of notebooks take")
    for tenant in idle[:4]:
        assert tenant.process.finish() == 0
    assert bob.heard("alloc 0") == [SUCCESS]
    bob.ok("end")


@pytest.mark.full
@pytest.mark.promise(
    "bad-memory-5", "Memory of strangers that appears in the middle of an exchange"
)
def test_a_program_outside_in_the_middle_of_an_exchange(patient: Crowded) -> None:
    """Two have more than fits beside each other, and a program without the hook takes a part of
    the device while one parks for the other, whose driver is slow: all bytes are right, before and
    after it has gone."""
    with bare_tenant(patient.machine.env()) as stranger:
        slow = {"GPUSHARE_SIM_FAULTS": "hold cuMemCreate nth=1 from=exchange until=go"}
        alice, bob = patient.tenants.start("alice", env=slow), patient.tenants.start("bob")
        for seed, tenant in enumerate((alice, bob), start=1):
            tenant.ok("begin")
            tenant.hold(0, seed, 800 * MIB)
            tenant.ok("end")
        files = Files(patient.machine)
        files.make("exchange")
        alice.say("begin")
        alice.say("stamp")
        files.wait_for_held("go")
        wait_until(lambda: stranger.result(f"alloc 0 {64 * MIB}") == SUCCESS, "it has its part")
        files.make("go")
        assert alice.heard("begin") == [SUCCESS]
        assert alice.heard("stamp")[0] == SUCCESS
        alice.ok("end")
        for tenant in (bob, alice):
            tenant.verify()
    for tenant in (bob, alice):
        tenant.verify()


def test_a_signal_ends_the_wait(patient: Crowded) -> None:
    """A program without a handler ends by it, as any does, and nothing of its request is left."""
    patient.with_much("alice", **STAYS)
    bob = patient.opening("bob")
    patient.await_reason(bob, "alice has")
    bob.process.signal(signal.SIGTERM)
    wait_until(lambda: not patient.reason(bob), "its process is gone")
