"""The line of a cell that waits in a terminal console."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_core.application import JupyterApp

from jupyter_gpushare.kernel import console, provisioner
from jupyter_gpushare.kernel.console import WaitLine, is_console, wait_line
from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.waits import WAIT_S_MAX, wait_until

LINE = pytest.mark.promise(
    "jupyter-11",
    "In `jupyter console`, a cell that waits has one line in the terminal, which is gone when the "
    "wait is over; nowhere else anything is printed",
)


class ZMQTerminalIPythonApp(JupyterApp):
    """It has the name of the console's application."""


class Terminal:
    """What was written to it."""

    def __init__(self, *, tty: bool = True) -> None:
        self.text = ""
        self._tty = tty

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        """It is written at once."""

    def isatty(self) -> bool:
        return self._tty


class Silent:
    """A scheduler that is not followed."""

    def follow(self) -> Any:
        raise console.ClientError("not here")


class Odd(Silent):
    """One whose words are of another version."""

    @contextlib.contextmanager
    def follow(self) -> Iterator[list[Any]]:
        yield [{"tenants": [{"id": "t", "state": "waiting"}]}, {"tenants": 7}]


@pytest.fixture(autouse=True)
def term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


@LINE
def test_a_kernel_of_a_console_that_waits(
    lasting: SharedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real provisioner in a process with the terminal; the line goes with the wait."""
    monkeypatch.setenv("COLUMNS", "200")
    terminal = Terminal()
    monkeypatch.setattr(provisioner.sys, "stderr", terminal)
    alice = lasting.kernel("alice.ipynb")
    assert terminal.text == ""
    kernel = Kernel(lasting.kernel_env, name="console")
    kernel.manager.parent = ZMQTerminalIPythonApp()
    lasting.started.append(kernel)
    kernel.start()
    alice.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m").ok()
    cell = kernel.submit(gpu_cells.setup() + gpu_cells.spin(1))
    wait_until(lambda: "Waiting for the GPU (number 1). " in terminal.text, "the line is there")
    assert "Ctrl+C cancels. A user keeps the GPU by hand." in terminal.text
    alice.run("%gpushare release").ok()
    kernel.wait(cell).ok()
    wait_until(lambda: terminal.text.endswith("\x1b[J"), "the line is gone")
    kernel.stop()
    assert terminal.text.endswith("\x1b[J")


@LINE
def test_a_short_wait_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line comes when it has lasted, changes in its place, and a cut keeps it in one row."""
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(console, "WAIT_LINE_AFTER_S", 1000.0)
    terminal = Terminal()
    line = WaitLine(Silent(), "t", terminal)  # type: ignore[arg-type]
    line.tell("Waiting")
    line.tell("")
    line.show()
    assert terminal.text == ""
    line.tell("Waiting")
    line.show()
    line.tell("Waiting for a long time")
    assert terminal.text.count("\x1b[B\r\x1b[KWaiting\x1b8") == 1
    assert terminal.text.endswith("\x1b[KWaiting for a long \x1b8")
    line.end()
    assert terminal.text.endswith("\x1b[J")
    line.end()
    assert terminal.text.count("\x1b[J") == 1


@LINE
def test_only_a_console_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a server, a log, a file, or a terminal that can do nothing."""
    app = ZMQTerminalIPythonApp()
    assert is_console(app, Terminal())
    assert not is_console(app, Terminal(tty=False))
    assert not is_console(app, None)
    assert not is_console(JupyterApp(), Terminal()) and not is_console(None, Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not is_console(app, Terminal())


def test_words_that_nobody_knows_end_the_line_alone() -> None:
    """No traceback comes into the terminal, and nothing stays there."""
    terminal = Terminal()
    line = WaitLine(Odd(), "t", terminal)  # type: ignore[arg-type]
    line.thread.join(WAIT_S_MAX)
    line.show()
    assert not line.thread.is_alive() and terminal.text == ""


def test_what_an_older_scheduler_tells() -> None:
    """Without estimates the line says that it waits, and of others it says nothing."""
    tenant = {"id": "t", "state": "waiting"}
    assert wait_line({"tenants": [tenant]}, "t") == "Waiting for the GPU. Ctrl+C cancels."
    assert wait_line({"tenants": [tenant]}, "other") == ""
    assert wait_line({"tenants": [{**tenant, "state": "holding"}]}, "t") == ""
    blocked = {**tenant, "blocked_reason": "Memory is in the way.", "estimate": None}
    assert "Memory is in the way." in wait_line({"tenants": [blocked]}, "t")
