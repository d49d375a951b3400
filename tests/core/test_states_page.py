"""docs/states.md is generated from the transition tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.core.transitions import CLIENT_TRANSITIONS, TENANT_TRANSITIONS

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.promise("scheduler-15")
def test_the_page_is_current() -> None:
    """The page is what the tables say."""
    command = [sys.executable, DOCS / "generate_states.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.promise("scheduler-15")
def test_the_page_has_every_arrow() -> None:
    """No transition between two states is missing from the pictures."""
    page = (DOCS / "states.md").read_text()
    for table in (TENANT_TRANSITIONS, CLIENT_TRANSITIONS):
        for (where, trigger), to in table.items():
            arrow = f"{where.name} --> {to.name}: {trigger.name}"
            assert (arrow in page) == (where is not to)
