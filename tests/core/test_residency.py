"""Budgets: whose memory is on a device, told event by event."""

from __future__ import annotations

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import (
    Command,
    GrantTurn,
    TellBudget,
)
from jupyter_gpushare.core.ids import ClientId, DeviceId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .desk import Desk

DEVICE = DeviceId("A")
USABLE = 8000 - 1000
"""With the reserve of an eighth."""


class MemoryDesk(Desk):
    """A desk whose clients can be made to hear, create, park and report. `bytes_allocated` and so
    on are what the test last let them say; budgets are what they were told last."""

    def __init__(self, **changes: object) -> None:
        settings = SchedulerSettings(memory_mode=MemoryMode.SWAP).replace(**changes)
        self.budgets: dict[int, TellBudget] = {}
        self.has: dict[int, dict[str, int]] = {}
        super().__init__(settings, devices="A")

    def do(self, event: ev.Event, *, after_s: float = 0.0) -> list[Command]:
        super().do(event, after_s=after_s)
        for command in self.all(TellBudget):
            self.budgets[command.client] = command
        return self.last

    def report(self, client: ClientId, *, after_s: float = 0.0, **changes: int) -> list[Command]:
        """What is not said is as before; it has heard everything, unless told otherwise."""
        has = self.has.setdefault(
            client, {"bytes_allocated": 0, "bytes_parked": 0, "bytes_fixed": 0, "room": 10**6}
        )
        told = self.budgets.get(client)
        serial = changes.pop("serial", 0 if told is None else told.serial)
        has.update(changes)
        return self.do(
            ev.MemoryReported(
                client=client,
                device=DEVICE,
                bytes_allocated=has["bytes_allocated"],
                bytes_parked=has["bytes_parked"],
                bytes_fixed=has["bytes_fixed"],
                bytes_host_room=has["room"],
                budget_serial=serial,
            ),
            after_s=after_s,
        )

    def need(self, client: ClientId, count: int) -> list[Command]:
        return self.do(ev.MemoryNeeded(client=client, device=DEVICE, bytes_needed=count))

    def ask_room(self, client: ClientId, count: int) -> list[Command]:
        return self.do(ev.RoomRequested(client=client, device=DEVICE, bytes_wanted=count))

    def measure(self, used: int, *, after_s: float = 0.0) -> list[Command]:
        return self.do(ev.DeviceMemoryMeasured(device=DEVICE, bytes_used=used), after_s=after_s)

    def budget(self, client: ClientId) -> int:
        return self.budgets[client].budget_bytes

    def with_memory(self, name: str, allocated: int, **changes: int) -> ClientId:
        """A tenant that has had a turn, and has so much on the device now."""
        client = self.client(name)
        self.ask(client, after_s=0.01)
        self.need(client, allocated)
        assert self.budget(client) >= allocated
        self.report(client, bytes_allocated=allocated, **changes)
        self.drop(client, after_s=0.01)
        return client

    def park_all(self, client: ClientId) -> list[Command]:
        """It does what its budget asks for."""
        has = self.has[client]
        beyond = has["bytes_allocated"] - has["bytes_parked"] - self.budget(client)
        return self.report(client, bytes_parked=has["bytes_parked"] + max(0, beyond))


def test_a_holder_may_have_all_that_is_free() -> None:
    """The budget is told before the turn is granted."""
    desk = MemoryDesk()
    one = desk.client("a")
    desk.ask(one)
    assert [type(command) for command in desk.last[:2]] == [TellBudget, GrantTurn]
    assert desk.budget(one) == USABLE


def test_with_the_turn_the_rest_goes_too() -> None:
    """Who has dropped keeps what it has, and the next may have what is left."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 2000)
    two = desk.client("b")
    desk.ask(two)
    assert desk.budget(two) == USABLE - 2000
    assert desk.budget(one) >= 2000


def test_what_is_short_is_parked_and_no_more() -> None:
    """The holder lacks 1000: so much is asked of the other, and given as it is released."""
    desk = MemoryDesk()
    one = desk.with_memory("a", 5000)
    two = desk.client("b")
    desk.ask(two)
    desk.report(two, bytes_allocated=0)
    desk.need(two, 3000)
    assert desk.budget(one) == 4000
    assert desk.budget(two) == 2000
    desk.report(one, bytes_parked=400)
    assert desk.budget(two) == 2400
    desk.report(one, bytes_parked=1000)
    assert desk.budget(two) == 3000
    assert not desk.budgets[two].refused
