"""Fixtures of all tests. Standard library and pytest only: tests/driver and tests/gpu also run on
machines that do not have our package."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.promises import SkippedPromises
from tests.support.machine import real_device_name
from tests.support.sim import SimulatedMachine


def pytest_configure(config: pytest.Config) -> None:
    """Where there is no GPU, everything that was promised is to be seen: nothing of it is skipped.
    On a real device the tests of the simulated one's own ways are.

    Whoever starts the tests in the background of a script leaves Ctrl-C ignored, and programs would
    inherit that: here it means what it means at a terminal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if real_device_name() is None:
        config.pluginmanager.register(SkippedPromises(), "skipped-promises")


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """A fresh simulated machine with one device of 8 GiB, for child processes."""
    return SimulatedMachine(tmp_path / "machine")
