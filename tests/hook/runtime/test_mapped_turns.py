"""Memory that programs make and map themselves, while the turn comes and goes: calls that meet a
move, contexts that end or fail under it, and waits that end early. The simulated driver holds calls
until the test says."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    Ahead,
    DeviceClosed,
    DeviceOpened,
    MemoryMode,
    RequestWithdrawn,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.mapping_program import (
    SIZE,
    MappingProgram,
    Opens,
    opening,
)
from tests.hook.runtime.memory_shell import MIB, MemoryShell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_arena import Group
from tests.hook.test_from_the_issue_host import arena
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine

ASSERT, P2P_TOKENS = 710, 5
MOVER = "thread=gpushare-mem"
COPY_RUNS = f"hold cuEventQuery {MOVER} until=copied times=0"
"""The mover does not learn of the end of a copy before the test says."""


@pytest.fixture
def sim(tmp_path: Path, request: pytest.FixtureRequest) -> SimulatedMachine:
    """With a configuration where a test names one."""
    return SimulatedMachine(tmp_path / "sim", devices=2, **getattr(request, "param", {}))


@pytest.fixture
def opens(tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine) -> Iterator[Opens]:
    yield from opening(tmp_path, scheduler, sim)


def leaving(opens: Opens, *lines: str) -> MappingProgram:
    """A program that has done this and then lost the turn, and whose memory is being copied out
    until the file `copied` comes."""
    program = opens(COPY_RUNS)
    program.make()
    assert {program.run(line) for line in lines} <= {"0"}
    program.memory.take_turn()
    program.memory.budget(0)
    program.files.wait_for_held("copied")
    return program


# ---- calls that meet a move ----


def test_a_budget_that_comes_while_memory_changes(opens: Opens) -> None:
    """The mover finds nothing that may leave. It looks again when the call that has it is over."""
    program = opens("hold cuMemUnmap nth=1 until=unmapped")
    program.make()
    program.memory.take_turn()
    program.say(f"unmap(at, {SIZE})", thread=2)
    program.files.wait_for_held("unmapped")
    program.memory.limit(0)
    program.memory.limit(0)  # the mover was told before it hears of the second one
    program.wait_until_the_mover_waits()
    program.files.make("unmapped")
    assert program.result(thread=2) == "0"
    program.client.expect_memory(lambda report: report.bytes_parked == SIZE)


def test_an_attribute_is_asked_while_the_memory_leaves(opens: Opens) -> None:
    """The driver does not know the address any more, so it is asked again when the turn is back."""
    program = opens("hold cuPointerGetAttribute nth=1 until=parked from=asks")
    program.make()
    assert program.run("attribute(2, at)") == "2"
    program.files.make("asks")
    program.say("attribute(2, at)")
    program.files.wait_for_held("parked")
    program.park()
    program.files.make("parked")
    program.memory.grant()
    assert program.result() == "2"


@pytest.mark.parametrize("sim", [{"copy_bytes_per_s": SIZE}], indirect=True)
def test_two_threads_unmap_the_same_memory(opens: Opens, sim: SimulatedMachine) -> None:
    """While it leaves: one of them waits for the copy and unmaps it, and the other one takes
    nothing from under the copy."""
    program = leaving(opens)
    program.say(f"unmap(at, {SIZE})", thread=2)
    program.wait_until_it_waits(2)
    program.say(f"unmap(at, {SIZE})", thread=3)
    program.wait_until_it_waits(3)
    program.files.make("copied")
    assert {program.result(thread=2), program.result(thread=3)} == {"0"}
    assert program.run(f"release(handle), unreserve(at, {SIZE})") == "(0, 0)"
    program.expect_nothing_allocated()
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


def test_a_released_number_stands_for_nothing(opens: Opens) -> None:
    """From the moment of its release, although the memory cannot be given back before its copy has
    ended."""
    program = leaving(opens, f"unmap(at, {SIZE})")
    assert program.run("properties(handle)") == "(0, 0, 0, 0)"
    program.say("release(handle)", thread=2)
    program.wait_until_it_waits(2)
    assert program.run("properties(handle), release(handle), retain(at)") == "((-1,), 1, -1)"
    program.files.make("copied")
    assert program.result(thread=2) == "0"
    program.expect_nothing_allocated()


# ---- memory that does not follow the turn ----


def test_memory_that_stays_is_mapped_without_the_turn(opens: Opens) -> None:
    """GPUSHARE_MEMORY=off: nothing moves, so there is nothing to wait for."""
    program = opens(GPUSHARE_MEMORY="off")
    program.make()
    program.memory.take_turn()
    program.run(f"other = reserve({SIZE})")
    assert program.run(f"map_at(other, {SIZE}, handle), grant(other, {SIZE})") == "(0, 0)"
    assert program.run("access_at(other)") == "3"
    assert program.client.count(TurnRequested) == 1


def test_memory_is_mapped_without_a_context(opens: Opens) -> None:
    """Nothing can be copied without one, so nothing moves, and no scheduler is asked."""
    program = opens()
    program.make()
    program.memory.take_turn()
    assert program.run("call('cuDevicePrimaryCtxRelease_v2', 0)") == "0"
    program.run(f"other = reserve({SIZE})")
    assert program.run(f"map_at(other, {SIZE}, handle), grant(other, {SIZE})") == "(0, 0)"
    assert program.client.count(TurnRequested) == 1


@pytest.mark.promise(
    "park-26",
    "Memory that a program maps itself takes no more host memory than there is of it, whatever the "
    "sizes of its handles are",
)
@pytest.mark.parametrize("size_mib", [20, 34, 48])
def test_handles_fill_the_host_memory_that_they_take(opens: Opens, size_mib: int) -> None:
    """Whole segments of 64 MiB would leave up to half of it to nobody."""
    program, count = opens(), 7
    program.make()
    size = size_mib * MIB
    program.run(f"others = [mapped({size}) for _ in range({count})]")
    program.memory.take_turn()
    program.memory.budget(0)
    program.client.expect_memory(lambda report: report.bytes_parked == SIZE + count * size)
    segment = 64 * MIB // size * size
    assert arena(program.process.pid)[0] <= count * size + 64 * MIB + segment


# ---- contexts ----


def parked(opens: Opens, faults: str = "") -> MappingProgram:
    """A program without the turn, whose memory is in host memory."""
    program = opens(faults)
    program.make(asked="handle_types=1")
    program.park()
    return program


def end_context(program: MappingProgram, call: str) -> None:
    """Its end waits for the turn, and the wait is cancelled."""
    program.say(f"call('{call}', 0)")
    program.client.expect(TurnRequested)
    program.cancel_waits()
    assert program.result() == "0"
    program.client.expect(RequestWithdrawn)  # else the next wait may go on with this request


@pytest.mark.parametrize("call", ["cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"])
def test_a_context_that_ends_under_parked_memory(opens: Opens, call: str) -> None:
    """The memory belongs to the device: it comes back in the device's next context."""
    program = parked(opens)
    end_context(program, call)
    program.run("opened(0)")
    program.begin_cell()
    program.say("read(at, 4)")
    program.memory.grant()
    assert program.result() == "b'kept'"


