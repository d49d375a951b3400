"""The benchmark of policies measures and reports. Whether its bars are met is for the benchmark to
show, by its status."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.load import of_preset
from jupyter_gpushare.simulator.policies import POLICIES
from jupyter_gpushare.simulator.summary import PolicyFigures, summarised
from tests.bench.bars import exit_status
from tests.bench.bench_policy import Policy, Preset, bars_of, fits, pooled
from tests.bench.ideals import IDEALS
from tests.simulator.scenes import notebook, simulated, workload
from tests.support.paths import ROOT
from tests.support.waits import WAIT_S_MAX

OURS = Policy(
    jain=0.96,
    lag_s_max=20.0,
    short_wait_s_p50=0.01,
    short_wait_s_p95=0.2,
    makespan_s=102.0,
    idle_while_eligible=0.009,
    swap_share=0.05,
    estimate_coverage={"turn": 0.8, "memory": 0.74, "held": 0.1},
    estimate_starts={"turn": 1000, "memory": 100, "held": 99},
    estimate_score=0.69,
    estimate_unknown=0.09,
)
OTHER = replace(OURS, jain=0.5, short_wait_s_p95=1.0, makespan_s=100.0, idle_while_eligible=0.5)
TIMESLICING = replace(OTHER, short_wait_s_p95=0.2)


def presets(ours: Policy = OURS, *, fits: bool = True) -> dict[str, Preset]:
    """One, on which all others have the same figures."""
    others = dict.fromkeys(POLICIES, OTHER)
    return {"lab": Preset(fits, {**others, "timeslicing": TIMESLICING, "ours": ours})}


@pytest.mark.full
@pytest.mark.promise(
    "speed-5",
    "`make bench-policy` compares the scheduler with models of other ways to share a GPU, on the "
    "same seeds, with its bars",
)
def test_policies_are_compared() -> None:
    """A short run ends with one JSON object, which has all figures of all policies."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.bench.bench_policy"),
            *("--presets", "classroom", "--seeds", "1"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout.splitlines()[-1])["presets"]["classroom"]
    assert report.keys() == POLICIES.keys()
    assert json.loads(done.stdout.splitlines()[-1])["ideals"]["classroom"].keys() == IDEALS.keys()
    for figures in report.values():
        assert 0 < figures["jain"] <= 1
        assert 0 <= figures["short_wait_s_p50"] < figures["short_wait_s_p95"]
        assert figures["makespan_s"] > 1700
        del figures["estimate_coverage"]


def test_equal_shares_are_the_reference_of_fairness() -> None:
    """So the figures of fairness find no fault with them, where all weights are the same."""
    scene = replace(of_preset("lab", 1), settings={})
    record = simulated(IDEALS["(equal)"], scene)
    figures = summarised("(equal)", scene, record, devices=1, world=World())
    assert figures.jain == pytest.approx(1.0)
    assert figures.lag_s_max == pytest.approx(0.0, abs=1e-3)
    assert figures.idle_while_eligible == 0.0


@pytest.mark.parametrize(
    ("ideal", "ends_s"),
    [
        ("(equal)", [10.0, 8.0, 5.0]),
        ("(newest)", [10.0, 7.0, 3.0]),
        ("(shortest)", [10.0, 5.0, 3.0]),
    ],
)
def test_ideals_are_exact(ideal: str, ends_s: list[float]) -> None:
    """Cells of 6 s, 3 s and 1 s that come at 0 s, 1 s and 2 s."""
    scene = workload([notebook(n) for n in "abc"], [(0, 0.0, 6.0), (1, 1.0, 3.0), (2, 2.0, 1.0)])
    assert list(simulated(IDEALS[ideal], scene).ends_s) == pytest.approx(ends_s, abs=1e-3)


def test_of_several_seeds_the_middle_counts_and_the_largest_lag() -> None:
    """So one seed that is easy for a policy does not decide."""
    figures = [
        PolicyFigures(
            policy="ours",
            jain=jain,
            lag_s_max=lag_s,
            short_wait_s_p50=0.0,
            short_wait_s_p95=wait_s,
            makespan_s=100.0,
            idle_while_eligible=0.0,
            swap_share=0.0,
            work_share=0.9,
            cells=10,
            cells_failed=0,
        )
        for jain, lag_s, wait_s in ((0.9, 7.0, 1.0), (0.8, 3.0, 5.0), (1.0, 2.0, 2.0))
    ]
    found = pooled(figures)
    assert (found.jain, found.lag_s_max, found.short_wait_s_p95) == (0.9, 7.0, 2.0)


def test_memory_fits_if_each_device_has_room_for_all_its_notebooks() -> None:
    """Whether time-slicing pages follows from this."""
    notebooks = [notebook(name, gib=50) for name in ("ann", "ben", "cem")]
    assert fits(workload(notebooks[:2], [], device_gib=100))
    assert not fits(workload(notebooks, [], device_gib=100))
    assert not fits(workload(notebooks, [], device_gib=80, devices=2))


@pytest.mark.promise("speed-10")
@pytest.mark.parametrize(
    "worse",
    [
        presets(replace(OURS, jain=0.949)),
        presets(replace(OURS, idle_while_eligible=0.011)),
        presets(replace(OURS, short_wait_s_p95=0.201)),
        presets(replace(OURS, makespan_s=102.1)),
        presets(replace(OURS, makespan_s=107.1), fits=False),
        presets(replace(OURS, estimate_coverage={"turn": 0.8, "memory": 0.64})),
        presets(replace(OURS, estimate_coverage={"turn": 0.91})),
        presets(replace(OURS, estimate_score=0.71)),
        presets(replace(OURS, estimate_unknown=0.11)),
    ],
    ids=[
        *("jain", "idle", "wait", "makespan", "makespan-swapping"),
        *("too-sure", "too-wide", "score", "unknown"),
    ],
)
def test_a_missed_bar_ends_with_status_1(worse: dict[str, Preset]) -> None:
    """Each bar counts by itself."""
    assert exit_status(bars_of(presets())) == 0
    assert exit_status(bars_of(worse)) == 1


@pytest.mark.parametrize("policy", ["nvshare", "gemini", "reservation", "timeslicing"])
def test_each_baseline_has_a_bar_of_its_own(policy: str) -> None:
    """A baseline whose short cells wait less than its bar allows is a miss."""
    given = presets()
    quicker = replace(OTHER, short_wait_s_p95=0.9 if policy != "timeslicing" else 0.19)
    given["lab"] = replace(given["lab"], policies={**given["lab"].policies, policy: quicker})
    assert exit_status(bars_of(given)) == 1


def test_memory_that_does_not_fit_excuses_swaps_and_time_slicing() -> None:
    """Time-slicing thrashes there, and swaps take their part of the device's time."""
    slower = replace(OURS, makespan_s=106.9)
    given = presets(slower, fits=False)
    quicker = replace(TIMESLICING, short_wait_s_p95=0.1)
    given["lab"] = replace(given["lab"], policies={**given["lab"].policies, "timeslicing": quicker})
    assert exit_status(bars_of(given)) == 0
