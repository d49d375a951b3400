"""What a benchmark's figures are held to. A figure on the wrong side of its bar ends the benchmark
with status 1."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """A figure, and how low or high it may be."""

    name: str
    value: float
    at_least: float = -math.inf
    at_most: float = math.inf
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.at_least <= self.value <= self.at_most

    def line(self) -> str:
        """For a table."""
        low = self.at_most == math.inf
        bound = f"at least {self.at_least:g}" if low else f"at most {self.at_most:g}"
        verdict = "ok" if self.met else "UNDER" if low else "OVER"
        return f"  {self.name:<42}{self.value:>9.3f} {self.unit:<12} ({bound})  {verdict}"


def exit_status(bars: Iterable[Bar]) -> int:
    """Print the table; 0 where every bar is met."""
    met = True
    for bar in bars:
        print(bar.line())
        met &= bar.met
    return 0 if met else 1
