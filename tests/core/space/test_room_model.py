"""Calls that allocate while contexts open and strangers come, on a device whose driver has the last
word (room_model.py)."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.core import events as ev

from .room_model import TOTAL, End, RoomWorld, Stage

WORKS_S, ENDS_S = 4.0, 40.0
SEEDS = 80
MANY_SEEDS = 3000


def ends_of_calls(seed: int) -> list[End]:
    """How the calls of one notebook end, of one process or two."""
    chance = random.Random(seed)
    world = RoomWorld(
        seed, reclaim_s=chance.choice([0.2, 1.0, 5.0]), memory_wait_s=chance.choice([0, 10])
    )
    workers = [world.process("b", chance.choice([0, 500])) for _ in range(chance.choice([1, 1, 2]))]
    for worker in workers:
        worker.try_s = chance.choice([0.002, 0.01, 0.1, 0.3])
        world.say(ev.TurnRequested(client=worker.id))
    if chance.random() < 0.6:
        idle = world.process("i", 300)
        idle.allocated = idle.physical = chance.choice([500, 2000, 3000])
        idle.report_soon()
    world.run(2.0)

    def opens(name: str, context: int) -> None:
        if world.free > context:
            world.process(name, context)

    def strangers_have(count: int) -> None:
        world.strangers = min(count, world.strangers + world.free)

    for number in range(chance.randint(0, 5)):
        at_s, context = chance.random() * chance.choice([0.3, 2]), chance.choice([300, 700])
        world.later(at_s, lambda n=number, c=context: opens(f"o{n}", c))  # type: ignore[misc]
    for _ in range(chance.randint(0, 2)):
        count = chance.choice([0, 500, 1500])
        world.later(chance.random() * 2, lambda n=count: strangers_have(n))  # type: ignore[misc]
    for worker in workers:
        at_s = 0.0
        for _ in range(chance.randint(1, 5)):
            at_s += chance.random() * chance.choice([0.02, 0.5])
            count = chance.choice([200, 900, 2500, 4100, 6000])
            what = worker.call if chance.random() < 0.75 else worker.free_some
            world.later(at_s, lambda w=what, n=count: w(n))  # type: ignore[misc]
    world.run(WORKS_S)
    for _ in range(int(ENDS_S)):
        if all(each.stage is Stage.NONE for each in workers):
            break
        world.run(1.0)
    assert all(each.stage is Stage.NONE and not each.calls for each in workers), f"seed {seed}"
    assert world.free >= 0 and sum(each.physical for each in workers) <= TOTAL
    return [end for each in workers for end in each.ends]


def budgets_decide(seeds: range) -> None:
    for seed in seeds:
        ends = ends_of_calls(seed)
        assert not {End.NO_ROOM, End.NO_TRIES} & set(ends), f"seed {seed}: {ends}"


@pytest.mark.promise("accounts-11")
def test_budgets_alone_refuse_calls() -> None:
    """Each call ends: with its memory, or because its budget will not have it. The driver's refusal
    ends none, whatever comes in the way at whatever moment."""
    budgets_decide(range(SEEDS))


@pytest.mark.full
@pytest.mark.long
@pytest.mark.promise("accounts-11")
def test_budgets_alone_refuse_many_calls() -> None:
    """The same many more times."""
    budgets_decide(range(SEEDS, MANY_SEEDS))
