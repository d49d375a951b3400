"""A desk for stories about memory: clients hear budgets, create, park and report as told.

`has` is what each client last said that it has; `budgets` what each was told last.
"""

from __future__ import annotations

import dataclasses

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Ahead, Command, MeasureDevice, TellBudget, TellSpace
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.needs import GRACE_S
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from jupyter_gpushare.core.snapshot import TenantMemorySnapshot

from .desk import Desk

TOTAL = 8000
RESERVE = TOTAL // 8
USABLE = TOTAL - RESERVE
PLENTY = 10**6


class MemoryDesk(Desk):
    """Devices of 8000 bytes, in swap mode unless told otherwise. Nobody waits for memory that
    others cannot move, unless told otherwise."""

    def __init__(
        self, *, devices: str = "A", recovering_until_s: float | None = None, **changes: object
    ) -> None:
        settings = SchedulerSettings(memory_mode=MemoryMode.SWAP, memory_wait_s=0).replace(
            **changes
        )
        self.budgets: dict[tuple[int, str], TellBudget] = {}
        self.has: dict[tuple[int, str], dict[str, int]] = {}
        self.last_need_id = 0
        super().__init__(settings, devices=devices, recovering_until_s=recovering_until_s)

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        super().do(event, after_s=after_s)
        for command in self.all(TellBudget):
            self.budgets[command.client, command.device] = command
        return self.last

    # ---- what clients say --------------------------------------------------------------------

    def report(
        self, client: ClientId, device: str = "A", *, after_s: float = 0.0, **changes: int
    ) -> list[Command]:
        """What is not said is as before; it has heard everything, unless told otherwise."""
        has = self.has.setdefault(
            (client, device),
            {"allocated": 0, "parked": 0, "fixed": 0, "parkable": PLENTY, "host_limit": 0},
        )
        told = self.budgets.get((client, device))
        serial = changes.pop("serial", 0 if told is None else told.serial)
        has.update(changes)
        return self.do(
            ev.MemoryReported(
                client=client,
                device=DeviceId(device),
                bytes_allocated=has["allocated"],
                bytes_parked=has["parked"],
                bytes_fixed=has["fixed"],
                bytes_parkable=has["parkable"],
                host_limit=has["host_limit"],
                budget_serial=serial,
                bytes_kept=has.get("kept", 0),
                bytes_copied=has.get("copied", 0),
                bytes_to_copy=has.get("to_copy", 0),
            ),
            after_s=after_s,
        )

    def need(self, client: ClientId, count: int, device: str = "A") -> list[Command]:
        """Another one each time that it is not over."""
        self.last_need_id += count > 0
        need_id = self.last_need_id if count else 0
        return self.do(
            ev.MemoryNeeded(
                client=client, device=DeviceId(device), bytes_needed=count, need_id=need_id
            )
        )

    def ask_space(self, client: ClientId, count: int, device: str = "A") -> list[Command]:
        return self.do(
            ev.SpaceRequested(
                client=client, device=DeviceId(device), bytes_wanted=count, request_id=1
            )
        )

    def measure(self, used: int, device: str = "A", *, after_s: float = 0.0) -> list[Command]:
        return self.do(
            ev.DeviceMemoryMeasured(device=DeviceId(device), bytes_used=used), after_s=after_s
        )

    def with_memory(
        self, name: str, allocated: int, device: str = "A", *, resting: bool = True, **has: int
    ) -> ClientId:
        """A new process of the tenant that has had a turn, or has it still, and has allocated so
        much."""
        client = self.client(name, device)
        self.ask(client, after_s=0.01)
        self.grow(client, allocated, device, **has)
        if resting:
            self.drop(client, after_s=0.01)
        return client

    def grow(self, client: ClientId, count: int, device: str = "A", **has: int) -> None:
        """Ask for it, be given it and create it."""
        before = self.has.get((client, device), {}).get("allocated", 0)
        self.report(client, device)
        self.need(client, count, device)
        assert self.budget(client, device) >= before + count
        self.report(client, device, allocated=before + count, **has)

    def drop(self, client: ClientId, *args: object, **kwargs: object) -> list[Command]:
        """As the hook does: what it has is said before, and is its budget from then on."""
        for (who, device), has in list(self.has.items()):
            if who == client:
                self.report(client, device)
                budget = has["allocated"] - has["parked"]
                told = self.budgets[client, device]
                self.budgets[client, device] = dataclasses.replace(
                    told, budget_bytes=budget, ahead=Ahead.NOTHING
                )
        return super().drop(client, *args, **kwargs)  # type: ignore[arg-type]

    def park(self, client: ClientId, device: str = "A", *, after_s: float = 0.0) -> list[Command]:
        """It does what its budget asks for, and says so."""
        has = self.has[client, device]
        beyond = has["allocated"] - has["parked"] - self.budget(client, device)
        parked = has["parked"] + max(0, beyond)
        return self.report(client, device, parked=parked, after_s=after_s)

    # ---- what came of it ---------------------------------------------------------------------

    def budget(self, client: ClientId, device: str = "A") -> int:
        return self.budgets[client, device].budget_bytes

    def refused(self) -> list[int]:
        return [told.client for told in self.all(TellBudget) if told.refused_need]

    def await_refusal(
        self, client: ClientId, *, used: int | None = None, within_s: float = GRACE_S
    ) -> None:
        """Let time go by until the client's need is refused; `used` is on the device whenever that
        is to be looked at."""
        until_s = self.now_s + within_s
        while client not in self.refused():
            assert self.now_s < until_s, "it is not refused"
            looks = self.all(MeasureDevice)
            self.last = []
            if looks and used is not None:
                for look in looks:
                    self.measure(used, look.device)
            else:
                self.sleep_until_woken()
            assert self.now_s <= until_s, "it is refused too late"

    def told(self) -> dict[int, int]:
        """Budgets of the last event."""
        return {command.client: command.budget_bytes for command in self.all(TellBudget)}

    def space_answers(self) -> dict[int, bool]:
        return {command.client: command.made for command in self.all(TellSpace)}

    def memory(self, tenant: str) -> TenantMemorySnapshot:
        (memory,) = self.status(tenant).memory
        return memory

    def obstacle(self, tenant: str) -> str | None:
        found = self.status(tenant).obstacle
        return None if found is None else found.kind.value
