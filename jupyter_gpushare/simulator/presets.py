"""Workloads to try: who runs what, drawn from a seed. The parameters also stand in
docs/scheduling.md, which a test compares with this table."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_gpushare.core.ids import Seconds

from .base.workload import GIB, Cell, Notebook, Workload

WORK_S_MAX: Seconds = 60.0
"""A short cell has no more work than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """So many owners with one notebook each, who send cells at random times (a Poisson process)."""

    count: int
    every_s: Seconds
    """Mean time between two cells of one of them."""
    median_s: Seconds
    """Of the work of a short cell (a log-normal distribution)."""
    sigma: float = 1.0
    gib: float = 2.0
    long_part: float = 0.0
    """The part of the cells that are long: their work has the mean `long_s` (exponential)."""
    long_s: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """So many programs, each of an owner of its own, that come within the first `within_s` and work
    between `shortest_s` and `longest_s`."""

    count: int
    shortest_s: Seconds
    longest_s: Seconds
    within_s: Seconds
    gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """A notebook or a program of the one user `me`, with so many cells. Each works between
    `shortest_s` and `longest_s` (uniform)."""

    name: str
    gib: float
    count: int = 1
    from_s: Seconds = 0.0
    """When the first one is sent."""
    every_s: Seconds = 0.0
    shortest_s: Seconds
    longest_s: Seconds
    is_program: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A situation in which people share devices."""

    words: str
    devices: int
    device_gib: int
    lasts_s: Seconds
    """People send cells for this long."""
    people: People | None = None
    mine: tuple[Mine, ...] = ()
    jobs: Jobs | None = None
    weights: str = ""
    """Of owners, as the setting has them."""

    def workload(self, name: str, seed: int) -> Workload:
        """The same for the same seed, on every machine."""
        source = random.Random(f"{name}:{seed}")
        notebooks: list[Notebook] = []
        cells: list[Cell] = []
        for notebook, sent in self._drawn(source):
            notebooks.append(notebook)
            cells += [Cell(len(notebooks) - 1, at_s, work_s) for at_s, work_s in sent]
        cells.sort(key=lambda cell: cell.at_s)
        return Workload(
            title=f"{name}, seed {seed}",
            notebooks=notebooks,
            cells=cells,
            devices=self.devices,
            device_bytes=self.device_gib * GIB,
            settings={"weights": self.weights},
        )

    def _drawn(
        self, source: random.Random
    ) -> Iterator[tuple[Notebook, list[tuple[Seconds, Seconds]]]]:
        people, jobs = self.people, self.jobs
        for each in self.mine:
            notebook = Notebook(
                name=each.name,
                owner="me",
                bytes_used=int(each.gib * GIB),
                is_program=each.is_program,
            )
            moments = (each.from_s + number * each.every_s for number in range(each.count))
            works = (source.uniform(each.shortest_s, each.longest_s) for _ in range(each.count))
            yield notebook, list(zip(moments, works, strict=True))
        for number in range(jobs.count if jobs else 0):
            assert jobs is not None
            at_s = source.uniform(0, jobs.within_s)
            work_s = source.uniform(jobs.shortest_s, jobs.longest_s)
            job = Notebook(
                name=f"job-{number + 1}",
                owner=f"batch-{number + 1}",
                bytes_used=int(jobs.gib * GIB),
                opens_s=at_s,
                closes_s=at_s + work_s,
                is_program=True,
            )
            yield job, [(at_s, work_s)]
        for number in range(people.count if people else 0):
            assert people is not None
            notebook = Notebook(
                name=f"notebook-{number + 1}",
                owner=f"person-{number + 1}",
                bytes_used=int(people.gib * GIB),
            )
            yield notebook, list(self._cells_of_one(people, source))

    def _cells_of_one(
        self, people: People, source: random.Random
    ) -> Iterator[tuple[Seconds, Seconds]]:
        at_s = source.expovariate(1 / people.every_s)
        while at_s < self.lasts_s:
            if source.random() < people.long_part:
                work_s = source.expovariate(1 / people.long_s)
            else:
                drawn_s = source.lognormvariate(math.log(people.median_s), people.sigma)
                work_s = min(drawn_s, WORK_S_MAX)
            yield at_s, work_s
            at_s += source.expovariate(1 / people.every_s)


PRESETS: dict[str, Situation] = {
    "classroom": Situation(
        words="40 students run short cells on one device",
        devices=1,
        device_gib=140,
        lasts_s=1800,
        people=People(count=40, every_s=30, median_s=0.3, gib=3),
    ),
    "lab": Situation(
        words="8 researchers on one device, whose memory is oversubscribed three times",
        devices=1,
        device_gib=80,
        lasts_s=7200,
        people=People(count=8, every_s=150, median_s=1.0, gib=30, long_part=0.2, long_s=40),
        weights="person-1=2",
    ),
    "overnight": Situation(
        words="8 programs of one to two hours, and 6 people who work beside them for four hours",
        devices=4,
        device_gib=80,
        lasts_s=14_400,
        people=People(count=6, every_s=60, median_s=1.0, gib=6),
        jobs=Jobs(count=8, shortest_s=3600, longest_s=7200, within_s=3600, gib=20),
        weights="batch-1=2, batch-2=2",
    ),
    "workstation": Situation(
        words="one person on one device: a training, an exploring notebook, and a server program",
        devices=1,
        device_gib=80,
        lasts_s=12_000,
        mine=(
            Mine(name="train", gib=4, shortest_s=9000, longest_s=9900),
            Mine(
                name="explore",
                gib=2,
                count=200,
                from_s=30,
                every_s=60,
                shortest_s=0.1,
                longest_s=10,
            ),
            Mine(
                name="server",
                gib=1,
                count=1200,
                from_s=32,
                every_s=9.7,
                shortest_s=0.05,
                longest_s=0.3,
                is_program=True,
            ),
        ),
    ),
    "two-trainings": Situation(
        words="one person's two trainings on one device, the second begins an hour later",
        devices=1,
        device_gib=80,
        lasts_s=9600,
        mine=(
            Mine(name="old", gib=4, shortest_s=7000, longest_s=7500),
            Mine(name="new", gib=4, from_s=3600, shortest_s=2500, longest_s=3000),
        ),
    ),
    "many-nodes": Situation(
        words="3,000 notebooks on 1,000 devices, eight devices to a node",
        devices=1000,
        device_gib=80,
        lasts_s=300,
        people=People(count=3000, every_s=30, median_s=1.0, gib=10),
    ),
}
