"""Turns that overlap, for turns are off: memory is shared by those whose calls go on."""

from __future__ import annotations

import pytest

from jupyter_gpushare.core.commands import ReportSilent
from jupyter_gpushare.core.settings import TurnTaking

from .memory_desk import USABLE, MemoryDesk


def work(desk: MemoryDesk, needs: dict[int, int], resting: list[int]) -> list[int]:
    """Whose need ends, granted or refused, when everybody answers and the device is looked at; at
    most 20 s."""
    for _ in range(200):
        for client in resting:
            desk.park(client)
        ended = set(desk.refused())
        for client, need in needs.items():
            if desk.has[client, "A"]["allocated"] + need <= desk.budget(client):
                ended.add(client)
        if ended:
            return sorted(ended)
        for client in needs:
            desk.report(client)
        used = sum(has["allocated"] - has["parked"] for has in desk.has.values())
        desk.measure(used, after_s=0.1)
    return desk.refused()


@pytest.mark.promise("accounts-34")
def test_two_needs_that_fit_one_after_the_other_both_end() -> None:
    """`b` was given a part of what it needs while `c` parks; then `a` needs more, too."""
    desk = MemoryDesk(turns=TurnTaking.OFF)
    desk.measure(0)
    three = desk.with_memory("c", 3000)
    one = desk.with_memory("a", 3000, resting=False)
    two = desk.with_memory("b", 0, resting=False)
    for client in (one, two, three, one, two):
        desk.report(client)
    desk.need(two, 2500)
    desk.report(one)
    desk.report(two)
    desk.need(one, 3500)
    assert work(desk, {one: 3500, two: 2500}, [three])


@pytest.mark.promise("accounts-34")
def test_a_need_behind_an_idle_process_of_a_holder_ends() -> None:
    """It could be moved, and is no victim while its tenant works."""
    desk = MemoryDesk(turns=TurnTaking.OFF)
    desk.measure(0)
    desk.with_memory("a", 4000)
    desk.with_memory("a", 0, resting=False)
    two = desk.with_memory("b", 0, resting=False)
    desk.report(two)
    desk.need(two, USABLE - 3000)
    assert work(desk, {two: USABLE - 3000}, []) == [two]


def test_a_holder_that_answers_everything_is_not_silent() -> None:
    """It was asked to park when it had no turn, then it was given the turn and keeps what it has.
    Much later it is told another number, and has not had a moment to answer."""
    desk = MemoryDesk(device_bytes_max=8000)
    desk.find_device(16000)
    desk.measure(0)
    one = desk.with_memory("a", 5000)
    two = desk.with_memory("b", 0, resting=False)
    desk.need(two, 5000)
    desk.report(one)
    desk.need(two, 0)
    for _ in range(4):
        desk.measure(9500, after_s=0.2)  # a stranger takes 4500
        desk.report(two)
    desk.drop(two)
    desk.ask(one)
    assert desk.granted() == [one]
    desk.report(one)
    assert desk.budget(one) < 5000
    for _ in range(30):
        desk.measure(9500, after_s=0.5)
        if one in desk.told():
            desk.report(one)
    desk.measure(9700, after_s=1)
    while one not in desk.told():
        desk.measure(9700, after_s=0.5)
    desk.report(two, after_s=0.001)
    assert not desk.all(ReportSilent)
