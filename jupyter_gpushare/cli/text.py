"""How figures look in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

_NAME_MAX = 40


def duration(seconds: float) -> str:
    """Short, with the unit that suits the size."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def moment(since_1970_s: float) -> str:
    """A point in time, by the machine's own zone."""
    return datetime.fromtimestamp(since_1970_s).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


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
