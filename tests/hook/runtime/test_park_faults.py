"""What goes wrong while memory leaves or comes back: no byte is lost, and the turn goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    Ahead,
    DeviceOpened,
    DropReason,
    Fallback,
    MemoryMode,
    MemoryNeeded,
    RoomRequested,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.memory_shell import MIB, MemoryShell, Opened, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.support.compiled import library_named
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import GIB, SimulatedMachine
from tests.support.waits import wait_until

SIZE = 64 * MIB
"""A multiple of a pool's segment."""
HELD = 2 * SIZE
CONTEXT = 32 * MIB
ANSWERS_MAX = 10_000
"""More than there can be in a tenth of a second."""


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """A small device: two contexts, what the shell holds, and a little more."""
    return SimulatedMachine(tmp_path / "sim", bytes_per_device=HELD + 3 * CONTEXT)


@pytest.fixture(
    params=["plain", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("mapped", "pooled"))]
)
def opens_whole(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, request: pytest.FixtureRequest
) -> Opened:
    """The same, where each tensor is made by one call."""
    return lambda **options: open_memory_shell(
        start, scheduler.accept, kind=request.param, **options
    )


@pytest.fixture(
    params=["plain", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("pieces", "pooled"))]
)
def opens(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, request: pytest.FixtureRequest
) -> Opened:
    """Starts a shell whose memory, of each kind, follows the turn."""
    return lambda **options: open_memory_shell(
        start, scheduler.accept, kind=request.param, **options
    )


@pytest.fixture(params=["plain", pytest.param("pieces", marks=pytest.mark.full)])
def opens_in_chunks(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, request: pytest.FixtureRequest
) -> Opened:
    """The same, where tensors of 8 MiB are of one chunk each."""
    return lambda **options: open_memory_shell(
        start, scheduler.accept, kind=request.param, **options
    )


def hold(memory: MemoryShell, sizes: tuple[int, ...] = (SIZE, SIZE)) -> MemoryShell:
    """It holds the turn and two tensors, or such ones."""
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor, size in enumerate(sizes):
        memory.fill(tensor, size)
    return memory


def parked(memory: MemoryShell) -> MemoryShell:
    """All of it has left the device."""
    hold(memory).take_turn()
    assert memory.park_to(0).bytes_parked == HELD
    return memory


def assert_whole(memory: MemoryShell) -> None:
    assert memory.is_whole(0)
    assert memory.is_whole(1)


def start_stranger(start: Callable[..., GpuProcess]) -> GpuProcess:
    """A process without the hook, whose memory is nobody's business."""
    other = start("shell", env={"GPUSHARE_DISABLE": "1"})
    other.say("0 open")
    other.expect("0 open 0")
    return other


