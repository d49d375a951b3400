"""Counts how long tenants waited for their turns, from what moves in the lines of devices. Pure."""

from __future__ import annotations

import bisect

from jupyter_gpushare.core.ids import Seconds, TenantId
from jupyter_gpushare.core.shown.moves import Move

from .format import WAIT_BOUNDS_S, Waits


class WaitCounter:
    """A wait counts when it ends with a turn. It costs what has moved, and what it keeps does not
    grow but with the tenants that wait now."""

    def __init__(self) -> None:
        self._since_s: dict[TenantId, Seconds] = {}
        self._counts = [0] * (len(WAIT_BOUNDS_S) + 1)
        self._sum_s = 0.0

    def note(self, move: Move, now_s: Seconds) -> None:
        for begun in move.begun:
            since_s = self._since_s.pop(begun.tenant, None)
            if since_s is not None:
                self._count(max(0.0, now_s - since_s))
        for tenant in move.left:
            self._since_s.pop(tenant, None)
        for waiter in move.waiters:
            self._since_s.setdefault(waiter.tenant, now_s - max(0.0, waiter.waited_s))

    @property
    def counted(self) -> Waits:
        return Waits(counts=tuple(self._counts), sum_s=self._sum_s)

    def _count(self, waited_s: Seconds) -> None:
        self._counts[bisect.bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        self._sum_s += waited_s
