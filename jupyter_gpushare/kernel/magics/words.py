"""How times and sizes are written and read, and the errors whose message a notebook shows. Pure,
but for the clock."""

import re
import time

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)")


class WordsRefused(Exception):
    """The arguments make no sense; the message says which, in one line."""


class Unable(Exception):
    """It cannot be done here; the message says why, and what to do."""


def clock(left_s: float) -> str:
    """The time of day in so many seconds."""
    return time.strftime("%H:%M:%S", time.localtime(time.time() + left_s))


def size(count: int) -> str:
    """Bytes in MiB or GiB."""
    if count < 1 << 30:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count / (1 << 30):.1f} GiB"


def duration(seconds: float) -> str:
    """Short, with the unit that suits the size."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def length(seconds: float) -> str:
    """A time that somebody asked for, as exactly as they did."""
    whole = round(seconds)
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if whole and whole % unit_s == 0:
            return f"{whole // unit_s} {unit}"
    return f"{whole} s"


def seconds_of(text: str) -> float:
    """`30s`, `10m`, `1h`, or `0`."""
    if text == "0":
        return 0.0
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise WordsRefused(f"{text!r} is not a time.")
    return float(found.group(1)) * _UNITS_S[found.group(2)]


_STAYING = {
    "driver_pools": "of the driver's pools",
    "graphs": "of graphs",
    "managed": "managed",
    "arrays": "arrays",
    "other": "other",
    "stopped": "used by others",
}


def kinds_that_stay(kinds: "dict[str, int]") -> "list[tuple[str, int]]":
    """The kinds of memory that cannot be moved, in words, with their bytes; the largest first."""
    return _in_words(kinds, _STAYING)


_MOVING = {
    "plain": "plain",
    "mapped": "mapped",
    "pooled": "stream-ordered",
    "prefetched": "managed",
}


def kinds_that_move(kinds: "dict[str, int]") -> "list[tuple[str, int]]":
    """Likewise the kinds that can be; none where all is plain, as it is of most programs."""
    moving = _in_words(kinds, _MOVING)
    return moving if any(kind != "plain" for kind, _ in moving) else []


def _in_words(kinds: "dict[str, int]", words: "dict[str, str]") -> "list[tuple[str, int]]":
    found = [(words[kind], count) for kind, count in kinds.items() if kind in words]
    return sorted(found, key=lambda each: -each[1])
