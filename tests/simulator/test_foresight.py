"""What was told to those who waited, and what came of it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.simulator import metrics
from jupyter_gpushare.simulator.base.record import Foretold

from .scenes import notebook, simulated, workload

MEASURED = pytest.mark.promise(
    "simulator-1",
    "Estimates are measured: how many starts lie in the range that was told, how wide it is, and "
    "how often nobody can say",
)


def foretold(began_s: float, *, reason: str = "turn", known: bool = True) -> Foretold:
    """A range from 10 s to 20 s, or none; with full quanta it would be 40 s."""
    times = (10.0, 20.0) if known else (None, None)
    return Foretold(reason, *times, full_s=40.0, began_s=began_s)


@MEASURED
def test_each_wait_is_looked_at_once() -> None:
    """After a second of it. A wait that is over by then is not looked at."""
    scene = workload(
        [notebook(name, is_program=True) for name in ("ann", "ben")], [(0, 0.0, 7.0), (1, 0.5, 5.0)]
    )
    told = simulated("ours", scene, quantum_s=2.0).foretold
    assert len(told) >= 4
    assert told[0].began_s == pytest.approx(1.0, abs=0.05)
    assert all(each.full_s == pytest.approx(1.0, abs=0.05) for each in told)
    assert metrics.coverage(told) is not None
    assert simulated("ours", scene, quantum_s=0.2).foretold == []
    assert simulated("nvshare", scene).foretold == []


@MEASURED
def test_coverage_counts_those_in_their_range_by_reason() -> None:
    told = [foretold(s) for s in (9.9, 10.0, 15.0, 20.0, 20.1)]
    told += [foretold(15.0, reason="share"), foretold(15.0, known=False)]
    assert metrics.coverage(told) == {"turn": 0.6, "share": 1.0}
    assert metrics.known_starts(told) == {"turn": 5, "share": 1}
    assert metrics.unknown(told) == pytest.approx(1 / 7)


@MEASURED
def test_the_score_is_the_width_and_ten_times_what_lies_outside() -> None:
    """Of one time, its distance counts tenfold."""
    assert metrics.interval_score(10.0, 20.0, 15.0) == 10.0
    assert metrics.interval_score(10.0, 20.0, 9.0) == 20.0
    assert metrics.interval_score(10.0, 20.0, 22.0) == 30.0
    assert metrics.score([foretold(15.0), foretold(22.0)]) == pytest.approx(40 / 430)
    assert metrics.score([foretold(15.0, known=False)]) is None


@MEASURED
def test_what_was_told_to_come_in_a_moment_and_came_does_not_count() -> None:
    """It would hide the misses of others. What came later although it was told so does."""
    soon = foretold(0.02)._replace(earliest_s=0.02, latest_s=0.03)
    late = soon._replace(began_s=1.5)
    assert metrics.coverage([soon, late, foretold(15.0)]) == {"turn": 0.5}
    assert metrics.known_starts([soon]) == {}


def test_where_nobody_waited_there_is_nothing_to_say() -> None:
    assert metrics.coverage([]) is metrics.score([]) is metrics.unknown([]) is None
