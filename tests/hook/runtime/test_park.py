"""Memory that leaves the device without the turn, and is all back before the gate opens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from jupyter_gpushare.protocol.messages import (
    DropReason,
    MemoryReported,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.described import described
from tests.hook.runtime.memory_shell import MIB, MemoryShell, Opened, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import FakeScheduler
from tests.support.waits import wait_until

SIZE = 64 * MIB
SMALL = 32 * MIB
"""All sizes are multiples of a pool's segment."""
CALLS = {
    "plain": "cuMemAlloc_v2",
    "mapped": "cuMemCreate",
    "pooled": "cuMemAllocAsync",
    "managed": "cuMemAllocManaged",
}
"""By which memory of each kind is made."""


KINDS = ["plain", "mapped", "pooled", "managed"]
ALIKE = [KINDS[0], *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS[1:])]
"""Where what is shown begins only when memory is made, or has come or gone."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Of memory: cuMemAlloc, made and mapped by the program, or stream-ordered."""
    return str(request.param)


@pytest.fixture
def opens(start: Callable[..., GpuProcess], scheduler: FakeScheduler, kind: str) -> Opened:
    """Starts a shell whose memory follows the turn."""
    return lambda **options: open_memory_shell(start, scheduler.accept, kind=kind, **options)


@pytest.fixture
def holder(opens: Opened) -> MemoryShell:
    """A shell that holds the turn and two tensors."""
    memory = opens()
    memory.say(f"new 9 {SMALL}")
    memory.grant()
    assert memory.result("new") == 0
    memory.fill(0, SIZE)
    memory.fill(1, SMALL)
    memory.need(0)
    return memory


HELD = SIZE + 2 * SMALL
FIRST = SMALL + SIZE
"""What comes back first: chunks come in the order of their addresses."""


@pytest.mark.promise(
    "park-27",
    "Memory leaves the device and comes back to the same addresses, every byte the same",
)
def test_parked_memory_comes_back_as_it_was(holder: MemoryShell) -> None:
    """All of it leaves the device and comes back to the same addresses, every byte the same."""
    holder.take_turn()
    report = holder.park_to(0)
    assert (report.bytes_parked, report.bytes_allocated) == (HELD, HELD)
    holder.say("sum 0")
    holder.grant()
    holder.shell.expect("0 sum 0")
    assert holder.is_whole(0)
    assert holder.is_whole(1)
    assert holder.client.expect_memory(lambda report: report.bytes_parked == 0)


@pytest.mark.promise("park-28")
@pytest.mark.parametrize("kind", ALIKE)
def test_only_what_has_to_leave_leaves(holder: MemoryShell) -> None:
    """A budget below what is there parks down to it, chunk by chunk, and no further. A small chunk
    that has left before a large one may be back at once, within the budget."""
    holder.take_turn()
    most = holder.park_to(HELD - 10 * MIB).bytes_parked
    assert 10 * MIB <= most <= 10 * MIB + SIZE
    with suppress(TimeoutError):
        while True:
            report = holder.client.expect(MemoryReported, within_s=0.3)
            assert 10 * MIB <= report.bytes_parked <= most


@pytest.mark.promise(
    "park-28",
    "Memory stays where it is when a turn is given back, unless others need the space",
)
@pytest.mark.parametrize("kind", ALIKE)
def test_a_turn_given_back_leaves_memory_where_it_is(holder: MemoryShell) -> None:
    """Nothing moves before somebody else needs the room; with the drop goes an exact report."""
    holder.client.recall()
    holder.client.expect(TurnDropped)
    told = holder.client.received
    last = told[[isinstance(each, TurnDropped) for each in told].index(True) - 1]
    assert isinstance(last, MemoryReported)
    assert (last.bytes_allocated, last.bytes_parked) == (HELD, 0)
    assert holder.client.hears_none(MemoryReported, for_s=0.3)


@pytest.mark.promise(
    "park-29",
    "Memory is all back before the gate opens, and comes as far as the budget reaches at each "
    "moment",
)
def test_a_budget_that_grows_lets_memory_back_piece_by_piece(holder: MemoryShell) -> None:
    """A restore goes as far as the budget reaches at each moment; the gate opens when all is
    back."""
    holder.take_turn()
    holder.park_to(0)
    holder.say("spin d 1000")
    holder.grant(FIRST)
    holder.client.expect_memory(lambda report: report.bytes_parked == HELD - FIRST)
    assert holder.client.hears_none(TurnDropped, for_s=0.3)
    assert not holder.shell.log_lines("open: turn 2")
    holder.budget(HELD)
    assert holder.result("spin") == 0
    assert holder.is_whole(0)
    assert holder.is_whole(1)


