"""A device that only its clients knew of is forgotten when none of them has it open any more."""

from __future__ import annotations

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import TellSpace
from jupyter_gpushare.core.ids import DeviceId

from .memory_desk import TOTAL, MemoryDesk

A = DeviceId("A")


def devices(desk: MemoryDesk) -> list[str]:
    return [device.id for device in desk.scheduler.snapshot(desk.now_s).devices]


def test_it_is_forgotten_and_can_come_again() -> None:
    """With another size, say, and with nothing of what was on it."""
    desk = MemoryDesk()
    client = desk.client("a")
    desk.ask(client)
    desk.report(client, allocated=1000)
    desk.lose(client)
    desk.do(ev.DeviceWithdrawn(device=A))
    assert devices(desk) == []
    desk.find_device(2 * TOTAL, "A")
    other = desk.client("b")
    desk.ask(other)
    assert desk.granted() == [other]
    (device,) = desk.scheduler.snapshot(desk.now_s).devices
    assert (device.bytes_total, device.bytes_foreign) == (2 * TOTAL, 0)


def test_one_that_is_open_stays() -> None:
    """Whoever has opened it keeps it."""
    desk = MemoryDesk()
    desk.client("a")
    desk.do(ev.DeviceWithdrawn(device=A))
    assert devices(desk) == ["A"]


def test_who_waits_for_room_on_it_is_told() -> None:
    """There will be none."""
    desk = MemoryDesk(devices="AB")
    client = desk.client("b", devices="B")
    desk.measure(100)
    desk.ask_space(client, 4000)
    assert desk.all(TellSpace) == []
    desk.do(ev.DeviceWithdrawn(device=A))
    assert [(told.client, told.made) for told in desk.all(TellSpace)] == [(client, False)]


def test_nobody_is_told_of_it_any_more() -> None:
    """Neither does a refusal of memory there."""
    desk = MemoryDesk()
    client, other = desk.client("a"), desk.client("b")
    desk.report(other, allocated=7000, fixed=7000)
    desk.ask(client)
    desk.do(ev.MemoryNeeded(client=client, device=A, bytes_needed=6000, need_id=1), after_s=5)
    for _ in range(20):
        if desk.status("a").obstacle is not None:
            break
        desk.sleep_until_woken()
    assert desk.status("a").obstacle is not None
    for each in (client, other):
        desk.do(ev.DeviceClosed(client=each, device=A))
    desk.do(ev.DeviceWithdrawn(device=A))
    assert desk.status("a").obstacle is None
