"""nvshare (https://github.com/grgalex/nvshare, its scheduler.c and client.c, commit 1a8f211).

One lock for the device, first come, first served. The quantum of 30 s counts from the grant,
whether or not somebody waits; at its end the holder goes to the end of the queue. A holder that has
launched nothing for 5 s gives the lock back. Memory is unified: it moves by page faults.
"""

from __future__ import annotations

from collections import deque

from jupyter_gpushare.core.ids import Seconds

from ..base.kernel import Kernel
from ..base.loop import Loop, Planned
from ..base.world import World
from .turns import Holder

QUANTUM_S: Seconds = 30.0
IDLE_S: Seconds = 5.0


class NvshareDevice:
    """One device with its lock."""

    def __init__(self, loop: Loop, world: World, *, quantum_s: Seconds = QUANTUM_S) -> None:
        self._loop = loop
        self._quantum_s = quantum_s
        self._holder = Holder(loop, world.hardware, world.device_bytes)
        self._queue: deque[Kernel] = deque()
        self._quantum: Planned | None = None
        self._idle: Planned | None = None

    def opened(self, kernel: Kernel) -> None:
        """Nothing to do before its first launch."""

    def wants(self, kernel: Kernel) -> None:
        if self._holder.kernel is kernel:
            self._stop_idle_clock()
            self._holder.work()
        else:
            self._queue.append(kernel)
            self._serve()

    def ended(self, kernel: Kernel) -> None:
        if self._holder.kernel is kernel:
            self._holder.rest()
            self._idle = self._loop.after(IDLE_S, self._release)

    def closed(self, kernel: Kernel) -> None:
        if self._holder.kernel is kernel:
            self._release()
        self._holder.forget(kernel)

    def _serve(self) -> None:
        if self._holder.kernel is None and self._queue:
            self._quantum = self._loop.after(self._quantum_s, self._release)
            self._holder.take(self._queue.popleft())

    def _release(self) -> None:
        self._stop_idle_clock()
        if self._quantum is not None:
            self._quantum.cancel()
        kernel = self._holder.give()
        if kernel.runs:
            self._queue.append(kernel)
        self._serve()

    def _stop_idle_clock(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
