"""Fixtures of the scheduler's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_library import fake_library
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler

__all__ = ["fake_library"]


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """Where a scheduler's runtime directory may come to be; it does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def scheduler(runtime: Path) -> Iterator[SchedulerUnderTest]:
    """A running scheduler without devices of its own: clients name them."""
    with running_scheduler(runtime) as running:
        yield running