def test_a_device_that_is_closed_over_parked_memory(opens: Opens) -> None:
    """Nothing can be copied there any more, so no other device waits for it."""
    program = parked(opens)
    end_context(program, "cuDevicePrimaryCtxRelease_v2")
    program.run("opened(1)")
    other = program.client.expect(DeviceOpened).device
    program.begin_cell()
    program.say(f"alloc({SIZE}) > 0")
    program.client.expect(TurnRequested)
    program.client.budget(other, UNLIMITED)
    program.allow_all()
    assert program.result() == "True"


@pytest.mark.parametrize("memory", ["swap", "off"])
def test_memory_is_told_anew_of_a_device_that_is_opened_again(opens: Opens, memory: str) -> None:
    """It outlives its context. With the device's last one the scheduler has forgotten it."""
    program = opens(GPUSHARE_MEMORY=memory)
    program.make()
    program.client.expect_memory(lambda report: report.bytes_allocated == SIZE)
    assert program.run("call('cuDevicePrimaryCtxRelease_v2', 0)") == "0"
    program.client.expect(DeviceClosed)
    program.run("opened(0)")
    program.client.expect(DeviceOpened)
    program.client.expect_memory(lambda report: report.bytes_allocated == SIZE)


def test_a_failed_context_beside_parked_memory(opens: Opens, sim: SimulatedMachine) -> None:
    """Calls in it pass the gate for their error, and get no memory that is not there. What is
    parked comes back for the other context."""
    asks_driver = ("cuMemMap", "cuMemExportToShareableHandle")
    program = opens(";".join(f"stall {call} ms=0 from=fails" for call in asks_driver))
    program.make(asked="handle_types=1")
    program.run("failed = made('cuCtxCreate_v2', 0, 0)")
    assert program.run("launch('assert_fail', 0), call('cuCtxSynchronize')") == f"(0, {ASSERT})"
    program.client.expect(TurnDropped)
    assert program.memory.park_to(0).bytes_parked == SIZE
    program.run(f"other = reserve({SIZE})")
    program.files.make("fails")
    calls = [f"map_at(other, {SIZE}, handle)", f"grant(at, {SIZE})", "-export(handle)"]
    for call in (*calls, f"-attribute({P2P_TOKENS}, at)"):
        assert int(program.run(call)) > 0, call
    assert sim.happened() == []  # the driver crashes where it is given no handle
    assert program.run("call('cuCtxSetCurrent', c_void_p(CONTEXT))") == "0"
    program.say("read(at, 4)")
    program.memory.grant()
    assert program.result() == "b'kept'"
    program.park()  # none of the calls has fixed it


