"""The program that asks what the documentation leaves open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.asked.stale import deadly_calls
from tests.support.paths import ROOT

KEPT = Path(__file__).parent / "asked" / "h200.json"


@pytest.mark.parametrize(
    "subjects",
    [
        ["mapped", "pooled", "graphs", "shared", "managed", "gone"],
        pytest.param(["stale"], marks=pytest.mark.full),
    ],
    ids=["all but stale", "stale"],
)
def test_every_question_is_answered(subjects: list[str], tmp_path: Path) -> None:
    """No question fails by itself, whatever the driver says."""
    kept = tmp_path / "answers.json"
    asked = [sys.executable, "-m", "tests.driver.questions", "--json", str(kept)]
    options = ["--workers", "2", "--each", "60", "--all", "600", "--subjects", *subjects]
    printed = subprocess.run(
        [*asked, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    answers = json.loads(kept.read_text())
    unanswered = ("raised", "not asked")  # a crash is an answer
    assert len(answers) > 70
    assert {n: a for n, a in answers.items() if a.startswith(unanswered)} == {}
    assert all(name in printed for name in answers)


def test_which_calls_kill_on_a_device() -> None:
    """What a call follows that is gone: streams, events, arrays and released chunks; never graphs,
    modules, functions, pools and addresses."""
    deadly = deadly_calls(json.loads(KEPT.read_text()))
    assert set(deadly) == {"stream", "event", "array", "chunk"}
    assert {"cuStreamQuery", "cuStreamGetCtx", "cuEventRecord"} <= set(deadly["stream"])
    assert "cuMemRelease" not in deadly["chunk"]