@pytest.mark.promise(
    "park-30",
    "A recall in the middle of a restore gives the turn back at once, and nothing is lost",
)
def test_a_recall_in_the_middle_of_a_restore_drops_at_once(holder: MemoryShell) -> None:
    """What had come back may stay; nothing of it is lost."""
    holder.take_turn()
    holder.park_to(0)
    holder.say("sum 0")
    holder.grant(FIRST)
    holder.client.expect_memory(lambda report: report.bytes_parked == HELD - FIRST)
    holder.client.recall()
    assert holder.client.expect(TurnDropped).reason == DropReason.RECALL
    holder.client.expect(TurnRequested)
    report = holder.park_to(0)
    assert report.bytes_parked == HELD
    assert not holder.shell.log_lines("open: turn 2")
    holder.budget(HELD)
    holder.client.grant()
    assert holder.result("sum") == 0
    assert holder.is_whole(0)
    assert holder.is_whole(1)


@pytest.mark.promise("park-27")
def test_a_grant_in_the_middle_of_a_park_turns_it_round(holder: MemoryShell) -> None:
    """The mover's goal changes within a chunk, whatever was on its way, all of it included."""
    holder.take_turn()
    for number in range(10):
        holder.say("spin d 1000")
        holder.client.expect(TurnRequested)
        holder.limit(0)
        # The grant is to meet the park in every phase: before, in and after the first copies.
        time.sleep(number * 0.007)
        holder.budget(2**40)
        holder.client.grant()
        assert holder.result("spin") == 0
        assert holder.is_whole(0)
        assert holder.is_whole(1)
        holder.take_turn()


@pytest.mark.promise("park-31", "An interrupt during a restore fails the waiting call alone")
@pytest.mark.parametrize("kind", ALIKE)
def test_an_interrupt_in_the_middle_of_a_restore_leaves_all_usable(holder: MemoryShell) -> None:
    """The waiting call fails with the documented error, the turn goes back, nothing is lost."""
    holder.take_turn()
    holder.park_to(0)
    holder.say("spin d 1000")
    holder.grant(FIRST)
    holder.client.expect_memory(lambda report: report.bytes_parked == HELD - FIRST)
    holder.client.cancel()
    assert holder.result("spin") == 800
    holder.client.expect(TurnDropped)
    holder.begin_cell()
    holder.say("sum 0")
    holder.grant()
    assert holder.result("sum") == 0
    assert holder.is_whole(0)
    assert holder.is_whole(1)


@pytest.mark.promise(
    "park-32",
    "A holder that grows waits for budget, can be interrupted and recalled meanwhile, and is out "
    "of memory only by the scheduler's word",
)
def test_a_growing_holder_asks_and_waits_for_budget(holder: MemoryShell, kind: str) -> None:
    """An allocation beyond the budget waits until that is large enough, and tells what it needs."""
    holder.limit(HELD)
    holder.say(f"new 3 {SIZE}")
    assert holder.need(SIZE).cause == CALLS[kind]
    assert holder.shell.is_silent(for_s=0.2)
    holder.budget(HELD + SIZE)
    assert holder.result("new") == 0
    assert holder.need(0)


@pytest.mark.promise("park-32")
@pytest.mark.parametrize("kind", ALIKE)
def test_a_need_that_cannot_be_met_is_out_of_memory(holder: MemoryShell) -> None:
    """Refused by the scheduler, the allocation fails as on a full device; the next one may fit."""
    holder.limit(HELD)
    holder.say(f"new 3 {SIZE}")
    holder.need(SIZE)
    assert holder.refuse("new", HELD) == 2
    holder.limit(HELD + SMALL)
    assert holder.run(f"new 3 {SMALL}") == 0


@pytest.mark.promise("park-32")
@pytest.mark.parametrize("kind", ALIKE)
def test_a_wait_for_budget_can_be_cancelled(holder: MemoryShell) -> None:
    """As a call at the gate: the documented error, and the need is taken back."""
    holder.limit(HELD)
    for _ in range(20):
        holder.say(f"new 3 {SIZE}")
        holder.need(SIZE)
        holder.client.cancel()
        assert holder.result("new") == 800
        assert holder.need(0)
        holder.begin_cell()
    assert holder.is_whole(0)


