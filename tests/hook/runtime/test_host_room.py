"""Host memory that is full, or was told and is not to be had."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import (
    DropReason,
    HostMemoryReported,
    MemoryReported,
    RequestWithdrawn,
    RoomAnswered,
    TurnDropped,
)
from tests.hook.runtime.described import described
from tests.hook.runtime.memory_shell import MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_arena import Group, shim
from tests.hook.runtime.two_devices import Files, TwoDevices, program_of
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine
from tests.support.stacks import threads_of
from tests.support.waits import wait_until

SEGMENT = 64 << 20
"""Chunks of so much in all fill one segment of host memory to the last byte."""
HOUSEKEEPING_S = 1.0
WAITS = 10
CANCELLED = 800
COPY = 32 << 20
"""With one call so much of a chunk is copied."""
CHUNK = 8 << 20
SMALL = 4 << 20
SMALL_ONES = 9
"""They come back in less time than passes between two reports, and fill no segment."""

Start = Callable[..., GpuProcess]


@pytest.mark.promise("backing-29")
def test_what_is_freed_ends_a_restore_at_once(start: Start, scheduler: FakeScheduler) -> None:
    """What is still parked is freed by another thread: nothing is left to wait for, however full
    the host memory is. One that waited for the mover's next look would wait most of its period each
    time, so one short wait tells it on a slow machine too."""
    memory = open_memory_shell(start, scheduler.accept, reclaim_ms=20_000)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SEGMENT)
    assert memory.run("current", thread=1) == 0
    waits_s: list[float] = []
    while len(waits_s) < WAITS and min(waits_s, default=HOUSEKEEPING_S) >= HOUSEKEEPING_S / 2:
        memory.fill(1, SEGMENT)
        memory.take_turn()
        memory.park_to(0)
        memory.say("spin d 1000")
        memory.grant(SEGMENT)
        memory.client.expect_memory(lambda report: report.bytes_parked == SEGMENT)
        began_s = time.monotonic()
        memory.say("drop 1", thread=1)
        assert {memory.shell.expect("") for _ in range(2)} == {"1 drop 0", "0 spin 0"}
        waits_s.append(time.monotonic() - began_s)
        memory.limit(UNLIMITED)
    assert min(waits_s) < HOUSEKEEPING_S / 2
    assert memory.is_whole(0)


NO_PAGES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* No page is to be had, whatever was said before. */
int madvise(void *address, size_t bytes, int advice) {
    if (advice == 23) {
        errno = ENOMEM;
        return -1;
    }
    return ((int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise"))(address, bytes, advice);
}
"""


