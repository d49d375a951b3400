"""The demo's judgement, on made-up timelines: what it counts, and what it complains of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.demo.memory import MemoryReport, ParkedBytes, make_memory_report
from tests.demo.own import WORKS_S, OwnReport, make_own_report
from tests.demo.picture import draw
from tests.demo.report import HubReport, Report, make_report
from tests.demo.scenes import OWN_NUMBER, Act
from tests.demo.training import TrainingReport, make_training_report
from tests.support.timeline import Cell, Work, hand_overs, overlaps, percentile, waits_served

NAMES = ("a", "b")
DEVICE_BYTES = 1_000_000
NO_MEMORY = "RuntimeError: CUDA error: CUDA_ERROR_OUT_OF_MEMORY"


def alternating(rounds: int) -> tuple[list[Cell], list[Work]]:
    """Cells of two kernels that all begin at once and get the device in turn, 10 apart by 1."""
    works = [Work(11 * n, 11 * n + 10, n % 2) for n in range(2 * rounds)]
    cells = [Cell(max(0, w.start_ns - 15), w.end_ns, w.kernel) for w in works]
    return cells, works


def act(rounds: int) -> Act:
    cells, works = alternating(rounds)
    return Act("with", cells, works, sent=len(cells))


def report(
    works_without_turns: list[Work], rounds: int = 4, failures: tuple[str, ...] = ()
) -> Report:
    return make_report(
        device="d",
        simulated=True,
        judged_by="a test",
        names=NAMES,
        shared=act(rounds),
        control=Act("without", [], works_without_turns, sent=2, failures=failures),
        memory=make_memory_report(DEVICE_BYTES, swapped(), stayed()),
        training=TrainingReport(0.2, 0.3, 0.95),
        own=OwnReport([1.0], [1.1], [1.2]),
        seconds=1.0,
    )


def swapped(*failures: str, parked: int = 4_000_000) -> Act:
    """Eight cells in turn, seven hand-overs."""
    cells, works = alternating(4)
    return Act("swap", cells, works, sent=len(cells), failures=failures, bytes_parked=parked)


def stayed(*failures: str) -> Act:
    return Act("off", [], [], sent=2, failures=failures or (NO_MEMORY,))


OVERLAPPING = [Work(0, 10, 0), Work(5, 15, 1)]


@pytest.mark.promise("demo-11")
def test_an_overlap_is_work_of_two_kernels_at_once() -> None:
    """Work of one kernel may overlap itself; touching is no overlap; containment is one."""
    assert overlaps(OVERLAPPING) == 1
    assert overlaps([Work(0, 10, 0), Work(5, 15, 0)]) == 0
    assert overlaps([Work(0, 10, 0), Work(10, 15, 1)]) == 0
    assert overlaps([Work(0, 100, 0), Work(10, 15, 1), Work(20, 30, 1)]) == 2


def test_an_overlap_is_found_past_shorter_work() -> None:
    """Long work is not forgotten when shorter work of its kernel ends earlier."""
    assert overlaps([Work(0, 100, 0), Work(1, 2, 0), Work(50, 60, 1)]) == 1


def test_a_hand_over_needs_a_waiting_cell() -> None:
    """A kernel whose cell began after the other's work ended did not wait."""
    works = [Work(0, 10, 0), Work(20, 30, 1)]
    assert hand_overs(works, [Cell(0, 10, 0), Cell(15, 30, 1)]) == []
    (one,) = hand_overs(works, [Cell(0, 10, 0), Cell(5, 30, 1)])
    assert (one.giver, one.taker, one.gap_ms, one.waited_ns) == (0, 1, 1e-05, 15)


def test_waits_are_counted_for_each_kernel() -> None:
    """Of eight cells in turn, the first waits for nobody."""
    cells, works = alternating(4)
    assert waits_served(hand_overs(works, cells), 2) == [3, 4]


def test_percentiles_are_values_that_were_measured() -> None:
    """Nearest rank: p50 of four is the second, p99 the last."""
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.0
    assert percentile([4.0, 1.0, 3.0, 2.0], 99) == 4.0


