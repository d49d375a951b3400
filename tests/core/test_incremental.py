"""The core looks only at what an event has changed, and does what it would do if it looked at
everything: random worlds, with a machine beside it that does (full_machine.py)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.commands import Command, ReportFailure
from jupyter_gpushare.core.ids import TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings
from tests.bench.mix import Mix

from .desk import Desk
from .full_machine import Beside
from .test_machine import WORLD_TIMEOUT, World
from .test_memory_machine import MemoryWorld


class WorldBeside(World):
    """Turns alone."""

    new_scheduler = Beside

    @rule(late_s=st.sampled_from([0.2, 7.0, 40.0]))
    def the_alarm_is_late(self, late_s: float) -> None:
        """What comes next comes before it."""
        self.now_s += late_s


class MemoryWorldBeside(MemoryWorld):
    """With memory that follows the turn."""

    new_scheduler = Beside

    @rule(late_s=st.sampled_from([0.2, 7.0, 40.0]))
    def the_alarm_is_late(self, late_s: float) -> None:
        """What comes next comes before it."""
        self.now_s += late_s


class LongWorldBeside(WorldBeside):
    """The same, for longer."""


class LongMemoryWorldBeside(MemoryWorldBeside):
    """The same, for longer."""


WorldBeside.TestCase.settings = settings(max_examples=10, stateful_step_count=50)
TestWorldBeside = WorldBeside.TestCase
TestWorldBeside.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.promise(
        "scheduler-32",
        "What an event leads to does not depend on how the core finds it: the same commands, in "
        "the same order, and the same status, as if it looked at everything after each event",
    ),
]
TestWorldBeside.__doc__ = "Whatever happens, both machines say the same."

MemoryWorldBeside.TestCase.settings = settings(max_examples=5, stateful_step_count=50)
TestMemoryWorldBeside = MemoryWorldBeside.TestCase
TestMemoryWorldBeside.pytestmark = [
    WORLD_TIMEOUT,
    pytest.mark.promise("scheduler-32"),
]
TestMemoryWorldBeside.__doc__ = "Also where memory follows the turn."

LongWorldBeside.TestCase.settings = settings(max_examples=2_000, stateful_step_count=30)
TestLongWorldBeside = LongWorldBeside.TestCase
TestLongWorldBeside.pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.promise("scheduler-32"),
]
TestLongWorldBeside.__doc__ = "The same in many more runs."

LongMemoryWorldBeside.TestCase.settings = settings(max_examples=1_200, stateful_step_count=30)
TestLongMemoryWorldBeside = LongMemoryWorldBeside.TestCase
TestLongMemoryWorldBeside.pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.promise("scheduler-32"),
]
TestLongMemoryWorldBeside.__doc__ = "The same in many more runs."


@pytest.mark.promise("scheduler-32")
@pytest.mark.parametrize(
    ("tenants", "devices", "snapshot_every", "late_s"),
    [
        pytest.param(24, 3, 1, 0.0, marks=pytest.mark.full),
        pytest.param(40, 2, 37, 0.0, marks=pytest.mark.full),
        (30, 4, 7, 0.4),
        (30, 4, 7, 12.0),
    ],
)
def test_the_mix_of_the_benchmark_leads_to_the_same(
    tenants: int, devices: int, snapshot_every: int, late_s: float
) -> None:
    """More tenants than the worlds have, some of them with two devices; also where the scheduler
    hears of everything late, and of alarms not at all before."""
    scheduler = Beside(
        SchedulerSettings(memory_mode=MemoryMode.SWAP, quantum_s=2), snapshot_every=snapshot_every
    )
    chance = Random(1)

    def handle(event: ev.Event, now_s: float) -> list[Command]:
        return scheduler.handle(event, now_s=now_s + chance.uniform(0, late_s))

    mix = Mix(handle, tenants=tenants, devices=devices)
    mix.run(600)
    scheduler.check_invariants()
    assert scheduler.compared == mix.events.total()
    assert mix.commands["GrantTurn"] > 50 and mix.commands["RecallTurn"] > 10


def test_a_tenant_may_be_removed_after_its_time_has_come() -> None:
    """Its deadline has passed before anybody told the time."""
    desk = Desk()
    a, b = desk.client("a"), desk.client("b")
    desk.ask(a)
    desk.ask(b)
    desk.do(ev.TenantRemoved(tenant=TenantId("a")), after_s=1000)
    assert desk.granted() == [b]
    assert desk.all(ReportFailure) == []
