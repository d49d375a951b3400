"""What clients are told, and that they are told changes only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    Command,
    GrantTurn,
    TellContention,
    TellMemoryLimit,
    TellSettings,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.settings import Fallback, MemoryMode

from .desk import TURNS_ALONE, Desk


def contention(desk: Desk) -> dict[int, tuple[int, int]]:
    return {c.client: (c.waiters, c.tenants) for c in desk.all(TellContention)}


def limits(desk: Desk) -> dict[tuple[int, str], tuple[int, int]]:
    return {(c.client, c.device): (c.cap_bytes, c.others_bytes) for c in desk.all(TellMemoryLimit)}


def report(desk: Desk, client: ClientId, bytes_allocated: int, device: str = "A") -> list[Command]:
    return desk.do(
        ev.MemoryReported(
            client=client, device=DeviceId(device), bytes_allocated=bytes_allocated, bytes_fixed=0
        )
    )


def test_contention_counts_tenants_and_waiters() -> None:
    """Each client hears how many tenants are on its device and how many others wait there."""
    desk = Desk()
    a = desk.client("a")
    assert contention(desk) == {a: (0, 1)}
    b = desk.client("b")
    assert contention(desk) == {b: (0, 2)}, "a heard it when b was registered"
    desk.ask(a)
    assert contention(desk) == {}
    desk.ask(b)
    assert contention(desk) == {a: (1, 2)}
    desk.withdraw(b)
    assert contention(desk) == {a: (0, 2)}
    desk.do(ev.TenantRemoved(tenant=TenantId("b")))
    assert contention(desk) == {a: (0, 1)}


@pytest.mark.promise(
    "scheduler-103",
    "A gap of a fifth of `idle_ms` ends a turn for a notebook of the same user, where no memory "
    "has to move",
)
def test_a_gap_ends_a_turn_sooner_for_a_sibling() -> None:
    """The holder hears how long a gap may be while notebooks of the same user alone wait: a fifth
    of `idle_ms` where nothing has to move. Beside others it goes by what it has learnt."""
    desk = Desk()
    desk.tenant("other", owner="somebody else")
    a, b, other = desk.client("a"), desk.client("b"), desk.client("other")
    idle_ms = desk.scheduler.settings.idle_ms

    def told() -> list[int]:
        return [each.idle_ms for each in desk.all(TellContention) if each.client == a]

    desk.ask(a)
    desk.ask(b)
    assert told() == [idle_ms // 5]
    desk.ask(other)
    assert told() == [0]
    desk.withdraw(other)
    assert told() == [idle_ms // 5]
    desk.withdraw(b)
    desk.do(
        ev.MemoryReported(
            client=b, device=DeviceId("A"), bytes_allocated=9, bytes_fixed=0, bytes_parked=9
        )
    )
    desk.ask(b)
    assert told() == [idle_ms]


def test_a_gap_counts_for_a_sibling_alone_that_can_be_served() -> None:
    """One that needs several devices, or is of another class, waits for no gap. And memory that is
    parked while its tenant waits has to move."""
    desk = Desk(replace(TURNS_ALONE, memory_mode=MemoryMode.SWAP))
    desk.tenant("later", asked_class="batch")
    a, b, both, batch = (
        desk.client("a"),
        desk.client("b"),
        desk.client("both", "AB"),
        desk.client("later"),
    )
    idle_ms = desk.scheduler.settings.idle_ms

    def told() -> list[int]:
        return [each.idle_ms for each in desk.all(TellContention) if each.client == a]

    desk.ask(a)
    for each in (both, batch):
        desk.ask(each)
        assert told() == [0]
        desk.withdraw(each)
    desk.ask(b)
    assert told() == [idle_ms // 5]
    desk.do(
        ev.MemoryReported(
            client=b, device=DeviceId("A"), bytes_allocated=9, bytes_fixed=0, bytes_parked=9
        )
    )
    assert told() == [idle_ms]


@pytest.mark.promise("hook-32")
def test_a_tenant_without_a_device_counts_on_each() -> None:
    """A kernel that has not used CUDA may use any device next: its first call must find short
    queues of work, so the others bound theirs from its registration on."""
    desk = Desk()
    a = desk.client("a", "A")
    b = desk.client("b", "B")
    desk.tenant("c")
    assert contention(desk) == {a: (0, 2), b: (0, 2)}
    desk.client("c", "B")
    assert contention(desk)[a] == (0, 1)


def test_only_who_has_the_turn_hears_of_each_waiter() -> None:
    """Idle and waiting processes are left alone: a queue that moves wakes nobody whom it does not
    concern, and a new holder knows the number from its grant or right after it."""
    desk = Desk()
    a, b, c, idle = (desk.client(name) for name in "abcd")
    for client in (a, b):
        desk.ask(client)
    assert contention(desk) == {a: (1, 4)}
    desk.ask(c)
    assert contention(desk) == {a: (2, 4)}
    desk.drop(a)
    assert contention(desk) == {b: (1, 4)}
    desk.do(ev.TenantRemoved(tenant=TenantId("a")))
    assert contention(desk) == {b: (1, 3), c: (0, 3), idle: (1, 3)}


def test_contention_is_that_of_the_most_crowded_device() -> None:
    """A client on two devices hears of the larger number of each kind."""
    desk = Desk()
    for name in "abc":
        desk.client(name, "A" if name == "a" else "B")
    both = desk.client("m", "AB")
    assert contention(desk)[both] == (0, 3)


def test_a_second_process_of_a_tenant_is_no_second_tenant() -> None:
    """Siblings do not count."""
    desk = Desk()
    desk.client("a")
    desk.client("a")
    assert [c.tenants for c in desk.all(TellContention)] == [1]


def test_a_grant_says_how_many_wait() -> None:
    """The new holder knows from the start whether its quantum counts."""
    desk = Desk()
    a, b, c = (desk.client(name) for name in "abc")
    for client in (a, b, c):
        desk.ask(client)
    desk.drop(a)
    (grant,) = desk.all(GrantTurn)
    assert grant.waiters == 1


def test_places_in_the_queue() -> None:
    """Waiting clients hear their place and who has the device, when one of them changes."""
    desk = Desk()
    a, b, c, c2 = (desk.client(name) for name in "abcc")
    desk.ask(a)
    desk.ask(b)
    assert desk.positions() == {b: (1, "notebook a")}
    desk.ask(c)
    assert desk.positions() == {c: (2, "notebook a")}
    desk.ask(c2)
    assert desk.positions() == {c2: (2, "notebook a")}
    desk.drop(a)
    assert desk.positions() == {c: (1, "notebook b"), c2: (1, "notebook b")}


def test_a_place_is_told_anew_at_each_wait() -> None:
    """The second wait of a client begins with a place, also if it is the same."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    for _ in range(2):
        desk.ask(b)
        assert desk.positions() == {b: (1, "notebook a")}
        desk.withdraw(b)


