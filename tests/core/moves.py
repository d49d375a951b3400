"""One who is told of moves alone, and knows from them who has which device, who queues and why,
and whose memory has still to come back."""

from __future__ import annotations

from collections import defaultdict

from jupyter_gpushare.core.ids import DeviceId, TenantId
from jupyter_gpushare.core.policy import bytes_to_come
from jupyter_gpushare.core.scheduler import Scheduler
from jupyter_gpushare.core.shown.moves import Begun, Moves
from jupyter_gpushare.core.shown.waits import Reason, Waiter
from jupyter_gpushare.core.snapshot import Snapshot


class MovesFollowed:
    """Holders of each device, the length of its queue and those in it."""

    def __init__(self) -> None:
        self.holders: defaultdict[DeviceId, dict[TenantId, Begun]] = defaultdict(dict)
        self.queued: defaultdict[DeviceId, int] = defaultdict(int)
        self.waiters: defaultdict[DeviceId, dict[TenantId, Waiter]] = defaultdict(dict)
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
            assert not self.holders[move.device].keys() & {each.tenant for each in move.begun}
            assert set(move.recalled) <= set(move.ended)
            begun = (*move.begun, *move.still)
            self.holders[move.device].update({each.tenant: each for each in begun})
            for tenant in move.left:
                del self.waiters[move.device][tenant]
            self.waiters[move.device].update({each.tenant: each for each in move.waiters})
        tenants = {tenant.id: tenant for tenant in snapshot.tenants}
        for device in snapshot.devices:
            holders = {holder.tenant for holder in device.holders}
            assert self.holders[device.id].keys() == holders, device
            for has in self.holders[device.id].values():
                assert has.by_hand == (tenants[has.tenant].hold_left_s > 0), has
                held = scheduler._machine._state.tenants[has.tenant]
                assert (has.bytes_to_come > 0) == (bytes_to_come(held) > 0), has
                assert held.turn is not None
                assert has.level == held.turn.level, has
            assert self.queued[device.id] == len(device.queue), device
            waiters = self.waiters[device.id]
            assert waiters.keys() == {waiter.tenant for waiter in device.queue}, device
            for waiter in waiters.values():
                self._is_up_to_date(scheduler, waiter)

    def _is_up_to_date(self, scheduler: Scheduler, waiter: Waiter) -> None:
        """Of why it waits, what is its own is as a look at everything shows it."""
        state = scheduler._machine._state
        tenant = state.queue[waiter.tenant]
        now = {Waiter.of(state, tenant, device).reason for device in tenant.places.queues}
        own = {Reason.PAUSED, Reason.LIMIT}
        assert (waiter.reason in own) == bool(now & own), (waiter, now)
        assert (waiter.obstacle is None) == (tenant.id not in state.obstacles), waiter
        levels = {state.lines.of[d].rank_of[tenant.id][0] for d in tenant.places.queues}
        assert waiter.level in levels, waiter
