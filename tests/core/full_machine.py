"""The core as it would be without any index: after each event it looks at everything there is.

It is the measure for the core that looks only at what has changed: for the same events, both have
to say the same, in the same order, and show the same. The rules themselves (what a look at a
tenant or a device does) are the core's own; who is looked at, who is first in line, what has to be
told and when to wake are found here by going through all tenants and devices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from unittest.mock import patch

from jupyter_gpushare.core import events as ev
from jupyter_gpushare.core import scheduler
from jupyter_gpushare.core.commands import Command, WakeAt
from jupyter_gpushare.core.ids import ClientId, DeviceId, Seconds, TenantId
from jupyter_gpushare.core.policy import (
    deadline_of_tenant_s,
    deadline_of_waiters_s,
    judged_at_s,
    served_among_gangs,
    still_in_the_way,
)
from jupyter_gpushare.core.records import Grace, Tenant
from jupyter_gpushare.core.residency import Residency
from jupyter_gpushare.core.scheduler import Machine, Scheduler
from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.core.shown.waits import Estimate
from jupyter_gpushare.core.snapshot import Snapshot, Status
from jupyter_gpushare.core.space.obstacles import obstacle
from jupyter_gpushare.core.space.requests import Obstacle
from jupyter_gpushare.core.state import State
from jupyter_gpushare.core.told import Teller
from jupyter_gpushare.core.turns import Turns


class FullTurns(Turns):
    """All that hold a turn, and all that queue for one, are looked at."""

    def _stirred_with_turn(self) -> list[Tenant]:
        return list(self._state.turn_holders.values())

    def _serve_queue(self, now_s: Seconds) -> None:
        state = self._state
        served, obstacles = served_of_all(state, now_s)
        state.note_obstacles(obstacles)
        for tenant in served:
            in_the_way = None if state.turns_are_on else obstacle(state, tenant, now_s)
            if in_the_way is None:
                self._grant(tenant, now_s)
            else:
                state.note_obstacles({**state.obstacles, tenant.id: in_the_way})


def held_devices(state: State) -> set[DeviceId]:
    """Devices of all turns."""
    turns = [tenant.turn for tenant in state.turn_holders.values()]
    return {device for turn in turns if turn is not None for device in turn.devices}


def served_of_all(state: State, now_s: Seconds) -> tuple[list[Tenant], dict[TenantId, Obstacle]]:
    """The whole queue, from the first to the last."""
    served: list[Tenant] = []
    obstacles: dict[TenantId, Obstacle] = {}
    if state.turns_are_on and state.recovery is not None:
        return served, obstacles
    if not state.turns_are_on:
        for tenant in sorted(state.queue.values(), key=lambda each: each.turn is None):
            in_the_way = obstacle(state, tenant, now_s)
            if in_the_way is None:
                served.append(tenant)
            else:
                obstacles[tenant.id] = in_the_way
        return served, obstacles
    lines = {
        device: sorted(
            (each for each in state.queue.values() if device in state.missing_devices(each)),
            key=lambda each: line.rank_of[each.id],
        )
        for device, line in state.lines.of.items()
    }
    with_turn = [tenant for tenant in state.queue.values() if tenant.turn is not None]
    free = state.devices.keys() - held_devices(state)
    served, obstacles = served_among_gangs(state, lines, with_turn, free, now_s)
    return served, still_in_the_way(state, served, obstacles, now_s)


class FullResidency(Residency):
    """All devices are looked at, and all clients on them."""

    def settle(self, now_s: Seconds, only: DeviceId | None = None) -> bool:
        state = self._state
        for device in state.devices.values():
            if only is None or only == device.id:
                state.changes.of_memory(device.id)
                device.memory.look_at_all()
        return super().settle(now_s, only)


class FullTeller(Teller):
    """Everybody's contention and place are found anew; `Teller` knows what each was told last."""

    _told_crowd: dict[DeviceId, int] | None = None
    _placed: frozenset[ClientId] = frozenset()

    def tell_changes(self) -> None:
        self._tell_all_contention()
        self._tell_all_positions()
        self._state.changes.to_tell.clear()
        self._state.changes.crowds_to_tell.clear()

    def _tell_all_contention(self) -> None:
        state = self._state
        on = Counter(device for each in state.tenants.values() for device in each.wanted_devices)
        for device in self._told_crowd or {}:
            on.setdefault(device, 0)  # somebody was there once
        crowd = {device: on[device] + len(state.undecided) for device in on}
        concerned: Iterable[Tenant] = state.tenants.values()
        if crowd == (self._told_crowd or {}):
            concerned = {**state.touched, **state.turn_holders}.values()
        self._told_crowd = crowd
        waiting = Counter[DeviceId]()
        for tenant in state.queue.values():
            waiting.update(state.missing_devices(tenant))
        for tenant in list(concerned):
            queued = tenant.id in state.queue
            own = state.missing_devices(tenant) if queued else frozenset[DeviceId]()
            for client in tenant.clients.values():
                if live := client.live_devices:
                    waiters = max(waiting[each] - (each in own) for each in live)
                    tenants = max(crowd[each] for each in live)
                    idle_ms = state.lines.idle_ms(tenant, live, state.settings.idle_ms)
                    self._tell_contention_to(client, waiters, tenants, idle_ms)

    def _tell_all_positions(self) -> None:
        state = self._state
        waiting: set[ClientId] = set()
        order = {
            device: sorted(
                (each for each in state.queue.values() if device in state.missing_devices(each)),
                key=lambda each, ranks=line.rank_of: ranks[each.id],
            )
            for device, line in state.lines.of.items()
        }
        for tenant in state.queue.values():
            missing = state.missing_devices(tenant)
            before = [order[each][: order[each].index(tenant)] for each in sorted(missing)]
            longest = max(before, key=len)
            ahead = [
                holder
                for holder in state.turn_holders.values()
                if holder is not tenant and holder.turn and holder.turn.devices & missing
            ]
            first = ahead[0] if ahead else longest[-1] if longest else None
            place = len(longest) + 1
            for client in state.ready_clients(tenant):
                waiting.add(client.id)
                self._tell_position(client, place, first)
        for client_id in self._placed - waiting:
            if client_id in self._told:
                self._told[client_id].position = None
        self._placed = frozenset(waiting)


