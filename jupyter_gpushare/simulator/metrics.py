"""The figures of a simulation: pure functions of what happened.

A device's time in somebody's hands counts from the moment it has the device: memory that comes back
is part of it, and so is a device that somebody keeps without work.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jupyter_gpushare.core.ids import Seconds

from .base.record import Foretold, Kind, PartOfTime
from .fluid import ServedSpan

SHORT_S: Seconds = 5.0
"""Cells with less work are short."""
ENTITLED_MIN_S: Seconds = 0.6
ENTITLED_MIN_PART = 0.01
EQUAL_PART_MIN = 0.5
"""An owner counts in a window in which so much is due to it: some time, and this part of all that
is due, or this part of an equal part where there are many owners. Of less, the figure would say
how a cell falls on the end of a window."""


@dataclass(frozen=True, slots=True)
class OwnerUse:
    """An owner had so much of a device."""

    owner: str
    start_s: Seconds
    end_s: Seconds
    share: float = 1.0


def quantile(values: Sequence[float], part: float) -> float:
    """The value that so great a part of all does not exceed; 0 of nothing."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[max(0, math.ceil(part * len(ranked)) - 1)]


def short_waits(
    ends_s: Sequence[Seconds], solo_ends_s: Sequence[Seconds], works_s: Sequence[Seconds]
) -> list[Seconds]:
    """What short cells took longer than alone."""
    return [
        max(0.0, end_s - solo_s)
        for end_s, solo_s, work_s in zip(ends_s, solo_ends_s, works_s, strict=True)
        if work_s < SHORT_S and not math.isnan(end_s)
    ]


def window_s(owners: int, longest_quantum_s: Seconds) -> Seconds:
    """The window of `jain`: long enough for each owner to have had its turn."""
    return max(60.0, 4 * owners * longest_quantum_s)


def jain(
    uses: Iterable[OwnerUse], reference: Iterable[ServedSpan], *, window: Seconds
) -> list[float]:
    """Jain's index of one device, for each window in which two owners or more are entitled: of
    what each had, divided by what the reference gives it. 1: everybody had the same part of what is
    due."""
    had: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    due: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for use in uses:
        for number, seconds in _by_window(use.start_s, use.end_s, window):
            had[number][use.owner] += seconds * use.share
    for served in reference:
        for number, seconds in _by_window(served.start_s, served.end_s, window):
            for owner, part in served.parts.items():
                due[number][owner] += seconds * part
    indices = []
    for number in sorted(due):
        parts = due[number]
        part = min(ENTITLED_MIN_PART, EQUAL_PART_MIN / len(parts))
        least_s = max(ENTITLED_MIN_S, part * sum(parts.values()))
        entitled = [owner for owner, due_s in parts.items() if due_s >= least_s]
        if len(entitled) >= 2:
            indices.append(jain_index([had[number][o] / due[number][o] for o in entitled]))
    return indices


