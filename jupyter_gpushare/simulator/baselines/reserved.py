"""Something of which notebooks reserve a part: from their first cell until they are closed, or are
culled because they have run no cell for long. Whoever comes later waits in line."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from jupyter_gpushare.core.ids import Seconds

from ..base.kernel import Kernel
from ..base.loop import Loop, Planned

CULL_S: Seconds = 3600.0
"""As JupyterHub's idle culler is mostly set up (`cull_idle_servers`, timeout 3600)."""


class Reserved:
    """`admitted` and `released` hear of each notebook whose reservation begins or ends."""

    def __init__(
        self,
        loop: Loop,
        capacity: int,
        *,
        admitted: Callable[[Kernel], None],
        released: Callable[[Kernel], None] = lambda kernel: None,
    ) -> None:
        self._loop = loop
        self._free = capacity
        self._admitted = admitted
        self._released = released
        self._has: dict[int, int] = {}
        self._queue: deque[tuple[Kernel, int]] = deque()
        self._culls: dict[int, Planned] = {}

    def want(self, kernel: Kernel, count: int) -> bool:
        """A cell begins. Whether the notebook has its part; else `admitted` is called later, or
        before this returns."""
        self._stop_clock(kernel)
        if kernel.number in self._has:
            return True
        self._queue.append((kernel, count))
        self._serve()
        return False

    def rest(self, kernel: Kernel) -> None:
        """Its cell has ended."""
        self._culls[kernel.number] = self._loop.after(CULL_S, lambda: self.release(kernel))

    def release(self, kernel: Kernel) -> None:
        """It is closed or culled."""
        self._stop_clock(kernel)
        if kernel.number in self._has:
            self._free += self._has.pop(kernel.number)
            self._released(kernel)
            self._serve()

    def _serve(self) -> None:
        while self._queue and self._queue[0][1] <= self._free:
            kernel, count = self._queue.popleft()
            self._free -= count
            self._has[kernel.number] = count
            self._admitted(kernel)

    def _stop_clock(self, kernel: Kernel) -> None:
        if (alarm := self._culls.pop(kernel.number, None)) is not None:
            alarm.cancel()
