"""What is simulated: notebooks, and the cells that people run in them.

Arrivals are open-loop: a cell is sent at its time, however long the ones before it took. A kernel
runs its cells one after another.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpushare.core.ids import Seconds

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """One kernel and its memory. `closes_s` is None for one that stays open."""

    name: str
    owner: str
    groups: tuple[str, ...] = ()
    """Of the owner."""
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
    hold_s: Seconds = 0.0
    """It says first that the turn is to be kept by hand for so long. Only ours hears of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Cells in the order of their times; `notebook` of a cell counts in `notebooks`."""

    title: str
    notebooks: Sequence[Notebook]
    cells: Sequence[Cell]
    devices: int = 1
    device_bytes: int = 80 * GIB
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the scheduler that ran it, or the weights of a trace, as JSON; those that are not named
    have their defaults."""


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
    counts = [0] * devices
    # An entry counts while its device still has so many; later entries replace the others.
    ranked = [(0, device) for device in range(devices)]
    closings: list[tuple[Seconds, int]] = []
    places = [0] * len(notebooks)
    for index in sorted(range(len(notebooks)), key=lambda i: notebooks[i].opens_s):
        notebook = notebooks[index]
        while closings and closings[0][0] <= notebook.opens_s:
            _, closed = heapq.heappop(closings)
            counts[closed] -= 1
            heapq.heappush(ranked, (counts[closed], closed))
        while ranked[0][0] != counts[ranked[0][1]]:
            heapq.heappop(ranked)
        device = ranked[0][1] if notebook.device is None else notebook.device
        if device < devices:
            counts[device] += 1
            heapq.heappush(ranked, (counts[device], device))
            if notebook.closes_s is not None:
                heapq.heappush(closings, (notebook.closes_s, device))
        places[index] = device
    return places


def placed_anew(workload: Workload) -> Workload:
    """The same for another number of devices: notebooks need not run where they ran."""
    notebooks = [dataclasses.replace(each, device=None) for each in workload.notebooks]
    return dataclasses.replace(workload, notebooks=notebooks)