@pytest.mark.promise(
    "park-33",
    "A refusal is answered to the allocation that it is meant for, whatever was interrupted before",
)
@pytest.mark.parametrize("kind", ALIKE)
def test_a_refusal_that_crosses_a_cancellation_hits_nobody_else(holder: MemoryShell) -> None:
    """The first allocation was interrupted when its refusal was on its way, and the second waits by
    then: it goes on waiting, and is answered for itself."""
    holder.limit(HELD)
    holder.say(f"new 3 {SIZE}")
    gone = holder.need(SIZE).need
    holder.client.cancel()
    assert holder.result("new") == 800
    holder.begin_cell()
    holder.say(f"new 3 {SMALL}")
    assert holder.need(SMALL).need != gone
    holder.budget(HELD, refused=gone)
    assert holder.shell.is_silent(for_s=0.2)
    holder.budget(HELD + SMALL)
    assert holder.result("new") == 0


@pytest.mark.promise("park-33")
@pytest.mark.parametrize("kind", ALIKE)
def test_a_refusal_after_a_cancellation_is_believed_at_once(holder: MemoryShell) -> None:
    """Whatever was interrupted before, the need that it names is told and refused once."""
    holder.limit(HELD)
    holder.say(f"new 3 {SIZE}")
    holder.need(SIZE)
    holder.client.cancel()
    assert holder.result("new") == 800
    holder.begin_cell()
    for _ in range(2):
        holder.say(f"new 3 {SMALL}")
        holder.need(SMALL)
        assert holder.refuse("new", HELD) == 2


@pytest.mark.promise(
    "park-34",
    "The user reads why memory was refused and what to do, at most once a minute for each reason",
)
def test_the_user_reads_once_that_memory_was_refused(holder: MemoryShell, kind: str) -> None:
    """One sentence on what is wrong and one on what to do, on the error output of the process."""
    holder.limit(HELD, usable_bytes=HELD + MIB)
    for _ in range(2):
        holder.say(f"new 3 {SIZE}")
        holder.need(SIZE)
        assert holder.refuse("new", HELD, usable_bytes=HELD + MIB) == 2
    (line,) = holder.shell.errors().splitlines()
    assert line == (
        f"gpushare: {CALLS[kind]} of 64.0 MiB on GPU 0 is out of memory, because this process has "
        "128.0 MiB there and can have 129.0 MiB at most. Free GPU memory in it, or see what is in "
        "the way: jupyter gpushare status."
    )
    assert len(holder.shell.log_lines(f"refused: {CALLS[kind]} of 64.0 MiB on GPU 0")) == 2


@pytest.mark.promise(
    "park-35",
    "Without the turn nothing is allocated; with the drop of a turn everything is counted",
)
def test_a_first_allocation_waits_for_turn_and_budget(opens: Opened) -> None:
    """Without the turn nothing is allocated, whatever the budget was."""
    memory = opens()
    memory.budget(0)
    memory.say(f"new 0 {SIZE}")
    assert memory.need(SIZE)
    memory.grant(SIZE)
    assert memory.result("new") == 0


@pytest.mark.promise("park-36", "Freed memory is gone wherever it was")
def test_memory_of_a_parked_tensor_can_be_freed(holder: MemoryShell) -> None:
    """A free never waits for the turn; parked memory is given back where it is."""
    holder.take_turn()
    holder.park_to(0)
    assert holder.run("drop 0") == 0
    report = holder.client.expect_memory(lambda report: report.bytes_allocated < HELD)
    assert report.bytes_allocated == report.bytes_parked == HELD - SIZE
    holder.say("sum 1")
    holder.grant()
    assert holder.result("sum") == 0
    assert holder.is_whole(1)


