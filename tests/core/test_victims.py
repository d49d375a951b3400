"""Whose memory leaves for somebody else's: how much of each, by pure figures and told by events."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.core.memory.victims import IDLE_AT_LEAST_S, VICTIMS_MAX, Victim, parts

from .memory_desk import USABLE, MemoryDesk

GIB, MIB = 1 << 30, 1 << 20
CRUMB = 64 * MIB
GRANULE = CRUMB // 32
HOUR_S = 3600.0


def idle(idle_s: float, *, parked: int = 0, movable: int = 11 * GIB, asked: bool = False) -> Victim:
    return Victim((idle_s + IDLE_AT_LEAST_S) ** 2, parked, movable, asked)


@pytest.mark.promise("Memory stays on the device while...")
def test_those_who_are_equally_idle_give_the_same() -> None:
    """What each has parked already counts."""
    assert parts([idle(1)] * 4, 4 * GIB, CRUMB) == [GIB] * 4
    assert parts([idle(1, parked=2 * GIB), idle(1), idle(1)], 2 * GIB, CRUMB) == [0, GIB, GIB]


@pytest.mark.promise(
    "accounts",
    "A notebook that has been idle for an hour parks all that it has before active ones lose more "
    "than crumbs",
)
def test_who_is_idle_for_an_hour_goes_first() -> None:
    """Wholly; what is still short, the active ones share."""
    long, active = idle(HOUR_S), idle(2.0)
    assert parts([long, active, active], 11 * GIB, CRUMB) == [11 * GIB, 0, 0]
    assert parts([long, active, active], 13 * GIB, CRUMB) == [11 * GIB, GIB, GIB]


@pytest.mark.promise("Memory stays on the device while...")
def test_nobody_is_bothered_for_crumbs() -> None:
    """A part that is too small is others'; of many such parts few remain. Who parks already goes on
    to the end of its part."""
    found = parts([idle(0.0)] * VICTIMS_MAX, 3 * CRUMB, CRUMB)
    assert found == [CRUMB] * 3 + [0] * (VICTIMS_MAX - 3)
    assert parts([idle(0.0)] * 2, 10, CRUMB) == [10, 0]
    assert parts([idle(60.0), idle(0.0)], GIB, CRUMB) == [GIB, 0]
    assert parts([idle(0.0, asked=True)] * 2, 4 * MIB, CRUMB) == [2 * MIB] * 2


@pytest.mark.promise("Memory stays on the device while...")
@pytest.mark.parametrize("seed", range(40))
def test_parts_are_what_is_short_and_stay_while_they_leave(seed: int) -> None:
    """Nobody gives more than it can. While some release their parts before others, nobody is asked
    for more than before."""
    chance = random.Random(seed)
    victims = [
        idle(
            chance.choice([0.0, chance.expovariate(0.3), chance.expovariate(0.01)]),
            parked=chance.choice([0, chance.randint(0, 12 * GIB)]),
            movable=chance.randint(1, 12 * GIB),
            asked=True,
        )
        for _ in range(chance.randint(1, VICTIMS_MAX))
    ]
    can_give = sum(victim.bytes_movable for victim in victims)
    lack = chance.randint(1, int(1.2 * can_give))
    goals = parts(victims, lack, CRUMB)
    assert sum(goals) == min(lack, can_give)
    assert all(0 <= goal <= v.bytes_movable for goal, v in zip(goals, victims, strict=True))
    left = list(goals)
    for _ in range(20):
        who = chance.randrange(len(victims))
        moved = min(left[who], chance.randint(1, GIB))
        left[who] -= moved
        victim = victims[who]
        victims[who] = victim._replace(
            bytes_parked=victim.bytes_parked + moved, bytes_movable=victim.bytes_movable - moved
        )
        now = parts(victims, sum(left), CRUMB) if lack <= can_give else left
        assert sum(now) == sum(left)
        for found, before in zip(now, left, strict=True):
            assert abs(found - before) <= VICTIMS_MAX * GRANULE


def notebooks_on(desk: MemoryDesk, count: int) -> list[ClientId]:
    return [desk.with_memory(f"n{number}", USABLE // count) for number in range(count)]


@pytest.mark.promise("Memory stays on the device while...")
def test_few_share_what_is_short() -> None:
    """Of many notebooks those give that have been idle for longest. If that is not enough, the next
    ones give all that is still short."""
    desk = MemoryDesk()
    notebooks = notebooks_on(desk, 2 * VICTIMS_MAX)
    newcomer = desk.client("newcomer")
    desk.ask(newcomer)
    desk.need(newcomer, USABLE // 4)
    asked = [each for each in notebooks if desk.budget(each) < USABLE // (2 * VICTIMS_MAX)]
    assert asked == notebooks[: len(asked)] and 1 < len(asked) <= VICTIMS_MAX
    desk.need(newcomer, USABLE)
    assert [desk.budget(each) for each in notebooks] == [0] * len(notebooks)


@pytest.mark.promise("Memory stays on the device while...")
def test_of_two_notebooks_the_other_one_gives_all() -> None:
    """A hand-over of two moves what is short, and no more."""
    desk = MemoryDesk()
    one, two = desk.with_memory("a", 4000), desk.client("b")
    desk.ask(two)
    desk.need(two, 4500)
    assert desk.budget(one) == 4000 - (4000 + 4500 - USABLE)
