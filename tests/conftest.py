"""Fixtures of all tests. Standard library and pytest only: tests/driver and tests/gpu also run on
machines that do not have our package."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.promises import SkippedPromises
from tests.support.machine import real_device_name
from tests.support.needs import this_machine, what_is_missing
from tests.support.sim import SimulatedMachine
from tests.support.stacks import descendants_of, stacks_of
from tests.support.waits import WAIT_S_MAX

LONG_FOLDERS = (
    *("tests/browser/", "tests/hub/", "tests/core/", "tests/bad_input/", "tests/kernel/"),
    "tests/packaging/",
    *(
        "tests/hook/shared/",
        "tests/hook/ahead/",
        "tests/hook/runtime/",
        "tests/server/",
        "tests/cli/",
        "tests/end_to_end/",
        "tests/bench/",
    ),
    *("tests/scheduler/", "tests/hook/", "tests/demo/"),
)


FOLDER = "gpushare-tests-"
KEPT_S = 24 * 3600.0


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Where there is no GPU, everything that was promised is to be seen: nothing of it is skipped.
    On a real device the tests of the simulated one's own ways are.

    Whoever starts the tests in the background of a script leaves Ctrl-C ignored, and programs would
    inherit that: here it means what it means at a terminal."""
    is_worker = hasattr(config, "workerinput")
    missing = None if is_worker else what_is_missing(this_machine())
    if missing is not None:
        pytest.exit(missing, returncode=pytest.ExitCode.USAGE_ERROR)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if real_device_name() is None:
        config.pluginmanager.register(SkippedPromises(), "skipped-promises")
    with suppress(ModuleNotFoundError):  # no random test runs where Hypothesis is not installed
        importlib.import_module("tests.support.hypothesis_profile")
    if config.option.basetemp is None:  # workers have a part of it
        config.option.basetemp = own_folder()
    gc.disable()  # until the tests are collected: there is no garbage in them


def own_folder() -> str:
    """Of this run. Pytest's own for all runs is closed to other users by each run that begins, also
    while tests of another one have opened it to them. Those of earlier runs go after a day."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)
    return tempfile.mkdtemp(prefix=FOLDER)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What a run leaves in its folder is kept where a test failed."""
    folder = Path(session.config.option.basetemp)
    if exitstatus == pytest.ExitCode.OK and folder.name.startswith(FOLDER):
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_finish() -> None:
    """What was collected stays until the end. A search for garbage in it takes a second, and a
    worker would make many."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders whose files take long come first, so that no worker is left with one at the end."""
    items.sort(key=lambda item: rank_of(item.nodeid))


def rank_of(test: str) -> int:
    return next((n for n, folder in enumerate(LONG_FOLDERS) if test.startswith(folder)), 99)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that has waited in vain says where the threads of its processes stand."""
    report = yield
    if report.failed and call.duration >= WAIT_S_MAX:
        for pid in descendants_of(os.getpid()):
            report.sections.append((f"process {pid}", stacks_of(pid)))
    return report


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    """A fresh simulated machine with one device of 8 GiB, for child processes."""
    return SimulatedMachine(tmp_path / "machine")
