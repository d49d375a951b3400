"""When a turn begins, and why not now, in words."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.client.news import without_times
from jupyter_gpushare.core.shown.waits import Estimate, Reason
from jupyter_gpushare.scheduler.service.waits import (
    REASONS,
    REASONS_THEN,
    about,
    length,
    part,
    told,
)

SOON = Estimate(
    position=2, earliest_s=10.4, latest_s=41.0, known=True, reason=Reason.TURN, share=1 / 3
)


@pytest.mark.promise("scheduler-16")
def test_a_wait_in_words() -> None:
    """A new cell starts; one that was stopped in the middle goes on."""
    assert told(SOON)["when"] == "Starts in about 10\u201341 s."
    assert told(replace(SOON, used_s=30.2))["when"] == (
        "Paused after 30 s, goes on in about 10\u201341 s; its share is a third of the GPU."
    )
    assert told(replace(SOON, used_s=30.2, share=1.0))["when"] == (
        "Paused after 30 s, goes on in about 10\u201341 s."
    ), "of the whole GPU there is nothing to say"
    nobody_knows = told(replace(SOON, known=False, earliest_s=0.0, latest_s=0.0))
    assert nobody_knows["when"] == "Starts at an unknown time."
    assert nobody_knows["earliest_s"] is None and nobody_knows["latest_s"] is None


@pytest.mark.promise("scheduler-16")
@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_sentence(reason: Reason) -> None:
    why = told(replace(SOON, reason=reason))["why"]
    assert why == REASONS[reason]
    for sentence in (why, REASONS_THEN[reason]):
        assert re.fullmatch(r"[A-Z].+\.", sentence)


@pytest.mark.promise(
    "scheduler-102", "A notebook that waits names its owner's own one that goes first"
)
def test_an_own_notebook_is_named() -> None:
    why = told(replace(SOON, reason=Reason.OWN, own="train.ipynb"))["why"]
    assert why == "train.ipynb, of the same user, has the GPU until it has had more of it of late."


@pytest.mark.parametrize(
    ("earliest_s", "latest_s", "words"),
    [
        (0.0, 0.4, "less than 1 s"),
        (0.0, 3.2, "at most 3 s"),
        (0.2, 300.0, "at most 5 min"),
        (29.9, 30.2, "about 30 s"),
        (45.0, 300.0, "about 45 s to 5 min"),
        (125.0, 1500.0, "about 2\u201325 min"),
        (7200.0, 90000.0, "about 2\u201325 h"),
    ],
)
def test_ranges_have_no_false_precision(earliest_s: float, latest_s: float, words: str) -> None:
    assert about(earliest_s, latest_s) == words


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_each_range_has_words(one_s: float, other_s: float) -> None:
    """No time is told as another unit's hundreds, and none as nothing."""
    words = about(*sorted((one_s, other_s)))
    assert re.fullmatch(r"(less than 1 s|about (\d+|\d+ \w+).*\d+ (s|min|h))", words) or (
        re.fullmatch(r"(about|at most) \d+ (s|min|h)", words)
    )
    assert length(one_s).endswith((" s", " min", " h"))


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.5, "half"), (1 / 3, "a third"), (0.4, "2/5"), (0.37, "3/8"), (0.001, "0 %")],
)
def test_shares_are_fractions_where_they_are_near_one(share: float, words: str) -> None:
    assert part(share) == f"{words} of the GPU"


def test_only_what_does_not_follow_from_time_is_news() -> None:
    """The range and what was used change by themselves; who waits why, and where, is news."""
    later = replace(SOON, earliest_s=8.0, latest_s=30.0, used_s=1.0)
    assert without_times(told(SOON)) == without_times(told(later))
    assert without_times(told(SOON)) != without_times(told(replace(SOON, position=1)))
    assert without_times(told(SOON)) != without_times(told(replace(SOON, reason=Reason.SHARE)))
