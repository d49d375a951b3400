"""What an event costs, counted in instructions of the core: one tenant that says much, or a
hand-over with its thousand reports in a second, is not to hold up everybody."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from jupyter_gpushare import core
from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import TellBudget
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from tests.bench.bench_scheduler import WARM_UP_S
from tests.bench.mix import Mix

GIB = 1 << 30
MIB = 1 << 20
DEVICE = DeviceId("A")
FEW, MANY = 50, 400
(CORE,) = (f"{path}/" for path in core.__path__)


class Crowd:
    """Tenants with 6 GiB each on a device of 141: the first has the turn, the rest wait (or the
    first few of them), with all their memory parked."""

    def __init__(self, tenants: int, *, waiting: int | None = None) -> None:
        self.now_s = 100.0
        self.serials: dict[ClientId, int] = {}
        self.scheduler = Scheduler(SchedulerSettings(memory_mode=MemoryMode.SWAP))
        self.handle(ev.DeviceFound(device=DEVICE, name="GPU", bytes_total=141 * GIB))
        for number in range(tenants):
            client, tenant = ClientId(number), TenantId(f"t{number}")
            name = f"notebook {number}"
            self.handle(ev.TenantRegistered(tenant=tenant, name=name, owner="me", kind="kernel"))
            self.handle(
                ev.ClientJoined(client=client, tenant=tenant, pid=number, process_name="python")
            )
            self.handle(ev.DeviceOpened(client=client, device=DEVICE))
            self.report(client, 6 * GIB, parked=6 * GIB if number else 0)
        for number in range(tenants if waiting is None else waiting):
            self.handle(ev.TurnRequested(client=ClientId(number)))
        for number in range(tenants):
            self.report(ClientId(number), 6 * GIB, parked=6 * GIB if number else 0)
        for size in (6 * GIB - MIB, 6 * GIB):  # what all these have changed is looked at
            self.report(ClientId(0), size)

    def handle(self, event: ev.Event) -> None:
        self.now_s += 0.001
        for command in self.scheduler.handle(event, now_s=self.now_s):
            if isinstance(command, TellBudget):
                self.serials[command.client] = command.serial

    def report(self, client: ClientId, allocated: int, *, parked: int = 0) -> None:
        self.handle(self.report_of(client, allocated, parked=parked))

    def report_of(
        self,
        client: ClientId,
        allocated: int,
        *,
        parked: int = 0,
        copied: int = 0,
        to_copy: int = 0,
    ) -> ev.MemoryReported:
        return ev.MemoryReported(
            client=client,
            device=DEVICE,
            bytes_allocated=allocated,
            bytes_fixed=0,
            bytes_parked=parked,
            bytes_parkable=500 * GIB,
            budget_serial=self.serials.get(client, 0),
            bytes_copied=copied,
            bytes_to_copy=to_copy,
        )

    def work_of(self, *events: ev.Event) -> int:
        """How many instructions of the core's own code they take."""
        with counted() as work:
            for event in events:
                self.handle(event)
        self.scheduler.check_invariants()
        return work.total()


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the instructions of the core's own code by the functions that they are in."""
    work = Counter[str]()

    def in_frame(frame: FrameType, event: str, arg: object) -> Any:
        work[frame.f_code.co_name] += event == "opcode"
        return in_frame

    def in_call(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(CORE):  # a Path takes longer
            return None
        frame.f_trace_opcodes = True
        return in_frame

    before = sys.gettrace()
    sys.settrace(in_call)
    try:
        yield work
    finally:
        sys.settrace(before)


def flood(crowd: Crowd, kind: str) -> list[ev.Event]:
    """What one client may say as fast as it can, and what changes nothing for others."""
    holder, waiter = ClientId(0), ClientId(1)
    match kind:
        case "cells":
            crowd.handle(ev.CellBegan(client=waiter))  # it is new, and goes before others
            crowd.handle(ev.CellEnded(client=waiter))
            return [ev.CellBegan(client=waiter), ev.CellEnded(client=waiter)] * 5
        case "the same report":
            return [crowd.report_of(waiter, 6 * GIB, parked=6 * GIB)] * 10
        case "a holder grows and shrinks":
            sizes = [6 * GIB - count * 2 * MIB for count in (1, 2, 3, 2, 1)]
            return [crowd.report_of(holder, size) for size in sizes]
        case "what was said after the end":
            crowd.handle(ev.TenantRemoved(tenant=TenantId("t1")))
            for _ in range(3):  # everybody hears that its memory is gone
                crowd.now_s += 1
                crowd.handle(ev.ClockTicked())
            return [ev.TurnRequested(client=waiter), ev.CellBegan(client=waiter)] * 5
    raise AssertionError(kind)


@pytest.mark.promise(
    "scheduler-46",
    "A message that changes nothing for others costs the same, however many tenants there are",
)
@pytest.mark.parametrize(
    "kind",
    [
        "cells",
        "the same report",
        "a holder grows and shrinks",
        "what was said after the end",
    ],
)
def test_what_changes_nothing_costs_the_same_with_many_tenants(kind: str) -> None:
    """Eight times as many tenants, the same work."""
    few, many = (crowd.work_of(*flood(crowd, kind)) for crowd in (Crowd(FEW), Crowd(MANY)))
    assert 0 < many <= 1.1 * few


@pytest.mark.promise(
    "scheduler-47",
    "What an event costs the scheduler does not grow with the tenants and devices that it does "
    "not concern",
)
def test_a_hand_over_costs_the_same_with_many_tenants() -> None:
    """While one tenant parks for the next, each report may free room for somebody: only the next
    one is looked at."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants)
        crowd.handle(
            ev.TurnDropped(client=ClientId(0), turn=TurnId(1), reason=ev.DropReason.CELL_END)
        )
        parks = [crowd.report_of(ClientId(0), 6 * GIB, parked=n * 32 * MIB) for n in range(1, 11)]
        return crowd.work_of(*parks)

    assert work(MANY) <= 1.1 * work(FEW)


@pytest.mark.promise("scheduler-47")
def test_the_last_of_a_long_queue_costs_no_more_than_that_of_a_short_one() -> None:
    """It comes and goes again; those before it are not looked at."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants, waiting=tenants - 1)
        last = ClientId(tenants - 1)
        return crowd.work_of(ev.TurnRequested(client=last), ev.RequestWithdrawn(client=last))

    assert work(MANY) <= 1.1 * work(FEW)


def work_of_the_mix(tenants: int, devices: int) -> float:
    """Instructions for an event of the benchmark's mix."""
    scheduler = Scheduler(SchedulerSettings(memory_mode=MemoryMode.SWAP, quantum_s=2))
    mix = Mix(
        lambda event, now_s: scheduler.handle(event, now_s=now_s), tenants=tenants, devices=devices
    )
    until_s = mix.now_s + WARM_UP_S
    while mix.now_s < until_s:
        mix.step()
    before = mix.events.total()
    with counted() as work:
        mix.run(400)
    return work.total() / (mix.events.total() - before)


@pytest.mark.promise("scheduler-47")
@pytest.mark.parametrize(
    ("few", "many"),
    [
        pytest.param((20, 4), (320, 4), id="node"),
        pytest.param((50, 2), (800, 32), id="fleet", marks=pytest.mark.full),
    ],
)
def test_an_event_costs_the_same_with_many_tenants(
    few: tuple[int, int], many: tuple[int, int]
) -> None:
    """Sixteen times as many tenants, on as many devices or on sixteen times as many. The rest of a
    half is chance: events are not the same ones."""
    assert work_of_the_mix(*many) <= 1.5 * work_of_the_mix(*few)


@pytest.mark.promise("scheduler-47")
def test_the_status_is_made_of_what_has_changed() -> None:
    """With sixteen times as many tenants, of which as many have changed."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants, waiting=20)
        crowd.scheduler.snapshot(crowd.now_s)
        crowd.handle(ev.CellBegan(client=ClientId(0)))
        with counted() as work:
            crowd.scheduler.snapshot(crowd.now_s)
        return work.total()

    assert work(MANY) <= 1.1 * work(FEW)


@pytest.mark.promise("scheduler-47")
def test_memory_that_came_ahead_for_many_costs_a_report_nothing() -> None:
    """Only who needs space goes through them."""

    def work(tenants: int) -> int:
        crowd = Crowd(tenants, waiting=2)
        for number in range(2, tenants):
            crowd.report(ClientId(number), 6 * GIB, parked=6 * GIB - 4 * MIB)
        came = (6 * GIB - number * 64 * MIB for number in range(1, 5))
        return crowd.work_of(*(crowd.report_of(ClientId(1), 6 * GIB, parked=each) for each in came))

    assert work(MANY) <= 1.1 * work(FEW)


def thinking_crowd(tenants: int, *, copied: int) -> Crowd:
    """All have just had a turn, but for the first, which has the rest of the device. They have
    copies of so much, and something left to copy."""
    crowd = Crowd(tenants, waiting=0)
    for number in range(1, tenants):
        client = ClientId(number)
        crowd.report(client, 128 * MIB)
        crowd.handle(ev.TurnRequested(client=client))
        crowd.handle(
            ev.TurnDropped(client=client, turn=TurnId(number), reason=ev.DropReason.CELL_END)
        )
        crowd.handle(crowd.report_of(client, 128 * MIB, copied=copied, to_copy=32 * MIB))
    holder = ClientId(0)
    crowd.handle(ev.TurnRequested(client=holder))
    crowd.report(holder, 135 * GIB - tenants * 128 * MIB)
    crowd.now_s += 1
    crowd.handle(ev.ClockTicked())
    return crowd


@pytest.mark.promise("scheduler-47")
@pytest.mark.parametrize("copied", [0, 64 * MIB])
def test_copies_of_many_cost_a_look_nothing(copied: int) -> None:
    """One of them copies; then the holder needs memory, and one of them parks."""

    def work(tenants: int) -> int:
        crowd = thinking_crowd(tenants, copied=copied)
        one, size = ClientId(1), 128 * MIB
        copies = (copied + number * MIB for number in range(1, 6))
        spent = crowd.work_of(
            *(crowd.report_of(one, size, copied=each, to_copy=8 * MIB) for each in copies)
        )
        attention = crowd.scheduler._machine._state.devices[DEVICE].memory.attention
        assert len(attention.to_copy) == tenants - 1 and list(attention.copying) == [one]
        missing = 3480 * MIB
        need = ev.MemoryNeeded(client=ClientId(0), device=DEVICE, bytes_needed=missing, need_id=1)
        spent += crowd.work_of(need)
        assert list(attention.owing) == [one]
        parks = (number * 8 * MIB for number in range(1, 6))
        return spent + crowd.work_of(
            *(crowd.report_of(one, size, parked=each, to_copy=8 * MIB) for each in parks)
        )

    assert work(MANY) <= 1.1 * work(FEW)