def test_a_good_run_has_no_complaints() -> None:
    """Turns hold and the control run overlaps."""
    good = report(OVERLAPPING)
    assert (good.overlaps, good.overlaps_without_turns, good.waits_min) == (0, 1, 3)
    assert good.complaints() == []


@pytest.mark.promise(
    "demo-11",
    "The demo's verdict is right about overlaps, waits, failures and owners",
)
def test_each_thing_that_does_not_hold_is_a_sentence() -> None:
    """An overlap, a failed cell, too few waits and a control run that proves nothing."""
    assert "proves nothing" in report([]).complaints()[0]
    assert "only 1 times" in report(OVERLAPPING, rounds=2).complaints()[0]
    assert "at once, 2 times" in replace(report(OVERLAPPING), overlaps=2).complaints()[0]
    assert "1 of 10 cells failed" in report(OVERLAPPING, failures=("why",)).complaints()[0]


@pytest.mark.promise("demo-8")
def test_memory_that_followed_the_turn() -> None:
    """Two notebooks with four fifths each are more than the device; what was parked is told by
    hand-over, and that somebody had no memory in the control run."""
    found = make_memory_report(DEVICE_BYTES, swapped(), stayed())
    assert found == MemoryReport(
        device_bytes=DEVICE_BYTES,
        oversubscribed=True,
        checksums_ok=True,
        oom=0,
        memory_hand_overs=7,
        bytes_parked_per_handover=571_428,
        oom_without_swap=1,
    )
    assert found.complaints() == []
    assert report(OVERLAPPING).as_json()["bytes_parked_per_handover"] == 571_428


def test_a_training_between_two_cells_makes_no_hand_over_of_memory() -> None:
    """What was parked is told by hand-over between the two who have memory, whoever had the device
    in between."""
    act = swapped()
    works = []
    for work in act.works:
        trains_ns, goes_on_ns = work.start_ns + 4, work.start_ns + 6
        works += [replace(work, end_ns=trains_ns), Work(trains_ns, goes_on_ns, 2)]
        works += [replace(work, start_ns=goes_on_ns)]
    found = make_memory_report(DEVICE_BYTES, replace(act, works=works), control=stayed())
    assert found.memory_hand_overs == 7


@pytest.mark.promise("demo-8")
def test_each_thing_about_memory_that_does_not_hold_is_a_sentence() -> None:
    """Out of memory, other bytes, too little parked, and a control run in which all went well."""
    short = make_memory_report(DEVICE_BYTES, swapped(NO_MEMORY), stayed())
    assert (short.oom, short.oversubscribed) == (1, False)
    assert "1 cells were out of memory" in "".join(short.complaints())
    wrong = make_memory_report(DEVICE_BYTES, swapped("AssertionError: checksum 1"), stayed())
    assert (wrong.oom, wrong.checksums_ok) == (0, False)
    little = make_memory_report(DEVICE_BYTES, swapped(parked=3_000_000), stayed())
    assert "less than half" in "".join(little.complaints())
    assert "proves nothing" in "".join(
        make_memory_report(DEVICE_BYTES, swapped(), stayed("KeyError: 1")).complaints()
    )


def beside_training(wait_ms: int, duty: float) -> tuple[Act, Act]:
    """Ten cells of 100 ms, one a second, and a training that has so much of each 10 ms that the
    device is free; alone it has nine tenths of them."""
    ms = 1_000_000
    cells, works = [], []
    for start_ms in range(0, 12_000, 10):
        in_second = start_ms % 1000 - wait_ms
        if start_ms < 2000 or not 0 <= in_second < 100:
            busy_ms = 9 if start_ms < 2000 else 10 * duty
            works.append(Work(start_ms * ms, int((start_ms + busy_ms) * ms), 2))
        elif in_second == 0:
            works.append(Work(start_ms * ms, (start_ms + 100) * ms, 0))
            cells.append(Cell((start_ms - wait_ms) * ms, (start_ms + 100) * ms, 0))
    alone = Act("alone", [Cell(0, 100 * ms, 0)], [], sent=1)
    return alone, Act("beside", cells, works, sent=len(cells))


