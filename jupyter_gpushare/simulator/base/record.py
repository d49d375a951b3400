"""What happened in a simulation: who had each device when, and when each cell ended.

Columns instead of objects: a day of a thousand devices has millions of spans.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from jupyter_gpushare.core.ids import Seconds


class Kind(enum.IntEnum):
    """What a notebook did on a device."""

    WORK = 0
    SWAP = 1
    """It has the device, and waits for its memory."""
    HELD = 2
    """It has the device, and neither works nor moves memory."""
    WAIT = 3
    """A cell of it waits for the device."""


class PartOfTime(NamedTuple):
    """`share` is the part of the device that it had meanwhile."""

    device: int
    notebook: int
    kind: Kind
    start_s: Seconds
    end_s: Seconds
    share: float


class Foretold(NamedTuple):
    """What was told to a notebook that had waited for a second, and when its turn really began: all
    times are from then on."""

    reason: str
    earliest_s: Seconds | None
    latest_s: Seconds | None
    """None: nobody could say."""
    full_s: Seconds
    """If all before it had used their whole quanta."""
    began_s: Seconds


_NEVER = float("nan")


class Record:
    """Grows while the simulation runs. `ends_s` has an entry for each cell, by its number."""

    def __init__(self, cells: int) -> None:
        self._device = array("i")
        self._notebook = array("i")
        self._kind = array("b")
        self._start = array("d")
        self._end = array("d")
        self._share = array("d")
        self._last: dict[tuple[int, int], int] = {}
        self.ends_s = array("d", [_NEVER]) * cells
        self.foretold: list[Foretold] = []
        self.failed = 0
        """Cells that were refused their memory."""

    def add(
        self,
        device: int,
        notebook: int,
        kind: Kind,
        start_s: Seconds,
        end_s: Seconds,
        share: float = 1.0,
    ) -> None:
        """A span that goes on where the last one of the notebook on the device ended is part of
        it."""
        if end_s <= start_s:
            return
        last = self._last.get((device, notebook))
        if (
            last is not None
            and self._end[last] == start_s
            and self._kind[last] == kind
            and self._share[last] == share
        ):
            self._end[last] = end_s
            return
        self._last[device, notebook] = len(self._start)
        self._device.append(device)
        self._notebook.append(notebook)
        self._kind.append(kind)
        self._start.append(start_s)
        self._end.append(end_s)
        self._share.append(share)

    def __len__(self) -> int:
        return len(self._start)

    def spans(self) -> Iterator[PartOfTime]:
        """In the order in which they were noted."""
        kinds = tuple(Kind)
        columns = zip(
            self._device,
            self._notebook,
            self._kind,
            self._start,
            self._end,
            self._share,
            strict=True,
        )
        for device, notebook, kind, start_s, end_s, share in columns:
            yield PartOfTime(device, notebook, kinds[kind], start_s, end_s, share)
