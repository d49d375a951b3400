"""Movable memory of processes, contexts and allocations that end while it is moved."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode, TurnDropped, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler, HookedClient
from tests.support.paths import hook_source
from tests.support.sim import GIB, MIB, SimulatedMachine

Parking = Callable[..., tuple[GpuProcess, HookedClient]]
HELD = 4 * 64 * MIB


@pytest.fixture
def parking(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, tmp_path: Path
) -> Iterator[Parking]:
    """Starts a program that holds memory, and is in the middle of parking it."""
    slow = SimulatedMachine(tmp_path / "slow", bytes_per_device=GIB, copy_bytes_per_s=100 * MIB)

    def opened(
        *arguments: str, name: str = "holds_memory", held: int = HELD
    ) -> tuple[GpuProcess, HookedClient]:
        program = start(name, held // 4, *arguments, machine=slow)
        client = scheduler.accept()
        client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
        device = client.expect(DeviceOpened).device
        client.budget(device, UNLIMITED)
        client.grant_request()
        program.expect("holds")
        client.recall()
        client.expect(TurnDropped)
        client.budget(device, 0)
        client.expect_memory(lambda report: 0 < report.bytes_parked < held)
        return program, client

    yield opened


@pytest.mark.promise("park-21")
def test_exit_handlers_copy_with_a_driver_that_cannot_map_memory(
    start: Callable[..., GpuProcess], tmp_path: Path
) -> None:
    """It has no more functions than turns take, so that no memory of the hook's is there: the copy
    is the driver's."""
    functions = re.findall(r'ROW\(FOR_TURNS, \w+, "(\w+)"', hook_source("driver.c").read_text())
    names = [*functions, "cuInit", "cuMemcpyDtoH_v2"]
    source, folder = tmp_path / "libcuda.c", tmp_path / "older"
    source.write_text("\n".join(f"int {name}(void) {{ return 0; }}" for name in sorted(set(names))))
    folder.mkdir()
    flags = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *flags, "-o", folder / "libcuda.so.1", source], check=True)
    program = start("saves_from_older", env={"LD_LIBRARY_PATH": str(folder)})
    program.expect("saved 0")
    assert program.finish() == 0


SAVED = ["saved 0, wrong 0"] * 4
SAVED_FROM = 64 * MIB


@pytest.mark.promise(
    "park-21",
    "Exit handlers copy every byte to the host, also of memory that is parked, leaving or "
    "coming back",
)
@pytest.mark.parametrize(
    "way",
    [
        "plain",
        "stream",
        *(pytest.param(way, marks=pytest.mark.full) for way in ("unified", "rows")),
    ],
)
def test_results_saved_by_exit_handlers_while_memory_leaves(parking: Parking, way: str) -> None:
    """Some of it is in host memory, some on its way there, some still on the device."""
    program, _ = parking(way, name="saves_at_exit", held=SAVED_FROM)
    program.end_input()
    assert [program.expect("saved") for _ in range(4)] == SAVED
    assert program.finish() == 0


