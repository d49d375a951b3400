"""Fixtures of the command line's tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fake_library import fake_library
from tests.support.scheduler_process import (
    SchedulerUnderTest,
    command_line,
    environment,
    nursery,
    running_scheduler,
)
from tests.support.waits import WAIT_S_MAX

__all__ = ["fake_library"]

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """Where a scheduler's runtime directory may come to be; it does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def scheduler(runtime: Path) -> Iterator[SchedulerUnderTest]:
    """A running scheduler without devices of its own: clients name them."""
    with running_scheduler(runtime) as running:
        yield running


@pytest.fixture
def gpushare(runtime: Path) -> Command:
    """`jupyter gpushare ARGUMENTS` with the test's runtime directory; its output and status."""
    return command_at(runtime)


def command_at(runtime: Path) -> Command:
    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        given = environment({"GPUSHARE_RUNTIME_DIR": str(runtime), **(env or {})})
        return nursery(given).run(command_line(arguments), env=given, timeout=WAIT_S_MAX)

    return run
