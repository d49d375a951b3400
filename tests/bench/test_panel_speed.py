"""The benchmark of the panel measures; with few changes, for its figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.browser.chromium import find_chromium
from tests.browser.conftest import what_is_missing
from tests.support.node import NoProgram
from tests.support.paths import ROOT

CHANGES = 3


@pytest.mark.full
@pytest.mark.promise(
    "panel-1",
    "`make bench-panel` measures how long a change takes from the scheduler to the screen, with "
    "its bars",
)
def test_the_way_to_the_screen_is_measured() -> None:
    """Each change is seen on the screen after it was made, and the last line is JSON."""
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    try:
        find_chromium()
    except NoProgram as reason:
        pytest.skip(str(reason))
    command = [sys.executable, "-m", "tests.bench.bench_panel", f"--changes={CHANGES}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["changes"] == CHANGES and result["tenants"] == 50
    assert 0 < result["panel_ms_p50"] <= result["panel_ms_p95"] <= result["panel_ms_max"]
    assert result["bundle_kb"] > 0
