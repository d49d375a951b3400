"""`jupyter gpushare status --watch`, in a terminal and in a pipe."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.cli.watch import screen, watch
from tests.support.scheduler_process import SchedulerUnderTest, environment, running_scheduler
from tests.support.waits import WAIT_S_MAX

LEAVES = b"\x1b[?25h\x1b[?1049l"


class Watching:
    """A running `status --watch`; `output` is a descriptor to read from."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.output = output
        self.said = b""

    def says(self, words: bytes, *, since: int = 0) -> None:
        """Wait until these words have come."""
        while words not in self.said[since:]:
            ready, _, _ = select.select([self.output], [], [], WAIT_S_MAX)
            assert ready, self.said
            self.said += os.read(self.output, 1 << 16)

    def rest(self) -> bytes:
        """All that it has said in the end."""
        try:
            while more := os.read(self.output, 1 << 16):
                self.said += more
        except OSError:  # a terminal without a program has nothing to read
            pass
        return self.said


@contextmanager
def watching(runtime: Path, *options: str, terminal: bool) -> Iterator[Watching]:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-m", "jupyter_gpushare.cli.main", "status", "--watch", *options]
    process = subprocess.Popen(
        command,
        env=environment({"GPUSHARE_RUNTIME_DIR": str(runtime), "TERM": "xterm"}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.STDOUT,
    )
    os.close(theirs)
    try:
        yield Watching(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.promise(
    "cli-31",
    "`status --watch` refreshes itself, and leaves the terminal as it was; in a pipe it writes "
    "plain text when something has changed",
)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_terminal_is_as_before(
    scheduler: SchedulerUnderTest, runtime: Path, number: signal.Signals, status: int
) -> None:
    """It takes a screen of its own, and gives it back whatever ends it."""
    with watching(runtime, terminal=True) as view:
        view.says(b"No notebook uses a GPU.")
        assert view.said.startswith(b"\x1b[?1049h")
        scheduler.tenant("train.ipynb")
        view.says(b"train.ipynb")
        view.process.send_signal(number)
        assert view.process.wait(WAIT_S_MAX) == status
        assert view.rest().endswith(LEAVES)


@pytest.mark.promise("cli-31")
def test_a_pipe_gets_plain_text(scheduler: SchedulerUnderTest, runtime: Path) -> None:
    """What has changed."""
    with watching(runtime, terminal=False) as view:
        view.says(b"No notebook uses a GPU.")
        scheduler.tenant("train.ipynb")
        view.says(b"train.ipynb")
        view.process.send_signal(signal.SIGINT)
        assert view.process.wait(WAIT_S_MAX) == 0
        assert b"\x1b" not in view.rest()
        assert view.said.count(b"jupyter-gpushare ") == 2


@pytest.mark.promise("cli-31")
def test_a_scheduler_that_comes_back_is_seen(runtime: Path) -> None:
    """Meanwhile the view says what is wrong."""
    with running_scheduler(runtime) as scheduler:
        scheduler.tenant("before")
        with watching(runtime, "--json", terminal=False) as view:
            view.says(b'"before"')
            scheduler.stop()
            view.says(b"No scheduler")
            with running_scheduler(runtime) as other:
                other.tenant("after")
                view.says(b'"after"')


def test_without_a_scheduler_there_is_nothing_to_watch(runtime: Path) -> None:
    """An error as for `status` itself, before any screen is taken."""
    with watching(runtime, terminal=True) as view:
        assert view.process.wait(WAIT_S_MAX) == os.EX_UNAVAILABLE
        assert b"\x1b" not in view.rest()


@pytest.mark.promise("cli-31")
def test_nothing_is_written_while_only_time_passes() -> None:
    """However often it looks."""
    looks, out = 0, io.StringIO()

    def look() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        if looks == 9:
            raise KeyboardInterrupt
        scheduler = {"uptime_s": 10.0 * looks}
        return {"scheduler": scheduler, "tenants": [{"id": "a"}] if looks > 5 else []}

    assert watch(look, lambda now: f"{len(now['tenants'])} tenants", every_s=0.0, out=out) == 0
    assert (looks, out.getvalue()) == (9, "0 tenants\n\n1 tenants\n\n")


def test_a_view_that_is_too_large_is_cut() -> None:
    """Neither wrapped nor scrolled: the terminal would show the end of it."""
    shown = screen("\n".join(["x" * 50] * 10), 20, 4).replace("\x1b[K", "")
    assert shown.split("\n") == ["x" * 19] * 3 + ["… 7 more lines"]
    assert screen("ab", 20, 4) == "ab\x1b[K"
