"""Thousands of recalls under eight launching threads, judged by the device's own journal."""

from __future__ import annotations

import bisect
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler, HookedClient
from tests.support.sim import SimulatedMachine, load_journal_reader
from tests.support.waits import WAIT_S_MAX

Start = Callable[..., GpuProcess]

THREADS = 8
SPIN_NS = 20_000
SEED = 1906
WORK_LOOK_S = 0.0001


class Turns:
    """What the scheduler knows of each turn, on the machine's clock."""

    def __init__(self) -> None:
        self.granted_ns: list[int] = []
        self.closed_ns: list[int] = []
        self.drained_ns: list[int] = []
        self._random = random.Random(SEED)

    def take(self, client: HookedClient, sim: SimulatedMachine | None = None) -> None:
        """One turn: request, grant, recall, drop. On this machine some work is done before the
        recall, however long that takes."""
        client.expect(TurnRequested)
        before = load_journal_reader().records_written(sim.directory) if sim else 0
        self.granted_ns.append(time.monotonic_ns())
        client.grant()
        ends_s = time.monotonic() + WAIT_S_MAX
        while sim and load_journal_reader().records_written(sim.directory) == before:
            assert time.monotonic() < ends_s, "nothing is launched in this turn"
            time.sleep(WORK_LOOK_S)
        # How long a turn lasts is the stimulus: recalls are to meet launches in every phase.
        time.sleep(self._random.uniform(0, 0.0015))
        dropped = client.recall_and_drop()
        self.closed_ns.append(dropped.closed_at_ns)
        self.drained_ns.append(dropped.drained_at_ns)

    def violations(self, records: list[Any]) -> list[str]:
        """Work that was submitted without a turn, or was still on the device after the drain."""
        wrong = []
        for record in records:
            turn = bisect.bisect_right(self.granted_ns, record.submitted_ns) - 1
            if turn < 0:
                wrong.append(f"submitted before the first grant: {record}")
            elif record.submitted_ns > self.closed_ns[turn]:
                late_us = (record.submitted_ns - self.closed_ns[turn]) / 1e3
                wrong.append(f"turn {turn}: submitted {late_us:.1f} us after the gate closed")
            elif record.ended_ns > self.drained_ns[turn]:
                late_us = (record.ended_ns - self.drained_ns[turn]) / 1e3
                wrong.append(f"turn {turn}: ended {late_us:.1f} us after the drain")
        return wrong


def recall_often(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine, *, count: int, **options: Any
) -> Turns:
    """`count` turns of a program that launches from eight threads."""
    program = start("recalls", THREADS, SPIN_NS, machine=sim, **options)
    client = scheduler.accept()
    client.welcome(window_ms=1, drain_stall_ms=10_000)
    turns = Turns()
    for number in range(count):
        turns.take(client, sim if number % 2 else None)
    client.expect(TurnRequested)
    records = [record for record in sim.journal() if record.name == "spin"]
    assert client.count(TurnDropped) == count
    violations = turns.violations(records)
    assert not violations, (len(violations), violations[:5])
    turns_with_work = {bisect.bisect_right(turns.granted_ns, r.submitted_ns) for r in records}
    assert len(turns_with_work) >= count // 2
    client.grant()
    assert program.finish() == 0
    return turns


@pytest.mark.promise(
    "hook-28",
    "No launch slips through after the gate has closed: 8 launching threads, 10,000 recalls, "
    "judged by the journal",
)
@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_no_launch_escapes_the_gate_in_many_recalls(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine, count: int
) -> None:
    """Eight launching threads and thousands of recalls: nothing is submitted after the gate closed
    and before the next grant, nothing is on the device after the drain."""
    recall_often(start, scheduler, sim, count=count)


@pytest.mark.promise("hook-28")
def test_without_recalls_the_judge_sees_the_violation(
    start: Start, scheduler: FakeScheduler, tmp_path: Path, sim: SimulatedMachine
) -> None:
    """The control: were the recall not obeyed, the journal would show it."""
    program = start("recalls", THREADS, SPIN_NS, machine=sim)
    client = scheduler.accept()
    client.welcome(window_ms=1)
    client.grant_request()
    turns = Turns()
    turns.granted_ns.append(0)
    turns.closed_ns.append(time.monotonic_ns())
    turns.drained_ns.append(time.monotonic_ns())
    while not turns.violations([r for r in sim.journal() if r.name == "spin"]):
        time.sleep(0.01)
    assert program.finish() == 0
