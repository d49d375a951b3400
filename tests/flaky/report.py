"""What many runs of the suite say together. Pure: runs in, tables and JSON out."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

SLOW_TIMES = 5
"""A test is slow that took so many times its median among the runs in the same company,"""
SLOW_S_MIN = 2.0
"""and at least so long: below it the machine decides."""


@dataclass(frozen=True)
class Run:
    company: str
    seed: int
    """Of the order of files."""
    wall_s: float
    is_green: bool
    tests: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """What each failed test said, by its name."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long the body of each test took, its fixtures apart, by its name."""


def read_run(report: Path, *, company: str, seed: int, wall_s: float, status: int) -> Run:
    """`report`: what pytest wrote with --junitxml. A run that ended without one has failed."""
    if not report.exists():
        said = {"(the run)": f"ended with status {status} and no report"}
        return Run(company, seed, wall_s, is_green=False, failed=said)
    failed, seconds = {}, {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        seconds[name] = float(case.get("time", 0))
        for kind in ("failure", "error"):
            said = case.find(kind)
            if said is not None:
                failed[name] = (said.get("message") or kind).strip().partition("\n")[0]
    return Run(company, seed, wall_s, status == 0, len(seconds), failed, seconds)


def failures(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Each test that failed, the one that failed most often first, with where and what it said."""
    found = defaultdict(list)
    for run in runs:
        for name, said in run.failed.items():
            found[name].append({"company": run.company, "seed": run.seed, "said": said})
    rows = [{"test": name, "times": len(seen), "runs": seen} for name, seen in found.items()]
    return sorted(rows, key=lambda row: (-row["times"], row["test"]))


def slow(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Each test that took far longer in one run than it does."""
    rows = []
    for company in sorted({run.company for run in runs}):
        times = defaultdict(list)
        for run in runs:
            if run.company == company:
                for name, took_s in run.seconds.items():
                    times[name].append((took_s, run.seed))
        for name, taken in times.items():
            median_s = statistics.median(took_s for took_s, _ in taken)
            most_s, seed = max(taken)
            if most_s > max(SLOW_S_MIN, SLOW_TIMES * median_s):
                row = {"test": name, "company": company, "seed": seed}
                rows.append({**row, "median_s": round(median_s, 3), "most_s": round(most_s, 3)})
    return sorted(rows, key=lambda row: -row["most_s"])


def by_company(runs: Sequence[Run]) -> list[dict[str, Any]]:
    rows = []
    for company in dict.fromkeys(run.company for run in runs):
        its = [run for run in runs if run.company == company]
        row = {"company": company, "runs": len(its), "green": sum(run.is_green for run in its)}
        walls_s = [round(run.wall_s) for run in its]
        rows.append({**row, "tests": max(run.tests for run in its), "wall_s": walls_s})
    return rows


def as_json(runs: Sequence[Run]) -> dict[str, Any]:
    return {"companies": by_company(runs), "failures": failures(runs), "slow": slow(runs)}


def as_text(runs: Sequence[Run]) -> str:
    lines = [f"{'company':<8} {'green':>9} {'tests':>6}  seconds"]
    for row in by_company(runs):
        green = f"{row['green']} of {row['runs']}"
        lines.append(f"{row['company']:<8} {green:>9} {row['tests']:>6}  {row['wall_s']}")
    lines += ["", "Failed:" if failures(runs) else "No test failed."]
    for row in failures(runs):
        lines.append(f"  {row['times']} x {row['test']}")
        lines += [
            f"      {run['company']}, seed {run['seed']}: {run['said']}" for run in row["runs"]
        ]
    lines += [
        "",
        f"More than {SLOW_TIMES} times the median:" if slow(runs) else "No test was slow.",
    ]
    for row in slow(runs):
        times = f"{row['most_s']} s, else {row['median_s']} s"
        lines.append(f"  {row['test']}: {times} ({row['company']}, seed {row['seed']})")
    return "\n".join(lines)