def test_who_waits_for_a_waiter_hears_its_name() -> None:
    """When the device is free and kept for an earlier one, that one is named."""
    desk = Desk()
    b, both, a = desk.client("b", "B"), desk.client("m", "AB"), desk.client("a", "A")
    desk.ask(b)
    desk.ask(both)
    desk.ask(a)
    assert desk.positions() == {a: (2, "notebook m")}


def test_in_a_recovery_nobody_is_named() -> None:
    """The holder is not known yet."""
    desk = Desk(recovering_until_s=102)
    a = desk.client("a")
    desk.ask(a)
    assert desk.positions() == {a: (1, "")}


def test_settings_are_told_on_joining_and_on_change() -> None:
    """Each client hears the settings at first, and each change."""
    desk = Desk()
    a, b = desk.client("a", ""), desk.client("b", "")
    assert [told.client for told in desk.all(TellSettings)] == [b]
    desk.set(fallback=Fallback.RUN, idle_ms=20)
    assert [told.client for told in desk.all(TellSettings)] == [a, b]
    assert {told.settings.idle_ms for told in desk.all(TellSettings)} == {20}


def test_siblings_hear_of_each_others_memory() -> None:
    """What one process allocates, the others are told; nobody hears its own."""
    desk = Desk()
    a, a2 = desk.client("a"), desk.client("a")
    assert limits(desk) == {}
    report(desk, a, 100)
    assert limits(desk) == {(a2, "A"): (0, 100)}
    report(desk, a, 100)
    assert limits(desk) == {}
    report(desk, a2, 30)
    assert limits(desk) == {(a, "A"): (0, 30)}
    desk.lose(a)
    assert limits(desk) == {(a2, "A"): (0, 0)}


def test_a_cap_is_told_with_the_first_context() -> None:
    """A tenant with a cap is told for each device that it opens, and when the cap changes."""
    desk = Desk()
    desk.tenant("a", cap_bytes=4000)
    a = desk.client("a")
    assert limits(desk) == {(a, "A"): (4000, 0)}
    desk.tenant("a", cap_bytes=5000)
    assert limits(desk) == {(a, "A"): (5000, 0)}
    desk.tenant("a", cap_bytes=5000)
    assert desk.last == []


def test_memory_of_a_device_that_is_not_open_is_stale() -> None:
    """A report that crossed a close is ignored."""
    desk = Desk()
    a = desk.client("a")
    desk.client("a")
    desk.close(a, "A")
    report(desk, a, 100)
    assert limits(desk) == {}
    assert desk.device().bytes_allocated == 0


def test_cells_are_shown() -> None:
    """The status knows whether a cell runs in a process."""
    desk = Desk()
    a = desk.client("a")
    desk.do(ev.CellBegan(client=a))
    assert desk.status("a").clients[0].in_cell
    desk.do(ev.CellEnded(client=a))
    assert not desk.status("a").clients[0].in_cell


def test_the_snapshot_tells_the_whole_story() -> None:
    """Devices with memory, holder and queue, tenants with their counts up to this moment."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    report(desk, a, 500)
    desk.do(ev.DeviceMemoryMeasured(device=DeviceId("A"), bytes_used=700))
    desk.ask(a)
    desk.ask(b, after_s=2)
    desk.do(ev.CellBegan(client=a), after_s=3)
    device = desk.device()
    assert (device.bytes_total, device.bytes_used, device.bytes_allocated) == (8000, 700, 500)
    assert [(h.tenant, h.turn, h.held_for_s) for h in device.holders] == [("a", desk.turns[a], 5)]
    assert [(w.tenant, w.waited_s) for w in device.queue] == [("b", 3)]
    assert desk.status("a").counters.held_s_total == 5
    assert desk.status("b").counters.waited_s_total == 3
    assert desk.status("b").counters.waits == 0
    desk.drop(a)
    assert desk.status("b").counters.waits == 1
    assert desk.status("a").id == TenantId("a")


@pytest.mark.promise("scheduler-43", "Everything has a cause, and a journal replays it")
def test_every_command_has_a_cause() -> None:
    """Commands carry the cause of their event, or its name."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    assert desk.last
    assert all(command.cause == "cuLaunchKernel" for command in desk.last)
    desk.sleep_until_woken()
    assert all(command.cause for command in desk.last)
