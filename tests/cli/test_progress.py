"""The progress bar."""

from __future__ import annotations

import io

from jupyter_gpushare.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is_and_how_long_it_takes() -> None:
    """At most ten times a second, in one line that is gone at the end."""
    now = [0.0]
    terminal = Terminal()
    bar = ProgressBar("ours", 1000, stream=terminal, clock=lambda: now[0])
    for _ in range(250):
        bar.advance()
    assert terminal.getvalue() == ""
    now[0] = 3.0
    bar.advance(0)
    shown = terminal.getvalue()
    assert shown == "\rours [######                  ]  25% of 1,000 cells, 9.0 s left"
    bar.end()
    assert terminal.getvalue() == shown + "\r" + " " * (len(shown) - 1) + "\r"


def test_a_file_hears_nothing() -> None:
    now = [0.0]
    file = io.StringIO()
    bar = ProgressBar("ours", 10, stream=file, clock=lambda: now[0])
    now[0] = 3.0
    bar.advance(10)
    bar.end()
    assert file.getvalue() == ""
