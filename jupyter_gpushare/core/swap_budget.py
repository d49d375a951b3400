"""How much of a device's time memory may cost that moves for new cells: a token bucket.

It fills at `swap_percent` of time and is emptied by what really comes back when turns begin. It may
be overdrawn, for what moves at the end of a quantum is not refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .ids import Seconds

_RATE_AT_FIRST = 10e9
"""Bytes a second; less than a PCIe 4 bus with 16 lanes moves."""
_RATE_LEARNED = 0.5
"""The part of the newest measurement in the next rate."""
_BYTES_LEAST = 64 << 20
"""Of less, the time says more about how a turn begins than about the bus."""
FILLS_FOR_S: Seconds = 60.0
"""It holds what comes in during so much time."""


@dataclass(slots=True)
class SwapBudget:
    """Of one device."""

    bytes_per_s: float = _RATE_AT_FIRST
    """As it was when memory came back lately, while other memory went out."""
    spent_s: Seconds = 0.0
    """What was spent and has not come in again, at `at_s`."""
    at_s: Seconds = -math.inf
    """When something was spent last."""

    def spend(self, bytes_moved: int, now_s: Seconds, share: float) -> None:
        """So much begins to move."""
        came_in_s = share * (now_s - self.at_s) if self.spent_s else 0.0
        self.spent_s = max(0.0, self.spent_s - came_in_s) + bytes_moved / self.bytes_per_s
        self.at_s = now_s

    def covers_at_s(self, cost_s: Seconds, share: float) -> Seconds:
        """When it covers this cost. At the latest when it is full."""
        if cost_s <= 0 or math.isinf(self.at_s):
            return self.at_s
        full_s = FILLS_FOR_S * share
        return self.at_s + max(0.0, self.spent_s - max(0.0, full_s - cost_s)) / share

    def learn(self, bytes_moved: int, in_s: Seconds) -> None:
        """So much has come back in this time."""
        if bytes_moved >= _BYTES_LEAST and in_s > 0:
            measured = bytes_moved / in_s
            self.bytes_per_s += _RATE_LEARNED * (measured - self.bytes_per_s)
