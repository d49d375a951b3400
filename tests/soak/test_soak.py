"""The soak: its judges, and a minute of it."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from tests.soak.__main__ import FIRST_SEED, soak
from tests.soak.bed import Bed
from tests.soak.faults import FAULTS
from tests.soak.ground import why_little
from tests.soak.score import Line, Score, Totals, meaning_of
from tests.support.paths import ROOT
from tests.support.sim import GIB

MINUTE_S = 60.0
TAKEN_BACK = sorted((Path(__file__).parent / "taken_back").glob("*.patch"))


@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        ("did 5 4 3 2 1", Line(totals=Totals(5, 4, 3, 2, 1))),
        ("ok exit _exit", Line(answer="exit _exit")),
        ("wrong alloc 4096 12 7 8", Line(finding="bytes_wrong")),
        ("failed cuMemFree 700", Line(finding="calls_failed")),
        ("ready", Line()),
    ],
)
def test_what_a_line_means(line: str, meaning: Line) -> None:
    assert meaning_of(line) == meaning


def test_a_fault_counts_where_its_effect_was_seen() -> None:
    score = Score(seed=1)
    score.tried.update(a=3, b=2)
    score.seen.update(a=2)
    score.count(Totals(5, 4, 3, 2, 1))
    said = score.as_json()
    assert (said["faults"], said["kinds"], said["least_of_a_kind"]) == (2, 1, 0)
    assert said["operations"] == 5
    assert score.is_good
    score.find("hangs", "tenant-1 did not go on")
    assert score.as_json()["hangs"] == 1
    assert not score.is_good


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only git applies patches")
@pytest.mark.parametrize("patch", TAKEN_BACK, ids=[patch.stem for patch in TAKEN_BACK])
def test_mends_can_be_taken_back(patch: Path) -> None:
    """By hand, to see that a soak finds what comes then."""
    subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, check=True)


def test_what_is_found_without_us_is_no_finding() -> None:
    without_us = Score(1)
    without_us.find("kernels_lost", "tenant-3 ended by exit with -11")
    without_us.find("calls_failed", "tenant-12: failed cuStreamSynchronize 900")
    score = Score(2, bare=without_us.keys())
    score.find("kernels_lost", "tenant-8 ended by exit with -11")
    score.find("calls_failed", "tenant-5: failed cuStreamSynchronize 900")
    assert score.is_good
    assert score.as_json()["found_bare"] == 2
    score.find("kernels_lost", "tenant-8 ended with -11")
    assert not score.is_good


def test_a_little_machine_has_fewer_tenants() -> None:
    assert why_little(2, 4 * GIB) == ""
    assert why_little(1, 4 * GIB) == "this machine has one core"
    assert why_little(2, 2 * GIB) == "this machine has 2.0 GiB of memory"


@pytest.mark.full
def test_without_turns_the_judge_sees_that_two_compute_at_once(tmp_path: Path) -> None:
    """The control: the same tenants without the hook, on devices on which they fit."""
    score = Score(seed=1)
    bed = Bed(tmp_path, random.Random(1), score, shared=False)
    try:
        for place in (2, 3):
            bed.add(place)
        assert bed.until(lambda: all(tenant.is_ready for tenant in bed.tenants))
        bed.heal()
        assert score.as_json()["overlaps"] > 0
    finally:
        bed.abandon()


@pytest.mark.full
@pytest.mark.promise(
    "bad-memory-31",
    "Six tenants that together hold more than two devices have, under faults of every kind of the "
    "soak, for a minute: no byte is wrong, nobody dies who was not meant to, nobody hangs, no two "
    "compute at once",
)
def test_a_minute_of_it(tmp_path: Path) -> None:
    score = soak(tmp_path, Score(FIRST_SEED), MINUTE_S, [*FAULTS])
    assert score.is_good, score.as_text()
    assert score.seen.total() > 0
