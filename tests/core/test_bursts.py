"""Work outside cells that comes after a moment without any: before other owners it counts as a new
cell."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings

from .crowd import Crowd, Work
from .desk import Desk

SETTINGS = SchedulerSettings(memory_mode=MemoryMode.OFF)
BURST = pytest.mark.promise(
    "scheduler-101",
    "Work outside a cell that comes after 0.5 s without any goes before other owners, as far as "
    "more than half of its owner's credit is left",
)
LOOP = Work(in_cells=False)


@pytest.fixture
def desk() -> Desk:
    return Desk(SETTINGS)


def program(desk: Desk, name: str, owner: str) -> ClientId:
    """It has worked for a moment, and gives its turn back."""
    desk.tenant(name, owner=owner)
    client = desk.client(name)
    desk.ask(client)
    desk.drop(client, ev.DropReason.IDLE, after_s=0.1)
    return client


def loops(desk: Desk, owner: str) -> ClientId:
    """A program without a break has the device for long."""
    desk.tenant("loop", owner=owner)
    client = desk.client("loop")
    desk.ask(client)
    desk.do(ev.ClockTicked(), after_s=20)
    return client


@BURST
@pytest.mark.parametrize(("gap_s", "goes_first"), [(0.4, False), (0.6, True)])
def test_a_burst_follows_a_moment_without_work(gap_s: float, goes_first: bool) -> None:
    """Of a shorter gap nothing is said: it may be the host's part of a step."""
    desk = Desk(SETTINGS)
    loop = loops(desk, "ben")
    desk.drop(loop, ev.DropReason.IDLE)
    bursts = program(desk, "bursts", "ann")
    desk.ask(loop)
    desk.ask(bursts, after_s=gap_s)
    assert (desk.recalled() == [loop]) == goes_first


@BURST
def test_who_has_just_begun_is_no_burst(desk: Desk) -> None:
    """Else a loop of programs would go first each time."""
    loops(desk, "ben")
    desk.tenant("new", owner="ann")
    desk.ask(desk.client("new"))
    assert desk.recalled() == []


@BURST
def test_who_was_recalled_begins_no_burst(desk: Desk) -> None:
    """It goes on with what it did, however long it has waited."""
    bursts = program(desk, "bursts", "ann")
    loop = loops(desk, "ben")
    desk.ask(bursts)
    desk.drop(loop)
    desk.do(ev.ClockTicked(), after_s=10)
    desk.ask(loop)
    while bursts not in desk.recalled():
        desk.sleep_until_woken()
    desk.drop(bursts, ev.DropReason.RECALL)
    assert desk.granted() == [loop]
    desk.ask(bursts, after_s=5)
    assert desk.recalled() == []


@BURST
def test_half_of_the_credit_is_for_cells(desk: Desk) -> None:
    """A cell goes first where a burst does not any more."""
    bursts = program(desk, "bursts", "ann")
    loop = loops(desk, "ben")
    owners = desk.scheduler._machine._state.accounts.owners
    owners["ann"].credit_s, owners["ann"].credit_at_s = 0.9, desk.now_s
    desk.ask(bursts)
    assert desk.recalled() == []
    desk.withdraw(bursts)
    desk.do(ev.CellBegan(client=bursts))
    desk.ask(bursts)
    assert desk.recalled() == [loop]


@BURST
def test_a_program_that_bursts_for_ever_wins_its_credit_at_most() -> None:
    """0.3 s of work each 0.9 s, before somebody who works without a break: a third, as alone."""
    crowd = Crowd(SETTINGS)
    crowd.add("ben", LOOP, name="loop")
    crowd.add("ann", Work(cell_s=0.3, pause_s=0.6, in_cells=False), name="bursts")
    crowd.run(600)
    assert crowd.of_notebook_s["ben", "loop"] >= 0.6 * 600
    assert crowd.of_notebook_s["ann", "bursts"] >= 0.25 * 600


@BURST
def test_a_heavy_burster_does_not_get_beyond_its_share() -> None:
    """2 s of work each 2.6 s."""
    crowd = Crowd(SETTINGS)
    crowd.add("ben", LOOP, name="loop")
    crowd.add("ann", Work(cell_s=2.0, pause_s=0.6, in_cells=False), name="bursts")
    crowd.run(900)
    assert crowd.of_notebook_s["ben", "loop"] >= 0.46 * 900


def test_before_siblings_a_burst_has_no_credit(desk: Desk) -> None:
    """It takes over where it has had less, as any."""
    bursts = program(desk, "bursts", "ann")
    desk.ask(bursts)
    desk.drop(bursts, ev.DropReason.IDLE, after_s=60)
    other = loops(desk, "ann")
    desk.ask(bursts)
    assert desk.recalled() == []
    desk.sleep_until_woken()
    assert desk.recalled() == [other]
