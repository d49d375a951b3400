"""docs/promises.md as data: each promise names the tests that hold it.

A line of the document is `- promise text — `test::id`[, `test::id` …]`. As a pytest plugin (loaded
by tests/conftest.py) this module fails a run in which a promised test was skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "promises.md"
TEST_ID = re.compile(r"`(tests/[\w/]+\.py::[\w:]+)`")


@dataclass(frozen=True)
class Promise:
    """One line of the document, under its heading."""

    heading: str
    text: str
    tests: tuple[str, ...]


def read_promises() -> list[Promise]:
    """All promises, in the document's order."""
    promises: list[Promise] = []
    heading = ""
    if not DOCUMENT.exists():  # a machine that was given some of the tests alone
        return promises
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("- "):
            promises.append(Promise(heading, line[2:], tuple(TEST_ID.findall(line))))
    return promises


class SkippedPromises:
    """Notes promised tests that were skipped, and fails the run for them."""

    def __init__(self) -> None:
        promised = {test for promise in read_promises() for test in promise.tests}
        self.promised = {test for test in promised if not test.startswith("tests/gpu/")}
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and report.nodeid.split("[")[0] in self.promised:
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A skipped file or folder skips all that is in it."""
        if report.skipped:
            inside = (report.nodeid.rstrip("/") + "/", report.nodeid + "::")
            self.skipped += [test for test in sorted(self.promised) if test.startswith(inside)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self.skipped:
            terminalreporter.write_line(f"PROMISED, BUT SKIPPED: {test}", red=True)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