@pytest.mark.promise("park-21")
def test_results_saved_by_exit_handlers_while_memory_comes_back(parking: Parking) -> None:
    """Some of it is in host memory, and some is mapped while its copy is on its way."""
    program, client = parking("plain", name="saves_at_exit", held=SAVED_FROM)
    client.expect_memory(lambda report: report.bytes_parked == SAVED_FROM)
    program.say("launch")
    client.expect(TurnRequested)
    opened = next(one for one in client.received if isinstance(one, DeviceOpened))
    client.budget(opened.device, SAVED_FROM // 4 * 3)
    client.grant()
    client.expect_memory(lambda report: 0 < report.bytes_parked < SAVED_FROM)
    program.end_input()
    assert [program.expect("saved") for _ in range(4)] == SAVED
    assert program.finish() == 0


@pytest.mark.promise("park-21")
def test_results_saved_by_exit_handlers_from_a_pool(parking: Parking) -> None:
    """Memory that was allocated in a stream."""
    program, _ = parking("plain", "pool", name="saves_at_exit", held=2 * SAVED_FROM)
    program.end_input()
    assert [program.expect("saved") for _ in range(4)] == SAVED
    assert program.finish() == 0


@pytest.mark.promise(
    "hook-58",
    "A program that ends while a thread waits for the turn ends soon: nothing of it computes while "
    "memory of it is away",
)
@pytest.mark.parametrize(
    "way", ["return", "exit", "exit in a thread", "_exit", "quick_exit", "exec", "kill"]
)
def test_a_program_ends_while_a_thread_waits(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine, way: str
) -> None:
    """What has waited for the turn, and what an exit handler launches on memory that is away,
    answers that it was cancelled."""
    program = start("ends_waiting", 8 * MIB, way)
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.budget(device, UNLIMITED)
    client.grant_request()
    program.expect("holds")
    client.recall()
    client.expect(TurnDropped)
    client.budget(device, 0)
    client.expect_memory(lambda report: report.bytes_parked >= 8 * MIB)
    launches = [record for record in sim.journal() if record.kind.name == "LAUNCH"]
    program.say("launch")
    client.expect(TurnRequested)
    program.end_input()
    if way in ("return", "exit", "exit in a thread"):
        assert program.expect("thread") == "thread 800"
        assert program.expect("handler") == "handler 800"
    assert program.finish() == (-9 if way == "kill" else 0)
    assert [record for record in sim.journal() if record.kind.name == "LAUNCH"] == launches


@pytest.mark.promise("hook-58")
def test_a_program_that_ends_with_all_its_memory_here_loses_no_work(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """Its turn may never have left: a recall that comes at the end is not drained any more. So what
    a thread has waited for, and what an exit handler launches, goes through."""
    program = start("ends_waiting", 8 * MIB, "return")
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    client.budget(client.expect(DeviceOpened).device, UNLIMITED)
    client.grant_request()
    program.expect("holds")
    client.recall()
    client.expect(TurnDropped)
    program.say("launch")
    client.expect(TurnRequested)
    program.end_input()
    assert program.expect("thread") == "thread 0"
    assert program.expect("handler") == "handler 0"
    assert program.finish() == 0


@pytest.mark.promise("backing-29")
def test_exit_handlers_that_free_end_soon(parking: Parking) -> None:
    """The process ends while it parks, and a handler of exit frees what is on its way: the frees
    succeed, nothing waits for a mover that has stopped."""
    program, _ = parking("exit")
    assert program.finish() == 0
    program.expect("freed 4")
    program.expect("reset 0")


@pytest.mark.promise("backing-29")
def test_a_thread_that_frees_while_the_process_ends(parking: Parking) -> None:
    """It waits for a chunk that the mover has in its hands when the mover stops for good; a handler
    of exit that joins the thread comes to an end all the same."""
    program, _ = parking(name="frees_at_exit")
    assert program.finish() == 0


@pytest.mark.promise("backing-29")
def test_frees_in_the_middle_of_a_park(parking: Parking) -> None:
    """Parked, on its way out or still there: all of it is freed, without the turn."""
    program, client = parking()
    program.say("free")
    program.expect("freed 4")
    client.expect_memory(lambda report: (report.bytes_allocated, report.bytes_parked) == (0, 0))
    program.say("free")
    program.expect("freed 0")
    assert program.finish() == 0


@pytest.mark.promise("backing-32")
def test_a_reset_in_the_middle_of_a_park(parking: Parking) -> None:
    """The context takes its memory along, wherever it is; later frees are refused."""
    program, client = parking()
    program.say("reset")
    program.expect("reset 0")
    client.expect_memory(lambda report: (report.bytes_allocated, report.bytes_parked) == (0, 0))
    program.say("free")
    program.expect("freed 0")
    assert program.finish() == 0


@pytest.mark.promise("backing-32")
@pytest.mark.parametrize(
    ("work", "call"), [("free", "cuCtxPushCurrent"), ("stream", "cuEventQuery")]
)
def test_nobody_touches_a_context_that_another_thread_ends(
    work: str,
    call: str,
    start: Callable[..., GpuProcess],
    scheduler: FakeScheduler,
    sim: SimulatedMachine,
) -> None:
    """The driver may have taken it down already, though its call has not returned yet."""
    faults = f"hold cuCtxDestroy until=go;fail {call} from=go.held until=go times=0 result=999"
    program = start("ends_beside", work, env={"GPUSHARE_SIM_FAULTS": faults})
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    client.budget(client.expect(DeviceOpened).device, UNLIMITED)
    client.grant_request()
    files = Files(sim)
    files.wait_for_held("go")
    program.say("work")
    with contextlib.suppress(TimeoutError):
        program.expect("done", within_s=0.3)
    files.make("go")
    program.expect("ended")
    assert program.finish() == 0
    assert sim.happened() == ["hold cuCtxDestroy"]


@pytest.mark.promise(
    "hook-59",
    "A context that another thread has destroyed stays current in a thread: its calls hear so, and "
    "the driver is asked nothing about it",
)
@pytest.mark.parametrize("gate", ["shut", "windowed", "open"])
def test_calls_in_a_context_that_another_thread_has_destroyed(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, gate: str
) -> None:
    """They wait for nothing, and the context is not taken for a new one."""
    program = start("gone_context", *(() if gate == "shut" else ("launch",)))
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000, tenants=1 if gate == "open" else 2)
    client.budget(client.expect(DeviceOpened).device, UNLIMITED)
    if gate != "shut":
        client.grant_request()
    program.expect("opened")
    program.say("go")
    assert program.expect("hears") == "hears 709 709 709"
    if gate == "shut":
        client.grant_request()
    program.expect("works")
    assert program.finish() == 0
