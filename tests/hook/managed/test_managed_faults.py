"""What goes wrong while managed memory moves: no byte is lost, and the turn goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DropReason, RoomRequested, TurnDropped
from tests.hook.managed.tensors import HELD, PIECE, SIZE, Managed
from tests.hook.runtime.memory_shell import MIB
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_park_faults import write_group
from tests.hook.runtime.two_devices import Files
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

Opens = Callable[..., Managed]
Takes = Callable[[int], bool]
OUT_OF_MEMORY = 2
MOVER = "thread=gpushare-mem"


def opened(opens: Opens, faults: str, **options: object) -> Managed:
    managed = opens(env={"GPUSHARE_SIM_FAULTS": faults}, **options)
    managed.fill()
    return managed


@pytest.mark.promise(
    "park-10",
    "A prefetch that the driver refuses loses nothing: on the way out the memory stays, fixed for "
    "a while, and on the way in it comes when it is used",
)
@pytest.mark.parametrize("result", [1, OUT_OF_MEMORY, 999])
def test_a_prefetch_to_the_host_is_refused(opens: Opens, result: int) -> None:
    """It is tried again."""
    managed = opened(opens, f"fail cuMemPrefetchAsync nth=1 result={result}")
    managed.memory.take_turn()
    managed.memory.budget(0)
    if result != OUT_OF_MEMORY:  # a lack of memory ends by itself
        report = managed.client.expect_memory(lambda report: report.bytes_fixed > 0)
        assert report.bytes_fixed == PIECE
    managed.client.expect_memory(lambda report: report.bytes_parked == HELD)
    managed.restore()
    assert managed.is_whole()


@pytest.mark.promise("park-10")
def test_no_prefetch_to_the_host_ever_succeeds(opens: Opens) -> None:
    """What stays is fixed, and the turn goes on."""
    managed = opened(opens, "fail cuMemPrefetchAsync nth=1 times=0 result=1")
    managed.memory.take_turn()
    managed.memory.budget(0)
    managed.client.expect_memory(lambda report: report.bytes_fixed == HELD)
    managed.restore()
    assert managed.is_whole()


@pytest.mark.promise("park-10")
def test_a_prefetch_to_the_device_is_refused(opens: Opens) -> None:
    """The memory counts as there, because it comes when it is used."""
    pieces = HELD // PIECE
    managed = opened(opens, f"fail cuMemPrefetchAsync nth={pieces + 1} times=0 result=1")
    assert managed.park().bytes_parked == HELD
    managed.restore()
    assert managed.client.expect_memory(lambda report: report.bytes_parked == 0)
    assert managed.is_whole()


@pytest.mark.promise("park-48")
def test_a_prefetch_to_the_device_finds_no_memory(opens: Opens) -> None:
    """Others are asked for room, and it is tried again."""
    pieces = HELD // PIECE
    managed = opened(opens, f"fail cuMemPrefetchAsync nth={pieces + 1} times=2 result=2")
    managed.park()
    managed.memory.say("sum 0")
    managed.memory.grant()
    managed.client.expect(RoomRequested)
    managed.memory.shell.expect("0 sum 0")
    assert managed.is_whole()


@pytest.mark.promise(
    "park-11",
    "Managed memory is brought back only into what the device has free, so that no other managed "
    "memory has to leave for it",
)
def test_a_device_without_room_is_not_prefetched_to(opens: Opens, stranger: Takes) -> None:
    """Somebody has taken its place: the turn goes back, and succeeds when there is room again."""
    managed = opens(reclaim_ms=200)
    managed.fill()
    managed.park()
    assert stranger(HELD)
    managed.memory.say("sum 0")
    managed.memory.grant()
    managed.client.expect(RoomRequested)
    assert managed.client.expect(TurnDropped).reason == DropReason.MEMORY_SHORT
    assert stranger(0)
    managed.memory.grant()
    managed.memory.shell.expect("0 sum 0")
    assert managed.is_whole()


@pytest.mark.promise(
    "park-12",
    "Managed memory goes to the host only where the system has memory for it, and takes none the "
    "second time",
)
def test_it_stays_where_the_host_has_no_memory(opens: Opens, tmp_path: Path) -> None:
    """The room that is told is what the control group leaves. The driver keeps the pages that it
    has taken, so a second park finds them."""
    write_group(tmp_path / "cgroup", 0)
    managed = opens(env={"GPUSHARE_CGROUP_ROOT": str(tmp_path / "cgroup")})
    managed.fill()
    managed.memory.take_turn()
    report = managed.memory.limit(0)
    assert (report.bytes_parked, report.bytes_host_room) == (0, 0)
    write_group(tmp_path / "cgroup", 200 * MIB)
    assert managed.client.expect_memory(lambda report: report.bytes_host_room >= HELD)
    assert managed.memory.park_to(0).bytes_parked == HELD
    write_group(tmp_path / "cgroup", 0)
    managed.restore()
    assert managed.is_whole()
    wait_until(lambda: managed.memory.limit(2**40).bytes_host_room == HELD)  # looked at anew
    assert managed.park().bytes_parked == HELD
    managed.restore()
    assert managed.is_whole()


@pytest.mark.promise(
    "park-13",
    "Managed memory may be freed wherever it is, also while it moves, without the turn",
)
@pytest.mark.parametrize("way", ["leave", "come"])
def test_it_is_freed_while_it_moves(opens: Opens, sim: SimulatedMachine, way: str) -> None:
    """The free waits for the piece that is on its way, and for no turn."""
    files = Files(sim)
    managed = opened(opens, f"hold cuEventQuery {MOVER} from={way} until=on")
    assert managed.run("current", thread=1) == 0
    managed.memory.take_turn()
    if way == "come":
        managed.memory.park_to(0)
        managed.memory.say("spin d 1000")
    files.make(way)
    if way == "come":
        managed.memory.grant()
    else:
        managed.memory.budget(0)
    files.wait_for_held("on")
    managed.memory.say("drop 0", thread=1)
    files.make("on")
    answers = ["0 spin 0", "1 drop 0"] if way == "come" else ["1 drop 0"]
    assert sorted(managed.memory.shell.expect("") for _ in answers) == answers
    assert managed.client.expect_memory(lambda report: report.bytes_allocated == SIZE)
    if way == "leave":
        managed.restore()
    assert managed.memory.is_whole(1)


@pytest.mark.promise("park-13")
def test_it_is_freed_while_it_is_parked(holder: Managed, stranger: Takes) -> None:
    """And what the driver kept of it is free."""
    holder.park()
    assert holder.run("drop 0") == 0
    report = holder.client.expect_memory(lambda report: report.bytes_allocated == SIZE)
    assert (report.bytes_parked, report.bytes_kept) == (SIZE, SIZE)
    assert holder.run("drop 1") == 0
    assert holder.client.expect_memory(lambda report: report.bytes_allocated == 0)
    assert stranger(HELD)


@pytest.mark.promise("park-13")
def test_a_free_that_the_driver_refuses(opens: Opens) -> None:
    """It is still there, and still moves."""
    managed = opened(opens, "fail cuMemFree nth=1 result=1")
    assert managed.run("drop 0") == 1
    assert managed.park().bytes_parked == HELD
    managed.restore()
    assert managed.is_whole()
    assert managed.run("drop 0") == 0
    assert managed.client.expect_memory(lambda report: report.bytes_allocated == SIZE)


@pytest.mark.promise("park-53")
def test_a_process_that_is_killed_while_it_moves(opens: Opens, stranger: Takes) -> None:
    """Nothing of it stays behind."""
    managed = opens()
    managed.fill()
    managed.memory.take_turn()
    managed.memory.budget(0)
    managed.client.expect_memory(lambda report: report.bytes_parked > 0)
    managed.memory.shell.signal(signal.SIGKILL)
    assert managed.memory.shell.wait() == -signal.SIGKILL
    assert stranger(HELD + 32 * MIB)


@pytest.mark.promise("park-54")
@pytest.mark.parametrize("parks", [False, True])
def test_a_context_with_a_sticky_error(holder: Managed, parks: bool) -> None:
    """What is on the device is fixed. What is parked is lost with it, and keeps no gate shut."""
    if parks:
        holder.park(SIZE)
        holder.memory.say("assert d")
        holder.memory.grant(SIZE)
        holder.client.expect_memory(lambda report: report.bytes_parked == HELD - SIZE)
        holder.memory.budget(HELD)
        assert holder.memory.result("assert") == 0
    else:
        assert holder.run("assert d") == 0
    assert holder.run("sync") == 710
    assert holder.client.expect(TurnDropped).reason == DropReason.CONTEXT_FAILED
    report = holder.memory.limit(0)
    assert (report.bytes_parked, report.bytes_fixed) == (0, HELD)
    assert holder.run("spin d 1000") == 710


@pytest.mark.promise("park-14", "A fork while managed memory is parked leaves it to the parent")
def test_a_fork_while_it_is_parked(holder: Managed) -> None:
    """The child has none of it."""
    holder.park()
    assert holder.run("fork") == 0
    holder.restore()
    assert holder.run("fork") == 0
    assert holder.is_whole()


@pytest.mark.promise("park-53")
def test_a_process_that_ends_while_it_is_parked(
    holder: Managed, start: Callable[..., GpuProcess]
) -> None:
    """Its end waits for nothing."""
    holder.park()
    assert holder.memory.shell.finish() == 0