def leaving_behind_a_failed_context(opens: Opens, faults: str) -> MappingProgram:
    """A program whose thread has a failed context, so that its calls pass the gate, and whose
    memory, in another context, leaves until the file `goes` comes."""
    program = opens(faults)
    program.make(asked="handle_types=1")
    program.run("failed = made('cuCtxCreate_v2', 0, 0)")
    assert program.run("launch('assert_fail', 0), call('cuCtxSynchronize')") == f"(0, {ASSERT})"
    program.client.expect(TurnDropped)
    program.memory.budget(0)
    program.files.wait_for_held("goes")
    return program


def test_an_export_behind_a_failed_context_while_memory_leaves(opens: Opens) -> None:
    """What others get would not be this process's memory any more."""
    program = leaving_behind_a_failed_context(
        opens, f"hold cuEventQuery {MOVER} until=goes times=0"
    )
    assert int(program.run("export(handle)")) < 0
    program.files.make("goes")
    program.client.expect_memory(lambda report: report.bytes_parked == SIZE)


def test_a_map_behind_a_failed_context_while_memory_leaves(opens: Opens) -> None:
    """Its addresses would lead to what the memory was before it left."""
    program = leaving_behind_a_failed_context(opens, f"hold cuMemRelease {MOVER} nth=1 until=goes")
    program.run(f"other = reserve({SIZE})")
    mapped = program.run(f"map_at(other, {SIZE}, handle)")
    program.files.make("goes")
    program.client.expect_memory(lambda report: report.bytes_parked == SIZE)
    assert program.run("call('cuCtxSetCurrent', c_void_p(CONTEXT))") == "0"
    program.say(f"grant(other, {SIZE}) if {mapped} == 0 else 0, write(at, b'new ')")
    program.memory.grant()
    assert program.result() == "(0, 0)"
    if mapped != "0":
        assert program.run(f"map_at(other, {SIZE}, handle), grant(other, {SIZE})") == "(0, 0)"
    assert program.run("read(other, 4)") == "b'new '"


def test_a_context_that_ends_while_memory_is_made(opens: Opens) -> None:
    """The memory is copied in the other one of the device."""
    program = opens("hold cuMemCreate nth=1 until=made")
    program.say(f"handle, at = mapped({SIZE})")
    program.memory.grant()
    program.files.wait_for_held("made")
    assert int(program.run("made('cuCtxCreate_v2', 0, 0)", thread=2)) > 0
    assert program.run("call('cuDevicePrimaryCtxRelease_v2', 0)", thread=2) == "0"
    program.files.make("made")
    assert program.result() == "None"
    assert program.run("write(at, b'kept')", thread=2) == "0"
    program.memory.take_turn()
    assert program.memory.park_to(0).bytes_parked == SIZE
    program.say("read(at, 4)", thread=2)
    program.memory.grant()
    assert program.result(thread=2) == "b'kept'"