def jain_index(values: Sequence[float]) -> float:
    """1 if all are equal, 1/n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def _by_window(start_s: Seconds, end_s: Seconds, window: Seconds) -> Iterable[tuple[int, Seconds]]:
    number = int(start_s // window)
    while start_s < end_s:
        stop_s = min(end_s, (number + 1) * window)
        yield number, stop_s - start_s
        start_s = stop_s
        number += 1


def lag_s_max(uses: Iterable[OwnerUse], reference: Iterable[ServedSpan]) -> Seconds:
    """The most device time that an owner was behind the reference."""
    steps: list[tuple[Seconds, str, float]] = []
    for served in reference:
        for owner, part in served.parts.items():
            steps += [(served.start_s, owner, part), (served.end_s, owner, -part)]
    for use in uses:
        steps += [(use.start_s, use.owner, -use.share), (use.end_s, use.owner, use.share)]
    steps.sort(key=lambda step: step[0])
    rates: defaultdict[str, float] = defaultdict(float)
    lags: defaultdict[str, float] = defaultdict(float)
    since_s: dict[str, Seconds] = {}
    most_s = 0.0
    for at_s, owner, change in steps:
        lags[owner] += rates[owner] * (at_s - since_s.get(owner, at_s))
        since_s[owner] = at_s
        rates[owner] += change
        most_s = max(most_s, lags[owner])
    return most_s


def time_of(spans: Iterable[PartOfTime], *kinds: Kind) -> Seconds:
    """Device time that went into these."""
    return sum((s.end_s - s.start_s) * s.share for s in spans if s.kind in kinds)


def idle_while_eligible_s(spans: Iterable[PartOfTime]) -> Seconds:
    """How long devices were nobody's while a notebook waited for them, over all devices."""
    changes: dict[int, list[tuple[Seconds, int, int]]] = {}
    for span in spans:
        waits = 1 if span.kind is Kind.WAIT else 0
        steps = changes.setdefault(span.device, [])
        steps.append((span.start_s, waits, 1 - waits))
        steps.append((span.end_s, -waits, waits - 1))
    total_s = 0.0
    for steps in changes.values():
        steps.sort(key=lambda step: step[0])
        waiting = having = 0
        before_s = 0.0
        for at_s, waits, has in steps:
            if waiting and not having:
                total_s += at_s - before_s
            waiting, having, before_s = waiting + waits, having + has, at_s
    return total_s


def mean(values: Sequence[float]) -> float:
    """1 of nothing: nobody was treated unfairly."""
    return sum(values) / len(values) if values else 1.0


# ---- estimates -------------------------------------------------------------------------------

_OUTSIDE = 2 / 0.2
"""What each second outside a range counts that eight of ten are to be in (Gneiting and Raftery
2007, the interval score)."""
_EXACT_S = 1e-6


LATER_S: Seconds = 1.0
"""A start that was told to come within this time, and did, is no test of a range: nearly all of
these come true."""


def known_starts(foretold: Sequence[Foretold]) -> dict[str, int] | None:
    """How many later starts there were for which a range was told, by reason."""
    if not foretold:
        return None
    return dict(Counter(each.reason for each in foretold if _is_later(each)))


def coverage(foretold: Sequence[Foretold]) -> dict[str, float] | None:
    """By reason, the part of these that lay in their ranges."""
    starts = known_starts(foretold)
    if starts is None:
        return None
    inside = Counter(each.reason for each in foretold if _is_later(each) and _is_inside(each))
    return {reason: inside[reason] / count for reason, count in sorted(starts.items())}


def score(foretold: Sequence[Foretold]) -> float | None:
    """The interval score of the ranges, divided by that of one time: all quanta full."""
    told = full = 0.0
    for each in foretold:
        if each.earliest_s is not None and each.latest_s is not None:
            told += interval_score(each.earliest_s, each.latest_s, each.began_s)
            full += interval_score(each.full_s, each.full_s, each.began_s)
    return told / full if full else None


def unknown(foretold: Sequence[Foretold]) -> float | None:
    """The part of all for which nobody could say a time."""
    if not foretold:
        return None
    return sum(each.latest_s is None for each in foretold) / len(foretold)


def interval_score(earliest_s: Seconds, latest_s: Seconds, began_s: Seconds) -> float:
    """The width, and what lies outside. The less, the better."""
    outside_s = max(0.0, earliest_s - began_s) + max(0.0, began_s - latest_s)
    return latest_s - earliest_s + _OUTSIDE * outside_s


def _is_later(told: Foretold) -> bool:
    """Whether it came later, or was told to come later, and a time was told at all."""
    return told.latest_s is not None and max(told.latest_s, told.began_s) > LATER_S


def _is_inside(told: Foretold) -> bool:
    if told.earliest_s is None or told.latest_s is None:
        return False
    return told.earliest_s - _EXACT_S <= told.began_s <= told.latest_s + _EXACT_S
