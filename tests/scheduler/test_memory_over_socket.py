"""Memory that follows the turn, said over hook.sock; and how the status tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.cli.status import rendered
from jupyter_gpushare.core.commands import GrantTurn
from jupyter_gpushare.core.events import TurnDropped
from jupyter_gpushare.protocol.messages import (
    DropReason,
    MemoryBudget,
    MemoryMode,
    MemoryNeeded,
    RoomAnswered,
    RoomRequested,
    Settings,
    TurnGranted,
)
from jupyter_gpushare.scheduler.journal import read_journal
from tests.support.hook_client import DEVICE, GIB, ScriptedClient, memory_reported
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import MIB, SimulatedMachine

from .test_devices_from_nvml import cuda_process, machine_env

SWAP = "--GPUShareScheduler.memory_mode=swap"
USABLE = 7 * GIB
"""Of the scripted device's 8 GiB."""


def budget_of(client: ScriptedClient, at_least: int = 0) -> MemoryBudget:
    """The next budget of at least so much."""
    while (budget := client.expect(MemoryBudget)).budget_bytes < at_least:
        pass
    return budget


def tell(client: ScriptedClient, budget: MemoryBudget, allocated: int, **has: int) -> None:
    """What the client has, after it has heard this budget."""
    client.send(memory_reported(DEVICE, allocated, room=64 * GIB, serial=budget.serial, **has))


@pytest.fixture
def swapping(runtime: Path) -> Iterator[SchedulerUnderTest]:
    with running_scheduler(runtime, SWAP) as scheduler:
        yield scheduler


