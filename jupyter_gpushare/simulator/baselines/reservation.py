"""One notebook per GPU: a notebook has a device from its first cell until it is closed or culled.

Source: what JupyterHub on Kubernetes does where each server asks for `nvidia.com/gpu: 1`, and its
idle culler. Whoever comes later waits until a device of the node is free.
"""

from __future__ import annotations

from collections import deque

from jupyter_gpushare.core.ids import Seconds

from ..base.kernel import Kernel
from ..base.loop import Loop
from ..base.world import World
from .reserved import Reserved


class ReservationNode:
    """The devices of one node."""

    def __init__(self, devices: range, loop: Loop, world: World) -> None:
        self._loop = loop
        self._free = deque(devices)
        self._reserved = Reserved(
            loop, len(devices), admitted=self._begin, released=self._give_back
        )
        self._idle_since_s: dict[int, Seconds] = {}

    def opened(self, kernel: Kernel) -> None:
        """Its device is wanted with the first cell."""

    def wants(self, kernel: Kernel) -> None:
        if self._reserved.want(kernel, 1):
            self._note_idleness(kernel)
            kernel.go()

    def ended(self, kernel: Kernel) -> None:
        self._idle_since_s[kernel.number] = self._loop.now_s
        self._reserved.rest(kernel)

    def closed(self, kernel: Kernel) -> None:
        self._reserved.release(kernel)

    def _begin(self, kernel: Kernel) -> None:
        kernel.device = self._free.popleft()
        kernel.go()

    def _give_back(self, kernel: Kernel) -> None:
        self._note_idleness(kernel)
        self._free.append(kernel.device)

    def _note_idleness(self, kernel: Kernel) -> None:
        since_s = self._idle_since_s.pop(kernel.number, None)
        if since_s is not None:
            kernel.held(since_s)
