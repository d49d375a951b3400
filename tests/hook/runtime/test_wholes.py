"""Memory of more than 64 MiB in one cuMemCreate, which moves in parts, and is given away by its
handle: it becomes one allocation of the driver's, while nothing uses it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import Fallback, TurnDropped, TurnRequested
from tests.hook.conftest import SOURCE
from tests.hook.runtime.mapping_program import MappingProgram, Opens, start_mapping_program
from tests.hook.runtime.memory_shell import MIB
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_park_faults import write_group
from tests.hook.runtime.two_devices import Files
from tests.support.compiled import library_named
from tests.support.fake_scheduler import FakeScheduler
from tests.support.paths import hook_source
from tests.support.sim import GIB, SimulatedMachine
from tests.support.waits import wait_until

SIZE = 150 * MIB
"""Of three parts, the last of them a short one."""
EDGES = "[0, 64 * MIB - 8, 64 * MIB, 128 * MIB - 8, 128 * MIB, 150 * MIB - 8]"
OUT_OF_MEMORY, NOT_SUPPORTED, CANCELLED = 2, 801, 800
MOVER = "thread=gpushare-mem"


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", devices=2, copy_bytes_per_s=4_000_000_000)


@pytest.fixture
def opens(tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine) -> Iterator[Opens]:
    """Starts a program that has opened a device, and is welcomed with these settings."""
    started: list[GpuProcess] = []

    def start(faults: str = "", env: dict[str, str] | None = None, **more: int) -> MappingProgram:
        started.append(start_mapping_program(tmp_path, scheduler, sim, faults, env))
        return MappingProgram(started[0], scheduler, Files(sim), **more)

    yield start
    for process in started:
        process.end()


def made(program: MappingProgram, asked: str = "handle_types=1") -> MappingProgram:
    """Memory of three parts with bytes in it that differ from place to place, and the turn."""
    program.make(SIZE, asked)
    program.run(f"edges = {EDGES}")
    assert program.run("any(write(at + e, numbers(8, e + 1)) for e in edges)") == "False"
    return program


def is_whole(program: MappingProgram, at: str = "at") -> bool:
    return program.run(f"all(read({at} + e, 8) == numbers(8, e + 1) for e in edges)") == "True"


def fixed(program: MappingProgram, size: int) -> None:
    program.client.expect_memory(lambda report: report.bytes_fixed == size)


def moves(program: MappingProgram) -> None:
    """All of it leaves and comes back."""
    program.memory.take_turn()
    assert program.memory.park_to(0).bytes_parked == SIZE
    program.say("read(at, 1)")
    program.memory.grant()
    program.result()


@pytest.mark.promise(
    "backing-14",
    "Memory of more than 64 MiB in one handle is given away as one allocation of the driver's, "
    "with every byte, mapping and access as before, and stays from then on",
)
def test_it_is_one_allocation_afterwards(opens: Opens) -> None:
    """At both places where it is mapped, each with its own access; who imports it sees the bytes
    that its owner writes later."""
    program = made(opens())
    program.run(f"other = reserve({SIZE})")
    assert program.run(f"map_at(other, {SIZE}, handle), grant(other, {SIZE}, READ)") == "(0, 0)"
    program.run("descriptor = export(handle)")
    assert int(program.run("descriptor")) > 0
    fixed(program, SIZE)
    assert is_whole(program)
    assert is_whole(program, "other")
    assert program.run("access_at(at), access_at(other)") == "(3, 1)"
    program.run("came = made('cuMemImportFromShareableHandle', c_void_p(descriptor), 1)")
    program.run(f"there = reserve({SIZE})")
    assert program.run(f"map_at(there, {SIZE}, came), grant(there, {SIZE})") == "(0, 0)"
    assert is_whole(program, "there")
    assert program.run("write(at + 100 * MIB, b'later'), read(there + 100 * MIB, 5)") == (
        "(0, b'later')"
    )
    program.memory.take_turn()
    assert program.memory.limit(0).bytes_parked == 0
    assert program.run(f"unmap(at, {SIZE}), unmap(other, {SIZE}), release(handle)") == "(0, 0, 0)"
    program.expect_nothing_allocated()


@pytest.mark.promise("backing-14")
@pytest.mark.parametrize("state", ["unmapped", "without access", "parked"])
def test_wherever_it_is(opens: Opens, state: str) -> None:
    """Mapped nowhere, mapped without access, or in host memory: it keeps its bytes."""
    program = made(opens())
    if state == "unmapped":
        assert program.run(f"unmap(at, {SIZE})") == "0"
    if state == "without access":
        assert program.run(f"grant(at, {SIZE}, 0)") == "0"
    if state == "parked":
        program.park()
        program.say("export(handle) > 0")
        program.memory.grant()
        assert program.result() == "True"
    assert program.run("export(handle) > 0") == "True"
    if state == "unmapped":
        assert program.run(f"map_at(at, {SIZE}, handle)") == "0"
    assert program.run(f"grant(at, {SIZE})") == "0"
    assert is_whole(program)
    assert program.run("address_range(at + 100 * MIB) == (at, 150 * MIB)") == "True"


@pytest.mark.promise("backing-14")
def test_work_that_uses_it_is_over_before(opens: Opens, sim: SimulatedMachine) -> None:
    """Of other streams and threads: what is launched meanwhile waits, and finds it again. The turn
    is kept."""
    program = made(opens())
    program.run("stream = stream_create()", thread=2)
    spin = "launch('spin', stream, c_uint64(300_000_000))"
    fill = "launch('fill', stream, c_uint64(at + {0}), c_uint({1}), c_uint64({2} // 4))"
    assert program.run(f"{spin}, {fill.format(0, 77, SIZE)}", thread=2) == "(0, 0)"
    program.say("export(handle) > 0")
    program.say(fill.format(64 * MIB, 78, SIZE - 64 * MIB), thread=2)
    assert program.result() == "True"
    assert program.result(thread=2) == "0"
    program.run("call('cuCtxSynchronize')")
    words = "[int.from_bytes(read(at + n * MIB, 4), 'little') for n in (0, 63, 64, 149)]"
    assert program.run(words) == "[77, 77, 78, 78]"
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []
    assert program.client.count(TurnDropped) == 0
    assert program.client.count(TurnRequested) == 1


@pytest.mark.promise(
    "backing-15",
    "Memory that cannot become one allocation (no room on the host or the device, work that does "
    "not end) is not given away, which one line says, and is as it was",
)
def test_without_room_on_the_host(opens: Opens, tmp_path: Path) -> None:
    """With more of it, it is given away."""
    write_group(tmp_path / "cgroup", 0)
    program = made(opens(env={"GPUSHARE_CGROUP_ROOT": str(tmp_path / "cgroup")}))
    assert program.run("export(handle)") == f"-{OUT_OF_MEMORY}"
    assert program.process.errors().count("Free host memory") == 1
    assert is_whole(program)
    write_group(tmp_path / "cgroup", 1 * GIB)
    wait_until(lambda: int(program.run("export(handle)")) > 0)
    assert is_whole(program)


@pytest.mark.promise("backing-15")
@pytest.mark.parametrize(
    "call",
    ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyHtoDAsync", "cuMemAddressReserve"],
)
def test_a_driver_that_fails_on_the_way(opens: Opens, sim: SimulatedMachine, call: str) -> None:
    """In the middle of it, when the parts are gone: they come back from host memory, and all of it
    moves as before. The next try is well."""
    program = made(opens(f"fail {call} {MOVER} nth=1 result=2"))
    answer = program.run("export(handle)")
    assert answer in (f"-{OUT_OF_MEMORY}", f"-{NOT_SUPPORTED}")
    assert any(call in line for line in sim.happened())
    assert program.process.errors().count("in smaller pieces") == 1
    assert is_whole(program)
    moves(program)
    assert is_whole(program)
    assert program.run("export(handle) > 0") == "True"
    assert is_whole(program)


@pytest.mark.promise("backing-15")
@pytest.mark.parametrize("call", ["cuMemcpyDtoHAsync", "cuMemUnmap", "cuMemRelease"])
def test_a_driver_that_fails_on_the_way_out(opens: Opens, sim: SimulatedMachine, call: str) -> None:
    """Nothing is lost by that either."""
    program = made(opens(f"fail {call} {MOVER} nth=2 result=999"))
    assert program.run("export(handle)") == f"-{NOT_SUPPORTED}"
    assert any(call in line for line in sim.happened())
    assert is_whole(program)
    assert program.run("export(handle) > 0") == "True"
    assert is_whole(program)


@pytest.mark.promise("backing-15")
def test_work_that_waits_for_a_later_call(opens: Opens) -> None:
    """A kernel that polls a flag never ends before the program goes on: the gate opens for other
    threads meanwhile, and the export ends with an error."""
    program = made(opens(drain_stall_ms=100))
    program.run("stream = stream_create()", thread=2)
    program.run("flag = held(stream)", thread=2)
    program.say("export(handle)")
    assert program.run("write(at + MIB, b'goes on')", thread=3) == "0"
    assert program.result() == f"-{NOT_SUPPORTED}"
    assert program.process.errors().count("does not end") == 1
    program.run("flag.value = 1", thread=2)
    assert program.run("call('cuStreamSynchronize', c_void_p(stream))", thread=2) == "0"
    assert is_whole(program)
    assert int(program.run("export(handle)")) > 0, program.process.errors()


@pytest.mark.promise("backing-15")
def test_a_wait_that_is_cancelled(opens: Opens) -> None:
    """The gate opens again, and nothing has changed."""
    program = made(opens())
    program.run("stream = stream_create()", thread=2)
    program.run("flag = held(stream)", thread=2)
    program.say("export(handle)")
    program.wait_until_it_waits(1)
    wait_until(lambda: program.run("hook.gpushare_cancel_waits()", thread=9) == "1")
    assert program.result() == f"-{CANCELLED}"
    program.begin_cell()
    assert program.run("write(at + MIB, b'goes on')", thread=3) == "0"
    program.run("flag.value = 1", thread=2)
    moves(program)
    assert is_whole(program)


def test_a_recall_comes_first(opens: Opens) -> None:
    """A turn that is wanted back goes; the memory is made whole with the next one."""
    program = made(opens(drain_stall_ms=20_000))
    program.run("stream = stream_create()", thread=2)
    program.run("flag = held(stream)", thread=2)
    program.say("export(handle) > 0")
    program.wait_until_it_waits(1)
    program.client.recall()
    program.run("flag.value = 1", thread=2)
    program.client.expect(TurnDropped)
    assert program.memory.park_to(0).bytes_parked == SIZE
    program.allow_all()
    assert program.result() == "True"
    assert is_whole(program)


def test_what_is_given_back_meanwhile(opens: Opens, sim: SimulatedMachine) -> None:
    """Unmapped and released by another thread: that waits, and nothing of the memory is left."""
    program = made(opens(f"hold cuEventQuery {MOVER} until=copied nth=1"))
    program.say("export(handle)")
    program.files.wait_for_held("copied")
    assert program.run("release(handle)", thread=2) == "0"
    program.say(f"unmap(at, {SIZE})", thread=3)
    program.wait_until_it_waits(3)
    program.files.make("copied")
    program.result()
    assert program.result(thread=3) == "0"
    assert program.run(f"unreserve(at, {SIZE})") == "0"
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


def test_two_threads_give_it_away(opens: Opens) -> None:
    program = made(opens())
    program.say("export(handle) > 0", thread=2)
    program.say("export(handle) > 0", thread=3)
    assert {program.result(thread=2), program.result(thread=3)} == {"True"}
    assert is_whole(program)


def test_an_export_that_the_driver_refuses_fixes_nothing(opens: Opens) -> None:
    """Memory that was not made for it, large or small, moves on."""
    program = made(opens(), asked="")
    program.run("small, there = mapped(4 * MIB)")
    assert program.run("export(handle), export(small)") == "(-1, -1)"
    program.memory.take_turn()
    assert program.memory.park_to(0).bytes_parked == SIZE + 4 * MIB


def test_without_a_scheduler(opens: Opens, scheduler: FakeScheduler) -> None:
    """Nobody says that there is room for it, so it is refused at once."""
    program = made(opens(fallback=Fallback.RUN, reconnect_s=0))
    program.memory.take_turn()
    scheduler.stop()
    assert program.run("export(handle)") == f"-{NOT_SUPPORTED}"
    assert is_whole(program)


def test_a_process_that_ends_meanwhile_ends(opens: Opens) -> None:
    program = made(opens(f"stall cuMemcpyDtoHAsync {MOVER} times=0 nth=1 ms=100"))
    program.say("export(handle)")
    program.process.signal(signal.SIGTERM)
    program.process.wait()


def test_memory_for_rdma_is_made_in_one(opens: Opens, tmp_path: Path) -> None:
    """Where a library for that is loaded: it is fixed from the start, and can be exported."""
    library = tmp_path / "libibverbs.so.1"
    library_named(library, "")
    program = opens()
    program.run(f"ctypes.CDLL({str(library)!r})")
    made(program, asked="handle_types=1, rdma=1")
    fixed(program, SIZE)
    assert program.run("export(handle) > 0") == "True"
    assert program.client.count(TurnDropped) == 0


@pytest.mark.promise("backing-14")
def test_what_nobody_holds_any_more_is_left_to_who_gives_it_back(
    program: Callable[..., Path], headers: Path
) -> None:
    """A thread has released the last handle, and has not begun to give the memory back, when the
    mover comes to it: it would be given back twice."""
    names = ("physical.c", "chunks.c", "pages.c", "registry.c", "locks.c")
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-isystem", str(headers), "-pthread"]
    flags += ["-fsanitize=address,undefined"]
    memory = program("physical_operations", *map(hook_source, names), *flags)
    assert subprocess.check_output([memory], text=True).split() == ["0", "0"]
