"""Gemini (Chen, Lin, Chou and Chou, IEEE Transactions on Cloud Computing, 2021;
https://github.com/NTHU-LSALAB/Gemini, its scheduler.cpp).

One token for the device, good for 250 ms. Its holder keeps it for that time, also when its work
ends before. Then the token goes to the first in the queue if that one has not used the device
within the last 10 s, else to whoever has used it least in that time. Everybody requests the same
share. The model leaves out that the real one fits the time to kernel bursts (100 ms to 250 ms).
Gemini caps memory and moves none. So a notebook reserves its memory from its first cell until it
is closed or culled, and waits where the others leave too little.
"""

from __future__ import annotations

from collections import deque

from jupyter_gpushare.core.ids import Seconds

from ..base.kernel import Kernel
from ..base.loop import Loop
from ..base.world import World
from .reserved import Reserved
from .turns import Holder

TOKEN_S: Seconds = 0.25
WINDOW_S: Seconds = 10.0


class GeminiDevice:
    """One device with its token."""

    def __init__(self, loop: Loop, world: World) -> None:
        self._loop = loop
        self._holder = Holder(loop, world.hardware, world.device_bytes)
        self._memory = Reserved(
            loop, world.device_bytes, admitted=self._ask, released=self._holder.forget
        )
        self._queue: list[Kernel] = []
        self._granted_s: Seconds = 0.0
        self._history: deque[tuple[Seconds, Seconds, int]] = deque()
        """When tokens began and ended, and whose they were."""

    def opened(self, kernel: Kernel) -> None:
        """Nothing to do before its first launch."""

    def wants(self, kernel: Kernel) -> None:
        if not self._memory.want(kernel, kernel.notebook.bytes_used):
            return
        if self._holder.kernel is kernel:
            self._holder.work()
        else:
            self._ask(kernel)

    def ended(self, kernel: Kernel) -> None:
        self._memory.rest(kernel)
        if self._holder.kernel is kernel:
            self._holder.rest()

    def closed(self, kernel: Kernel) -> None:
        """The token of a process that is gone is lost until its time is over."""
        self._memory.release(kernel)

    def _ask(self, kernel: Kernel) -> None:
        self._queue.append(kernel)
        self._serve()

    def _serve(self) -> None:
        if self._holder.kernel is None and self._queue:
            chosen = self._chosen()
            self._queue.remove(chosen)
            self._granted_s = self._loop.now_s
            self._loop.after(TOKEN_S, self._token_ends)
            self._holder.take(chosen)

    def _token_ends(self) -> None:
        kernel = self._holder.give()
        self._history.append((self._granted_s, self._loop.now_s, kernel.number))
        if kernel.runs:
            self._queue.append(kernel)
        self._serve()

    def _chosen(self) -> Kernel:
        since_s = self._loop.now_s - WINDOW_S
        while self._history and self._history[0][1] <= since_s:
            self._history.popleft()
        used: dict[int, Seconds] = {}
        for start_s, end_s, number in self._history:
            used[number] = used.get(number, 0.0) + end_s - max(start_s, since_s)
        first = self._queue[0]
        if first.number not in used:
            return first
        return min(self._queue, key=lambda kernel: used.get(kernel.number, 0.0))
