"""Policies that nobody can build: memory is always there, and changes of hands cost nothing. They
show whether a bar can be met at all."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.core.ids import Seconds
from jupyter_gpushare.simulator.base.kernel import Kernel
from jupyter_gpushare.simulator.base.loop import Loop, Planned
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.baselines.devices import EachDevice
from jupyter_gpushare.simulator.run import MakePolicy

_EPSILON_S = 1e-6


class IdealDevice:
    """Cells of the lowest rank run, at once if there are several. A rank depends on how much of a
    cell is left, and on how much of it is done."""

    def __init__(self, loop: Loop, rank: Callable[[Seconds, Seconds], float]) -> None:
        self._loop = loop
        self._rank = rank
        self._work_s: dict[Kernel, Seconds] = {}
        """Of the cells that run."""
        self._alarm: Planned | None = None

    def opened(self, kernel: Kernel) -> None:
        """Nothing is kept for it."""

    def wants(self, kernel: Kernel) -> None:
        self._work_s[kernel] = kernel.left_s
        self._settle()

    def ended(self, kernel: Kernel) -> None:
        del self._work_s[kernel]
        self._settle()

    def closed(self, kernel: Kernel) -> None:
        """Nothing was kept for it."""

    def _settle(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        ranks = {each: self._rank_of(each) for each in self._work_s}
        if not ranks:
            return
        lowest = min(ranks.values())
        first = [each for each, rank in ranks.items() if rank <= lowest + _EPSILON_S]
        share = 1 / len(first)
        for kernel in ranks:
            if kernel in first:
                kernel.go(speed=share, share=share)
            else:
                kernel.pause()
        later = [rank for rank in ranks.values() if rank > lowest + _EPSILON_S]
        if later and self._rank(0.0, 1.0) > self._rank(1.0, 0.0):
            # Their rank grows as they run, up to that of those behind.
            self._alarm = self._loop.after((min(later) - lowest) / share, self._settle)

    def _rank_of(self, kernel: Kernel) -> float:
        left_s = kernel.left_s
        return self._rank(left_s, self._work_s[kernel] - left_s)


def _ideal(rank: Callable[[Seconds, Seconds], float]) -> MakePolicy:
    def make(devices: range, loop: Loop, world: World) -> EachDevice:
        return EachDevice(devices, lambda: IdealDevice(loop, rank))

    return make


IDEALS: dict[str, MakePolicy] = {
    "(equal)": _ideal(lambda left_s, done_s: 0.0),
    "(newest)": _ideal(lambda left_s, done_s: done_s),
    "(shortest)": _ideal(lambda left_s, done_s: left_s),
}
"""Equal shares for all; who has had least for its cell first; whose cell has the least left first,
which takes somebody who knows the future."""
