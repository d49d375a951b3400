"""Copies ahead of need of memory that other processes are given, and of two devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import Ahead, MemoryReported, TurnRequested
from tests.hook.ahead.copier import stop_at, take_turns_until
from tests.hook.runtime.mapping_program import MappingProgram, start_mapping_program
from tests.hook.runtime.memory_shell import MIB
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_arena import Group
from tests.hook.runtime.two_devices import CHUNK, Files, TwoDevices, program_of
from tests.support.compiled import library_named
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

SIZE = 4 * MIB
PIECE = 4 * MIB
"""Many such are on their way at once."""
LARGE = 150 * MIB
"""Three parts, of which two are of 64 MiB."""

Programs = Callable[..., MappingProgram]


@pytest.fixture
def program_with(
    tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine, group: Group
) -> Iterator[Programs]:
    """Starts a program that has opened the device."""
    started: list[GpuProcess] = []

    def start(faults: str = "") -> MappingProgram:
        started.append(start_mapping_program(tmp_path, scheduler, sim, faults, group.env))
        return MappingProgram(started[-1], scheduler, Files(sim))

    yield start
    for process in started:
        process.end()


def last_report(program: MappingProgram) -> MemoryReported:
    return [each for each in program.client.received if isinstance(each, MemoryReported)][-1]


def gets_ready(program: MappingProgram, group: Group, size: int) -> None:
    """Holds the turn until there is host memory for a copy of so much."""
    program.memory.limit(UNLIMITED, hint_bytes=size)
    wait_until(lambda: group.taken()[0] >= size)
    program.memory.take_turn()

    def takes_another() -> None:
        program.say("call('cuCtxSynchronize'), write(at, b'kept')")
        program.client.expect(TurnRequested)
        program.memory.budget(UNLIMITED, hint_bytes=size)
        program.client.grant()
        assert program.result() == "(0, 0)"
        program.memory.take_turn()

    take_turns_until(lambda: last_report(program).bytes_to_copy >= size, takes_another)


def copied_out(machine: SimulatedMachine, process: GpuProcess, device: int = 0) -> int:
    return sum(
        record.amount
        for record in machine.journal()
        if (record.pid, record.device, record.kind.name) == (process.pid, device, "COPY_D2H")
    )


# ---- memory that other processes are given ------------------------------------------------------


def makes_a_handle(program: MappingProgram) -> None:
    """Of `a`, with b"kept" in it. Nobody opens it, so it moves."""
    program.say(f"a = at = alloc({SIZE})")
    program.memory.grant()
    program.result()
    assert program.run("write(a, b'kept')") == "0"
    program.run("handle = share(a)")
    program.client.expect_memory(lambda report: report.bytes_fixed == SIZE)
    program.client.expect_memory(lambda report: report.bytes_fixed == 0)


@pytest.mark.promise("park-1")
@pytest.mark.parametrize("when", ["meanwhile", "after"])
def test_memory_that_another_process_opens(
    program_with: Programs, group: Group, sim: SimulatedMachine, when: str
) -> None:
    """The copy is given up for that: at once, or in a turn while it is being made. What the other
    one has written is what is copied as soon as it has closed the memory, and parks."""
    owner = program_with(stop_at(1))
    makes_a_handle(owner)
    gets_ready(owner, group, SIZE)
    hint = {"hint_bytes": SIZE, "ahead": Ahead.COPIES}
    if when == "meanwhile":
        owner.files.make("begin")
    owner.memory.budget(SIZE, **hint)
    if when == "meanwhile":
        owner.files.wait_for_held("go")
    else:
        owner.client.expect_memory(lambda report: report.bytes_copied == SIZE)
    other = program_with()
    other.say(f"b = open_shared({owner.run('handle')})")
    if when == "meanwhile":
        owner.client.expect(TurnRequested)
        assert last_report(owner).bytes_fixed == 0
        owner.files.make("go")
        owner.allow_all()
    assert other.result() == "None"
    owner.client.expect_memory(lambda report: report.bytes_fixed == SIZE)
    if when == "meanwhile":
        owner.memory.take_turn()
    report = owner.memory.limit(SIZE, **hint)
    assert (report.bytes_copied, report.bytes_to_copy) == (0, 0)
    other.say("write(b, b'new!'), call('cuCtxSynchronize')")
    other.memory.grant()
    assert other.result() == "(0, 0)"
    before = copied_out(sim, owner.process)
    assert other.run("close_shared(b)") == "0"
    owner.client.expect_memory(lambda report: report.bytes_copied == SIZE)
    assert owner.memory.park_to(0).bytes_parked == SIZE
    assert copied_out(sim, owner.process) == before + SIZE
    owner.say("read(a, 4)")
    owner.memory.grant()
    assert owner.result() == "b'new!'"


@pytest.mark.promise("park-1")
@pytest.mark.parametrize("size", [SIZE, LARGE])
def test_memory_that_the_program_exports(program_with: Programs, group: Group, size: int) -> None:
    """Of one part or of several, which become one first. It stays from then on, with what is
    written afterwards, and is copied no more."""
    program = program_with()
    program.make(size, "handle_types=1")
    gets_ready(program, group, size)
    hint = {"hint_bytes": size, "ahead": Ahead.COPIES}
    program.memory.budget(size, **hint)
    program.client.expect_memory(lambda report: report.bytes_copied == size)
    program.say("export(handle) > 0")
    program.memory.grant()
    assert program.result() == "True"
    program.client.expect_memory(lambda report: report.bytes_fixed == size)
    assert program.run("read(at, 4)") == "b'kept'"
    assert program.run("write(at, b'new!'), call('cuCtxSynchronize')") == "(0, 0)"
    program.memory.take_turn()
    report = program.memory.limit(0, **hint)
    assert (report.bytes_fixed, report.bytes_parked) == (size, 0)
    assert (report.bytes_copied, report.bytes_to_copy) == (0, 0)
    program.say("read(at, 4)")
    program.memory.grant()
    assert program.result() == "b'new!'"


@pytest.mark.promise("park-57")
@pytest.mark.parametrize("size", [SIZE, LARGE])
@pytest.mark.parametrize("goes", [True, False])
def test_memory_that_becomes_fixed_for_rdma_while_it_is_copied(
    program_with: Programs, group: Group, tmp_path: Path, size: int, goes: bool
) -> None:
    """Nobody tells us what is registered. It stays, though it was about to leave, or was copied
    ahead of need."""
    library = tmp_path / "libibverbs.so.1"
    library_named(library, "")
    program = program_with(stop_at(1))
    program.make(size, "rdma=1")
    gets_ready(program, group, size)
    program.files.make("begin")
    program.memory.budget(0 if goes else size, hint_bytes=size, ahead=Ahead.COPIES)
    program.files.wait_for_held("go")
    program.run(f"ctypes.CDLL({str(library)!r})")
    program.memory.budget(0)
    program.client.expect_memory(lambda report: report.bytes_fixed == size)
    program.files.make("go")
    report = program.memory.limit(0)
    assert (report.bytes_fixed, report.bytes_parked, report.bytes_copied) == (size, 0, 0)
    program.say("read(at, 4)")
    program.memory.grant()
    assert program.result() == "b'kept'"


# ---- two devices --------------------------------------------------------------------------------


class Both(TwoDevices):
    """A program that has so much on either device, and host memory that is ready for all of it."""

    def __init__(
        self, process: GpuProcess, scheduler: FakeScheduler, group: Group, size: int, pieces: int
    ) -> None:
        super().__init__(process, scheduler)
        self.size = size
        make = f"[alloc({size // pieces}) for _ in range({pieces})]"
        fill = f"sum(fill(each, value, {size // pieces}) for each in tensors)"
        self.say(f"b = {make}; on(CONTEXT); a = {make}")
        self.say(f"value, tensors = 7, a; f = {fill}; on(OTHER)")
        self.say(f"value, tensors = 8, b; print('f', f, {fill})")
        self.grant(UNLIMITED, UNLIMITED)
        assert self.hears("f") == "0 0"
        self.budgets(UNLIMITED, UNLIMITED)
        wait_until(lambda: group.taken()[0] >= 2 * size)
        self.drop()
        take_turns_until(
            lambda: all(report.bytes_to_copy >= size for report in self.last_reports()),
            self._takes_another,
        )

    def _takes_another(self) -> None:
        self.say(f"print('again', fill(b[0], 8, {PIECE}))")
        self.grant(UNLIMITED, UNLIMITED)
        assert self.hears("again") == "0"
        self.drop()

    def budgets(self, *budgets: int) -> None:
        for device, budget in zip(self.devices, budgets, strict=True):
            self.client.budget(device, budget, hint_bytes=self.size)

    def last_reports(self) -> list[MemoryReported]:
        """Of each device."""
        reports = [m for m in self.client.received if isinstance(m, MemoryReported)]
        return [[r for r in reports if r.device == device][-1] for device in self.devices]

    def tells(self, device: int, budget_bytes: int, ahead: Ahead) -> None:
        """And the process has heard it."""
        told = {"hint_bytes": self.size, "ahead": ahead}
        serial = self.client.budget(self.devices[device], budget_bytes, **told)
        self.client.expect_memory(lambda report: report.budget_serial == serial)

    def expects(self, *copied_and_parked: tuple[int, int]) -> None:
        """Of each device."""

        def holds(_: object = None) -> bool:
            found = [(each.bytes_copied, each.bytes_parked) for each in self.last_reports()]
            return found == list(copied_and_parked)

        if not holds():
            self.client.expect_memory(holds)

    def is_whole(self) -> bool:
        """In a turn."""
        look = "sorted({w for each in tensors for w in words(each, 4096)})"
        self.say(f"tensors = b; w = {look}; on(CONTEXT); tensors = a; print('words', {look}, w)")
        self.grant(UNLIMITED, UNLIMITED)
        return self.hears("words") == "[7] [8]"


Boths = Callable[..., Both]


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "two", devices=2, copy_bytes_per_s=1_000_000_000)


@pytest.fixture
def both_with(
    tmp_path: Path, scheduler: FakeScheduler, machine: SimulatedMachine, group: Group
) -> Iterator[Boths]:
    started: list[GpuProcess] = []

    def start(pieces: int, faults: str = "") -> Both:
        started.append(program_of(tmp_path, scheduler, machine, faults, **group.env))
        return Both(started[0], scheduler, group, 2 * CHUNK, pieces)

    yield start
    for process in started:
        process.end()


@pytest.mark.promise("park-63")
def test_each_device_has_copies_of_its_own(both_with: Boths, machine: SimulatedMachine) -> None:
    """One is copied, and leaves without a copy while the other one is copied."""
    both = both_with(1)
    both.tells(1, both.size, Ahead.NOTHING)
    both.tells(0, both.size, Ahead.COPIES)
    both.expects((both.size, 0), (0, 0))
    assert [copied_out(machine, both.process, each) for each in (0, 1)] == [both.size, 0]
    both.tells(0, 0, Ahead.NOTHING)
    both.tells(1, both.size, Ahead.COPIES)
    both.expects((0, both.size), (both.size, 0))
    assert [copied_out(machine, both.process, each) for each in (0, 1)] == [both.size] * 2
    assert both.is_whole()


@pytest.mark.promise("park-63")
@pytest.mark.parametrize("device", [0, 1])
def test_memory_that_has_to_leave_waits_for_no_copies_of_another_device(
    both_with: Boths, machine: SimulatedMachine, device: int
) -> None:
    """Beyond those that are on their way: they would take its place again and again."""
    both, other = both_with(2 * CHUNK // PIECE, stop_at(1)), 1 - device
    files = Files(machine)
    files.make("begin")
    both.tells(device, both.size, Ahead.COPIES)
    files.wait_for_held("go")
    both.tells(other, 0, Ahead.NOTHING)
    files.make("go")
    expected = [(both.size, 0), (0, both.size)]
    both.expects(*(expected if device == 0 else expected[::-1]))
    copied = [record.device for record in machine.journal() if record.kind.name == "COPY_D2H"]
    pieces = both.size // PIECE
    assert sorted(copied[: pieces + 1]) == sorted([device] + [other] * pieces)
    assert copied[pieces + 1 :] == [device] * (pieces - 1)
    assert both.is_whole()
