"""A view that refreshes itself: a full screen in a terminal, else one text after another."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TextIO

from jupyter_gpushare.client import SchedulerUnavailable
from jupyter_gpushare.client.news import without_times

EVERY_S = 1.0
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""Another screen without a cursor, and back to the one that was there before."""
_HOME, _END_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"

Status = dict[str, Any]


def watch(
    look: Callable[[], Status],
    rendered: Callable[[Status], str],
    *,
    every_s: float = EVERY_S,
    out: TextIO = sys.stdout,
) -> int:
    """Until Ctrl-C. A scheduler that goes away meanwhile is waited for."""
    first = look()  # a scheduler that is not there from the beginning is an error
    with contextlib.suppress(KeyboardInterrupt):
        if out.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            _on_screen(first, look, rendered, every_s, out)
        else:
            _one_after_another(first, look, rendered, every_s, out)
    return os.EX_OK


def _on_screen(
    first: Status,
    look: Callable[[], Status],
    rendered: Callable[[Status], str],
    every_s: float,
    out: TextIO,
) -> None:
    with _own_screen(out):
        text = rendered(first)
        while True:
            columns, lines = shutil.get_terminal_size()
            out.write(_HOME + screen(text, columns, lines) + _REST)
            out.flush()
            time.sleep(every_s)
            try:
                text = rendered(look())
            except SchedulerUnavailable as error:
                text = str(error)


def screen(text: str, columns: int, lines: int) -> str:
    """As much of the text as fits, so that the terminal neither wraps nor scrolls. Pure."""
    wanted = text.splitlines()
    if len(wanted) > lines:
        wanted = [*wanted[: lines - 1], f"… {len(wanted) - lines + 1} more lines"]
    return "\n".join(line[: columns - 1] + _END_OF_LINE for line in wanted)


@contextlib.contextmanager
def _own_screen(out: TextIO) -> Iterator[None]:
    """The terminal is as it was afterwards, also where the process is asked to end."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        out.write(_ENTER)
        yield
    finally:
        out.write(_LEAVE)
        out.flush()
        signal.signal(signal.SIGTERM, before)


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _one_after_another(
    first: Status,
    look: Callable[[], Status],
    rendered: Callable[[Status], str],
    every_s: float,
    out: TextIO,
) -> None:
    """What is new, and not that time has passed."""
    told: object = None
    now: Status | str = first
    while True:
        news = now if isinstance(now, str) else without_times(now, now["scheduler"]["uptime_s"])
        if news != told:
            out.write((now if isinstance(now, str) else rendered(now)) + "\n\n")
            out.flush()
            told = news
        time.sleep(every_s)
        try:
            now = look()
        except SchedulerUnavailable as error:
            now = str(error)