class FullMachine(Machine):
    """Handles events as `Machine`, at any cost."""

    def __init__(self, settings: SchedulerSettings, recovery: Grace | None = None) -> None:
        with patch.multiple(scheduler, Turns=FullTurns, Residency=FullResidency, Teller=FullTeller):
            super().__init__(settings, recovery)

    def snapshot(self, now_s: Seconds) -> Snapshot:
        return Status(self._state).take(max(now_s, self._now_s))

    def _stir_who_is_due(self) -> None:
        state = self._state
        for tenant in state.tenants.values():
            at_s = judged_at_s(state, tenant)
            if at_s is not None and self._now_s >= at_s:
                state.changes.of_tenant(tenant)

    def _ask_to_be_woken(self) -> None:
        state = self._state
        deadlines = [device.memory.due_s for device in state.devices.values()]
        deadlines += [deadline_of_tenant_s(state, each) for each in state.tenants.values()]
        deadlines.append(deadline_of_waiters_s(state))
        deadline_s = min((at_s for at_s in deadlines if at_s is not None), default=None)
        if deadline_s != self._wake_at_s:
            self._wake_at_s = deadline_s
            if deadline_s is not None:
                self._outbox.put(WakeAt(at_s=deadline_s - self._gone_back_s))


def check_estimate(estimate: Estimate) -> None:
    """What holds of each, whatever has happened."""
    times = (estimate.earliest_s, estimate.latest_s, estimate.full_s, estimate.used_s)
    assert all(math.isfinite(each) and each >= 0 for each in times), estimate
    assert estimate.earliest_s <= estimate.latest_s, estimate
    assert estimate.position >= 1 and 0 < estimate.share <= 1, estimate
    assert estimate.known or estimate.latest_s == 0, estimate


class Beside(Scheduler):
    """A scheduler that compares itself with a full machine at each event."""

    def __init__(
        self,
        settings: SchedulerSettings,
        *,
        recovering_until_s: Seconds | None = None,
        snapshot_every: int = 1,
    ) -> None:
        super().__init__(settings, recovering_until_s=recovering_until_s)
        self._full = FullMachine(settings, deepcopy(self._machine._state.recovery))
        self._snapshot_every = snapshot_every
        self.compared = 0

    def steps(self, event: ev.Event, *, now_s: Seconds) -> Iterator[list[Command]]:
        """For a caller who takes all of them."""
        commands: list[Command] = []
        for step in super().steps(event, now_s=now_s):  # what it refuses, it raises
            commands += step
            yield step
        full = self._full.handle(event, now_s=now_s)
        if self._full.is_unfinished:
            cause = event.cause or type(event).__name__
            full += self._full.handle(ev.ClockTicked(cause=cause), now_s=now_s)
        assert commands == full, f"{event}: {commands} instead of {full}"
        self.compared += 1
        if self.compared % self._snapshot_every == 0:
            snapshot = self.snapshot(now_s)
            assert snapshot == self._full.snapshot(now_s), event
            everybody = [tenant.id for tenant in snapshot.tenants]
            estimates = self.estimates(everybody, now_s)
            assert estimates == self._full.estimates(everybody, now_s), event
            for estimate in estimates.values():
                check_estimate(estimate)
