"""Turns between processes, over the real socket of a real scheduler."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    CellEnded,
    Contention,
    MemoryAnswered,
    MemoryQueried,
    QueuePosition,
    Settings,
    TurnGranted,
    TurnRecalled,
    WaitCancelled,
)
from tests.support.hook_client import DEVICE, GIB, memory_reported
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler


def test_a_dropped_turn_goes_to_the_one_who_waits(scheduler: SchedulerUnderTest) -> None:
    """While one tenant holds the turn the other waits, and it is granted when the turn drops."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        turn = first.take_turn()
        second.ask()
        position = second.expect(QueuePosition)
        assert (position.position, position.holder) == (1, "first")
        assert not any(isinstance(message, TurnGranted) for message in second.received)
        first.drop(turn.turn_id)
        assert second.expect(TurnGranted).turn_id > turn.turn_id


@pytest.mark.promise("scheduler-44")
def test_first_come_first_served(scheduler: SchedulerUnderTest) -> None:
    """Those who wait are served in the order in which they asked."""
    names = ["a", "b", "c", "d"]
    clients = [scheduler.joined(name) for name in names]
    turn = clients[0].take_turn()
    for client in clients[1:]:
        client.ask()
        client.expect(QueuePosition)
    for before, after in itertools.pairwise(clients):
        before.drop(turn.turn_id)
        turn = after.expect(TurnGranted)


@pytest.mark.promise("scheduler-40")
def test_the_quantum_counts_only_while_others_wait(scheduler: SchedulerUnderTest) -> None:
    """A holder is recalled one quantum after somebody began to wait, and not before."""
    scheduler.client.change_settings({"quantum_s": 0.05})
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        turn = first.take_turn()
        assert not first.has_within(TurnRecalled, within_s=0.2)
        second.ask()
        assert first.expect(TurnRecalled).turn_id == turn.turn_id
        first.drop(turn.turn_id)
        second.expect(TurnGranted)


@pytest.mark.promise("scheduler-48")
def test_processes_of_one_tenant_share_its_turn(scheduler: SchedulerUnderTest) -> None:
    """Two processes that show the same tenant's token may use the device at the same time."""
    tenant = scheduler.tenant("notebook")
    with scheduler.connect() as parent, scheduler.connect() as child:
        parent.join(tenant.token)
        child.join(tenant.token)
        assert parent.take_turn().turn_id == child.take_turn().turn_id


@pytest.mark.promise("scheduler-96", "Settings change while it runs, and reach the hooks at once")
def test_settings_reach_the_hooks_at_once(scheduler: SchedulerUnderTest) -> None:
    """A client is told the settings when it comes, and again when one changes."""
    with scheduler.joined() as client:
        assert client.expect(Settings).idle_ms == 50
        scheduler.client.change_settings({"idle_ms": 70, "turns": "off"})
        changed = client.expect(Settings)
        assert (changed.idle_ms, changed.turns) == (70, 0)


@pytest.mark.promise("scheduler-51")
def test_turns_off_lets_everybody_run(scheduler: SchedulerUnderTest) -> None:
    """Switched off while one waits, it lets that one run beside the holder."""
    with scheduler.joined("first") as first, scheduler.joined("second") as second:
        first.take_turn()
        second.ask()
        second.expect(QueuePosition)
        scheduler.client.change_settings({"turns": "off"})
        second.expect(TurnGranted)


def test_an_interrupt_cancels_what_waits(scheduler: SchedulerUnderTest) -> None:
    """An interrupted kernel's waiting calls are failed; its holder goes on undisturbed."""
    with scheduler.joined("first") as first:
        first.take_turn()
        tenant = scheduler.tenant("second")
        with scheduler.connect() as second:
            second.join(tenant.token)
            second.ask()
            second.expect(QueuePosition)
            scheduler.client.interrupt_tenant(tenant.tenant_id)
            second.expect(WaitCancelled)
        assert scheduler.status()["devices"][0]["holders"][0]["name"] == "first"


def test_a_removed_tenant_gives_its_turn_back(scheduler: SchedulerUnderTest) -> None:
    """When a kernel is shut down its connections end, and the next one is granted."""
    tenant = scheduler.tenant("first")
    with scheduler.connect() as first, scheduler.joined("second") as second:
        first.join(tenant.token)
        first.take_turn()
        second.ask()
        second.expect(QueuePosition)
        scheduler.client.remove_tenant(tenant.tenant_id)
        second.expect(TurnGranted)
        assert "shut down" in first.expect_refused().message


def test_contention_is_told(scheduler: SchedulerUnderTest) -> None:
    """Who is alone on a device learns of the second tenant there."""
    with scheduler.joined("first") as first:
        assert first.expect(Contention).tenants == 1
        with scheduler.joined("second"):
            assert first.expect(Contention).tenants == 2


def test_a_process_that_uses_nvml_alone_may_ask(runtime: Path) -> None:
    """Where memory stays and without a cap, the device's own numbers are the answer; nothing has to
    be opened for it."""
    off = "--GPUShareScheduler.memory_mode=off"
    with running_scheduler(runtime, off) as scheduler:
        used_and_total(scheduler, in_use=GIB)


@pytest.mark.promise("together-4")
def test_where_memory_follows_the_turn_what_others_have_is_not_in_use(runtime: Path) -> None:
    """NVML then tells what `cuMemGetInfo` tells: in use is what the tenant has, and what nobody
    can have (the reserve, an eighth of this device)."""
    with running_scheduler(runtime) as scheduler, scheduler.joined("other") as other:
        other.send(memory_reported(DEVICE, 5 * GIB, room=5 * GIB), CellEnded())
        used_and_total(scheduler, in_use=2 * GIB)


def used_and_total(scheduler: SchedulerUnderTest, in_use: int) -> None:
    """A tenant with 1 GiB asks, by a process that has opened nothing."""
    tenant = scheduler.tenant("notebook")
    with scheduler.connect() as worker, scheduler.connect() as nvidia_smi:
        worker.join(tenant.token)
        worker.send(memory_reported(DEVICE, GIB), CellEnded())
        worker.take_turn()
        nvidia_smi.hello(tenant.token)
        nvidia_smi.send(MemoryQueried(device=DEVICE))
        answer = nvidia_smi.expect(MemoryAnswered)
        assert (answer.bytes_total, answer.bytes_used) == (8 * GIB, in_use)


def test_with_a_cap_a_tenant_sees_its_own(runtime: Path) -> None:
    """Under a cap, total is the cap and used is what the tenant's processes have."""
    with running_scheduler(runtime, f"--GPUShareScheduler.memory_cap_bytes={2 * GIB}") as capped:
        tenant = capped.tenant("notebook")
        with capped.connect() as worker, capped.joined("other") as other:
            worker.join(tenant.token)
            worker.send(memory_reported(DEVICE, GIB))
            other.send(memory_reported(DEVICE, GIB))
            worker.send(MemoryQueried(device=DEVICE))
            answer = worker.expect(MemoryAnswered)
            assert (answer.bytes_total, answer.bytes_used) == (2 * GIB, GIB)