@pytest.mark.promise(
    "park-25",
    "Where the driver pins no more host memory, unpinned memory serves, and is told as such; the "
    "hook measures how fast host memory becomes ready",
)
@pytest.mark.parametrize("pinned", [0, 1], ids=["none is pinned", "a segment is pinned"])
def test_memory_that_cannot_be_pinned_serves_too(
    start: Start, scheduler: FakeScheduler, pinned: int
) -> None:
    """Every byte comes back; the parts in unpinned memory are told, until they have left it."""
    env = {"GPUSHARE_SIM_FAULTS": f"fail cuMemHostRegister nth={pinned + 1} result=2 times=0"}
    memory = open_memory_shell(start, scheduler.accept, env=env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor in range(3):
        memory.fill(tensor, SEGMENT)
    memory.take_turn()
    memory.park_to(0)
    unpinned = (3 - pinned) * SEGMENT
    told = [each for each in memory.client.received if isinstance(each, HostMemoryReported)][-1]
    assert told.bytes_unpinned == unpinned
    assert told.bytes_ready_per_s > 0
    assert described(memory.shell)["host_unpinned"] == unpinned
    memory.say("sum 0")
    memory.grant()
    memory.shell.expect("0 sum 0")
    assert all(memory.is_whole(tensor) for tensor in range(3))
    memory.client.expect_memory(lambda report: report.bytes_parked == 0)
    assert described(memory.shell)["host_unpinned"] == 0


@pytest.mark.promise("park-50")
def test_room_that_is_not_there_after_all_is_told(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """The system has no pages, so nothing can be parked: the scheduler hears it, and waits for
    nobody in vain."""
    env = {"LD_PRELOAD": shim(NO_PAGES)}
    memory = open_memory_shell(start, scheduler.accept, env=env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SEGMENT)
    memory.take_turn()
    memory.budget(0)
    report = memory.client.expect_memory(lambda report: report.bytes_host_room == 0)
    assert (report.bytes_allocated, report.bytes_parked) == (SEGMENT, 0)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    """With room for four segments."""
    made = Group(tmp_path)
    made.leave(4 * SEGMENT)
    return made


def parked(start: Start, scheduler: FakeScheduler, group: Group, **env: str) -> MemoryShell:
    """A process of the group that has parked three chunks of a segment each."""
    memory = open_memory_shell(start, scheduler.accept, env={**group.env, **env}, reclaim_ms=200)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor in range(3):
        memory.fill(tensor, SEGMENT)
    memory.take_turn()
    memory.park_to(0)
    assert group.taken()[0] == 3 * SEGMENT
    return memory


@pytest.mark.promise("park-64")
def test_where_others_need_it_host_memory_goes_with_each_chunk_that_is_back(
    start: Start, scheduler: FakeScheduler, group: Group
) -> None:
    """Without waiting for the rest. What was recalled then leaves once more by a copy, and every
    byte is right."""
    memory = parked(start, scheduler, group)
    for back in (1, 2, 1):
        memory.say("sum 0")
        memory.grant(back * SEGMENT)
        wait_until(lambda left=3 - back: group.taken()[0] == left * SEGMENT)
        memory.client.recall()
        memory.client.expect(TurnDropped)
        assert memory.park_to(0).bytes_parked == 3 * SEGMENT
        assert group.taken()[0] == 3 * SEGMENT
        memory.client.cancel()
        assert memory.result("sum") == CANCELLED
        memory.client.expect(RequestWithdrawn)  # else the next call finds it made
        memory.begin_cell()
    memory.say("sum 0")
    memory.grant()
    memory.shell.expect("0 sum 0")
    assert all(memory.is_whole(tensor) for tensor in range(3))


@pytest.mark.promise("park-64")
def test_where_there_is_enough_for_others_copies_stay_until_all_is_back(
    start: Start, scheduler: FakeScheduler, group: Group
) -> None:
    """As much as is still to come, and two segments. What is recalled leaves without a copy."""
    memory = parked(start, scheduler, group)
    group.leave(7 * SEGMENT)
    memory.say("sum 0")
    memory.grant(SEGMENT)
    memory.client.expect_memory(lambda report: report.bytes_parked == 2 * SEGMENT)
    memory.client.recall()
    memory.client.expect(TurnDropped)
    assert group.taken()[0] == 3 * SEGMENT
    assert memory.park_to(0).bytes_parked == 3 * SEGMENT
    group.leave(7 * SEGMENT - 1)
    memory.client.grant()
    memory.budget(SEGMENT)
    wait_until(lambda: group.taken()[0] == 2 * SEGMENT)


@pytest.mark.promise("park-44")
def test_what_gave_its_host_memory_up_stays_when_the_restore_fails(
    start: Start, scheduler: FakeScheduler, group: Group
) -> None:
    """Some was back, and then the driver fails a copy: what has a host copy is unmapped, and the
    other is memory of a process without the turn. It can leave, and come back with the rest."""
    env = {"GPUSHARE_SIM_FAULTS": f"fail cuMemcpyHtoDAsync nth={SEGMENT // COPY + 2} result=1"}
    memory = parked(start, scheduler, group, **env)
    memory.say("sum 0")
    memory.grant(SEGMENT)
    wait_until(lambda: group.taken()[0] == 2 * SEGMENT)
    memory.budget(3 * SEGMENT)
    assert memory.client.expect(TurnDropped).reason == DropReason.MEMORY_SHORT
    report = [each for each in memory.client.received if isinstance(each, MemoryReported)][-1]
    assert report.bytes_parked == group.taken()[0] == 2 * SEGMENT
    assert memory.park_to(0).bytes_parked == 3 * SEGMENT
    memory.budget(UNLIMITED)
    memory.client.grant()
    memory.shell.expect("0 sum 0")
    assert all(memory.is_whole(tensor) for tensor in range(3))


@pytest.mark.promise("park-64")
def test_a_segment_that_a_park_began_in_vain_goes_back(
    start: Start, scheduler: FakeScheduler, group: Group, sim: SimulatedMachine
) -> None:
    """While the driver registers one segment the next one is begun. Then less has to leave, and the
    first one is enough: the park is over, and nobody but others can use the second one."""
    files = Files(sim)
    faults = "hold cuMemHostRegister thread=gpushare-mem until=go"
    env = {**group.env, "GPUSHARE_SIM_FAULTS": faults}
    memory = open_memory_shell(start, scheduler.accept, env=env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor in range(3):
        memory.fill(tensor, SEGMENT)
    memory.take_turn()
    memory.budget(0)
    files.wait_for_held("go")
    wait_until(lambda: group.taken()[0] == 2 * SEGMENT)
    memory.limit(2 * SEGMENT)
    files.make("go")
    memory.client.expect_memory(lambda report: report.bytes_parked == SEGMENT)
    group.leave(3 * SEGMENT)
    wait_until(lambda: group.taken()[0] == SEGMENT)
    memory.say("sum 0")
    memory.grant()
    memory.shell.expect("0 sum 0")
    assert all(memory.is_whole(tensor) for tensor in range(3))


@pytest.mark.promise("park-64")
def test_host_memory_of_a_process_without_a_context_goes_back(
    start: Start, scheduler: FakeScheduler, group: Group
) -> None:
    """Its device was reset while its memory was parked: nothing is left that could need it, and no
    context is left in which it could be registered."""
    memory = parked(start, scheduler, group)
    assert memory.run("reset") == 0
    group.leave(4 * SEGMENT)
    wait_until(lambda: group.taken()[0] == 0)


@pytest.mark.promise("park-50")
def test_a_device_whose_chunks_find_no_host_memory_holds_up_no_other(
    tmp_path: Path, scheduler: FakeScheduler, group: Group
) -> None:
    """Chunks of 64 MiB on the first device, one of 8 MiB on the second one, and room for the
    latter: it is told as room, and so it is used. What comes next has its place later."""
    machine = SimulatedMachine(tmp_path / "two", devices=2)
    process = program_of(tmp_path, scheduler, machine, "", **group.env)
    both = TwoDevices(process, scheduler)
    try:
        both.say(f"b = alloc({CHUNK}); on(CONTEXT); a = alloc({16 * CHUNK})")
        both.say(f"f = fill(a, 7, {16 * CHUNK}); on(OTHER); print('f', f, fill(b, 8, {CHUNK}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == "0 0"
        both.drop()
        group.leave(CHUNK)
        both.budgets(0, 0)
        both.expect_parked(lambda parked: parked == [0, CHUNK])
        group.leave(18 * CHUNK)
        both.expect_parked(lambda parked: parked == [16 * CHUNK, CHUNK])
        both.say(f"b = words(b, {CHUNK}); on(CONTEXT); print('words', words(a, {16 * CHUNK}), b)")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("words") == "[7] [8]"
    finally:
        process.end()


@pytest.mark.promise("park-51")
def test_what_one_device_parks_takes_no_host_memory_for_another_one(
    tmp_path: Path, scheduler: FakeScheduler, group: Group
) -> None:
    """Chunks of 20 MiB stay on the first device, such of 64 MiB leave the second one."""
    machine = SimulatedMachine(tmp_path / "two", devices=2)
    process = program_of(tmp_path, scheduler, machine, "", **group.env)
    both = TwoDevices(process, scheduler)
    try:
        both.say(
            f"b = alloc({4 * SEGMENT}); on(CONTEXT); a = [alloc({20 << 20}) for _ in range(9)]"
        )
        both.say(f"f = fill(a[0], 7, {20 << 20}); on(OTHER)")
        both.say(f"print('f', f, fill(b, 8, {4 * SEGMENT}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("f") == "0 0"
        both.drop()
        group.leave(20 * SEGMENT)
        both.budgets(UNLIMITED, 0)
        both.expect_parked(lambda parked: parked == [0, 4 * SEGMENT])
        assert group.taken()[1] == 4 * SEGMENT
        both.say(f"print('words', words(b, {4 * SEGMENT}))")
        both.grant(UNLIMITED, UNLIMITED)
        assert both.hears("words") == "[8]"
    finally:
        process.end()


def short_of_host_memory(start: Start, scheduler: FakeScheduler, group: Group) -> MemoryShell:
    """Its memory has to leave, and finds no place."""
    memory = open_memory_shell(start, scheduler.accept, env=group.env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SEGMENT)
    memory.take_turn()
    group.leave(0)
    memory.budget(0)
    memory.client.expect_memory(lambda report: report.bytes_host_room == 0)
    return memory


def test_who_was_short_of_host_memory_once_sleeps_again(
    start: Start, scheduler: FakeScheduler, group: Group
) -> None:
    """Nothing has to leave any more: the mover has nothing to try again, and does not wake up
    twenty times a second for as long as the tenant has no turn."""
    memory = short_of_host_memory(start, scheduler, group)
    memory.limit(UNLIMITED)
    before = times_slept(memory.shell.pid)
    time.sleep(1)
    assert times_slept(memory.shell.pid) - before < 10


@pytest.mark.promise("park-50")
def test_a_look_that_takes_long_is_not_the_last_one(
    start: Start, scheduler: FakeScheduler, group: Group
) -> None:
    """While nothing is to be had, a word of the scheduler's wakes the mover. When its look at the
    host has ended, the moment for the next try is over: it tries then, and does not sleep for ever.
    """
    memory = short_of_host_memory(start, scheduler, group)
    time.sleep(2.2)  # until the agent looks once a second: the mover does not read what it has read
    group.look_takes(0.1)
    looks = group.looks() + 2
    while group.looks() < looks:
        time.sleep(0.001)
    time.sleep(0.02)
    memory.client.send(RoomAnswered(device=memory.device, request=0, made=False))
    looks += 5
    wait_until(lambda: group.looks() >= looks)
    group.look_takes(0)
    group.leave(4 * SEGMENT)
    memory.client.expect_memory(lambda report: report.bytes_parked == SEGMENT)


def movers(pid: int) -> list[Path]:
    return [task for task, name in threads_of(pid).items() if name == "gpushare-mem"]


def times_slept(pid: int) -> int:
    """The mover, which may be about to begin, by the system's count."""
    wait_until(lambda: bool(movers(pid)))
    status = (movers(pid)[0] / "status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_a_turn_does_not_wait_until_host_memory_has_gone_back(
    start: Start, scheduler: FakeScheduler, group: Group, sim: SimulatedMachine
) -> None:
    """Others lack it, so what came back is given to the system at once. That takes a while."""
    stop = "hold cuMemHostUnregister thread=gpushare-mem until=go"
    env = {**group.env, "GPUSHARE_SIM_FAULTS": stop}
    memory = open_memory_shell(start, scheduler.accept, env=env)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor in range(SMALL_ONES):
        memory.fill(tensor, SMALL)
    memory.take_turn()
    group.leave(4 * SEGMENT)
    memory.park_to(0)
    group.leave(0)
    memory.say("sum 0")
    memory.grant()
    Files(sim).wait_for_held("go")
    assert memory.result("sum") == 0
    Files(sim).make("go")
    assert all(memory.is_whole(tensor) for tensor in range(SMALL_ONES))
