"""The panel's unit tests, which need Node and no browser."""

from __future__ import annotations

import runpy
import subprocess

import pytest

from tests.support.node import NoProgram, node_command
from tests.support.paths import ROOT

PANEL_SOURCES = ROOT / "labextension"
JEST = PANEL_SOURCES / "node_modules" / "jest" / "bin" / "jest.js"


def test_the_panels_unit_tests_pass() -> None:
    """They run here unless `make lint` has seen these same sources pass."""
    build = runpy.run_path(str(PANEL_SOURCES / "build.py"))
    if build["is_noted"](build["CHECKED"], build["digest_of_checked"]()):
        return
    if not JEST.exists():
        pytest.skip("Jest is not installed. To run this: make lint")
    try:
        node = node_command()
    except NoProgram as reason:
        pytest.skip(str(reason))
    done = subprocess.run([node, JEST], cwd=PANEL_SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
