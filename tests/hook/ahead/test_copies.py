"""What is copied to the host ahead of need, and what becomes of it: it leaves without a copy, or is
given up before the program can write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpushare.protocol.messages import (
    Ahead,
    DeviceOpened,
    MemoryMode,
    TurnDropped,
    TurnRequested,
)
from tests.hook.ahead.conftest import KINDS
from tests.hook.ahead.copier import (
    FIRST_PIECE_OF_SECOND,
    HELD,
    SEGMENT,
    TENSORS,
    TWO,
    Copiers,
    stop_at,
)
from tests.hook.runtime.test_arena import Group
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.waits import wait_until

# ---- copies that are made -----------------------------------------------------------------------


@pytest.mark.promise("park-63")
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_copied_leaves_without_a_copy(copier_of: Copiers, kind: str) -> None:
    """As much is copied as the hint says, and told. A smaller budget then costs no copy as far as
    that reaches."""
    copier = copier_of(kind).readies(TWO)
    report = copier.last_report()
    assert (report.bytes_copied, report.bytes_to_copy) == (0, TWO)
    report = copier.copies(TWO)
    assert (report.bytes_to_copy, report.bytes_parked, report.bytes_fixed) == (0, 0, 0)
    assert copier.copied_out() == TWO
    report = copier.memory.park_to(HELD - TWO)
    assert (report.bytes_parked, report.bytes_copied) == (TWO, 0)
    assert copier.copied_out() == TWO
    copier.parks_all()
    assert copier.copied_out() == HELD
    copier.takes_a_turn()
    assert copier.is_whole()


@pytest.mark.promise("park-63")
def test_what_is_parked_counts_for_the_hint(copier_of: Copiers) -> None:
    """The rest of it alone is copied, and nothing where all of it is parked."""
    copier = copier_of("plain").readies(HELD)
    copier.memory.park_to(HELD - SEGMENT)
    report = copier.copies(SEGMENT, hint_bytes=TWO)
    assert (report.bytes_parked, report.bytes_to_copy) == (SEGMENT, 0)
    copier.memory.park_to(HELD - TWO)
    report = copier.memory.limit(HELD, hint_bytes=TWO, ahead=Ahead.COPIES)
    assert (report.bytes_parked, report.bytes_copied, report.bytes_to_copy) == (TWO, 0, 0)
    assert copier.copied_out() == TWO


@pytest.mark.promise(
    "park-1",
    "A copy that was made ahead of need is never used once the program could write: the next park "
    "has the new bytes",
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_program_writes_in_its_turn_is_what_parks(
    copier_of: Copiers, group: Group, kind: str
) -> None:
    """The copies are given up before the turn begins, so all of it is copied anew."""
    copier = copier_of(kind).readies(HELD)
    copier.copies(HELD)
    copier.takes_a_turn()
    copier.reports(lambda report: report.bytes_copied == 0)
    copier.writes()
    assert copier.is_whole_after_a_park()
    assert copier.copied_out() == 2 * HELD
    assert group.taken()[1] == HELD, "their host memory was used again"


@pytest.mark.promise("park-1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_in_the_middle_of_a_copy(copier_of: Copiers, kind: str) -> None:
    """The program waits until it has ended, and what it writes then is what parks."""
    copier = copier_of(kind, stop_at(FIRST_PIECE_OF_SECOND)).readies(HELD)
    copier.stops_in_a_copy(HELD)
    copier.memory.say("pattern 0 777")
    copier.memory.grant()
    assert copier.memory.shell.is_silent(for_s=0.1)
    copier.goes_on()
    assert copier.memory.result("pattern") == 0
    copier.memory.wrote(0, 777)
    copier.writes(1)
    assert copier.is_whole_after_a_park()


@pytest.mark.promise("park-1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_that_ends_in_the_middle_of_a_copy(copier_of: Copiers, kind: str) -> None:
    """It never opened the gate. The next one does."""
    copier = copier_of(kind, stop_at(FIRST_PIECE_OF_SECOND)).readies(HELD)
    copier.stops_in_a_copy(HELD)
    copier.memory.say("pattern 0 777")
    copier.memory.grant()
    copier.client.recall()
    copier.client.expect(TurnDropped)
    copier.client.expect(TurnRequested)
    copier.memory.limit(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
    copier.goes_on()
    copier.reports(lambda report: report.bytes_copied == HELD)
    copier.memory.budget(UNLIMITED)
    copier.client.grant()
    assert copier.memory.result("pattern") == 0
    copier.memory.wrote(0, 777)
    assert copier.is_whole_after_a_park()


@pytest.mark.promise("park-1")
def test_turns_that_come_and_go_among_copies(copier_of: Copiers) -> None:
    """Each finds what the one before it wrote, however far the copies were."""
    copier = copier_of("plain").readies(HELD)
    for round_number in range(6):
        copier.memory.budget(HELD, hint_bytes=HELD, ahead=Ahead.COPIES)
        if round_number % 3 > 0:
            copier.client.expect_memory(lambda report: report.bytes_copied > 0)
        if round_number % 3 > 1:
            copier.memory.park_to(SEGMENT, hint_bytes=HELD, ahead=Ahead.COPIES)
        copier.takes_a_turn()
        assert copier.is_whole()
        copier.writes(round_number % TENSORS)
        copier.memory.limit(UNLIMITED, hint_bytes=HELD)
        copier.memory.take_turn()


# ---- what the scheduler says meanwhile ----------------------------------------------------------


@pytest.mark.promise("park-63")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("parked", "ahead"), [(SEGMENT, Ahead.COPIES), (TWO, Ahead.COPIES), (TWO, Ahead.NOTHING)]
)
def test_a_budget_that_shrinks_in_the_middle_of_a_copy(
    copier_of: Copiers, kind: str, parked: int, ahead: Ahead
) -> None:
    """What is on its way parks, as far as it has to, and is copied no second time."""
    copier = copier_of(kind, stop_at(FIRST_PIECE_OF_SECOND)).readies(TWO)
    copier.stops_in_a_copy(TWO)
    copier.memory.limit(HELD - parked, hint_bytes=TWO, ahead=ahead)
    copier.goes_on()
    report = copier.reports(lambda report: report.bytes_parked + report.bytes_copied == TWO)
    assert report.bytes_parked == parked
    assert copier.copied_out() == TWO
    copier.takes_a_turn()
    assert copier.is_whole()


@pytest.mark.promise("park-63")
@pytest.mark.parametrize("kind", KINDS)
def test_copies_end_when_the_bus_is_needed(copier_of: Copiers, kind: str) -> None:
    """What was made stays, what is on its way is given up, and nothing further begins."""
    copier = copier_of(kind, stop_at(1)).readies(HELD)
    copier.copies(SEGMENT)
    copier.stops_in_a_copy(HELD)
    copier.memory.limit(HELD, hint_bytes=HELD, ahead=Ahead.NOTHING)
    copier.goes_on()
    report = copier.reports(lambda report: report.bytes_to_copy == TWO)
    assert report.bytes_copied == SEGMENT
    before = copier.copied_out()
    for _ in range(20):  # each report is what is there then: some come after a look of the mover
        again = copier.memory.limit(HELD, hint_bytes=HELD, ahead=Ahead.NOTHING)
        assert replace(again, budget_serial=report.budget_serial) == report
    copier.memory.park_to(HELD - SEGMENT, ahead=Ahead.NOTHING)
    assert copier.copied_out() == before
    copier.parks_all()
    assert copier.copied_out() == before + TWO
    copier.takes_a_turn()
    assert copier.is_whole()


@pytest.mark.promise("park-62")
@pytest.mark.parametrize("ahead", [Ahead.NOTHING, Ahead.COPIES])
def test_a_budget_that_is_not_for_it_brings_nothing_back(copier_of: Copiers, ahead: Ahead) -> None:
    """However large it is."""
    copier = copier_of().readies(HELD)
    copier.parks_all()
    for _ in range(20):
        report = copier.memory.limit(2 * HELD, hint_bytes=HELD, ahead=ahead)
        assert (report.bytes_parked, report.bytes_to_copy) == (HELD, 0)
    copier.memory.limit(2 * HELD, ahead=Ahead.RESTORE)
    copier.reports(lambda report: report.bytes_parked == 0)


@pytest.mark.promise("park-63")
def test_a_connection_that_is_lost_ends_copies(
    copier_of: Copiers, scheduler: FakeScheduler
) -> None:
    """Those that were made stay, and the next scheduler hears of them."""
    copier = copier_of("plain", stop_at(1)).readies(HELD)
    copier.copies(SEGMENT)
    copier.stops_in_a_copy(HELD)
    scheduler.stop()
    wait_until(lambda: bool(copier.memory.shell.log_lines("connection lost")))
    copier.goes_on()
    assert copier.memory.shell.is_silent(for_s=0.5), "while copies could be made"
    scheduler.start()
    copier.memory.client = copier.client = scheduler.accept()
    copier.client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    copier.client.expect(DeviceOpened)
    report = copier.client.expect_memory(lambda report: report.bytes_allocated == HELD)
    copier.memory.park_to(HELD - SEGMENT, ahead=Ahead.NOTHING)
    assert (report.bytes_copied, copier.copied_out()) == (SEGMENT, TWO)
    copier.parks_all()
    copier.takes_a_turn()
    assert copier.is_whole()
