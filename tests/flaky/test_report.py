"""What the runs say together, and how a run is read."""

from __future__ import annotations

from pathlib import Path

from tests.flaky.company import ALONE, BUSY
from tests.flaky.report import Run, as_json, as_text, read_run

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.core.test_a" name="test_x" time="0.5"/>
<testcase classname="tests.core.test_a" name="test_y[1]" time="1.5">
  <failure message="assert 1 == 2&#10; + more">traceback</failure></testcase>
<testcase classname="tests.core.test_b" name="test_z" time="0.1">
  <error message="no set-up"/></testcase>
</testsuite></testsuites>"""


def test_a_run_is_read(tmp_path: Path) -> None:
    """Each test's time, and the first line of what a failed one said."""
    (tmp_path / "junit.xml").write_text(JUNIT)
    run = read_run(tmp_path / "junit.xml", company=ALONE, seed=3, wall_s=60, status=1)
    assert (run.is_green, run.tests) == (False, 3)
    assert run.failed == {
        "tests.core.test_a::test_y[1]": "assert 1 == 2",
        "tests.core.test_b::test_z": "no set-up",
    }
    assert run.seconds["tests.core.test_a::test_x"] == 0.5


def test_a_run_that_left_no_report_has_failed(tmp_path: Path) -> None:
    """As one does whose pytest was killed."""
    run = read_run(tmp_path / "junit.xml", company=BUSY, seed=3, wall_s=60, status=-9)
    assert not run.is_green and "status -9" in run.failed["(the run)"]


def test_failures_and_slow_tests_are_named_with_their_seeds() -> None:
    """The one that failed most often comes first; slow is measured within one company."""
    runs = [
        Run(ALONE, 1, 10, True, 2, {}, {"a": 1.0, "b": 0.1}),
        Run(ALONE, 2, 10, False, 2, {"a": "no"}, {"a": 9.0, "b": 0.9}),
        Run(ALONE, 3, 10, True, 2, {}, {"a": 1.0, "b": 0.1}),
        Run(BUSY, 1, 30, False, 2, {"a": "no", "b": "late"}, {"a": 9.0, "b": 0.9}),
    ]
    told = as_json(runs)
    assert [(row["test"], row["times"]) for row in told["failures"]] == [("a", 2), ("b", 1)]
    assert [(row["test"], row["company"], row["seed"]) for row in told["slow"]] == [("a", ALONE, 2)]
    assert [(row["company"], row["green"]) for row in told["companies"]] == [(ALONE, 2), (BUSY, 0)]
    text = as_text(runs)
    assert "2 of 3" in text and "busy, seed 1: late" in text and "a: 9.0 s, else 1.0 s" in text
