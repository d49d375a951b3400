"""The line of a cell that waits, in a terminal: `jupyter console` has no frontend of ours.

The console's own process has started the kernel and has the terminal, so its provisioner follows
the scheduler on a thread of its own. Nothing is shown, and no timer runs, while nothing waits. In a
Jupyter server, nbconvert or papermill there is no such line: it would land in a log, or in a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from jupyter_gpushare.client import ClientError, SchedulerClient

log = logging.getLogger(__name__)

WAIT_LINE_AFTER_S = 0.3
_CONSOLE = "ZMQTerminalIPythonApp"
_AGAIN_S = 5.0
"""A scheduler that has ended may be there again."""
_DRAW, _BACK = "\x1bD\x1b[A\x1b7\x1b[B\r\x1b[K", "\x1b8"
"""Make room for a line below the cursor, go there, and come back to where the cursor was: a cell
may have printed a part of a line."""
_CLEAR = "\x1b[J"
"""What is after the cursor: nothing but our line."""


class Terminal(Protocol):
    """As sys.stderr is."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...
    def isatty(self) -> bool: ...


def is_console(app: object, terminal: Terminal | None) -> bool:
    """Whether a person sits at this terminal and runs cells in it."""
    names = {each.__name__ for each in type(app).__mro__}
    if _CONSOLE not in names or terminal is None or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return terminal.isatty()


def wait_line(status: Mapping[str, Any], tenant_id: str) -> str:
    """What there is to tell of this kernel; empty while it does not wait. Pure."""
    own = next((each for each in status["tenants"] if each["id"] == tenant_id), None)
    if own is None or own["state"] != "waiting":
        return ""
    estimate = own.get("estimate") or {}
    place = f" (number {estimate['position']})" if "position" in estimate else ""
    why = own.get("blocked_reason") or estimate.get("why", "")
    told = [f"Waiting for the GPU{place}.", estimate.get("when", ""), "Ctrl+C cancels.", why]
    return " ".join(str(each) for each in told if each)


class WaitLine:
    """In its place, below what the cell has printed, and gone when the wait is over."""

    def __init__(self, scheduler: SchedulerClient, tenant_id: str, terminal: Terminal) -> None:
        self._scheduler, self._tenant_id, self._terminal = scheduler, tenant_id, terminal
        self._lock = threading.Lock()
        self._line = ""
        self._shown = False
        self._timer: threading.Timer | None = None
        self._ended = threading.Event()
        self._stream: Any = None
        self.thread = threading.Thread(target=self._follow, name="gpushare-line", daemon=True)
        self.thread.start()

    def end(self) -> None:
        """The kernel is no tenant any more."""
        self._ended.set()
        if (stream := self._stream) is not None:
            stream.close()
        self.tell("")

    def _follow(self) -> None:
        try:
            while not self._ended.is_set():
                with contextlib.suppress(ClientError), self._scheduler.follow() as stream:
                    self._stream = stream
                    for status in stream:
                        if self._ended.is_set():
                            break
                        self.tell(wait_line(status, self._tenant_id))
                self.tell("")
                self._ended.wait(_AGAIN_S)
        except Exception as error:  # noqa: BLE001 - the console runs on, whatever we did wrong
            log.debug("no line tells of cells that wait: %r", error)
            self.tell("")

    def tell(self, line: str) -> None:
        """What is so now. A wait that is over before it is shown shows nothing."""
        with self._lock:
            self._line = line
            if self._shown:
                self._draw()
            elif line and self._timer is None:
                self._timer = threading.Timer(WAIT_LINE_AFTER_S, self.show)
                self._timer.daemon = True
                self._timer.start()
            elif not line and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def show(self) -> None:
        """It has waited for long enough."""
        with self._lock:
            self._timer = None
            if self._line:
                self._draw()

    def _draw(self) -> None:
        """With the lock. A line that is longer than the terminal could not be cleared."""
        columns = shutil.get_terminal_size().columns
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            line = self._line[: columns - 1]
            self._terminal.write(_DRAW + line + _BACK if line else _CLEAR)
            self._terminal.flush()
        self._shown = bool(self._line)
