"""What a report costs: during a hand-over a thousand come in a second."""

from __future__ import annotations

import time

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import TellBudget
from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId, TurnId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

TENANTS = 20
GIB = 1 << 30
DEVICE = DeviceId("A")
CHUNK = 32 << 20
REPORT_S_MAX = 100e-6


class Handover:
    """The first of twenty tenants with 60 GiB each parks for the third, while the rest queue."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.serials: dict[ClientId, int] = {}
        self.parked = 0
        self.scheduler = Scheduler(SchedulerSettings(memory_mode=MemoryMode.SWAP))
        self.handle(ev.DeviceFound(device=DEVICE, name="GPU", bytes_total=141 * GIB))
        for number in range(TENANTS):
            client, tenant = ClientId(number), TenantId(f"t{number}")
            name = f"notebook {number}"
            self.handle(ev.TenantRegistered(tenant=tenant, name=name, owner="me", kind="kernel"))
            self.handle(
                ev.ClientJoined(client=client, tenant=tenant, pid=number, process_name="python")
            )
            self.handle(ev.DeviceOpened(client=client, device=DEVICE))
            self.report(client, 60 * GIB if number >= 2 else 0)
        for number in range(TENANTS):
            self.handle(ev.TurnRequested(client=ClientId(number)))
        for number in range(2):
            self.handle(
                ev.TurnDropped(
                    client=ClientId(number),
                    turn=TurnId(number + 1),
                    reason=ev.DropReason.CELL_END,
                )
            )

    def handle(self, event: ev.Event) -> None:
        self.now_s += 0.001
        for command in self.scheduler.handle(event, now_s=self.now_s):
            if isinstance(command, TellBudget):
                self.serials[command.client] = command.serial

    def report(self, client: ClientId, parked: int) -> None:
        self.handle(
            ev.MemoryReported(
                client=client,
                device=DEVICE,
                bytes_allocated=60 * GIB,
                bytes_fixed=0,
                bytes_parked=parked,
                bytes_host_room=500 * GIB,
                budget_serial=self.serials.get(client, 0),
            )
        )

    def park_some(self, reports: int) -> float:
        """How many seconds of this thread's time each of so many reports took."""
        began_s = time.thread_time()
        for _ in range(reports):
            self.parked += CHUNK
            self.report(ClientId(0), self.parked)
        return (time.thread_time() - began_s) / reports


@pytest.mark.promise(
    "accounts",
    "A report costs the scheduler less than 100 µs with twenty tenants",
)
def test_a_report_is_handled_in_no_time() -> None:
    """With twenty tenants in the queue: the best of some rounds, for the machine may be busy."""
    handover = Handover()
    best_s = min(handover.park_some(100) for _ in range(10))
    assert best_s < REPORT_S_MAX
    handover.scheduler.check_invariants()
    memory = [tenant.memory[0] for tenant in handover.scheduler.snapshot(handover.now_s).tenants]
    assert memory[0].bytes_parked == 1000 * CHUNK
