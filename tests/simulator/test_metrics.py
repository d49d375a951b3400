"""The figures of a simulation, on cases that a person can work out."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.simulator.base.record import Kind, PartOfTime, Record
from jupyter_gpushare.simulator.fluid import Demand, ServedSpan, fluid
from jupyter_gpushare.simulator.metrics import (
    OwnerUse,
    idle_while_eligible_s,
    jain,
    jain_index,
    lag_s_max,
    quantile,
    short_waits,
    time_of,
    window_s,
)

NAN = float("nan")


def given(served: list[ServedSpan], owner: str) -> float:
    """All device time that the reference gives an owner."""
    return sum((each.end_s - each.start_s) * each.parts.get(owner, 0.0) for each in served)


@pytest.mark.promise(
    "simulator-4", "Fairness is measured against a fluid weighted max-min reference"
)
def test_the_reference_divides_by_weight_among_those_who_have_work() -> None:
    """Weights 2 and 1: the first has two thirds until its work is done, then the other has all."""
    served = fluid([Demand(0.0, "a", 4.0), Demand(0.0, "b", 4.0)], {"a": 2.0})
    assert served[0] == ServedSpan(0.0, 6.0, {"a": pytest.approx(2 / 3), "b": pytest.approx(1 / 3)})
    assert (served[1].end_s, served[1].parts) == (pytest.approx(8.0), {"b": 1.0})


def test_the_reference_waits_for_work_and_banks_nothing() -> None:
    """An owner who was idle for a hundred seconds has half from then on, and no more."""
    demands = [Demand(0.0, "a", 1.0), Demand(100.0, "a", 4.0), Demand(100.0, "b", 4.0)]
    served = fluid(demands, {})
    assert [each.start_s for each in served] == [0.0, 100.0]
    assert served[1].parts == {"a": 0.5, "b": 0.5}


@pytest.mark.promise("simulator-4")
def test_the_reference_gives_everybody_all_its_work() -> None:
    """On random arrivals: what is given is what was asked for, and the device never idles while
    somebody has work."""
    source = random.Random(7)
    demands = [
        Demand(source.uniform(0, 50), source.choice("abcd"), source.uniform(0.01, 5))
        for _ in range(100)
    ]
    served = fluid(demands, {"a": 3.0, "c": 0.5})
    for owner in "abcd":
        asked = sum(each.work_s for each in demands if each.owner == owner)
        assert given(served, owner) == pytest.approx(asked, abs=1e-6)
    for each in served:
        assert sum(each.parts.values()) == pytest.approx(1.0)


def test_jain_is_one_for_equal_parts_and_one_in_n_for_a_monopoly() -> None:
    assert jain_index([0.7, 0.7, 0.7]) == pytest.approx(1.0)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert jain_index([0.0, 0.0]) == 0.0


@pytest.mark.promise("simulator-4")
def test_jain_of_a_device() -> None:
    """Who has what the reference gives is 1; who has all of it, 1/2. Windows with one entitled
    owner do not count."""
    demands = [Demand(0.0, "a", 60.0), Demand(0.0, "b", 60.0), Demand(120.0, "a", 60.0)]
    reference = fluid(demands, {})
    fair = [
        OwnerUse("a", 0.0, 30.0),
        OwnerUse("b", 30.0, 60.0),
        OwnerUse("a", 60.0, 90.0),
        OwnerUse("b", 90.0, 120.0),
    ]
    unfair = [OwnerUse("a", 0.0, 60.0), OwnerUse("b", 60.0, 120.0)]
    both = [OwnerUse("a", 0.0, 120.0, 0.5), OwnerUse("b", 0.0, 120.0, 0.5)]
    assert jain(fair, reference, window=60.0) == pytest.approx([1.0, 1.0])
    assert jain(both, reference, window=60.0) == pytest.approx([1.0, 1.0])
    assert jain(unfair, reference, window=60.0) == pytest.approx([0.5, 0.5])


def test_jain_sees_many_owners_in_a_long_window_with_little_work() -> None:
    """Forty owners with 10 s each, in a window of 4,800 s: one of them having everything shows."""
    owners = [f"o{number}" for number in range(40)]
    reference = fluid([Demand(0.0, owner, 10.0) for owner in owners], {})
    assert jain([OwnerUse("o1", 0.0, 400.0)], reference, window=4800.0) == pytest.approx([1 / 40])


def test_jain_leaves_out_who_is_due_next_to_nothing() -> None:
    """A cell of half a second at the end of a window may have its time in the next one."""
    demands = [Demand(0.0, owner, 10.0) for owner in "ab"]
    reference = fluid([*demands, Demand(59.0, "c", 0.5)], {})
    uses = [OwnerUse("a", 0.0, 10.0), OwnerUse("b", 10.0, 20.0), OwnerUse("c", 60.0, 60.5)]
    assert jain(uses, reference, window=60.0) == pytest.approx([1.0])


def test_the_window_is_long_enough_for_everybodys_turn() -> None:
    assert window_s(2, 5.0) == 60.0
    assert window_s(40, 10.0) == 1600.0


@pytest.mark.promise("simulator-4")
def test_lag_is_the_most_that_somebody_was_behind() -> None:
    """Of two equal owners, one has the device for the first 10 s: the other is 5 s behind."""
    reference = fluid([Demand(0.0, "a", 10.0), Demand(0.0, "b", 10.0)], {})
    uses = [OwnerUse("a", 0.0, 10.0), OwnerUse("b", 10.0, 20.0)]
    assert lag_s_max(uses, reference) == pytest.approx(5.0)
    shared = [OwnerUse("a", 0.0, 20.0, 0.5), OwnerUse("b", 0.0, 20.0, 0.5)]
    assert lag_s_max(shared, reference) == pytest.approx(0.0)


def test_waits_are_what_short_cells_took_longer_than_alone() -> None:
    """Long cells and cells that never ended do not count."""
    ends, solo, works = [3.0, 9.0, 50.0, NAN], [1.0, 9.0, 10.0, 2.0], [1.0, 2.0, 8.0, 1.0]
    assert short_waits(ends, solo, works) == [2.0, 0.0]


def test_a_quantile_is_one_of_the_values() -> None:
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert [quantile(values, part) for part in (0.2, 0.5, 0.95, 1.0)] == [1.0, 3.0, 5.0, 5.0]
    assert quantile([], 0.95) == 0.0


@pytest.mark.promise(
    "simulator-5", "Time that a device idles while somebody waits for it is counted"
)
def test_idleness_counts_while_somebody_waits_and_nobody_has_the_device() -> None:
    """Not while the device works, moves memory or is kept, nor on another device."""
    spans = [
        PartOfTime(0, 1, Kind.WAIT, 0.0, 10.0, 1.0),
        PartOfTime(0, 2, Kind.WORK, 1.0, 3.0, 1.0),
        PartOfTime(0, 2, Kind.HELD, 3.0, 5.0, 1.0),
        PartOfTime(0, 2, Kind.SWAP, 5.0, 6.0, 1.0),
        PartOfTime(1, 3, Kind.WORK, 0.0, 10.0, 1.0),
    ]
    assert idle_while_eligible_s(spans) == pytest.approx(1.0 + 4.0)
    assert time_of(spans, Kind.SWAP) == 1.0
    assert time_of(spans, Kind.WORK, Kind.HELD) == 14.0


def test_a_span_that_goes_on_is_one() -> None:
    """Tokens of 250 ms to the same notebook do not fill the memory."""
    record = Record(0)
    for start_s in range(5):
        record.add(0, 1, Kind.WORK, start_s, start_s + 1)
    record.add(0, 1, Kind.HELD, 5, 6)
    record.add(0, 1, Kind.HELD, 6, 6)
    assert list(record.spans()) == [
        PartOfTime(0, 1, Kind.WORK, 0, 5, 1.0),
        PartOfTime(0, 1, Kind.HELD, 5, 6, 1.0),
    ]
