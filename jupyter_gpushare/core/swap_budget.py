"""How much of a device's time memory may cost that moves for new cells: a token bucket.

It fills at `swap_percent` of time and is emptied by what really comes back when turns begin. It may
be overdrawn, for what moves at the end of a quantum is not refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .ids import DeviceId, Seconds

if TYPE_CHECKING:
    from .records import Tenant
    from .state import State

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
        self.spent_s = self._missing_s(now_s, share) + bytes_moved / self.bytes_per_s
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

    def _missing_s(self, now_s: Seconds, share: float) -> Seconds:
        if math.isinf(self.at_s):
            return 0.0
        return max(0.0, self.spent_s - share * (now_s - self.at_s))


def restore_s(state: State, tenant: Tenant, device: DeviceId) -> Seconds:
    """How long the tenant's memory takes to come back to the device."""
    parked = sum(share.bytes_parked for share in state.shares_of(tenant, device))
    return parked / state.devices[device].swap.bytes_per_s if state.memory_moves else 0.0


def swap_may_begin_s(state: State, waiter: Tenant, device: DeviceId) -> Seconds:
    """When the device's swap budget covers the way of the waiter's memory in, and of somebody's
    out and back; at the latest when the waiter has waited for long enough."""
    both_ways_s = 2 * restore_s(state, waiter, device)
    latest_s = waiter.queued_at_s + state.settings.swap_wait_max_s
    swap = state.devices[device].swap
    return min(latest_s, swap.covers_at_s(both_ways_s, state.settings.swap_percent / 100))
