"""When a tenant's turn begins and why it waits, in words for its user. Pure.

The command line, `%gpushare` and the panel show these sentences; the panel counts the times down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from jupyter_gpushare.core.ids import Seconds, TenantId
from jupyter_gpushare.core.shown.waits import Estimate, Reason

EstimatesOf = Callable[[Iterable[TenantId]], Mapping[TenantId, Estimate]]
_DASH = "\u2013"
MAY_WAIT = frozenset({"waiting", "stalled"})
"""The states of tenants in the queue."""
_PARTS_MAX = 12
"""A share is told as a fraction up to such a denominator."""
_FRACTIONS = {Fraction(1, 2): "half", Fraction(1, 3): "a third", Fraction(1, 4): "a quarter"}
_PART_OFF = 0.01
_ALL = 0.995
"""From such a share on, only notebooks of the same user are ahead."""

REASONS = {
    Reason.TURN: "Others are before it.",
    Reason.MEMORY: "Memory has to move before its turn; others finish first.",
    Reason.OWN: "Another notebook of its owner has the GPU until it has had more of it of late.",
    Reason.SHARE: "Others go first, because its owner has had more than its share of the GPU.",
    Reason.CLASS: "Others go first, because of their class.",
    Reason.LIMIT: "It or its owner has had as much of the GPU as the settings allow.",
    Reason.HELD: "A user keeps the GPU by hand.",
    Reason.PAUSED: "An administrator has paused the GPU.",
}
"""Why it waits. What is in the way of its memory, and what to do, stands in `blocked_reason`."""
_OWN_BY_NAME = "{own}, of the same user, has the GPU until it has had more of it of late."
REASONS_THEN = {
    Reason.TURN: "Others were before it.",
    Reason.MEMORY: "Memory had to move before its turn; others finished first.",
    Reason.OWN: "Another notebook of its owner had the GPU.",
    Reason.SHARE: "Others went first, because its owner had had more than its share of the GPU.",
    Reason.CLASS: "Others went first, because of their class.",
    Reason.LIMIT: "It or its owner had had as much of the GPU as the settings allow.",
    Reason.HELD: "A user kept the GPU by hand.",
    Reason.PAUSED: "An administrator had paused the GPU.",
}
"""Why it waited."""
COMES = "Its memory is coming back: {amount}."
HAS_COME = "Its memory came back: {amount}."
COMES_NO_MORE = "Its memory was coming back: {amount}. Not all of it came."
"""Why it waited, or waits, although it has the GPU."""


def no_estimates(tenants: Iterable[TenantId]) -> Mapping[TenantId, Estimate]:
    """Of nobody."""
    return {}


def told(estimate: Estimate) -> dict[str, Any]:
    """As JSON, with the same for people."""
    return {
        "position": estimate.position,
        "earliest_s": round(estimate.earliest_s, 3) if estimate.known else None,
        "latest_s": round(estimate.latest_s, 3) if estimate.known else None,
        "reason": estimate.reason.value,
        "used_s": round(estimate.used_s, 3),
        "share": round(estimate.share, 4),
        "when": when(estimate),
        "why": _OWN_BY_NAME.format(own=estimate.own) if estimate.own else REASONS[estimate.reason],
    }


def when(estimate: Estimate) -> str:
    """When it starts or goes on."""
    time = "at an unknown time"
    if estimate.known:
        time = f"in {about(estimate.earliest_s, estimate.latest_s)}"
    if estimate.used_s <= 0:
        return f"Starts {time}."
    share = f"; its share is {part(estimate.share)}" if estimate.share < _ALL else ""
    return f"Paused after {length(estimate.used_s)}, goes on {time}{share}."


def about(earliest_s: Seconds, latest_s: Seconds) -> str:
    """A range as people say it: about 10 to 40 s, at most 40 s."""
    if latest_s < 1:
        return "less than 1 s"
    low, high = _rounded(earliest_s), _rounded(latest_s)
    if low == 0:
        return f"at most {length(high)}"
    if low == high:
        return f"about {length(high)}"
    unit_s, unit = _unit(high)
    if _unit(low)[1] == unit:
        return f"about {_count(low, unit_s)}{_DASH}{_count(high, unit_s)} {unit}"
    return f"about {length(low)} to {length(high)}"


def length(seconds: Seconds) -> str:
    """A time without a false precision: 30 s, 4 min, 2 h."""
    if seconds < 1:
        return "less than 1 s"
    rounded_s = _rounded(seconds)
    unit_s, unit = _unit(rounded_s)
    return f"{_count(rounded_s, unit_s)} {unit}"


def part(share: float) -> str:
    """A third of the GPU, 2/5 of the GPU, or 0 % of the GPU."""
    near = Fraction(share).limit_denominator(_PARTS_MAX)
    if near > 0 and abs(share - near) <= _PART_OFF:
        return f"{_FRACTIONS.get(near, near)} of the GPU"
    return f"{100 * share:.0f} % of the GPU"


def _rounded(seconds: Seconds) -> Seconds:
    """To two digits: of seconds, then of minutes, then of hours."""
    unit_s, _ = _unit(seconds)
    count = seconds / unit_s
    step = 10 ** max(0, math.floor(math.log10(count)) - 1) if count >= 1 else 1
    return round(count / step) * step * unit_s


def _unit(seconds: Seconds) -> tuple[Seconds, str]:
    if seconds < 100:
        return 1.0, "s"
    return (60.0, "min") if seconds < 100 * 60 else (3600.0, "h")


def _count(seconds: Seconds, unit_s: Seconds) -> str:
    return f"{seconds / unit_s:.0f}"