# ---- calls of the driver's that have a handle ----

EXPORTS = "hold cuMemExportToShareableHandle until=exported"


@pytest.mark.promise(
    "backing-12",
    "Memory that is being exported keeps its handle of the driver's until the driver has answered, "
    "although other threads give the memory back or the turn is recalled",
)
def test_an_export_has_its_memory_until_it_is_over(opens: Opens) -> None:
    program = opens(EXPORTS)
    program.make(asked="handle_types=1")
    program.say("descriptor = export(handle)")
    program.files.wait_for_held("exported")
    assert program.run(f"release(handle), unmap(at, {SIZE})", thread=2) == "(0, 0)"
    program.files.make("exported")
    program.result()
    program.expect_nothing_allocated()
    program.run("came = made('cuMemImportFromShareableHandle', c_void_p(descriptor), 1)")
    assert program.run(f"map_at(at, {SIZE}, came), grant(at, {SIZE})") == "(0, 0)"
    assert program.run("read(at, 4)") == "b'kept'"


@pytest.mark.promise("backing-12")
def test_an_export_that_is_refused_has_its_memory_until_then(opens: Opens) -> None:
    """It is not fixed for that, and leaves when the driver has answered."""
    program = opens(EXPORTS)
    program.make()
    program.say("export(handle)")
    program.files.wait_for_held("exported")
    program.client.recall()
    program.say("read(at, 4)", thread=2)
    program.wait_until_it_waits(2)
    program.memory.limit(UNLIMITED)
    program.memory.limit(UNLIMITED)  # of what it was told before it has heard
    assert program.client.count(TurnDropped) == 0
    program.files.make("exported")
    assert program.result() == "-1"
    program.client.expect(TurnDropped)
    assert program.memory.park_to(0).bytes_parked == SIZE
    program.allow_all()
    assert program.result(thread=2) == "b'kept'"


@pytest.mark.promise("backing-12")
def test_a_free_waits_for_the_exports_of_its_memory(opens: Opens) -> None:
    """Another process is given memory of cuMemAlloc by the handles that go with a free. What they
    lead to is dropped."""
    program = opens(EXPORTS)
    program.say(f"a = alloc({SIZE})")
    program.memory.grant()
    program.result()
    program.say("shared = share(a)")
    program.files.wait_for_held("exported")
    program.say("free(a)", thread=2)
    program.wait_until_it_waits(2)
    assert program.memory.limit(UNLIMITED).bytes_allocated == SIZE
    program.files.make("exported")
    assert program.result(thread=2) == "0"
    program.result()
    program.expect_nothing_allocated()


# ---- waits that end early ----


@pytest.mark.parametrize("call", ["map", "export"])
def test_a_jump_out_of_the_wait_leaves_nothing_behind(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, call: str
) -> None:
    """Of the handler of SIGINT: with its last release the memory is free."""
    process = start("jumps_out_of_handles", call)
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=300)
    memory = MemoryShell(process, client, client.expect(DeviceOpened).device)
    memory.grant()
    process.expect("created 0")
    memory.take_turn()
    assert memory.park_to(0).bytes_parked == 64 * MIB
    process.say("go on")
    client.expect(TurnRequested)
    process.signal(signal.SIGINT)
    process.expect("jumped")
    process.expect("released 0")
    client.expect_memory(lambda report: report.bytes_allocated == 0)


# ---- what is not copied ----


