"""The program that asks what the documentation leaves open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_every_question_is_answered(tmp_path: Path) -> None:
    """No question fails by itself, whatever the driver says."""
    kept = tmp_path / "answers.json"
    asked = [sys.executable, "-m", "tests.driver.questions", "--json", str(kept)]
    options = ["--workers", "2", "--each", "60", "--all", "600"]
    printed = subprocess.run(
        [*asked, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    answers = json.loads(kept.read_text())
    unanswered = ("raised", "not asked")  # a crash is an answer
    assert len(answers) > 70
    assert {n: a for n, a in answers.items() if a.startswith(unanswered)} == {}
    assert all(name in printed for name in answers)
