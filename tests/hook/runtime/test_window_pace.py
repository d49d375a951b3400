"""How the window adapts: events per launch and events under way, from measured times alone."""

from __future__ import annotations

import pytest

from tests.hook.runtime.pure import Pace, Pure

EVENTS_MAX = 4
LAUNCHES_PER_EVENT_MAX = 16
US = 1e3
MS = 1e6


def settle(pace: Pace, launch_ns: float, groups: int = 200) -> None:
    """A loop of equal launches."""
    for _ in range(groups):
        pace.measured(launch_ns * pace.launches_per_event)


def test_a_turn_starts_with_one_launch_under_way(pure: Pure) -> None:
    """Until something is measured a single launch is in flight, so the first recall is bounded."""
    pace = Pace(pure)
    assert (pace.launches_per_event, pace.depth) == (1, 1)


def test_short_launches_get_few_events(pure: Pure) -> None:
    """From short launches on an event covers sixteen, which costs nothing measurable."""
    pace = Pace(pure)
    settle(pace, 5 * US)
    assert pace.launches_per_event == LAUNCHES_PER_EVENT_MAX
    assert pace.depth == EVENTS_MAX


def test_long_launches_are_kept_few(pure: Pure) -> None:
    """Launches of 2 ms: at most ten in flight, within the window of 20 ms, and never one alone."""
    pace = Pace(pure)
    settle(pace, 2 * MS)
    assert 2 <= pace.launches_per_event * pace.depth <= 10


@pytest.mark.promise("hook-32")
@pytest.mark.parametrize("launch_ns", [2 * US, 20 * US, 200 * US, 1 * MS, 3 * MS, 9 * MS, 50 * MS])
def test_what_is_in_flight_stays_within_the_window(pure: Pure, launch_ns: float) -> None:
    """For any length: depth times launches per event times length stays below 20 ms, or is one
    launch."""
    pace = Pace(pure)
    settle(pace, launch_ns)
    launches = pace.depth * pace.launches_per_event
    assert launches * launch_ns <= 20 * MS or launches == 1


def test_one_long_launch_in_a_step_is_remembered_until_the_next(pure: Pure) -> None:
    """Many short launches between two long ones do not make the window forget the long ones."""
    pace = Pace(pure)
    for _ in range(20):
        for _ in range(6):
            pace.measured(50 * US * pace.launches_per_event)
        pace.measured(5 * MS + 50 * US * pace.launches_per_event)
    assert pace.depth * 5 <= 20


def test_launches_that_grow_longer_are_noticed_at_once(pure: Pure) -> None:
    """One slow group cuts the depth; a few bring the launches per event down to one."""
    pace = Pace(pure)
    settle(pace, 5 * US)
    pace.measured(16 * 2 * MS)
    assert pace.depth == 1
    settle(pace, 2 * MS, groups=8)
    assert pace.launches_per_event == 1


def test_one_query_tells_of_several_groups(pure: Pure) -> None:
    """Of all but the newest, which was recorded a moment ago, once so many are under way."""
    pace = Pace(pure)
    assert [pace.ask(under_way) for under_way in (1, 2, 3, 4)] == [1, 1, 1, 3]


def test_where_the_device_is_behind_groups_are_asked_about_one_by_one(pure: Pure) -> None:
    """For a while: then it is tried again whether it keeps up."""
    pace = Pace(pure)
    pace.behind()
    assert [pace.ask(EVENTS_MAX) for _ in range(17)] == [1] * 16 + [3]
