"""Somebody else's suites beside a rival (`python -m tests.gpu.suites`): what counts as lost."""

from __future__ import annotations

import os
from pathlib import Path

from tests.gpu.suites.__main__ import run_tests
from tests.gpu.suites.outcomes import BARE, BESIDE, as_json, as_text, read
from tests.gpu.suites.plugin import RECORD, SHARD
from tests.support.paths import ROOT


def test_what_passed_without_the_hook_and_not_with_it_is_lost() -> None:
    """Not what failed before, what was skipped, or what there was no time for."""
    bare = read(["begun a\n", "passed a\n", "passed b\n", "failed c\n", "passed d\n", "passed e\n"])
    beside = read(["passed a\n", "failed b\n", "failed c\n", "begun d\n"])
    runs = {"cupy": {BARE: bare, BESIDE: beside}}
    assert as_json(runs)["cupy"][BESIDE]["lost"] == {"b": "failed"}
    assert as_json(runs)["cupy"][BESIDE]["cut_off"] == 1
    beside.process_died()
    assert as_json(runs)["cupy"][BESIDE]["lost"] == {"b": "failed", "d": "died"}
    assert "beside: d died" in as_text(runs)


def test_a_test_whose_teardown_fails_has_failed() -> None:
    """A torn last line says nothing."""
    assert read(["begun a\n", "passed a\n", "failed a\n", "passed b"]).by_test == {"a": "failed"}


def test_a_test_that_ends_its_process_is_one_of_many(tmp_path: Path) -> None:
    """The rest is run in another process."""
    suite = tmp_path / "suite"
    suite.mkdir()
    lines = [
        "import os",
        "def test_a(): pass",
        "def test_b(): os.kill(os.getpid(), 11)",
        "def test_c(): assert False",
        "def test_d(): pass",
    ]
    (suite / "test_all.py").write_text("\n".join(lines))
    record = tmp_path / "record"
    env = {**os.environ, "PYTHONPATH": str(ROOT), RECORD: str(record), SHARD: "0/1"}
    ended = run_tests(suite, "", env, record, ends_s=float("inf"))
    assert {test[-1]: its for test, its in ended.by_test.items()} == {
        "a": "passed",
        "b": "died",
        "c": "failed",
        "d": "passed",
    }
