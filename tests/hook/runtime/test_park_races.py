"""Goals that change at the worst moment: what came back is never mistaken for what has a copy no
more, and the other way round. The simulated driver holds the mover's calls until the test says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import RoomRequested, TurnRequested
from tests.hook.runtime.memory_shell import MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess, Programs
from tests.hook.runtime.two_devices import CHUNK, Files, TwoDevices, program_of
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.paths import HOOK_LIBRARY
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

MOVER = "thread=gpushare-mem"
Crossed = Callable[[str], tuple[TwoDevices, Files]]


@pytest.fixture
def crossed(tmp_path: Path, scheduler: FakeScheduler) -> Iterator[Crossed]:
    """Starts a program with two chunks on each device, filled and parked."""
    started: list[GpuProcess] = []

    def start(faults: str) -> tuple[TwoDevices, Files]:
        machine = SimulatedMachine(tmp_path / "sim", devices=2)
        started.append(program_of(tmp_path, scheduler, machine, faults))
        both = TwoDevices(started[0], scheduler)
        both.say(f"b = alloc({2 * CHUNK}); on(CONTEXT); a = alloc({2 * CHUNK})")
        both.say(f"f = fill(a, 7, {2 * CHUNK}); on(OTHER); print('f', f, fill(b, 8, {2 * CHUNK}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == "0 0"
        both.drop()
        both.budgets(0, 0)
        both.expect_all_parked()
        return both, Files(machine)

    yield start
    for process in started:
        process.end()


@pytest.fixture
def pausing(
    programs: Programs, sim: SimulatedMachine, scheduler: FakeScheduler, tmp_path: Path
) -> Iterator[MemoryShell]:
    """A shell that has the turn, and whose mover pauses wherever it lets go of a lock."""
    pauses = Path(__file__).parent / "programs" / "pauses.h"
    shell = programs.built("shell", "-rdynamic", "-include", str(pauses), suffix="-that-pauses")
    log = tmp_path / "shell.log"
    process = GpuProcess([str(shell)], sim.env(scheduler.env(hook=HOOK_LIBRARY, log=log)), log)
    memory = open_memory_shell(lambda *_, **__: process, scheduler.accept)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    yield memory
    process.end()


def assert_parks_and_comes_back(both: TwoDevices, a: int, b: int) -> None:
    """Both devices are emptied, and have what was written last when all is back."""
    both.budgets(0, 0)
    both.expect_all_parked()
    both.say("spun = launch('spin', 0, c_uint64(1000)) or call('cuCtxSynchronize')")
    both.say(f"on(CONTEXT); w = words(a, {2 * CHUNK}); on(OTHER)")
    both.say(f"print('words', spun, w, words(b, {2 * CHUNK}))")
    both.grant(UNLIMITED, UNLIMITED)
    assert both.hears("words") == f"0 [{a}] [{b}]"


@pytest.mark.promise(
    "park-58",
    "Restored memory keeps its host copy until all of it is confirmed, however goals change "
    "meanwhile; no old copy is ever restored",
)
def test_a_grant_while_memory_that_came_back_leaves_again(crossed: Crossed) -> None:
    """The mover is taking back what came back to one device when the turn is granted: what came
    back to the other one is still confirmed before the gate opens, and what is written then is
    what is parked next."""
    both, files = crossed(f"hold cuMemUnmap {MOVER} from=came until=granted")
    both.say(f"on(CONTEXT); g = fill(a, 9, {2 * CHUNK}); on(OTHER)")
    both.say(f"print('g', g, fill(b, 10, {2 * CHUNK}))")
    both.grant(CHUNK, UNLIMITED)  # not all of it: what is back keeps its host copy
    both.expect_parked(lambda parked: parked == [CHUNK, 0])
    wait_until(lambda: files.arrived(3))
    files.make("came")
    both.drop()
    both.budgets(0, UNLIMITED)
    files.wait_for_held("granted")
    both.grant(0, 0)
    both.has_begun_to_restore(2)
    files.make("granted")
    both.expect_parked(lambda parked: parked[0] == 2 * CHUNK)
    both.budgets(UNLIMITED, UNLIMITED)
    assert both.hears("g") == "0 0"
    both.drop()
    assert_parks_and_comes_back(both, 9, 10)


@pytest.mark.promise("park-58")
def test_a_recall_while_a_restore_is_rolled_back(crossed: Crossed) -> None:
    """There was no room for all of it, and what had come leaves again when the turn is recalled:
    the rest of it leaves for the recall's sake, and nothing stays on the device for good."""
    faults = f"fail cuMemCreate {MOVER} from=parked until=roomy nth=4 times=0"
    both, files = crossed(f"{faults};hold cuMemUnmap {MOVER} from=parked until=recalled")
    files.make("parked")
    both.say(f"on(OTHER); print('g', fill(b, 9, {2 * CHUNK}))")
    both.grant(UNLIMITED, UNLIMITED)
    both.client.expect(RoomRequested)  # for the second device's second chunk
    files.wait_for_held("recalled")
    both.drop()
    both.client.expect(TurnRequested)
    both.budgets(0, 0)
    files.make("recalled")
    both.expect_all_parked()
    files.make("roomy")
    both.budgets(UNLIMITED, UNLIMITED)
    both.client.grant()
    assert both.hears("g") == "0"


