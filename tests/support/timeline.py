"""What happened on a device, and what follows from it: overlaps, hand-overs, waits. Pure.

Work is told by the device (the simulated one's journal, or stamps that a real one writes itself),
cells by the kernels; all times are nanoseconds of one clock.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Work:
    """The device was busy for a kernel (numbered from 0)."""

    start_ns: int
    end_ns: int
    kernel: int


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A cell's code ran, waiting included."""

    began_ns: int
    ended_ns: int
    kernel: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """The device went to a kernel whose cell had begun before the work of another one ended."""

    giver: int
    taker: int
    ended_ns: int
    """When the giver's last work ended on the device."""
    started_ns: int
    """When the taker's first work started on it."""
    waited_ns: int
    """From the beginning of the taker's cell until then."""

    @property
    def gap_ms(self) -> float:
        return (self.started_ns - self.ended_ns) / 1e6


def overlaps(works: Iterable[Work]) -> int:
    """How often work began while another kernel's work was still on the device."""
    count = 0
    latest_end: dict[int, int] = {}
    for work in sorted(works):
        count += any(
            end_ns > work.start_ns for kernel, end_ns in latest_end.items() if kernel != work.kernel
        )
        latest_end[work.kernel] = max(latest_end.get(work.kernel, 0), work.end_ns)
    return count


def hand_overs(works: Iterable[Work], cells: Sequence[Cell]) -> list[HandOver]:
    """Each change of the device's user to one that had been waiting, in order."""
    found = []
    before: Work | None = None
    for work in sorted(works):
        if before is not None and work.kernel != before.kernel:
            cell = next((c for c in cells if c.kernel == work.kernel and _within(work, c)), None)
            if cell is not None and cell.began_ns < before.end_ns:
                found.append(
                    HandOver(
                        giver=before.kernel,
                        taker=work.kernel,
                        ended_ns=before.end_ns,
                        started_ns=work.start_ns,
                        waited_ns=work.start_ns - cell.began_ns,
                    )
                )
        before = work
    return found


def cell_waits_ns(works: Iterable[Work], cells: Iterable[Cell]) -> list[int]:
    """Of each cell that used the device: from its beginning to its first work there."""
    ordered = sorted(works)
    found = []
    for cell in cells:
        own = (w for w in ordered if w.kernel == cell.kernel and _within(w, cell))
        if (first := next(own, None)) is not None:
            found.append(first.start_ns - cell.began_ns)
    return found


def turns_had(works: Iterable[Work], kernels: int) -> list[int]:
    """How often the device came to each kernel."""
    ordered = sorted(works)
    came = [w for n, w in enumerate(ordered) if not n or ordered[n - 1].kernel != w.kernel]
    count = Counter(work.kernel for work in came)
    return [count[kernel] for kernel in range(kernels)]


def waits_served(found: Iterable[HandOver], kernels: int) -> list[int]:
    """How often each kernel waited and was served."""
    count = Counter(hand_over.taker for hand_over in found)
    return [count[kernel] for kernel in range(kernels)]


def percentile(values: Sequence[float], percent: int) -> float:
    """By the nearest rank, so that p99 is a value that was measured."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _within(work: Work, cell: Cell) -> bool:
    return cell.began_ns <= work.start_ns <= cell.ended_ns
