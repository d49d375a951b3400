"""One who is told of moves alone, and knows from them who has which device and how many queue."""

from __future__ import annotations

from collections import defaultdict

from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.snapshot import Snapshot


class MovesFollowed:
    """Holders of each device, and the length of its queue."""

    def __init__(self) -> None:
        self.holders: defaultdict[DeviceId, dict[TenantId, str]] = defaultdict(dict)
        self.queued: defaultdict[DeviceId, int] = defaultdict(int)
        self.moves = 0

    def follow(self, scheduler: Scheduler, snapshot: Snapshot) -> None:
        """Take the moves; afterwards all is known as a look at everything shows it."""
        for move in scheduler.take_moves():
            self.moves += 1
            self.queued[move.device] = move.queued
            for hand in move.hands:
                if hand.holds:
                    self.holders[move.device][hand.tenant] = hand.name
                else:
                    self.holders[move.device].pop(hand.tenant, None)
        for device in snapshot.devices:
            holders = {holder.tenant for holder in device.holders}
            assert self.holders[device.id].keys() == holders, device
            assert self.queued[device.id] == len(device.queue), device
