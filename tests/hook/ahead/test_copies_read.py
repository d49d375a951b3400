"""Host copies ahead of need, where something else comes between: the scheduler goes, the host runs
short, memory of another device has to leave, or the mover is busy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import Ahead, Fallback
from tests.hook.ahead.conftest import HELD, SEGMENT, TENSORS, Opens
from tests.hook.ahead.copier import make_ready
from tests.hook.runtime.memory_shell import MIB, MemoryShell
from tests.hook.runtime.test_arena import Group
from tests.hook.runtime.two_devices import CHUNK, COPIES, Files, TwoDevices, program_of
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine

SMALL = 2 * MIB
MOVER = "thread=gpushare-mem"


def is_whole(memory: MemoryShell) -> bool:
    """In a turn."""
    return all(memory.is_whole(tensor) for tensor in range(TENSORS))


def copies(memory: MemoryShell, size: int = HELD) -> None:
    """So much of its memory."""
    memory.budget(HELD, hint_bytes=size, ahead=Ahead.COPIES)
    memory.client.expect_memory(lambda report: report.bytes_copied == size)


@pytest.mark.promise(
    "park-4",
    "Copies that were made ahead of need keep no process from running without a scheduler: all of "
    "its memory is there",
)
def test_a_process_with_copies_runs_without_a_scheduler(
    opens: Opens, group: Group, scheduler: FakeScheduler
) -> None:
    """As its fallback says. Nothing has to come back for that."""
    memory = opens()
    memory.client.change_settings(fallback=Fallback.RUN, reconnect_s=1)
    make_ready(memory, group)
    copies(memory)
    scheduler.stop()
    memory.say("sum 0")
    memory.shell.expect("0 sum 0")
    assert is_whole(memory)


@pytest.mark.promise(
    "park-5",
    "Copies that were made ahead of need are given up where the host runs short or nobody needs "
    "them any more, and the scheduler hears of it",
)
@pytest.mark.parametrize("why", ["the host is short", "all find room"])
def test_copies_are_given_up(opens: Opens, group: Group, why: str) -> None:
    """Although it is not to copy any more, and nothing else happens."""
    memory = opens()
    make_ready(memory, group)
    copies(memory)
    memory.limit(HELD, hint_bytes=HELD if why == "the host is short" else 0)
    if why == "the host is short":
        group.leave(HELD)
    memory.client.expect_memory(lambda report: report.bytes_copied == 0)


@pytest.mark.promise(
    "park-6", "A turn begins at once where nothing but copies made ahead of need is on the host"
)
def test_a_turn_does_not_wait_for_a_mover_that_is_busy(
    opens: Opens, group: Group, files: Files
) -> None:
    """It gives back host memory beyond what is needed now."""
    memory = opens(faults=f"hold cuMemHostUnregister {MOVER} until=go")
    make_ready(memory, group)
    copies(memory, SEGMENT)
    group.leave(HELD + 2 * SEGMENT + SEGMENT // 2)
    files.wait_for_held("go")
    memory.say("sum 0")
    memory.grant()
    memory.shell.expect("0 sum 0")
    files.make("go")
    assert is_whole(memory)


@pytest.mark.promise("park-42")
def test_who_has_no_stream_for_copies_says_that_it_copies_none(opens: Opens, group: Group) -> None:
    """So that another one does, and that memory that has to leave waits for no further try."""
    memory = opens(faults=f"fail cuStreamCreate {MOVER} times=0 result=2")
    make_ready(memory, group)
    memory.budget(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
    report = memory.client.expect_memory(
        lambda report: report.budget_serial == memory.client.last_serial
    )
    if report.bytes_to_copy:
        report = memory.client.expect_memory(lambda report: report.bytes_to_copy == 0)
    assert report.bytes_copied == 0


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "two", devices=2)


@pytest.fixture
def both(
    tmp_path: Path, scheduler: FakeScheduler, machine: SimulatedMachine
) -> Iterator[TwoDevices]:
    """It has many small chunks on the first device and two on the other one, no turn, and host
    memory for all of it. Its mover stands still in the first copy, if it is to."""
    stop = f"hold cuMemcpyDtoHAsync {MOVER} from=copies until=go"
    process = program_of(tmp_path, scheduler, machine, stop)
    two = TwoDevices(process, scheduler)
    two.say(f"b = alloc({2 * CHUNK}); on(CONTEXT)")
    two.say(f"a = [alloc({SMALL}) for _ in range({4 * CHUNK // SMALL})]; print('a 0')")
    two.grant(UNLIMITED, UNLIMITED)
    two.hears("a")
    two.drop()
    two.budgets(0, 0)
    two.expect_parked(lambda parked: parked == [4 * CHUNK, 2 * CHUNK])
    two.say(f"print('f', fill(a[0], 7, {SMALL}))")
    two.grant(UNLIMITED, UNLIMITED)
    two.hears("f")
    two.drop()
    yield two
    process.end()


@pytest.mark.promise(
    "park-7", "Copies ahead of need hold up no memory that has to leave, of whichever device it is"
)
def test_memory_of_another_device_leaves_first(both: TwoDevices, machine: SimulatedMachine) -> None:
    """What was on its way already ends. Meanwhile another process may copy."""
    first, other = both.devices
    files = Files(machine)
    files.make("copies")
    both.client.budget(first, 4 * CHUNK, hint_bytes=4 * CHUNK, ahead=Ahead.COPIES)
    files.wait_for_held("go")
    both.client.budget(other, 0, hint_bytes=2 * CHUNK)
    both.client.expect_memory(
        lambda report: (report.device, report.bytes_to_copy, report.bytes_parked) == (first, 0, 0)
    )
    files.make("go")
    both.expect_parked(lambda parked: parked == [0, 2 * CHUNK])
    both.client.expect_memory(lambda report: report.bytes_copied == 4 * CHUNK)
    records = [each for each in machine.journal() if each.kind.name == "COPY_D2H"]
    records.sort(key=lambda each: each.submitted_ns)
    parked = 2 * COPIES + 4 * CHUNK // SMALL
    devices = [each.device for each in records[parked:]]
    last = len(devices) - devices[::-1].index(1)
    assert devices[:last].count(0) == 1


@pytest.mark.promise("park-4")
def test_a_copy_on_its_way_keeps_no_process_from_running_without_a_scheduler(
    opens: Opens, group: Group, files: Files, scheduler: FakeScheduler
) -> None:
    """When it is over. The fallback is due in the middle of it."""
    memory = opens(faults=f"hold cuMemcpyDtoHAsync {MOVER} until=go")
    memory.client.change_settings(fallback=Fallback.RUN, reconnect_s=0)
    make_ready(memory, group)
    memory.budget(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
    files.wait_for_held("go")
    scheduler.stop()
    memory.say("sum 0")
    memory.shell.expect_error("waits")
    files.make("go")
    memory.shell.expect("0 sum 0")
    assert is_whole(memory)
