"""Copies ahead of need where something lacks for them, or what they are of goes away: no harm comes
of that."""

from __future__ import annotations

import signal

import pytest

from jupyter_gpushare.protocol.messages import Ahead
from tests.hook.ahead.conftest import KINDS
from tests.hook.ahead.copier import (
    FIRST_PIECE_OF_SECOND,
    HELD,
    SEGMENT,
    TENSORS,
    TWO,
    Copier,
    Copiers,
    stop_at,
)
from tests.hook.runtime.test_arena import Group
from tests.support.fake_scheduler import UNLIMITED
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

LEFT_TO_OTHERS = 128 << 20


def made_whole(copier: Copier) -> bool:
    copier.parks_all()
    copier.takes_a_turn()
    return copier.is_whole()


@pytest.mark.promise(
    "park-2",
    "Copies ahead of need take host memory that is ready anyway; where the system has little they "
    "are given up, told, and none are made",
)
@pytest.mark.parametrize("ready", [0, SEGMENT])
def test_no_host_memory_is_made_ready_for_copies(
    copier_of: Copiers, group: Group, ready: int
) -> None:
    """Only what was ready is used, and no more is told to be possible. The next turn makes more
    ready."""
    copier = copier_of("plain").readies(ready)
    assert copier.last_report().bytes_to_copy == ready
    report = copier.copies(ready, hint_bytes=HELD)
    assert report.bytes_to_copy == 0
    for _ in range(20):
        report = copier.memory.limit(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
        assert (report.bytes_copied, report.bytes_to_copy) == (ready, 0)
    assert copier.copied_out() == group.taken()[1] == ready
    copier.takes_a_turn()
    copier.readies(HELD).copies(HELD)
    assert made_whole(copier)


@pytest.mark.promise("park-2")
@pytest.mark.parametrize("kind", KINDS)
def test_where_the_host_gets_short_copies_are_given_up(
    copier_of: Copiers, group: Group, kind: str
) -> None:
    """Others have the host memory then. What has to leave is copied when there is some again."""
    copier = copier_of(kind).readies(TWO)
    copier.copies(TWO)
    group.leave(TWO + LEFT_TO_OTHERS - 1)
    report = copier.reports(lambda report: report.bytes_copied == 0)
    wait_until(lambda: group.taken()[0] == 0)
    report = copier.memory.limit(HELD, hint_bytes=TWO, ahead=Ahead.COPIES)
    assert (report.bytes_copied, report.bytes_to_copy) == (0, 0)
    assert copier.copied_out() == TWO
    group.leave(4 * HELD)
    assert made_whole(copier)


@pytest.mark.promise("park-2")
@pytest.mark.parametrize("ahead", [Ahead.NOTHING, Ahead.COPIES])
def test_a_small_process_tells_that_its_copies_are_gone(
    copier_of: Copiers, group: Group, ahead: Ahead
) -> None:
    """The host has room for all that it could park, so it has nothing else to tell."""
    copier = copier_of("plain")
    assert [copier.memory.run(f"drop {tensor}") for tensor in (1, 2)] == [0, 0]
    copier.readies(SEGMENT)
    copier.memory.budget(SEGMENT, hint_bytes=SEGMENT, ahead=Ahead.COPIES)
    copier.reports(lambda report: report.bytes_copied == SEGMENT)
    copier.memory.limit(SEGMENT, hint_bytes=SEGMENT, ahead=ahead)
    group.leave(SEGMENT + LEFT_TO_OTHERS - 1)
    report = copier.reports(lambda report: report.bytes_copied == 0)
    assert report.bytes_host_room >= SEGMENT


@pytest.mark.promise("park-2")
def test_where_the_host_has_just_enough_copies_stay(copier_of: Copiers, group: Group) -> None:
    """Two segments are left to others."""
    copier = copier_of("plain").readies(TWO)
    copier.copies(TWO)
    group.leave(TWO + LEFT_TO_OTHERS)
    looks = group.looks() + 3
    wait_until(lambda: group.looks() >= looks)
    report = copier.memory.limit(HELD, hint_bytes=TWO, ahead=Ahead.COPIES)
    assert report.bytes_copied == TWO
    assert copier.memory.park_to(HELD - TWO).bytes_parked == copier.copied_out() == TWO


@pytest.mark.promise("park-2")
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_gets_short_in_the_middle_of_a_copy(
    copier_of: Copiers, group: Group, kind: str
) -> None:
    """What is on its way ends, and is given up with the others."""
    copier = copier_of(kind, stop_at(FIRST_PIECE_OF_SECOND)).readies(HELD)
    copier.stops_in_a_copy(HELD)
    group.leave(HELD)
    copier.goes_on()
    wait_until(lambda: group.taken()[0] == 0)
    report = copier.reports(lambda report: report.bytes_copied == report.bytes_to_copy == 0)
    assert (report.bytes_allocated, report.bytes_parked, report.bytes_fixed) == (HELD, 0, 0)
    group.leave(4 * HELD)
    assert made_whole(copier)


@pytest.mark.promise(
    "bad-memory-29",
    "A copy ahead of need that the driver refuses harms nothing: its memory stays where it is, and "
    "leaves when it has to",
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_copy_that_the_driver_refuses(
    copier_of: Copiers, sim: SimulatedMachine, kind: str, nth: int
) -> None:
    """After a while it is tried again, so all is copied. What is told between depends on how fast
    the others are."""
    copier = copier_of(kind, f"fail cuMemcpyDtoHAsync nth={nth} result=1").readies(HELD)
    copier.memory.budget(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
    copier.reports(lambda report: (report.bytes_copied, report.bytes_fixed) == (HELD, 0))
    assert len(sim.happened()) == 1
    before = copier.copied_out()
    copier.parks_all()
    assert copier.copied_out() == before
    copier.takes_a_turn()
    assert copier.is_whole()


@pytest.mark.promise("bad-memory-29")
def test_a_device_on_which_no_copy_succeeds(copier_of: Copiers) -> None:
    """The program goes on with its turns."""
    copier = copier_of("plain", "fail cuMemcpyDtoHAsync nth=1 times=0 result=1").readies(HELD)
    copier.memory.budget(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
    report = copier.reports(lambda report: report.bytes_fixed == HELD)
    assert (report.bytes_copied, report.bytes_parked) == (0, 0)
    copier.takes_a_turn()
    assert copier.is_whole()
    copier.writes()
    assert copier.is_whole()


@pytest.mark.promise("bad-memory-29")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_that_the_driver_will_not_unmap_loses_its_copy(
    copier_of: Copiers, kind: str
) -> None:
    """It stays, fixed for a while, and leaves by another copy."""
    copier = copier_of(kind, "fail cuMemUnmap nth=1 result=1").readies(TWO)
    copier.copies(TWO)
    copier.memory.budget(HELD - TWO)
    copier.reports(lambda report: report.bytes_parked == TWO)
    assert copier.copied_out() == TWO + SEGMENT
    copier.takes_a_turn()
    assert copier.is_whole()


@pytest.mark.promise(
    "park-3",
    "Memory of which the host has a copy ahead of need can be freed, and a process can end, also "
    "in the middle of the copy",
)
@pytest.mark.parametrize("kind", ["plain", pytest.param("mapped", marks=pytest.mark.full)])
@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
def test_memory_that_is_freed(copier_of: Copiers, group: Group, kind: str, when: str) -> None:
    """Without the turn. Its copy's host memory is used by others of the process."""
    copier = copier_of(kind, stop_at(FIRST_PIECE_OF_SECOND)).readies(HELD)
    if when == "after":
        copier.copies(HELD)
    else:
        copier.stops_in_a_copy(HELD)
    tensor = 2 if when == "before" else 1
    copier.memory.say(f"drop {tensor}")
    if when == "meanwhile":
        assert copier.memory.shell.is_silent(for_s=0.1)
    if when != "before":
        copier.goes_on()
    assert copier.memory.result("drop") == 0
    copier.goes_on()
    copier.reports(lambda report: report.bytes_allocated == report.bytes_copied == TWO)
    copier.parks_all()
    assert group.taken()[1] == HELD
    copier.takes_a_turn()
    assert all(copier.memory.is_whole(each) for each in range(TENSORS) if each != tensor)


@pytest.mark.promise("park-3")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["meanwhile", "after"])
@pytest.mark.parametrize("how", ["by itself", "killed"])
def test_a_process_that_ends(copier_of: Copiers, kind: str, when: str, how: str) -> None:
    """Without a word, and without waiting for anything."""
    copier = copier_of(kind, stop_at(FIRST_PIECE_OF_SECOND)).readies(HELD)
    if when == "after":
        copier.copies(HELD)
    else:
        copier.stops_in_a_copy(HELD)
    if how == "killed":
        copier.memory.shell.signal(signal.SIGKILL)
        assert copier.memory.shell.wait() == -signal.SIGKILL
    else:
        copier.memory.shell.end_input()
        copier.goes_on()
        assert copier.memory.shell.wait() == 0
    copier.client.wait_closed()
    assert copier.memory.shell.errors() == ""


@pytest.mark.promise("park-3")
def test_a_context_that_is_reset(copier_of: Copiers, group: Group) -> None:
    """Its memory is gone, and so are the copies."""
    copier = copier_of("plain").readies(HELD)
    copier.copies(HELD)
    assert copier.memory.run("reset") == 0
    report = copier.reports(lambda report: report.bytes_allocated == 0)
    assert (report.bytes_copied, report.bytes_to_copy) == (0, 0)
    group.leave(HELD)
    wait_until(lambda: group.taken()[0] == 0)


@pytest.mark.promise("park-3")
def test_a_fork(copier_of: Copiers) -> None:
    """The child has nothing of it."""
    copier = copier_of("plain").readies(HELD)
    copier.copies(HELD)
    assert copier.memory.run("fork") == 0
    copier.parks_all()
    assert copier.copied_out() == HELD
    copier.takes_a_turn()
    assert copier.is_whole()


@pytest.mark.promise("park-2")
def test_managed_memory_is_not_copied(copier_of: Copiers, group: Group) -> None:
    """It has no host memory of ours. Other memory of the same process is."""
    copier = copier_of("managed")
    assert copier.memory.run(f"alloc {SEGMENT}") == 0
    copier.memory.limit(UNLIMITED, hint_bytes=HELD + SEGMENT)
    copier.readies(SEGMENT)
    hint = {"hint_bytes": HELD + SEGMENT, "ahead": Ahead.COPIES}
    copier.memory.budget(HELD + SEGMENT, **hint)
    copier.reports(lambda report: report.bytes_copied == SEGMENT)
    for _ in range(20):
        report = copier.memory.limit(HELD + SEGMENT, **hint)
        assert (report.bytes_copied, report.bytes_to_copy) == (SEGMENT, 0)
        assert (report.bytes_parked, report.bytes_fixed) == (0, 0)
    assert copier.copied_out() == SEGMENT
    copier.parks_all()
    copier.takes_a_turn()
    assert copier.is_whole()
