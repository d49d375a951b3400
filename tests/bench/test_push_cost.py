"""The benchmark of what reporting costs a scheduler."""

from __future__ import annotations

from tests.bench.push_cost import push_cost


def test_it_measures_reports_in_which_everything_has_changed() -> None:
    """It checks that itself, and finds that they cost something."""
    assert push_cost(reports=3) > 0