@pytest.mark.promise(
    "park-37",
    "Parks and restores are in the debug log with bytes, time and rate, and what is where in the "
    "description",
)
@pytest.mark.parametrize("kind", ALIKE)
def test_parks_and_restores_are_in_the_debug_log(holder: MemoryShell) -> None:
    """With bytes, time and rate."""
    holder.take_turn()
    holder.park_to(0)
    wait_until(lambda: bool(holder.shell.log_lines("parked: ")))  # the report is quicker
    holder.say("spin d 1000")
    holder.grant()
    assert holder.result("spin") == 0
    wait_until(lambda: bool(holder.shell.log_lines("restored: ")))  # the gate may be quicker
    (parked,) = holder.shell.log_lines("parked: ")
    (restored,) = holder.shell.log_lines("restored: ")
    for line in (parked, restored):
        assert f" {HELD} bytes in " in line
        assert " ms, " in line
        assert line.endswith(" GB/s")


@pytest.mark.promise("park-37")
@pytest.mark.parametrize("kind", ALIKE)
def test_the_description_tells_what_is_where(holder: MemoryShell) -> None:
    """For each device: allocated, on the device, parked, fixed, and the budget."""
    holder.take_turn()
    holder.park_to(HELD - SMALL)
    holder.say("describe")
    text = holder.shell.expect("description ").removeprefix("description ")
    (device,) = json.loads(text)["memory"]
    assert (device["device"], device["allocated"], device["fixed"]) == (0, HELD, 0)
    assert device["parked"] >= SMALL
    assert device["resident"] == HELD - device["parked"]
    assert device["budget"] == HELD - SMALL
    assert json.loads(text)["memory_follows"] is True


@pytest.mark.promise("park-38", "`GPUSHARE_MEMORY=off` leaves one process's memory where it is")
@pytest.mark.parametrize("kind", ALIKE)
def test_one_process_can_be_left_out(opens: Opened) -> None:
    """GPUSHARE_MEMORY=off: its memory stays where it is, whatever the scheduler says."""
    memory = opens(env={"GPUSHARE_MEMORY": "off"})
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, SIZE)
    memory.take_turn()
    report = memory.limit(0)
    assert (report.bytes_allocated, report.bytes_parked) == (SIZE, 0)
    assert memory.client.hears_none(MemoryReported, for_s=0.3)


@pytest.mark.promise(
    "park-39",
    "A driver in another namespace of the dynamic linker is noticed: nothing is parked from then "
    "on, all counts as fixed, and the user is told why",
)
@pytest.mark.parametrize("kind", ALIKE)
def test_a_driver_in_another_namespace_ends_parking(holder: MemoryShell) -> None:
    """What is used there passes by the hook, so no memory may leave under it."""
    assert holder.run("namespace libm.so.6") == 0
    assert holder.run("namespace driver") == 0
    holder.take_turn()
    serial = holder.budget(0)
    report = holder.client.expect_memory(lambda report: report.budget_serial == serial)
    assert (report.bytes_parked, report.bytes_fixed) == (0, HELD)
    assert holder.client.hears_none(MemoryReported, for_s=0.3)
    reason = described(holder.shell)["memory_stays_because"]
    assert "dlmopen" in reason
    assert len(holder.shell.log_lines(reason)) == 1
    holder.say("sum 0")
    holder.grant()
    holder.shell.expect("0 sum 0")
    assert holder.is_whole(0)


@pytest.mark.parametrize("kind", ALIKE)
def test_another_namespace_without_a_driver_is_nothing(holder: MemoryShell) -> None:
    """Libraries that know nothing of CUDA may be wherever the program wants."""
    assert holder.run("namespace libm.so.6") == 0
    holder.take_turn()
    assert holder.park_to(0).bytes_parked == HELD
    assert described(holder.shell)["memory_stays_because"] == ""


@pytest.mark.parametrize("kind", ALIKE)
def test_what_is_parked_when_parking_ends_comes_back(holder: MemoryShell) -> None:
    """It stays parked until the turn comes, and no longer leaves then."""
    holder.take_turn()
    assert holder.park_to(HELD - FIRST).bytes_parked > 0
    assert holder.run("namespace driver") == 0
    holder.budget(0)
    holder.say("sum 0")
    holder.grant()
    holder.shell.expect("0 sum 0")
    assert holder.is_whole(0)
    assert holder.is_whole(1)
    report = holder.client.expect_memory(lambda report: report.bytes_parked == 0)
    assert report.bytes_fixed == HELD
    holder.take_turn()
    serial = holder.budget(0)
    report = holder.client.expect_memory(lambda report: report.budget_serial == serial)
    assert (report.bytes_parked, report.bytes_fixed) == (0, HELD)
    assert holder.client.hears_none(MemoryReported, for_s=0.3)
