"""The policy `ours` is the production scheduler; what is simulated are the hooks that answer it."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.simulator.base.loop import Loop
from jupyter_gpushare.simulator.base.record import Kind, Record
from jupyter_gpushare.simulator.base.workload import GIB, Workload
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.ours.hook import Gate, SimulatedHook
from jupyter_gpushare.simulator.ours.node import SimulatedNode
from jupyter_gpushare.simulator.policies import POLICIES
from jupyter_gpushare.simulator.run import run
from jupyter_gpushare.simulator.summary import summarised
from jupyter_gpushare.simulator.words import WORDS

from .scenes import notebook, responses, simulated, workload


def watched(scene: Workload, **changes: object) -> tuple[Record, list[SimulatedNode]]:
    """A simulation, with some settings changed, whose nodes check the core's invariants, and what
    their hooks do, after each event."""
    nodes: list[SimulatedNode] = []

    def make(devices: range, loop: Loop, world: World) -> SimulatedNode:
        nodes.append(
            CheckedNode(
                devices,
                loop=loop,
                settings=world.settings.replace(**changes),
                hardware=world.hardware,
                device_bytes=world.device_bytes,
            )
        )
        return nodes[-1]

    world = World(device_bytes=scene.device_bytes)
    return run(scene, make, devices=scene.devices, world=world), nodes


class CheckedNode(SimulatedNode):
    """Looks at everything after each event."""

    def _handle(self, event: object) -> None:
        super()._handle(event)  # type: ignore[arg-type]
        self.core.check_invariants()
        for device in {hook.kernel.device for hook in self._hooks.values()}:
            on_it = [hook for hook in self._hooks.values() if hook.kernel.device == device]
            assert sum(hook.gate is not Gate.SHUT for hook in on_it) <= 1
            assert sum(hook.kernel.works for hook in on_it) <= 1
            assert sum(hook.memory.resident for hook in on_it) <= 140 * GIB
            assert all(memory_is_there(hook) for hook in on_it if hook.kernel.works)


def memory_is_there(hook: SimulatedHook) -> bool:
    memory = hook.memory
    return not memory.parked and memory.allocated == hook.kernel.notebook.bytes_used


@pytest.mark.promise("simulator-6", "The simulator decides by the production scheduler itself")
def test_the_production_scheduler_decides() -> None:
    """A node has a `core.Scheduler`, and its invariants hold after each event."""
    scene = workload([notebook("a"), notebook("b")], [(0, 0.0, 30.0), (1, 1.0, 30.0)])
    record, (node,) = watched(scene)
    assert type(node.core) is Scheduler
    assert node.events > 20
    assert max(record.ends_s) == pytest.approx(60, abs=0.2)
    assert min(record.ends_s) > 40, "they take turns"


@pytest.mark.promise("simulator-6")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 5))]
)
def test_everybody_is_served_however_cells_come(seed: int) -> None:
    """On random workloads: one notebook works on a device at a time, with all of its memory there;
    no more is on a device than fits; and every cell ends with all its work done."""
    source = random.Random(seed)
    count = source.randint(2, 8)
    notebooks = [
        notebook(
            f"n{number}",
            gib=source.choice([0, 1, 20, 90, 130]),
            is_program=source.random() < 0.3,
            closes_s=source.choice([None, 300.0]),
            device=source.choice([None, 0, 1]),
        )
        for number in range(count)
    ]
    cells = [
        (source.randrange(count), source.uniform(0, 300), source.expovariate(1 / 3))
        for _ in range(40)
    ]
    cells = [
        (*cell, 0.0 if notebooks[cell[0]].is_program else source.choice([0.0, 0.0, 20.0]))
        for cell in cells
    ]
    scene = workload(notebooks, cells, devices=2)
    record, _ = watched(scene)
    assert record.failed == 0
    worked = dict.fromkeys(range(count), 0.0)
    for span in record.spans():
        if span.kind is Kind.WORK:
            worked[span.notebook] += span.end_s - span.start_s
    asked = dict.fromkeys(range(count), 0.0)
    for number, _, work_s, _ in cells:
        asked[number] += work_s
    assert worked == pytest.approx(asked, abs=1e-3)


def test_a_setting_of_the_scheduler_counts() -> None:
    """A shorter quantum lets a short cell through earlier."""
    scene = workload([notebook("a"), notebook("b")], [(0, 0.0, 60.0), (1, 5.0, 0.5)])
    waits = [
        responses(scene, simulated("ours", scene, quantum_s=quantum_s), 1)[0]
        for quantum_s in (10.0, 1.0)
    ]
    assert waits[0] > 10 > 2 > waits[1]


@pytest.mark.promise(
    "simulator-7", "Owners have their weights in a simulation, by name or by group"
)
@pytest.mark.parametrize("weights", ["a=3", "@staff=3", "b=0.5, @staff=1.5"])
def test_weights_count(weights: str) -> None:
    """Of two that always have work, one has three times as much; and the figures of fairness say
    that this is due."""
    pair = [notebook("a", groups=("staff",)), notebook("b")]
    scene = workload(pair, [(0, 0.0, 300.0), (1, 0.0, 300.0)])
    record = simulated("ours", scene, weights=weights)
    first_s = min(record.ends_s)
    assert first_s == pytest.approx(400, rel=0.1), "three quarters of the time are 300 s"
    for settings, is_fair in (({"weights": weights}, True), ({}, False)):
        world = World(settings=SchedulerSettings().replace(**settings))
        figures = summarised("ours", scene, record, devices=1, world=world)
        assert (figures.jain > 0.95) is is_fair
        assert (figures.lag_s_max < 60) is is_fair


def test_a_turn_is_kept_by_hand_between_cells() -> None:
    """Another notebook waits until the hold is over, and the device in between is its owner's. It
    is not in debt before, since its credit is large."""
    pair = [notebook("a"), notebook("b")]
    cells = [(0, 0.0, 1.0, 30.0), (1, 2.0, 1.0), (0, 10.0, 1.0)]
    scene = workload(pair, cells)
    record, _ = watched(scene, credit_s=60)
    assert responses(scene, record, 0) == pytest.approx([1.0, 1.0], abs=0.05)
    assert responses(scene, record, 1) == pytest.approx([29.0], abs=0.1)
    kept = [span for span in record.spans() if span.kind is Kind.HELD and span.notebook == 0]
    assert sum(span.end_s - span.start_s for span in kept) == pytest.approx(28, abs=0.1)


def test_a_hold_without_a_cell_ends_with_its_time() -> None:
    """Nobody waits, and the turn goes back all the same."""
    scene = workload([notebook("a"), notebook("b")], [(0, 0.0, 1.0, 30.0), (1, 100.0, 1.0)])
    record, _ = watched(scene)
    held_until_s = max(span.end_s for span in record.spans() if span.notebook == 0)
    assert held_until_s == pytest.approx(30.0, abs=0.1)


def test_memory_that_does_not_fit_beside_others_moves() -> None:
    """Two notebooks of 100 GiB on a device of 140: each change of hands moves memory, and the time
    counts as swapping."""
    pair = [notebook(name, gib=100) for name in "ab"]
    scene = workload(pair, [(i % 2, 20.0 * i, 1.0) for i in range(6)])
    record, _ = watched(scene)
    swaps = [span for span in record.spans() if span.kind is Kind.SWAP]
    assert len(swaps) == 5
    assert sum(span.end_s - span.start_s for span in swaps) == pytest.approx(5 * 1.8, rel=0.5)


@pytest.mark.parametrize("policy", POLICIES)
def test_each_policy_does_all_work_once(policy: str) -> None:
    """No cell is lost or done twice, whoever decides; and each policy has words for the help."""
    source = random.Random(3)
    cells = [
        (source.randrange(4), source.uniform(0, 60), source.uniform(0.1, 9)) for _ in range(30)
    ]
    scene = workload([notebook(f"n{i}", gib=3) for i in range(4)], cells, devices=2)
    record = simulated(policy, scene)
    assert all(
        end_s >= cell.at_s + cell.work_s - 1e-6
        for cell, end_s in zip(scene.cells, record.ends_s, strict=True)
    )
    assert WORDS[policy]


def test_a_simulation_is_the_same_each_time() -> None:
    scene = workload([notebook("a"), notebook("b")], [(i % 2, i / 3, 0.5) for i in range(40)])
    first, second = (list(simulated("ours", scene).spans()) for _ in range(2))
    assert first == second
