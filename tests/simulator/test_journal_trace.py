"""What a scheduler's journal tells becomes a workload again.

The journals are written by the production journal, from simulated notebooks whose work is known.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core.configuration.values import changed_settings, settings_as_json
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.protocol.messages import QueuePosition, TurnGranted
from jupyter_gpushare.scheduler.journal import Journal, aside_files
from jupyter_gpushare.scheduler.pseudonyms import Pseudonyms
from jupyter_gpushare.simulator.base.errors import SimulationError
from jupyter_gpushare.simulator.base.loop import Loop
from jupyter_gpushare.simulator.base.workload import GIB, Workload
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.journal_trace import read_journal
from jupyter_gpushare.simulator.load import of_files
from jupyter_gpushare.simulator.ours.node import SimulatedNode
from tests.support.scheduler_process import running_scheduler

from .scenes import notebook, simulated, workload

START_S = 5000.0
"""Of the scheduler's clock: it is some time since the machine was started."""


class JournalledNode(SimulatedNode):
    """Writes down what goes into the core and comes out of it."""

    journal: Journal

    def _handle(self, event: ev.Event) -> None:
        now_s = self._loop.now_s
        commands = self.core.handle(event, now_s=now_s)
        for command in commands:
            self._perform(command)
        self.journal.write(event, commands, now_s=START_S + now_s)


def journalled(path: Path, scene: Workload, weights: str = "", **options: object) -> Path:
    """The journal of a simulation."""
    settings = SchedulerSettings(weights=weights)
    journal = Journal(path, settings=settings, recovering_until_s=None, **options)  # type: ignore[arg-type]

    class Here(JournalledNode):
        pass

    Here.journal = journal

    def make(devices: range, loop: Loop, world: World) -> SimulatedNode:
        return Here(
            devices,
            loop=loop,
            settings=settings,
            hardware=world.hardware,
            device_bytes=scene.device_bytes,
        )

    simulated(make, scene)
    journal.close()
    return path


SCENE = workload(
    [notebook("a", gib=100), notebook("b", gib=60), notebook("c", is_program=True, closes_s=40.0)],
    [(0, 1.0, 25.0), (1, 5.0, 12.0), (1, 60.0, 0.5), (2, 30.0, 1.0), (0, 90.0, 2.0)],
)


@pytest.mark.promise(
    "simulator-2", "The scheduler's journal can be simulated: a what-if about last week"
)
def test_a_journal_becomes_the_workload_that_it_came_from(tmp_path: Path) -> None:
    """Cells that were paused are whole again, without the time of their turns' memory."""
    read = of_files([journalled(tmp_path / "journal", SCENE)])
    assert [cell.at_s for cell in read.cells] == pytest.approx([c.at_s for c in SCENE.cells], abs=1)
    assert [c.work_s for c in read.cells] == pytest.approx(
        [c.work_s for c in SCENE.cells], rel=0.05, abs=0.05
    )
    assert [(n.owner, n.bytes_used) for n in read.notebooks] == [
        ("a", 100 * GIB),
        ("b", 60 * GIB),
        ("c", GIB),
    ]
    program = read.notebooks[2]
    assert program.is_program and program.closes_s == pytest.approx(40.0, abs=5)
    assert (read.devices, read.device_bytes) == (1, SCENE.device_bytes)
    assert read.settings == settings_as_json(SchedulerSettings())
    again = simulated("nvshare", read)
    assert len(again.ends_s) == len(SCENE.cells)


@pytest.mark.promise("simulator-2")
def test_a_journal_of_several_files_with_pseudonyms_is_read(tmp_path: Path) -> None:
    """In their order they are one; a wrong order is refused."""
    path = journalled(
        tmp_path / "journal",
        SCENE,
        file_bytes_max=20_000,
        hidden=Pseudonyms(b"key").in_place_of_names,
    )
    files = [*sorted(aside_files(path)), path]
    assert len(files) > 2
    read = of_files(files)
    assert len(read.cells) == len(SCENE.cells)
    assert {each.owner.partition("-")[0] for each in read.notebooks} == {"owner"}
    with pytest.raises(SimulationError, match=r"Line \d+ of the journal jumps in time"):
        of_files([files[0], *reversed(files[1:])])


@pytest.mark.promise("simulator-2")
def test_files_are_read_when_those_before_are_gone(tmp_path: Path) -> None:
    """Each file says who is there: cells that begin in it have their owners and their memory."""
    path = journalled(tmp_path / "journal", SCENE, file_bytes_max=20_000)
    files = [*sorted(aside_files(path)), path]
    read = of_files(files[2:])
    work_s = [sum(cell.work_s for cell in each.cells) for each in (read, SCENE)]
    assert 0 < work_s[0] < 0.9 * work_s[1]
    sizes = {each.owner: each.bytes_used for each in SCENE.notebooks}
    assert all(each.bytes_used == sizes[each.owner] for each in read.notebooks)
    assert read.device_bytes == SCENE.device_bytes and read.notebooks[-1].device == 0
    assert read.cells[-1].work_s == pytest.approx(SCENE.cells[-1].work_s, rel=0.05)


