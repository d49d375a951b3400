"""Who goes next, in virtual time: our scheduler and the models of other ways to share a GPU, on all
presets of the simulator and on the same seeds.

No setting and no parameter of a preset was chosen with these seeds. Of several seeds the median of
a figure counts; of `lag_s_max` the largest. docs/scheduling.md defines the figures. The figures are
the same on every machine. The last line is JSON; the status is 1 where ours misses a bar.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from jupyter_gpushare.core.configuration.values import changed_settings
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.simulator import load
from jupyter_gpushare.simulator.base.workload import Workload, placed
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.policies import POLICIES
from jupyter_gpushare.simulator.presets import PRESETS
from jupyter_gpushare.simulator.run import run
from jupyter_gpushare.simulator.summary import PolicyFigures, summarised
from tests.bench.bars import Bar, exit_status
from tests.bench.ideals import IDEALS
from tests.bench.own import bars_of_one_person
from tests.support.timeline import median

OURS = "ours"
TIMESLICING = "timeslicing"
SLOW = ("nvshare", "gemini", "reservation")
"""Their short cells are to wait five times longer than ours."""
SEEDS = (7001, 7002, 7003)
JAIN_BAR = 0.95
SHORT_WAIT_BAR = 1 / 5
SHORT_WAIT_TIMESLICING_BAR = 1.0
MAKESPAN_BAR = 1.02
IDLE_BAR = 0.01
COVERAGE_LOW_BAR, COVERAGE_HIGH_BAR = 0.65, 0.9
STARTS_MIN = 100
"""Of fewer starts, chance alone moves the coverage by more than its bar is wide."""
SCORE_BAR = 0.7
SCORE_OF_EXACT = 0.05
"""With such a score, ranges are hardly wider than one moment: none is too wide to say anything."""
UNKNOWN_BAR = 0.1


@dataclass(frozen=True)
class Policy:
    """What one policy made of a preset."""

    jain: float
    lag_s_max: float
    short_wait_s_p50: float
    short_wait_s_p95: float
    makespan_s: float
    idle_while_eligible: float
    swap_share: float
    estimate_coverage: Mapping[str, float] | None = None
    estimate_starts: Mapping[str, int] | None = None
    estimate_score: float | None = None
    estimate_unknown: float | None = None
    """None of a policy that gives no estimates, as no baseline does."""


@dataclass(frozen=True)
class Preset:
    """All policies on one preset. `fits`: all its memory fits at once, in each seed."""

    fits: bool
    policies: Mapping[str, Policy]
    ideals: Mapping[str, Policy] = field(default_factory=dict)
    """What nobody can reach."""


def measure(name: str, seeds: Sequence[int]) -> Preset:
    """Runs the preset, and prints its part of the table."""
    workloads = [load.of_preset(name, seed) for seed in seeds]
    print(f"\n  {PRESETS[name].words}\n{HEAD}", flush=True)
    found = {}
    for policy in (*POLICIES, *IDEALS):
        before_s = time.process_time()
        found[policy] = pooled([_simulated(policy, workload) for workload in workloads])
        print(_line(name, policy, found[policy], time.process_time() - before_s), flush=True)
    return Preset(
        fits=all(fits(workload) for workload in workloads),
        policies={policy: found[policy] for policy in POLICIES},
        ideals={policy: found[policy] for policy in IDEALS},
    )


def _simulated(policy: str, workload: Workload) -> PolicyFigures:
    settings = changed_settings(SchedulerSettings(), dict(workload.settings))
    world = World(settings=settings, device_bytes=workload.device_bytes)
    make = (POLICIES | IDEALS)[policy]
    record = run(workload, make, devices=workload.devices, world=world)
    return summarised(
        policy,
        workload,
        record,
        devices=workload.devices,
        world=world,
    )


def pooled(figures: Sequence[PolicyFigures]) -> Policy:
    """Of several seeds."""

    def middle(name: str) -> float:
        return round(median([getattr(each, name) for each in figures]), 6)

    return Policy(
        jain=middle("jain"),
        lag_s_max=round(max(each.lag_s_max for each in figures), 6),
        short_wait_s_p50=middle("short_wait_s_p50"),
        short_wait_s_p95=middle("short_wait_s_p95"),
        makespan_s=middle("makespan_s"),
        idle_while_eligible=middle("idle_while_eligible"),
        swap_share=middle("swap_share"),
        **_estimates(figures),
    )


def _estimates(figures: Sequence[PolicyFigures]) -> dict[str, Any]:
    """Of all starts of all seeds; of the others the median."""
    told = [each for each in figures if each.estimate_coverage is not None]
    if not told:
        return {}
    starts: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for each in told:
        for reason, count in (each.estimate_starts or {}).items():
            starts[reason] += count
            inside[reason] += round(count * (each.estimate_coverage or {})[reason])
    scores = [each.estimate_score for each in told if each.estimate_score is not None]
    unknown = [each.estimate_unknown for each in told if each.estimate_unknown is not None]
    return {
        "estimate_coverage": {
            reason: round(inside[reason] / count, 6) for reason, count in sorted(starts.items())
        },
        "estimate_starts": dict(sorted(starts.items())),
        "estimate_score": round(median(scores), 6) if scores else None,
        "estimate_unknown": round(median(unknown), 6),
    }


def fits(workload: Workload) -> bool:
    """Whether each device has memory for all its notebooks at once, so that nothing pages."""
    used = [0] * workload.devices
    places = placed(workload.notebooks, workload.devices)
    for notebook, device in zip(workload.notebooks, places, strict=True):
        used[device] += notebook.bytes_used
    return max(used) <= workload.device_bytes


HEAD = (
    f"  {'':<24}{'jain':>7}{'lag s':>10}{'p50 s':>11}{'p95 s':>12}{'makespan s':>12}"
    f"{'idle':>8}{'swap':>8}{'took s':>8}"
)


def _line(preset: str, name: str, policy: Policy, took_s: float) -> str:
    return (
        f"  {preset + ' ' + name:<24}{policy.jain:>7.3f}{policy.lag_s_max:>10.1f}"
        f"{policy.short_wait_s_p50:>11.3f}{policy.short_wait_s_p95:>12.3f}"
        f"{policy.makespan_s:>12.1f}{policy.idle_while_eligible:>8.3f}{policy.swap_share:>8.3f}"
        f"{took_s:>8.1f}"
    )


def bars_of(presets: Mapping[str, Preset]) -> list[Bar]:
    """What ours is held to. Estimates have bars where there are estimates."""
    return [bar for name, preset in presets.items() for bar in _bars_of(name, preset)]


def _bars_of(name: str, preset: Preset) -> list[Bar]:
    ours = preset.policies[OURS]
    bars = [
        Bar(f"{name}: jain", ours.jain, at_least=JAIN_BAR),
        Bar(f"{name}: idle while eligible", ours.idle_while_eligible, at_most=IDLE_BAR),
    ]
    p95s = {policy: SHORT_WAIT_BAR for policy in SLOW}
    if preset.fits:
        p95s[TIMESLICING] = SHORT_WAIT_TIMESLICING_BAR
    for policy, bar in p95s.items():
        ratio = _by(ours.short_wait_s_p95, preset.policies[policy].short_wait_s_p95)
        bars.append(Bar(f"{name}: p95, by {policy}'s", ratio, at_most=bar, unit="times"))
    best_s = min(each.makespan_s for key, each in preset.policies.items() if key != OURS)
    bars.append(
        Bar(
            f"{name}: makespan, by the best one's",
            _by(ours.makespan_s, best_s),
            at_most=MAKESPAN_BAR + (0.0 if preset.fits else ours.swap_share),
            unit="times",
        )
    )
    return bars + _estimate_bars_of(name, ours)


def _estimate_bars_of(name: str, ours: Policy) -> list[Bar]:
    bars = []
    for reason, part in (ours.estimate_coverage or {}).items():
        if (ours.estimate_starts or {}).get(reason, 0) < STARTS_MIN:
            continue
        bars.append(Bar(f"{name}: coverage, {reason}", part, at_least=COVERAGE_LOW_BAR))
        if (ours.estimate_score or 0.0) > SCORE_OF_EXACT:
            bars.append(Bar(f"{name}: coverage, {reason}", part, at_most=COVERAGE_HIGH_BAR))
    if ours.estimate_score is not None:
        bars.append(Bar(f"{name}: estimate's score", ours.estimate_score, at_most=SCORE_BAR))
    if ours.estimate_unknown is not None:
        bars.append(Bar(f"{name}: unknown", ours.estimate_unknown, at_most=UNKNOWN_BAR))
    return bars


def _by(value: float, other: float) -> float:
    """The ratio; nothing at all is as good as nothing."""
    return value / other if other else inf if value else 0.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_policy")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args(argv)
    presets = {name: measure(name, options.seeds) for name in options.presets}
    print()
    own = bars_of_one_person(options.seeds) if "workstation" in presets else []
    status = exit_status([*bars_of(presets), *own])
    report = {name: asdict(preset) for name, preset in presets.items()}
    print(
        json.dumps(
            {
                "presets": {name: preset["policies"] for name, preset in report.items()},
                "ideals": {name: preset["ideals"] for name, preset in report.items()},
                "own": {bar.name: round(bar.value, 6) for bar in own},
            }
        )
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
