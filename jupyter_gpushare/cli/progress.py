"""A progress bar for work that counts its steps, on the terminal alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from .text import duration

_WIDTH = 24
_EVERY_S = 0.1


class ProgressBar:
    """One line that is written again and again, and is gone at the end. A stream that is no
    terminal hears nothing."""

    def __init__(
        self,
        title: str,
        total: int,
        *,
        stream: TextIO,
        unit: str = "cells",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title = title
        self._total = total
        self._stream = stream
        self._unit = unit
        self._clock = clock
        self._is_shown = stream.isatty()
        self._done = 0
        self._began_s = self._shown_s = clock()
        self._length = 0

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        if self._is_shown and self._clock() - self._shown_s >= _EVERY_S:
            self._show()

    def end(self) -> None:
        """Leave an empty line for what is printed next."""
        if self._length:
            self._write("\r" + " " * self._length + "\r")

    def _show(self) -> None:
        self._shown_s = self._clock()
        part = min(1.0, self._done / self._total) if self._total else 1.0
        full = int(part * _WIDTH)
        left = ""
        if 0 < part < 1:
            left_s = (self._shown_s - self._began_s) * (1 - part) / part
            left = f", {duration(left_s)} left"
        line = (
            f"{self._title} [{'#' * full}{' ' * (_WIDTH - full)}] {part:4.0%} of "
            f"{self._total:,} {self._unit}{left}"
        )
        self._write("\r" + line.ljust(self._length))
        self._length = max(self._length, len(line))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
