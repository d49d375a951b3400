"""A model of bench_notebooks.py, for rules by which memory leaves a device (decision 0032).

    python -m tests.bench.victims_model [--parked 1.62] [--restore-s 0.30] [--work-s 0.263]

Notebooks of equal size think for an exponential time. `parked` of them do not fit on the device.
Memory comes back at a fixed rate, one notebook's at a time, while others compute; as much leaves
the notebooks that think. A cell runs when all of its memory is there, in the order in which that is
so. The ideal is the same arrivals in order, with free transfers.

It prints, for each rule, the median over seeds of the p50 and the p95 of the ideal, and in which
part of the seeds the p50 is at most 1.3 of it.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

P50_BAR = 1.3
RULES = {
    "the least recently used, whole": (1.0,),
    "four fifths of each first": (0.8, 1.0),
    "a half of each first": (0.5, 1.0),
    "a third of each first": (1 / 3, 1.0),
    "a quarter of each first": (0.25, 1.0),
    "a sixth of each first": (1 / 6, 1.0),
}
"""How much of each notebook may be parked: one limit after the other, while more has to leave."""


@dataclass(frozen=True)
class Load:
    notebooks: int
    parked: float
    restore_s: float
    """Of a whole notebook."""
    work_s: float
    thinking_s: float
    seconds: float


@dataclass
class Run:
    """One run of the model, event by event."""

    load: Load
    limits: Sequence[float]
    chance: random.Random
    parked: list[float] = field(default_factory=list)
    last_s: list[float] = field(default_factory=list)
    events: list[tuple[float, int, int, str]] = field(default_factory=list)
    at_work: set[int] = field(default_factory=set)
    began_s: dict[int, float] = field(default_factory=dict)
    ready: list[int] = field(default_factory=list)
    lacking: list[int] = field(default_factory=list)
    coming: int | None = None
    running: int | None = None
    cells: list[tuple[float, float]] = field(default_factory=list)
    """When each began, and how long it took."""

    def __post_init__(self) -> None:
        count = self.load.notebooks
        self.last_s = [0.0] * count
        self.parked = [min(1.0, max(0.0, self.load.parked - i)) for i in range(count)]
        for notebook in range(count):
            self._thinks(0.0, notebook)

    def _at(self, at_s: float, notebook: int, what: str) -> None:
        heapq.heappush(self.events, (at_s, len(self.events), notebook, what))

    def _thinks(self, now_s: float, notebook: int) -> None:
        thinks_s = self.chance.expovariate(1 / self.load.thinking_s)
        if now_s + thinks_s <= self.load.seconds:
            self._at(now_s + thinks_s, notebook, "begins")

    def play(self) -> None:
        while self.events:
            now_s, _, notebook, what = heapq.heappop(self.events)
            if what == "begins":
                self.at_work.add(notebook)
                self.began_s[notebook] = now_s
                (self.lacking if self.parked[notebook] > 0 else self.ready).append(notebook)
            elif what == "is back":
                self.coming = None
                self.ready.append(notebook)
            else:
                self.running = None
                self.at_work.discard(notebook)
                self.last_s[notebook] = now_s
                began_s = self.began_s[notebook]
                self.cells.append((began_s, now_s - began_s))
                self._thinks(now_s, notebook)
            self._go_on(now_s)

    def _go_on(self, now_s: float) -> None:
        if self.coming is None and self.lacking:
            self.coming = self.lacking.pop(0)
            comes, self.parked[self.coming] = self.parked[self.coming], 0.0
            self._leave(comes)
            self._at(now_s + comes * self.load.restore_s, self.coming, "is back")
        if self.running is None and self.ready:
            self.running = self.ready.pop(0)
            self._at(now_s + self.load.work_s, self.running, "ends")

    def _leave(self, count: float) -> None:
        thinking = [i for i in range(self.load.notebooks) if i not in self.at_work]
        thinking.sort(key=lambda notebook: self.last_s[notebook])
        for limit in self.limits:
            for notebook in thinking:
                leaves = max(0.0, min(count, limit - self.parked[notebook]))
                self.parked[notebook] += leaves
                count -= leaves

    def of_ideal(self) -> tuple[float, float]:
        """The p50 and the p95 by those of the ideal."""
        free_s, ideal_s = 0.0, []
        for began_s, _ in sorted(self.cells):
            free_s = max(began_s, free_s) + self.load.work_s
            ideal_s.append(free_s - began_s)
        took_s = [cell_s for _, cell_s in self.cells]
        p50, p95 = (_part(took_s, p) / _part(ideal_s, p) for p in (0.5, 0.95))
        return p50, p95


def _part(values: Sequence[float], part: float) -> float:
    return sorted(values)[int(part * len(values))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.victims_model")
    add = parser.add_argument
    add("--notebooks", type=int, default=8)
    add("--parked", type=float, default=1.62, help="so many of them do not fit")
    add("--restore-s", type=float, default=0.30, help="of a whole one")
    add("--work-s", type=float, default=0.263)
    add("--thinking-s", type=float, default=3.0)
    add("--seconds", type=float, default=80.0)
    add("--seeds", type=int, default=300)
    options = vars(parser.parse_args())
    seeds = options.pop("seeds")
    load = Load(**options)
    for name, limits in RULES.items():
        found = []
        for seed in range(seeds):
            run = Run(load, limits, random.Random(seed))
            run.play()
            found.append(run.of_ideal())
        p50, p95 = zip(*found, strict=True)
        met = sum(each <= P50_BAR for each in p50) / seeds
        print(
            f"{name:32}p50 {statistics.median(p50):.3f}  p95 {statistics.median(p95):.3f}  "
            f"p50 at most {P50_BAR} in {met:.2f} of {seeds} seeds"
        )


if __name__ == "__main__":
    main()
