"""A pytest plugin for somebody else's suite: notes each test as it begins and ends, in a file that
outlives the process, and leaves out what is noted there already, or is another shard's."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from tests.gpu.suites.outcomes import BEGUN, read

RECORD, SHARD, CHOSEN = "GPUSHARE_SUITE_RECORD", "GPUSHARE_SUITE_SHARD", "GPUSHARE_SUITE_CHOSEN"
"""The file; `NUMBER/COUNT`; and a file that names the tests to run, a line each (all)."""


def _note(outcome: str, test: str) -> None:
    with Path(os.environ[RECORD]).open("a") as record:
        record.write(f"{outcome} {test}\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    record = Path(os.environ[RECORD])
    done = read(record.open()).by_test if record.exists() else {}
    number, count = map(int, os.environ[SHARD].split("/"))
    named = os.environ.get(CHOSEN)
    chosen = set(Path(named).read_text().splitlines()) if named else None
    items[:] = [
        item
        for item in items
        if item.nodeid not in done
        and zlib.crc32(item.nodeid.encode()) % count == number
        and (chosen is None or item.nodeid in chosen)
    ]


def pytest_runtest_logstart(nodeid: str) -> None:
    _note(BEGUN, nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        _note(report.outcome, report.nodeid)


@pytest.fixture
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    """Numba's tests ask for it; the file that has it does not lie in the package."""
    request.instance._dump_failed_filechecks = False
