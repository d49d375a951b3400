"""What one person's notebooks take beside each other, in virtual time, and the bars for that."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from jupyter_gpushare.core.configuration.values import changed_settings
from jupyter_gpushare.core.ids import Seconds
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.simulator.base.record import Kind, Record
from jupyter_gpushare.simulator.base.workload import Workload
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.metrics import quantile
from jupyter_gpushare.simulator.policies import POLICIES
from jupyter_gpushare.simulator.presets import PRESETS
from jupyter_gpushare.simulator.run import run
from tests.bench.bars import Bar

BINS = 5
SLACK_S: Seconds = 0.1
RESPONSE_BAR = 1.15
LATE_BAR = 1.03
HALF_OFF_BAR = 0.05
HAND_OVERS_BAR = 15.0
SETTLED_AFTER_S: Seconds = 120.0
"""Two trainings have equal parts from the second minute on."""


@dataclass(frozen=True)
class Answer:
    """Of one cell."""

    work_s: Seconds
    took_s: Seconds
    """From when it was sent, or from the end of the one before it."""

    @property
    def by_work(self) -> float:
        """A tenth of a second is free."""
        return (self.took_s - SLACK_S) / self.work_s


def played(workload: Workload, policy: str) -> Record:
    settings = changed_settings(SchedulerSettings(), dict(workload.settings))
    world = World(settings=settings, device_bytes=workload.device_bytes)
    return run(workload, POLICIES[policy], devices=workload.devices, world=world)


def answers(workload: Workload, record: Record, notebook: int) -> list[Answer]:
    """Of the notebook's cells, in their order."""
    found, free_s = [], 0.0
    for cell, end_s in zip(workload.cells, record.ends_s, strict=True):
        if cell.notebook == notebook:
            found.append(Answer(cell.work_s, end_s - max(cell.at_s, free_s)))
            free_s = end_s
    return found


def share(record: Record, notebook: int, from_s: Seconds, to_s: Seconds) -> float:
    """The part of the time in which the notebook worked."""
    works = [each for each in record.spans() if each.notebook == notebook]
    return sum(
        max(0.0, min(each.end_s, to_s) - max(each.start_s, from_s)) * each.share
        for each in works
        if each.kind is Kind.WORK
    ) / (to_s - from_s)


def hand_overs_a_minute(record: Record, from_s: Seconds, to_s: Seconds) -> float:
    starts = sorted(
        (each.start_s, each.notebook) for each in record.spans() if each.kind is Kind.WORK
    )
    inside = [notebook for at_s, notebook in starts if from_s <= at_s < to_s]
    changes = sum(one != other for one, other in itertools.pairwise(inside))
    return changes * 60 / (to_s - from_s)


def late(workload: Workload, record: Record) -> float:
    """When the training ended, by its work and that of all other cells."""
    train = next(n for n, each in enumerate(workload.notebooks) if each.name == "train")
    end_s, works_s = 0.0, 0.0
    for cell, cell_end_s in zip(workload.cells, record.ends_s, strict=True):
        end_s = cell_end_s if cell.notebook == train else end_s
        works_s += cell.work_s
    return end_s / works_s


def bars_of_one_person(seeds: Sequence[int]) -> list[Bar]:
    """Of the largest figure of several seeds."""
    found = [bar for seed in seeds for bar in (*_workstation(seed), *_two_trainings(seed))]
    worst: dict[str, Bar] = {}
    for bar in found:
        known = worst.setdefault(bar.name, bar)
        if bar.value > known.value:
            worst[bar.name] = bar
    return list(worst.values())


def _workstation(seed: int) -> list[Bar]:
    workload = PRESETS["workstation"].workload("workstation", seed)
    ours, sliced = (played(workload, policy) for policy in ("ours", "timeslicing"))
    bars = [Bar("workstation: training's end", late(workload, ours), at_most=LATE_BAR)]
    for name in ("explore", "server"):
        number = next(n for n, each in enumerate(workload.notebooks) if each.name == name)
        of_ours, of_sliced = (answers(workload, each, number) for each in (ours, sliced))
        p95 = quantile([each.by_work for each in of_ours], 0.95)
        bars.append(Bar(f"workstation: {name}, p95 by work", p95, at_most=RESPONSE_BAR))
        longest_s = max(each.work_s for each in of_ours)
        for part in range(BINS):
            low_s, high_s = longest_s * part / BINS, longest_s * (part + 1) / BINS
            took_s = [
                quantile([each.took_s for each in of if low_s < each.work_s <= high_s], 0.95)
                for of in (of_ours, of_sliced)
            ]
            if took_s[1]:
                what = f"workstation: {name} to {high_s:.2g} s, by slicing's"
                bars.append(Bar(what, took_s[0] / took_s[1], at_most=1.0))
    return bars


def _two_trainings(seed: int) -> list[Bar]:
    preset = PRESETS["two-trainings"]
    workload = preset.workload("two-trainings", seed)
    record = played(workload, "ours")
    from_s = preset.mine[1].from_s + SETTLED_AFTER_S
    to_s = min(record.ends_s)
    off = max(abs(share(record, number, from_s, to_s) - 0.5) for number in (0, 1))
    hand_overs = hand_overs_a_minute(record, from_s, to_s)
    return [
        Bar("two-trainings: from a half each", off, at_most=HALF_OFF_BAR),
        Bar("two-trainings: hand-overs a minute", hand_overs, at_most=HAND_OVERS_BAR),
    ]