@pytest.mark.promise(
    "backing-13",
    "Memory of a program's that was never mapped leaves and comes back without a copy and without "
    "host memory",
)
@pytest.mark.parametrize("size", [SIZE, 66 * MIB])
def test_memory_that_was_never_mapped_is_dropped(
    opens: Opens, sim: SimulatedMachine, size: int
) -> None:
    """Nothing is in it. As soon as it was mapped it has contents, which are kept."""
    program = opens()
    program.say(f"handle, at = create({size}), reserve({size})")
    program.memory.grant()
    assert program.result() == "None"
    program.park()
    assert (copies(sim), arena(program.process.pid)) == ([], (0, 0))
    program.say(f"map_at(at, {size}, handle), grant(at, {size})")
    program.memory.grant()
    assert program.result() == "(0, 0)"
    assert copies(sim) == []
    assert program.run("write(at, b'kept'), call('cuCtxSynchronize')") == "(0, 0)"
    assert program.run(f"unmap(at, {size})") == "0"
    written = len(copies(sim))
    program.park()
    assert sum(copies(sim)[written:]) == size
    program.say(f"map_at(at, {size}, handle), grant(at, {size}), read(at, 4)")
    program.memory.grant()
    assert program.result() == "(0, 0, b'kept')"


@pytest.mark.promise("backing-13")
def test_memory_that_was_never_mapped_is_told_as_such(opens: Opens, tmp_path: Path) -> None:
    """It can leave though there is no host memory for it. What was mapped cannot."""
    group, size = Group(tmp_path), 64 * MIB
    group.leave(0)
    program = opens(**group.env)
    program.say(f"handle, at = create({size}), reserve({size})")
    program.memory.grant()
    assert program.result() == "None"
    assert program.memory.limit(UNLIMITED).bytes_host_room == size
    assert program.run(f"map_at(at, {size}, handle)") == "0"
    assert program.memory.limit(UNLIMITED).bytes_host_room == 0


def test_memory_that_is_mapped_after_it_counts_as_copied(opens: Opens) -> None:
    """Nothing was copied, so there is no host memory to bring it back from. Without a context it is
    mapped at once, whatever becomes of such a copy."""
    program = opens()
    program.say(f"handle, at = create({SIZE}), reserve({SIZE})")
    program.memory.grant()
    assert program.result() == "None"
    program.memory.take_turn()
    program.memory.budget(SIZE, hint_bytes=SIZE, ahead=Ahead.COPIES)
    program.client.expect_memory(lambda report: report.bytes_copied == SIZE)
    assert program.run("call('cuDevicePrimaryCtxRelease_v2', 0)") == "0"
    program.client.expect(DeviceClosed)
    assert program.run(f"map_at(at, {SIZE}, handle), grant(at, {SIZE})") == "(0, 0)"
    program.run("opened(0)")
    program.client.expect(DeviceOpened)
    assert program.memory.park_to(0).bytes_parked == SIZE
    program.say("write(at, b'kept')")
    program.memory.grant()
    assert program.result() == "0"
    program.park()
    program.say("read(at, 4)")
    program.memory.grant()
    assert program.result() == "b'kept'"


def copies(sim: SimulatedMachine) -> list[int]:
    """Their sizes, in both directions."""
    return [r.amount for r in sim.journal() if r.kind.name in ("COPY_D2H", "COPY_H2D")]


# ---- copies without an end ----


def test_nothing_is_unmapped_under_a_copy_without_an_end(
    opens: Opens, sim: SimulatedMachine
) -> None:
    """Nor the address of ours by which memory without one is copied. It stays on the device."""
    unknown = f"{MOVER} result=999 times=0"
    faults = [f"hold cuEventQuery {MOVER} until=copies", f"fail cuMemUnmap {MOVER} from=copies"]
    faults += [f"fail {call} {unknown}" for call in ("cuEventQuery", "cuStreamQuery")]
    program = opens(";".join(faults))
    program.make()
    assert program.run(f"unmap(at, {SIZE})") == "0"
    program.memory.take_turn()
    program.memory.budget(0)
    program.files.wait_for_held("copies")
    program.files.make("copies")
    program.client.expect_memory(lambda report: report.bytes_fixed == SIZE)
    assert "fail cuStreamQuery" in sim.happened()
    assert "fail cuMemUnmap" not in sim.happened()
    assert program.run("release(handle)") == "0"
    program.expect_nothing_allocated()
