"""One who is told of moves alone, and knows from them who has which device and how many queue."""

from __future__ import annotations

from collections import defaultdict

from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.snapshot import Moves, Snapshot


class MovesFollowed:
    """Holders of each device, and the length of its queue."""

    def __init__(self) -> None:
        self.holders: defaultdict[DeviceId, dict[TenantId, str]] = defaultdict(dict)
        self.queued: defaultdict[DeviceId, int] = defaultdict(int)
        self.moves = 0
        self._moves: Moves | None = None

    def follow(self, scheduler: Scheduler, snapshot: Snapshot) -> None:
        """Take the moves; afterwards all is known as a look at everything shows it."""
        self._moves = self._moves or Moves(scheduler)
        for move in self._moves.take():
            self.moves += 1
            self.queued[move.device] = move.queued
            for tenant in move.ended:
                del self.holders[move.device][tenant]
            self.holders[move.device].update({each.tenant: each.name for each in move.begun})
        for device in snapshot.devices:
            holders = {holder.tenant for holder in device.holders}
            assert self.holders[device.id].keys() == holders, device
            assert self.queued[device.id] == len(device.queue), device
