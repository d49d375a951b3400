"""How figures look in a terminal, and how durations are read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .errors import UsageError

_DURATION = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)")
_SIZE = re.compile(r"(?P<number>\d+(\.\d*)?)\s*(?P<unit>|b|[kmgt]ib)")
_NAME_MAX = 40
_BYTES = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str, *, bare_unit: str) -> float:
    """`5s`, `500ms`, `2m`, `1h`; a bare number is in `bare_unit`."""
    found = _DURATION.fullmatch(text.strip().lower())
    unit = (found["unit"] or bare_unit) if found else ""
    if found is None or unit not in _SECONDS:
        raise UsageError(f"{text!r} is no duration. Write it like 5s, 500ms, 2m or 1h.")
    seconds = float(found["number"]) * _SECONDS[unit]
    if not math.isfinite(seconds):
        raise UsageError(f"{text[:20]!r}… is longer than anything. Give a shorter time.")
    return seconds


def bytes_of(text: str) -> int:
    """`4GiB`, `512MiB`; a bare number is in bytes, and -1 is itself."""
    if text.strip() == "-1":
        return -1
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"{text!r} is no size. Write it like 4GiB or 512MiB.")
    return int(float(found["number"]) * _BYTES[found["unit"]])


def duration(seconds: float) -> str:
    """Short, with the unit that suits the size."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def size(count: int) -> str:
    """Bytes in MiB or GiB."""
    if count < 1 << 30:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count / (1 << 30):.1f} GiB"


def short(name: str) -> str:
    """A name that leaves room for the other columns."""
    return name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the last one is not padded."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