@pytest.mark.promise(
    "accounts-57",
    "The newcomer gets at once the memory that a victim has released, while the victim goes "
    "on parking",
)
@pytest.mark.promise("accounts-32")
def test_a_hand_over_in_steps(swapping: SchedulerUnderTest) -> None:
    """What one reports as released the other may have, while the first goes on parking; nothing
    is refused although both together have more than the device."""
    with swapping.joined("one") as one, swapping.joined("two") as two:
        assert one.expect(Settings).memory_mode is MemoryMode.SWAP
        turn = one.take_turn()
        tell(one, budget_of_grant(one), 6 * GIB)
        one.drop(turn.turn_id)
        two.take_turn()
        heard = budget_of_grant(two)
        assert heard.budget_bytes == 1 * GIB
        two.send(MemoryNeeded(device=DEVICE, bytes=5 * GIB, need=7, cause="cuMemAlloc_v2"))
        asked = one.expect(MemoryBudget)
        assert asked.budget_bytes == 2 * GIB
        for parked in range(1, 5):
            tell(one, asked, 6 * GIB, parked=parked * GIB)
            heard = budget_of(two, at_least=(parked + 1) * GIB)
            assert heard.budget_bytes == (parked + 1) * GIB and not heard.refused_need
        tell(two, heard, 5 * GIB)
        status = swapping.eventually(lambda s: s["tenants"][1]["memory"][0]["bytes_resident"])
        memory = [tenant["memory"][0] for tenant in status["tenants"]]
        assert [each["bytes_resident"] // GIB for each in memory] == [2, 5]
        assert [each["bytes_parked"] // GIB for each in memory] == [4, 0]


def budget_of_grant(client: ScriptedClient) -> MemoryBudget:
    """The budget before the grant that was read last."""
    before = [each for each in client.received if isinstance(each, MemoryBudget | TurnGranted)]
    last_grant = max(i for i, each in enumerate(before) if isinstance(each, TurnGranted))
    budget = before[last_grant - 1]
    assert isinstance(budget, MemoryBudget)
    return budget


@pytest.mark.promise(
    "accounts-58",
    "Growth during a turn is answered: with a budget that is large enough, or with out-of-memory "
    "when it can never be had",
)
def test_a_need_that_cannot_be_met(swapping: SchedulerUnderTest) -> None:
    """It is answered at once."""
    with swapping.joined("one") as one:
        one.take_turn()
        one.send(MemoryNeeded(device=DEVICE, bytes=8 * GIB, need=7, cause="cuMemAlloc_v2"))
        while not (answer := one.expect(MemoryBudget)).refused_need:
            pass
        assert answer.budget_bytes == answer.usable_bytes == USABLE


@pytest.mark.promise(
    "accounts-59",
    "Contexts and modules get room, with or without a turn, and are told when there is none",
)
def test_room_for_a_context(swapping: SchedulerUnderTest) -> None:
    """Answered when others have reported so much as released."""
    with swapping.joined("one") as one, swapping.connect() as two:
        turn = one.take_turn()
        tell(one, budget_of_grant(one), 6 * GIB)
        one.drop(turn.turn_id)
        two.hello(swapping.tenant("two").token)
        two.send(
            RoomRequested(device=DEVICE, bytes=GIB, request=9, cause="cuDevicePrimaryCtxRetain")
        )
        asked = one.expect(MemoryBudget)
        while asked.budget_bytes > 5 * GIB:
            asked = one.expect(MemoryBudget)
        tell(one, asked, 6 * GIB, parked=GIB)
        assert two.expect(RoomAnswered).made == 1


@pytest.mark.promise("accounts-49")
def test_memory_mode_off_is_without_limits(runtime: Path) -> None:
    """Every client hears once that it may have everything."""
    off = "--GPUShareScheduler.memory_mode=off"
    with running_scheduler(runtime, off) as scheduler, scheduler.joined("one") as one:
        assert one.expect(Settings).memory_mode is MemoryMode.OFF
        assert one.expect(MemoryBudget).budget_bytes == 2**64 - 1


@pytest.mark.promise("accounts-49")
def test_the_mode_is_a_setting(swapping: SchedulerUnderTest) -> None:
    """It changes while the scheduler runs, and the hooks hear it."""
    with swapping.joined("one") as one:
        assert one.expect(Settings).reclaim_ms == 5000
        swapping.client.change_settings({"memory_mode": "off", "reclaim_s": 2.5})
        changed = one.expect(Settings)
        assert (changed.memory_mode, changed.reclaim_ms) == (MemoryMode.OFF, 2500)
        assert budget_of(one, at_least=2**64 - 1)


@pytest.mark.promise("accounts-25")
@pytest.mark.promise("together-7")
def test_who_is_blocked_is_told_why(swapping: SchedulerUnderTest) -> None:
    """And by whom, and what to do about it."""
    with swapping.joined("one") as one, swapping.joined("two") as two:
        turn = one.take_turn()
        tell(one, budget_of_grant(one), 6 * GIB)
        one.drop(turn.turn_id)
        turn = two.take_turn()
        two.send(MemoryNeeded(device=DEVICE, bytes=5 * GIB, need=7, cause="cuMemAlloc_v2"))
        asked = one.expect(MemoryBudget)
        tell(one, asked, 6 * GIB, parked=4 * GIB)
        tell(two, budget_of(two, at_least=5 * GIB), 5 * GIB, fixed=5 * GIB)
        two.drop(turn.turn_id)
        one.ask()
        status = swapping.eventually(lambda s: s["tenants"][0]["blocked_reason"])
        reason = status["tenants"][0]["blocked_reason"]
        assert reason.startswith(
            "two has 5.0 GiB on Scripted GPU that cannot be moved, and 4.0 GiB are missing. "
        )
        assert status["devices"][0]["queue"][0]["name"] == "one"
        told = [tenant["in_the_way"] for tenant in status["tenants"]]
        assert told[0] is None
        assert told[1].startswith(
            "5.0 GiB of this notebook's memory on Scripted GPU cannot be moved"
        )
        text = rendered(status)
        assert f"one: {reason}" in text and f"two: {told[1]}" in text


@pytest.mark.promise("accounts-28")
def test_memory_short_is_a_reason_to_drop(swapping: SchedulerUnderTest) -> None:
    """The turn is granted again after a second, and not at once."""
    with swapping.joined("one") as one:
        turn = one.take_turn()
        tell(one, budget_of_grant(one), 4 * GIB, parked=GIB)
        one.drop(turn.turn_id, DropReason.MEMORY_SHORT)
        one.take_turn()
    swapping.status()  # the line of the grant is written after the grant, and before this answer
    entries = read_journal(swapping.journal_path).entries
    (dropped_s,) = (each.at_s for each in entries if isinstance(each.event, TurnDropped))
    _, granted_s = (
        each.at_s
        for each in entries
        if any(command["type"] == GrantTurn.__name__ for command in each.commands)
    )
    assert granted_s >= dropped_s + 1.0


@pytest.mark.promise("accounts-37")
def test_memory_of_a_dead_process_is_free_when_the_device_shows_it(
    runtime: Path, tmp_path: Path
) -> None:
    """NVML is asked at once, although it would be asked in ten minutes only."""
    machine = SimulatedMachine(tmp_path / "machine")
    seldom = "--GPUShareScheduler.probe_period_s=600"
    with running_scheduler(runtime, SWAP, seldom, env=machine_env(machine)) as scheduler:
        device = bytes.fromhex(scheduler.status()["devices"][0]["id"])
        one, two = scheduler.joined("one", device=device), scheduler.joined("two", device=device)
        one.take_turn()
        two.ask()
        with cuda_process(machine, 64 * MIB):
            one.close()
            two.expect(TurnGranted)
            status = scheduler.eventually(lambda s: s["devices"][0]["bytes_usable"] > 0)
            assert status["devices"][0]["bytes_foreign"] >= 64 * MIB
            budget = budget_of(two, at_least=1).budget_bytes
            assert budget == status["devices"][0]["bytes_usable"]
        two.close()
