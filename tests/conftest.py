"""Fixtures of all tests. Standard library and pytest only: tests/driver and tests/gpu also run on
machines that do not have our package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sim import SimulatedMachine


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """A fresh simulated machine with one device of 8 GiB, for child processes."""
    return SimulatedMachine(tmp_path / "machine")
