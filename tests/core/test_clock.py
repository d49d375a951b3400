"""A clock that jumps."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import Crowd, Work
from .desk import Desk

FIXED = SchedulerSettings(memory_mode=MemoryMode.OFF, quantum_s=10)
JUMPS = pytest.mark.promise(
    "scheduler-10",
    "A clock that jumps, forward or back, neither charges anybody nor stops anything",
)


@JUMPS
def test_nobody_is_charged_for_a_jump() -> None:
    """The scheduler stood still for a day while somebody had the device, and another one waited."""
    crowd = Crowd(FIXED)
    crowd.add("ann", Work(in_cells=False))
    crowd.add("ben", Work(in_cells=False))
    crowd.run(100)
    crowd.now_s += 86_400
    before = crowd.part_s("ann"), crowd.part_s("ben")
    crowd.run(600)
    ann, ben = crowd.part_s("ann") - before[0], crowd.part_s("ben") - before[1]
    assert abs(ann - ben) <= 2 * 10 + 1


@JUMPS
@pytest.mark.parametrize("back_s", [2.0, 50.0, 86_400.0])
def test_a_clock_that_goes_back_stops_nothing(back_s: float) -> None:
    """The quantum ends when its time has passed by the clock of now."""
    desk = Desk(FIXED)
    desk.now_s = 100_000.0
    for name in "ab":
        desk.tenant(name, owner=name)
        desk.ask(desk.client(name))
    desk.do(ev.ClockTicked(), after_s=4)
    desk.now_s -= back_s
    desk.do(ev.CellBegan(client=desk.client("c", "B")))
    assert desk.wake_at_s == pytest.approx(desk.now_s + 6)
    desk.do(ev.ClockTicked(), after_s=5.9)
    assert desk.recalled() == []
    desk.sleep_until_woken()
    assert desk.recalled() == [1]
    assert desk.scheduler.snapshot(desk.now_s).tenants