@pytest.mark.promise("park-58")
def test_a_grant_while_what_arrives_late_is_to_leave(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """A copy arrives after the recall, and the next grant comes before its chunk is unmapped again:
    it is confirmed before the gate opens, and its host copy is never used once it is old."""
    faults = [
        f"hold cuEventQuery {MOVER} from=comes until=recalled",
        f"fail cuEventQuery {MOVER} from=comes result=600",
        f"hold cuEventQuery {MOVER} from=comes nth=2 until=granted",
    ]
    files = Files(sim)
    memory = open_memory_shell(
        start, scheduler.accept, env={"GPUSHARE_SIM_FAULTS": ";".join(faults)}
    )
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, CHUNK)
    memory.take_turn()
    memory.park_to(0)
    files.make("comes")
    memory.say("pattern 0 5000")
    memory.grant()
    files.wait_for_held("recalled")
    memory.take_turn()
    memory.budget(0)
    files.make("recalled")
    files.wait_for_held("granted")
    memory.client.expect(TurnRequested)
    memory.client.grant()
    wait_until(lambda: len(memory.shell.log_lines("restore: turn ")) == 2)
    files.make("granted")
    assert memory.result("pattern") == 0
    memory.budget(UNLIMITED)
    assert memory.run("sync") == 0
    memory.wrote(0, 5000)
    memory.fill(1, 2 * CHUNK)
    memory.take_turn()
    memory.park_to(CHUNK)
    memory.say("spin d 1000")
    memory.grant(2 * CHUNK)  # a part of what is parked may come
    memory.client.expect_memory(lambda report: report.bytes_parked == CHUNK)
    memory.take_turn()
    memory.client.expect(TurnRequested)
    memory.park_to(0)
    memory.budget(UNLIMITED)
    memory.client.grant()
    assert memory.result("spin") == 0
    assert memory.is_whole(0)
    assert memory.is_whole(1)


@pytest.mark.promise("park-58")
def test_what_is_freed_while_it_waits_to_come_is_not_waited_for(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """The budget lets one of two tensors come back, and another thread frees the other one: that is
    all there is, so the gate opens."""
    memory = open_memory_shell(start, scheduler.accept, reclaim_ms=20_000)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, CHUNK)
    memory.fill(1, CHUNK)
    assert memory.run("current", thread=1) == 0
    memory.take_turn()
    memory.park_to(0)
    memory.say("spin d 1000")
    memory.grant(CHUNK)
    memory.client.expect_memory(lambda report: report.bytes_parked == CHUNK)
    memory.say("drop 1", thread=1)
    assert {memory.shell.expect("") for _ in range(2)} == {"1 drop 0", "0 spin 0"}
    assert memory.is_whole(0)


@pytest.mark.promise(
    "park-59",
    "What has left is not told as there again while a budget does not reach for it: whoever waits "
    "for the room would wait for ever",
)
def test_a_budget_that_reaches_for_a_part_of_a_chunk(pausing: MemoryShell) -> None:
    """Each time that the process hears of it, it looks whether something can come back."""
    pausing.fill(0, 3 * CHUNK)
    pausing.take_turn()
    budget = CHUNK + CHUNK // 2
    pausing.park_to(budget)
    last = [pausing.budget(budget) for _ in range(200)][-1]
    parked = []
    while not parked or parked[-1][0] != last:
        report = pausing.client.expect_memory(lambda report: True)
        parked.append((report.budget_serial, report.bytes_parked))
    assert {count for _, count in parked} == {2 * CHUNK}