@pytest.mark.promise(
    "park-44",
    "A restore that finds no room asks for it, tries on, rolls back when there is none in time, "
    "and succeeds later",
)
def test_a_restore_without_room_is_rolled_back_and_tried_again(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """The driver has no memory although the budget has: others are asked for room, in vain; the
    turn goes back as memory_short with everything in host memory, and succeeds later."""
    memory = parked(opens(reclaim_ms=200))
    stranger = start_stranger(start)
    stranger.say(f"0 new 0 {HELD}")
    stranger.expect("0 new 0")
    memory.say("sum 0")
    memory.grant()
    memory.client.expect(RoomRequested)
    assert memory.client.expect(TurnDropped).reason == DropReason.MEMORY_SHORT
    reports = [m for m in memory.client.received if hasattr(m, "bytes_parked")]
    assert reports[-1].bytes_parked == HELD
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


@pytest.mark.promise("park-44")
def test_room_that_is_made_lets_a_restore_go_on(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """The answer is worth a try at once."""
    memory = parked(opens(reclaim_ms=20_000))
    stranger = start_stranger(start)
    stranger.say(f"0 new 0 {HELD}")
    stranger.expect("0 new 0")
    memory.say("sum 0")
    memory.grant()
    memory.client.expect(RoomRequested)
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.client.room(memory.device, made=True)
    assert memory.result("sum") == 0
    assert_whole(memory)


def test_answers_without_room_do_not_prolong_a_restore(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """The time for which it asks counts from its first question, however often others answer."""
    memory = parked(opens(reclaim_ms=100))
    stranger = start_stranger(start)
    stranger.say(f"0 new 0 {HELD}")
    stranger.expect("0 new 0")
    memory.say("sum 0")
    memory.grant()

    def is_given_up() -> bool:
        drops = [told for told in memory.client.received if isinstance(told, TurnDropped)]
        return drops[-1].reason is DropReason.MEMORY_SHORT

    for _ in range(ANSWERS_MAX):
        if not memory.client.hears(RoomRequested, unless=is_given_up):
            break
        memory.client.room(memory.device, made=True)
    assert is_given_up()


@pytest.mark.promise(
    "park-45",
    "An allocation that the driver has no memory for asks for room before it fails",
)
def test_an_allocation_without_room_asks_for_it(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """Out of memory within the budget: one more try when others have made room, else the error."""
    memory = hold(opens(reclaim_ms=20_000))
    stranger = start_stranger(start)
    stranger.say(f"0 new 0 {CONTEXT // 2}")
    stranger.expect("0 new 0")
    memory.say(f"new 2 {CONTEXT}")
    memory.client.expect(RoomRequested)
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.client.room(memory.device, made=True)
    assert memory.result("new") == 0
    memory.say(f"new 3 {CONTEXT}")
    memory.client.expect(RoomRequested)
    memory.client.room(memory.device, made=False)
    assert memory.result("new") == 2
    assert_whole(memory)


def fill_up(start: Callable[..., GpuProcess], free_bytes: int) -> GpuProcess:
    """A stranger leaves so much of the device to a shell that holds its tensors."""
    stranger = start_stranger(start)
    stranger.say(f"0 new 0 {CONTEXT - free_bytes}")
    stranger.expect("0 new 0")
    return stranger


@pytest.mark.promise("park-46", "No more room is asked for than is missing")
@pytest.mark.parametrize(("free_mib", "asked_mib"), [(10, 22), (30, 8)])
def test_no_more_room_is_asked_for_than_is_missing(
    opens_whole: Opened, start: Callable[..., GpuProcess], free_mib: int, asked_mib: int
) -> None:
    """What the driver has free need not be made, and crumbs are not asked for."""
    memory = hold(opens_whole(reclaim_ms=20_000))
    stranger = fill_up(start, free_mib * MIB)
    memory.say(f"new 2 {CONTEXT}")
    assert memory.client.expect(RoomRequested).bytes == asked_mib * MIB
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.client.room(memory.device, made=True)
    assert memory.result("new") == 0


@pytest.mark.promise("park-45")
def test_room_that_was_made_in_part_may_do(opens: Opened, start: Callable[..., GpuProcess]) -> None:
    """Others could not make all that was asked for; what they did make is enough."""
    memory = hold(opens(reclaim_ms=20_000))
    stranger = fill_up(start, 10 * MIB)
    memory.say(f"new 2 {CONTEXT}")
    memory.client.expect(RoomRequested)
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.client.room(memory.device, made=False)
    assert memory.result("new") == 0
    assert_whole(memory)


@pytest.mark.promise("park-45")
def test_a_budget_that_has_become_smaller_is_waited_for(
    opens_whole: Opened, start: Callable[..., GpuProcess]
) -> None:
    """The scheduler knew of the lack before it heard of the request: the call is not out of memory,
    but waits for budget as any other."""
    memory = hold(opens_whole(reclaim_ms=20_000))
    stranger = fill_up(start, 10 * MIB)
    memory.say(f"new 2 {CONTEXT}")
    memory.client.expect(RoomRequested)
    memory.limit(HELD)
    memory.client.room(memory.device, made=False)
    memory.need(CONTEXT)
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.budget(2**40)
    assert memory.result("new") == 0
    assert_whole(memory)


def test_an_answer_to_another_request_is_none(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """What is refused late was another call's."""
    memory = hold(opens(reclaim_ms=20_000))
    stranger = fill_up(start, 10 * MIB)
    memory.say(f"new 2 {CONTEXT}")
    asked = memory.client.expect(RoomRequested)
    memory.client.room(memory.device, made=False, request=asked.request - 1)
    assert memory.shell.is_silent(for_s=0.2)
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.client.room(memory.device, made=True)
    assert memory.result("new") == 0


@pytest.mark.promise("backing-27")
def test_room_is_asked_for_again_when_somebody_took_it(
    opens_whole: Opened, start: Callable[..., GpuProcess]
) -> None:
    """It was made, and is gone before the allocation is tried again: what is missing then is asked
    for anew."""
    memory = hold(opens_whole(reclaim_ms=20_000))
    stranger = fill_up(start, 10 * MIB)
    memory.say(f"new 2 {CONTEXT}")
    assert memory.client.expect(RoomRequested).bytes == 22 * MIB
    memory.client.room(memory.device, made=True)
    assert memory.client.expect(RoomRequested).bytes == 22 * MIB
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    memory.client.room(memory.device, made=True)
    assert memory.result("new") == 0
    assert_whole(memory)


@pytest.mark.promise(
    "park-47",
    "An interrupt while room is being made cancels the call, as any that waits",
)
def test_an_interrupt_while_room_is_made_cancels_the_allocation(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """It answers 800, as other calls that wait, and not out-of-memory; the next one is as if there
    had been none."""
    memory = hold(opens(reclaim_ms=20_000))
    stranger = fill_up(start, 10 * MIB)
    for _ in range(20):
        memory.say(f"new 2 {CONTEXT}")
        memory.client.expect(RoomRequested)
        memory.client.cancel()
        assert memory.result("new") == 800
        assert memory.client.expect(RoomRequested).bytes == 0, "it is taken back"
        memory.begin_cell()
    assert memory.limit(2**40).bytes_allocated == HELD
    stranger.say("0 drop 0")
    stranger.expect("0 drop 0")
    assert memory.run(f"new 2 {CONTEXT}") == 0
    assert_whole(memory)


@pytest.mark.promise("park-48", "A copy error loses nothing, on the way out and on the way in")
def test_a_copy_that_fails_on_the_way_out_leaves_its_chunk_where_it_is(opens: Opened) -> None:
    """It counts as fixed, and is told so; the rest is parked."""
    memory = hold(opens(env={"GPUSHARE_SIM_FAULTS": "fail cuMemcpyDtoHAsync nth=1 result=1"}))
    memory.take_turn()
    memory.budget(0)
    assert memory.client.expect_memory(lambda report: report.bytes_fixed > 0).bytes_fixed <= SIZE
    memory.client.expect_memory(lambda report: report.bytes_parked + report.bytes_fixed == HELD)
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


@pytest.mark.promise(
    "park-49",
    "A chunk that could not be copied out counts as fixed only until it is tried again, ever "
    "later and not for ever",
)
def test_a_copy_that_failed_on_the_way_out_is_made_again_later(opens: Opened) -> None:
    """After a while the chunk is fixed no more, which is told, and leaves when it has to."""
    memory = hold(opens(env={"GPUSHARE_SIM_FAULTS": "fail cuMemcpyDtoHAsync nth=1 result=1"}))
    memory.take_turn()
    memory.budget(0)
    stays = memory.client.expect_memory(lambda report: report.bytes_fixed > 0)
    memory.limit(stays.bytes_fixed)
    assert memory.client.expect_memory(lambda report: report.bytes_fixed == 0).bytes_parked < HELD
    memory.budget(0)
    assert memory.client.expect_memory(lambda report: report.bytes_parked == HELD)
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


@pytest.mark.promise("park-49")
def test_a_device_on_which_no_copy_succeeds_is_soon_left_alone(opens_in_chunks: Opened) -> None:
    """Each chunk is tried again after one second, then after two, or a quarter of that earlier with
    others: the mover does not spin."""
    faults = "fail cuMemcpyDtoHAsync nth=1 times=0 result=1"
    chunks = 10
    memory = hold(opens_in_chunks(env={"GPUSHARE_SIM_FAULTS": faults}), (8 * MIB,) * chunks)
    memory.take_turn()
    began_s = time.monotonic()
    memory.budget(0)
    failed = "park: the driver answers 1 "
    wait_until(lambda: len(memory.shell.log_lines(failed)) >= 3 * chunks)
    assert time.monotonic() - began_s >= 0.75 * (1 + 2)
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert all(memory.is_whole(tensor) for tensor in range(chunks))


@pytest.mark.promise("park-48")
def test_a_copy_that_fails_on_the_way_in_is_made_again(opens: Opened) -> None:
    """The restore is rolled back; the host copy was kept, so the next one succeeds."""
    memory = parked(opens(env={"GPUSHARE_SIM_FAULTS": "fail cuMemcpyHtoDAsync nth=2 result=1"}))
    memory.say("sum 0")
    memory.grant(ahead=Ahead.NOTHING)
    assert memory.client.expect(TurnDropped).reason == DropReason.MEMORY_SHORT
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


def write_group(root: Path, room_bytes: int) -> None:
    """A control group of either version that leaves so much beside the reserve."""
    for folder, limit, used in (
        (root, "memory.max", "memory.current"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        for name, count in ((limit, 4 * GIB), (used, 4 * GIB - 256 * MIB - room_bytes)):
            fresh = folder / "fresh"  # a reader must not find an empty file
            fresh.write_text(f"{count}\n")
            fresh.replace(folder / name)


@pytest.mark.promise(
    "park-50",
    "Host memory is never taken beyond what any level of the control groups leaves, of both "
    "versions; where it ends, parking stops and the true room is told",
)
def test_a_park_stops_where_host_memory_ends(opens: Opened, tmp_path: Path) -> None:
    """The room that is told is what the control group leaves; what cannot leave stays, whole. When
    there is more, that is told as well."""
    write_group(tmp_path / "cgroup", 0)
    memory = hold(opens(env={"GPUSHARE_CGROUP_ROOT": str(tmp_path / "cgroup")}))
    memory.take_turn()
    report = memory.limit(0)
    assert (report.bytes_parked, report.bytes_host_room) == (0, 0)
    write_group(tmp_path / "cgroup", 200 * MIB)
    assert memory.client.expect_memory(lambda report: report.bytes_host_room >= HELD)
    assert memory.park_to(0).bytes_parked == HELD
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


def resident_mib(process: GpuProcess) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmRSS")


@pytest.mark.promise(
    "park-51",
    "Host memory is made ready ahead of need while the turn is held, used again, and given back "
    "when nobody needs it or the system is short",
)
def test_host_memory_is_made_ready_ahead_and_given_back_when_it_is_short(
    opens: Opened, tmp_path: Path
) -> None:
    """While the turn is held, as much as the hint says; no longer when the system has none left."""
    write_group(tmp_path / "cgroup", GIB)
    memory = hold(opens(env={"GPUSHARE_CGROUP_ROOT": str(tmp_path / "cgroup")}))
    before_mib = resident_mib(memory.shell)
    memory.limit(2**40, hint_bytes=SIZE)
    wait_until(lambda: resident_mib(memory.shell) >= before_mib + 64)
    write_group(tmp_path / "cgroup", -200 * MIB)
    wait_until(lambda: resident_mib(memory.shell) < before_mib + 32)


@pytest.mark.promise("park-52", "A fork while memory is parked harms neither side")
def test_a_fork_while_memory_is_parked_leaves_it_to_the_parent(opens: Opened) -> None:
    """The child has neither the mover nor the copies, and ends; the parent has every byte."""
    memory = parked(opens())
    assert memory.run("fork") == 0
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert memory.run("fork") == 0
    assert_whole(memory)


@pytest.mark.promise(
    "park-53",
    "A process that is killed, or ends, while it parks leaves nothing behind",
)
def test_a_process_that_is_killed_while_it_parks_frees_the_device(
    opens: Opened, start: Callable[..., GpuProcess]
) -> None:
    """Nothing of it stays behind that others could miss."""
    memory = hold(opens())
    memory.take_turn()
    memory.budget(0)
    memory.client.expect_memory(lambda report: report.bytes_parked > 0)
    memory.shell.signal(signal.SIGKILL)
    assert memory.shell.wait() == -signal.SIGKILL
    stranger = start_stranger(start)
    stranger.say(f"0 new 0 {HELD + CONTEXT}")
    stranger.expect("0 new 0")


@pytest.mark.promise("park-54", "Memory of a context with a sticky error is fixed, and told so")
def test_memory_of_a_context_with_a_sticky_error_is_fixed(opens: Opened) -> None:
    """The turn goes back at once; nothing can be copied out of it, and nobody waits for that."""
    memory = hold(opens())
    assert memory.run("assert d") == 0
    assert memory.run("sync") == 710
    assert memory.client.expect(TurnDropped).reason == DropReason.CONTEXT_FAILED
    report = memory.limit(0)
    assert (report.bytes_parked, report.bytes_fixed) == (0, HELD)
    assert memory.run("spin d 1000") == 710


@pytest.mark.promise("park-32")
def test_a_recall_passes_by_a_call_that_waits_for_budget(opens_whole: Opened) -> None:
    """It is outside the gate and has nothing yet, so the turn goes back; its need is told again
    with what is there then, which may be before all has left."""
    memory = hold(opens_whole())
    memory.limit(HELD)
    memory.say(f"new 2 {CONTEXT}")
    memory.need(CONTEXT)
    memory.client.recall()
    assert memory.client.expect(TurnDropped).reason == DropReason.RECALL
    memory.client.expect(TurnRequested)
    memory.park_to(0)
    memory.budget(HELD)
    memory.client.grant()
    needs = (one for one in memory.client.received if isinstance(one, MemoryNeeded))
    if sum(need.bytes == CONTEXT for need in needs) < 2:
        memory.need(CONTEXT)
    memory.budget(HELD + CONTEXT)
    assert memory.result("new") == 0
    assert_whole(memory)


@pytest.mark.promise("park-35")
def test_recalls_among_allocations_give_the_turn_back_with_true_numbers(opens: Opened) -> None:
    """However allocations and recalls meet: with the drop everything is counted, and nothing is
    beyond the budget."""
    memory = hold(opens())
    budget_bytes = HELD + CONTEXT
    memory.limit(budget_bytes)
    for thread in (1, 2, 3):
        assert memory.run("current", thread=thread) == 0
    for thread in (1, 2, 3):
        memory.say(f"churn {thread + 1} {CONTEXT // 2} 500", thread=thread)
    answers = {f"{thread} churn 0" for thread in (1, 2, 3)}
    memory.take_turn()
    while memory.client.hears(TurnRequested, unless=lambda: memory.shell.has_said(answers)):
        reports = [m for m in memory.client.received if hasattr(m, "bytes_parked")]
        assert reports[-1].bytes_allocated <= budget_bytes
        memory.budget(budget_bytes)
        memory.client.grant()
        memory.take_turn()


@pytest.mark.promise(
    "park-55",
    "Without a scheduler nothing comes back, whatever the fallback is; the next one gives the "
    "credit",
)
def test_without_a_scheduler_parked_memory_stays_parked(
    opens: Opened, scheduler: FakeScheduler
) -> None:
    """Whatever the fallback is, nothing comes back without credit; the next scheduler gives it."""
    memory = parked(opens(reconnect_s=1, fallback=Fallback.RUN))
    scheduler.stop()
    memory.say("sum 0")
    assert memory.shell.is_silent(for_s=1.5)
    scheduler.start()
    memory.client = scheduler.accept()
    memory.client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    memory.client.expect(DeviceOpened)
    report = memory.client.expect_memory(lambda report: True)
    assert (report.bytes_parked, report.budget_serial) == (HELD, 0)
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


@pytest.mark.promise("park-53")
def test_a_process_that_ends_while_it_parks_ends_soon(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """The mover leaves the driver alone once the handlers of exit run: the rest is not copied. A
    small chunk leaves first; the other one would take half a minute."""
    slow = SimulatedMachine(tmp_path / "slow", copy_bytes_per_s=2 * MIB)
    memory = open_memory_shell(partial(start, machine=slow), scheduler.accept)
    hold(memory, (2 * MIB, SIZE))
    memory.take_turn()
    memory.budget(0)
    memory.client.expect_memory(lambda report: report.bytes_parked > 0)
    assert memory.shell.finish() == 0
    assert sum(r.amount for r in slow.journal() if r.kind.name == "COPY_D2H") == 2 * MIB


@pytest.mark.promise(
    "park-56",
    "Parked memory is copied to no child and no core file, and goes back to the system only",
)
def test_nothing_of_the_arena_is_written_to_a_core_or_copied_to_children(opens: Opened) -> None:
    """What was on the device is in nobody else's hands."""
    memory = parked(opens())
    present = marked = 0
    for line in Path(f"/proc/{memory.shell.pid}/smaps").read_text().splitlines():
        word, *rest = line.split()
        if word == "Rss:":
            present = int(rest[0]) * 1024
        elif word == "VmFlags:" and {"dc", "dd"} <= set(rest):
            marked += present
    assert marked >= HELD, "not all that is parked has MADV_DONTFORK and MADV_DONTDUMP"


@pytest.mark.promise(
    "park-57",
    "Memory stays on the device where the video encoder or optical flow is loaded, which use "
    "it outside turns",
)
@pytest.mark.parametrize("library", ["libnvidia-encode.so.1", "libnvidia-opticalflow.so.1"])
def test_memory_that_a_library_uses_without_launches_stays(
    opens: Opened, tmp_path: Path, library: str
) -> None:
    """It counts as fixed from the park on, and the user reads why, once."""
    memory = hold(opens())
    library_named(tmp_path / library, "")
    assert memory.run(f"load {tmp_path / library}") == 0
    memory.take_turn()
    memory.budget(0)
    report = memory.client.expect_memory(lambda report: report.bytes_fixed == HELD)
    assert report.bytes_parked == 0
    memory.shell.expect_error(library.removesuffix(".so.1"))
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


@pytest.mark.promise("park-57")
@pytest.mark.parametrize(("kind", "fixed"), [("pieces", HELD), ("mapped", 0)])
def test_memory_for_rdma_stays_where_that_is_loaded(
    start: Callable[..., GpuProcess],
    scheduler: FakeScheduler,
    tmp_path: Path,
    kind: str,
    fixed: int,
) -> None:
    """What was made for it alone: nobody tells us what is registered."""
    memory, library = open_memory_shell(start, scheduler.accept, kind=kind), "libibverbs.so.1"
    hold(memory)
    library_named(tmp_path / library, "")
    assert memory.run(f"load {tmp_path / library}") == 0
    memory.take_turn()
    memory.budget(0)
    memory.client.expect_memory(
        lambda report: (report.bytes_fixed, report.bytes_parked) == (fixed, HELD - fixed)
    )
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)


@pytest.mark.promise("park-57")
def test_memory_that_would_stay_does_not_come_ahead_of_its_turn(
    opens: Opened, tmp_path: Path
) -> None:
    """It could not leave again for whoever has the turn."""
    memory, library = parked(opens()), tmp_path / "libnvidia-encode.so.1"
    library_named(library, "")
    assert memory.run(f"load {library}") == 0
    memory.limit(HELD)
    memory.shell.expect_error("libnvidia-encode")
    for _ in range(20):  # each report is what is there then: some come after a look of the mover
        assert memory.limit(HELD).bytes_parked == HELD
    memory.say("sum 0")
    memory.grant()
    assert memory.result("sum") == 0
    assert_whole(memory)