@pytest.mark.promise(
    "demo-12",
    "In the demo a third notebook trains throughout: a short cell takes at most 0.3 s more than "
    "alone at p95, and the training has 0.9 of what the cells leave",
)
def test_short_cells_beside_a_training() -> None:
    """What a cell takes beside the training is told by its begin and end, and the training's share
    by what it has of the rest, alone and beside the cells."""
    good = make_training_report(*beside_training(wait_ms=50, duty=0.9), training=2)
    assert (good.short_alone_s, good.short_beside_training_s_p95) == (0.1, 0.15)
    assert good.training_share == pytest.approx(1.0, abs=0.01)
    assert good.complaints() == []
    late = make_training_report(*beside_training(wait_ms=400, duty=0.9), training=2)
    assert "took 0.5 s at p95" in late.complaints()[0] and len(late.complaints()) == 1
    robbed = make_training_report(*beside_training(wait_ms=50, duty=0.75), training=2)
    assert "had 0.83" in robbed.complaints()[0] and len(robbed.complaints()) == 1


def test_parked_bytes_are_the_sum_of_all_increases() -> None:
    """What comes back is not taken off, and a tenant that goes takes nothing with it."""

    def status(**parked: int) -> dict[str, object]:
        clients = {name: [{"devices": [{"bytes_parked": size}]}] for name, size in parked.items()}
        return {"tenants": [{"id": name, "clients": clients[name]} for name in parked]}

    parked = ParkedBytes()
    for seen in (status(a=5), status(a=8, b=1), status(b=3), status(a=2, b=0), status(a=2, b=4)):
        parked.look_at(seen)
    assert parked.total == 8 + 3 + 4


@pytest.mark.promise("demo-11")
def test_owners_must_be_those_who_logged_in() -> None:
    """Two notebooks of one owner, or of the wrong ones, are a complaint and no success."""
    users = {"a": "alice", "b": "bob"}
    good = HubReport(report(OVERLAPPING), owners=users, users=users)
    assert good.as_json()["users"] == 2 and good.as_json()["owners_from_hub"] is True
    assert good.complaints() == []
    shared = HubReport(report(OVERLAPPING), owners={"a": "root", "b": "root"}, users=users)
    assert shared.as_json()["users"] == 1 and shared.as_json()["owners_from_hub"] is False
    assert "a is root's, b is root's" in shared.complaints()[0]


@pytest.mark.promise("demo-11")
def test_the_picture_is_drawn(tmp_path: Path) -> None:
    """Both acts end up in one PNG file."""
    acts = [act(4), act(2)]
    draw(acts, NAMES, tmp_path / "timeline.png", "d")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def own_cells(*took_s: float) -> Act:
    """One each 10 s, of the trainer's other notebook."""
    ends = [(10 * n, 10 * n + s) for n, s in enumerate(took_s)]
    cells = [Cell(round(b * 1e9), round(e * 1e9), OWN_NUMBER) for b, e in ends]
    return Act("own cells", cells, [], sent=len(cells))


@pytest.mark.promise(
    "demo-18",
    "The demo tells what cells of 0.3 to 3 s take beside a training of the same user, and alone",
)
def test_own_cells_are_told_by_their_length() -> None:
    """The slowest of each length counts, and is complained of where it took much longer."""
    alone, beside = own_cells(0.3, 1.0, 3.0), own_cells(0.4, 1.1, 3.1, 0.5, 1.2, 3.2)
    found = make_own_report(alone, beside)
    assert found == OwnReport(list(WORKS_S), [0.3, 1.0, 3.0], [0.5, 1.2, 3.2])
    assert found.complaints() == []
    (complaint,) = make_own_report(alone, own_cells(0.3, 31, 3, 0.3, 1, 3)).complaints()
    assert complaint.startswith("Beside its user's own training a cell of 1.0 s took 31.0 s")