@pytest.mark.promise("simulator-2")
def test_the_journal_of_a_running_scheduler_can_be_simulated(tmp_path: Path) -> None:
    """Two processes that really took turns are two notebooks with a cell each."""
    path = tmp_path / "journal"
    with running_scheduler(tmp_path / "run", f"--journal={path}", "--idle-ms=77") as scheduler:
        with scheduler.joined("first") as first, scheduler.joined("second") as second:
            turn = first.take_turn()
            second.ask()
            second.expect(QueuePosition)
            first.drop(turn.turn_id)
            second.drop(second.expect(TurnGranted).turn_id)
            scheduler.eventually(lambda status: not status["devices"][0]["holders"])
        read = of_files([path])
    assert len(read.notebooks) == len(read.cells) == 2
    assert read.settings["idle_ms"] == 77
    assert all(end_s > 0 for end_s in simulated("ours", read).ends_s)


def test_a_scheduler_that_was_started_anew_goes_on(tmp_path: Path) -> None:
    """Its clock may begin anew with the machine; the time of day tells how much later it is."""
    clock = [1_700_000_000.0]
    path = journalled(tmp_path / "journal", SCENE, wall_clock=lambda: clock[0])
    clock[0] += 3600
    journalled(path, SCENE, wall_clock=lambda: clock[0])
    read = of_files([*aside_files(path), path])
    sent = [cell.at_s for cell in SCENE.cells]
    assert [cell.at_s for cell in read.cells] == pytest.approx(
        [*sent, *(3600 + at_s for at_s in sent)], abs=1
    )


def test_a_journal_cut_off_by_a_crash_is_read(tmp_path: Path) -> None:
    path = journalled(tmp_path / "journal", SCENE)
    path.write_text(path.read_text()[:-7])
    assert len(of_files([path]).cells) == len(SCENE.cells)


@pytest.mark.promise("simulator-10")
def test_a_journal_that_is_not_one_is_refused(tmp_path: Path) -> None:
    """Another version, no turns, a line that lacks something, and one that is something else."""
    path = tmp_path / "journal"
    head = {"journal": 1, "settings": {}, "continues": False, "wall_s": 1.0}
    event = {"at_s": 1.0, "event": {"type": "ClockTicked"}, "commands": []}
    for lines, words in (
        ([{**head, "journal": 2}], "of another version"),
        ([head, event], "has no turns"),
        ([head, {"at_s": 1.0}], "Line 2 of the journal is not as the scheduler writes it"),
        ([head, {**event, "at_s": "x"}], "Line 2 of the journal is not as"),
        ([head, event, {**event, "commands": [1]}], "Line 3 of the journal is not as"),
        ([head, event, {**event, "at_s": 1e300}], "Line 3 of the journal jumps in time"),
        ([head, {**event, "at_s": float("nan")}], "Line 2 of the journal jumps in time"),
    ):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(SimulationError, match=words):
            of_files([path])


@pytest.mark.promise("simulator-10")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_stands_in_a_journal_it_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    """Values that are of another kind, lines that are missing or come twice: no other error."""
    lines = journalled(tmp_path / "journal", SCENE).read_text().splitlines()
    source = random.Random(seed)
    strange = [None, -1, 10**400, 1e308, "x", [], {}, True, {"type": "TurnDropped"}]
    refused = 0
    for _ in range(60):
        changed = [json.loads(line) for line in lines]
        for _ in range(3):
            number = source.randrange(1, len(changed))
            place = source.choice([changed[number], changed[number].get("event") or {}])
            if source.random() < 0.3 or not isinstance(place, dict) or not place:
                changed.insert(source.randrange(1, len(changed)), changed.pop(number))
            else:
                place[source.choice(sorted(place))] = source.choice(strange)
        try:
            read_journal(enumerate(changed, 1))
        except SimulationError:
            refused += 1
    assert refused


def test_weights_in_a_journal_count_for_pseudonyms(tmp_path: Path) -> None:
    """Users, groups and who is in them have pseudonyms, which still belong together."""
    scene = workload(
        [notebook("a", groups=("staff",)), notebook("b")], [(0, 1.0, 2.0), (1, 1.0, 3.0)]
    )
    hidden = Pseudonyms(b"key").in_place_of_names
    path = journalled(tmp_path / "journal", scene, hidden=hidden, weights="b=2, @staff=3")
    found = of_files([path])
    world = World(settings=changed_settings(SchedulerSettings(), dict(found.settings)))
    assert sorted(world.weights(found.notebooks).values()) == [2.0, 3.0]
    assert "staff" not in path.read_text()
