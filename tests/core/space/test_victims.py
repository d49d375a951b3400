"""How much memory of each leaves for others: a pure function, tried with all sorts of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.space.victims import Candidate, parts

GIB, MIB = 1 << 30, 1 << 20
LEAST = 64 * MIB

candidates = st.lists(
    st.builds(
        Candidate,
        last_use_s=st.floats(0, 1e6),
        bytes_parked=st.integers(0, 1 << 40),
        bytes_able=st.integers(1, 1 << 40),
    ),
    min_size=1,
    max_size=8,
).map(lambda found: sorted(found, key=lambda each: each.last_use_s))


def idle(*seconds: float, parked: int = 0, able: int = 10 * GIB) -> list[Candidate]:
    """Those who have been idle for so long, as they are given: the longest first."""
    return [Candidate(1e6 - each, parked, able) for each in seconds]


@pytest.mark.promise(
    "accounts",
    "Memory leaves the device in proportion to how long ago its notebooks had a turn: who has been "
    "idle for hours parks all of it first, and those in use park a part each",
)
@given(candidates, st.integers(0, 1 << 43), st.integers(0, 1 << 30))
def test_all_that_is_lacking_leaves(found: list[Candidate], count: int, least: int) -> None:
    """As far as there is so much, to the byte, and nobody is asked for what it does not have."""
    asked = parts(found, count, least)
    assert sum(asked) == min(count, sum(each.bytes_able for each in found))
    assert all(0 <= part <= each.bytes_able for part, each in zip(asked, found, strict=True))


@pytest.mark.promise("Memory leaves the device in proportion...")
@given(candidates, st.integers(1, 1 << 43), st.integers(0, 1 << 30))
def test_nobody_is_asked_for_crumbs(found: list[Candidate], count: int, least: int) -> None:
    """Unless the others have not enough for the whole."""
    asked = parts(found, count, least)
    all_of_them = sum(each.bytes_able for each, part in zip(found, asked, strict=True) if part)
    for part, each in zip(asked, found, strict=True):
        assert part == 0 or part >= least or all_of_them - each.bytes_able < count


@pytest.mark.promise("Memory leaves the device in proportion...")
def test_those_who_are_alike_park_alike() -> None:
    assert parts(idle(5, 5, 5, 5), 4 * GIB, LEAST) == [GIB] * 4


@pytest.mark.promise("Memory leaves the device in proportion...")
def test_who_was_idle_for_longer_parks_more() -> None:
    """In proportion, where the one that had the last turn counts as idle for ten seconds."""
    assert parts(idle(30, 10, 0), 8 * GIB - 2 * GIB, LEAST) == [
        pytest.approx(6 * GIB * share / 70, abs=2) for share in (40, 20, 10)
    ]


@pytest.mark.promise("Memory leaves the device in proportion...")
def test_who_has_parked_parks_no_more_than_the_others() -> None:
    """What is parked already counts."""
    had = [Candidate(0, 4 * GIB, 6 * GIB), Candidate(0, 0, 10 * GIB)]
    assert parts(had, 2 * GIB, LEAST) == [0, 2 * GIB]
    assert parts(had, 6 * GIB, LEAST) == [GIB, 5 * GIB]


@pytest.mark.promise("Memory leaves the device in proportion...")
def test_idle_for_hours() -> None:
    """All of it goes before anybody in use parks more than the least."""
    assert parts(idle(7200, 3, 0), 10 * GIB, LEAST) == [10 * GIB, 0, 0]
    first, second, third = parts(idle(7200, 3, 0), 12 * GIB, LEAST)
    assert first == 10 * GIB and second > third > 0


@pytest.mark.promise("Memory leaves the device in proportion...")
def test_a_little_is_had_from_one() -> None:
    """From the one that has been idle for the longest."""
    assert parts(idle(30, 10, 0), 100 * MIB, LEAST) == [100 * MIB, 0, 0]
