"""Notebooks of one user and of others, as clients of the core at a desk."""

from __future__ import annotations

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .desk import Desk

SETTINGS = SchedulerSettings(memory_mode=MemoryMode.OFF)


def comes(desk: Desk, name: str, owner: str = "ann", *, cell: bool = False) -> ClientId:
    """A tenant asks for the device, in a cell or not."""
    if name not in {each.id for each in desk.scheduler.snapshot(desk.now_s).tenants}:
        desk.tenant(name, owner=owner)
    client = desk.client(name)
    if cell:
        desk.do(ev.CellBegan(client=client))
    desk.ask(client)
    return client


def later(desk: Desk, seconds: float) -> None:
    """Time goes by, and the core is woken when it asked to be."""
    until_s = desk.now_s + seconds
    while desk.wake_at_s is not None and desk.wake_at_s <= until_s:
        desk.sleep_until_woken()
        if desk.recalled():
            return
    desk.do(ev.ClockTicked(), after_s=until_s - desk.now_s)


def hand_over(desk: Desk, holder: ClientId) -> None:
    """It gives back what was asked for, and wants it again."""
    desk.drop(holder, ev.DropReason.RECALL)
    granted = desk.last
    desk.ask(holder, after_s=0.001)
    desk.last = granted
