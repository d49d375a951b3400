"""What is simulated: notebooks, and the cells that people run in them.

Arrivals are open-loop: a cell is sent at its time, however long the ones before it took. A kernel
runs its cells one after another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpushare.core.ids import Seconds

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """One kernel and its memory. `closes_s` is None for one that stays open."""

    name: str
    owner: str
    bytes_used: int = 0
    """Device memory that each cell of it touches, all of it. The first cell allocates it."""
    opens_s: Seconds = 0.0
    closes_s: Seconds | None = None
    device: int | None = None
    """Where it runs; None: on the device with the fewest notebooks when it opens."""
    is_program: bool = False
    """A program without cells: only idleness says that it needs its turn no longer."""
    burst_s: Seconds = 0.0
    gap_s: Seconds = 0.0
    """Alone on a device it works for `burst_s` and leaves the device idle for `gap_s`, again and
    again. With both 0 the device always has work of it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`work_s`: how long it takes alone on a device with its memory there."""

    notebook: int
    at_s: Seconds
    work_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Cells in the order of their times; `notebook` of a cell counts in `notebooks`."""

    title: str
    notebooks: Sequence[Notebook]
    cells: Sequence[Cell]
    devices: int = 1
    device_bytes: int = 80 * GIB
    weights: Mapping[str, float] = field(default_factory=dict)
    """What an owner is entitled to, against 1 for an owner who is not named."""

    def weight(self, owner: str) -> float:
        return self.weights.get(owner, 1.0)


def solo_ends(workload: Workload) -> list[Seconds]:
    """When each cell would end if its notebook had a device alone."""
    free_s: dict[int, Seconds] = {}
    ends = []
    for cell in workload.cells:
        end_s = max(cell.at_s, free_s.get(cell.notebook, 0.0)) + cell.work_s
        free_s[cell.notebook] = end_s
        ends.append(end_s)
    return ends


def placed(notebooks: Sequence[Notebook], devices: int) -> list[int]:
    """The device of each notebook: its own, or the one with the fewest when it opens."""
    open_until: list[list[Seconds]] = [[] for _ in range(devices)]
    places = [0] * len(notebooks)
    for index in sorted(range(len(notebooks)), key=lambda i: notebooks[i].opens_s):
        notebook = notebooks[index]
        device = notebook.device
        if device is None:
            for each in open_until:
                each[:] = [until_s for until_s in each if until_s > notebook.opens_s]
            device = min(range(devices), key=lambda number: len(open_until[number]))
        closes_s = math.inf if notebook.closes_s is None else notebook.closes_s
        open_until[device].append(closes_s)
        places[index] = device
    return places
