"""What of a status is news, and what only changes as time passes. Pure."""

from __future__ import annotations

_TIMES = frozenset(
    {
        "earliest_s",
        "had",
        "held_for_s",
        "held_s",
        "held_s_total",
        "latest_s",
        "turn_left_s",
        "uptime_s",
        "used_s",
        "waited_s",
        "waited_s_total",
        "when",
    }
)
_HOLD_LEFT = "hold_left_s"


def without_times(value: object, now_s: float = 0.0) -> object:
    """The status of `now_s` without what changes by itself. A hold that is prolonged is news: of a
    hold, the second in which it ends stays."""
    if isinstance(value, dict):
        return {
            key: each and round(now_s + each) if key == _HOLD_LEFT else without_times(each, now_s)
            for key, each in value.items()
            if key not in _TIMES
        }
    if isinstance(value, list | tuple):
        return [without_times(each, now_s) for each in value]
    return value
