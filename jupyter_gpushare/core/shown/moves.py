"""What has moved in the lines of the devices since somebody looked: who keeps a record of turns
follows it, for a snapshot costs more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ..ids import DeviceId, TenantId
from ..order.lines import Lines
from ..policy import bytes_to_come
from ..records import Tenant
from ..scheduler import Scheduler
from ..shares.classes import ORDINARY
from ..state import State
from .waits import Waiter


class Begun(NamedTuple):
    """A tenant that has a device. (A tuple is made sooner, and these are at each hand-over.)"""

    tenant: TenantId
    name: str
    owner: str
    level: int
    """As which its turn goes on while others wait (classes.py)."""
    place: int
    """The number of its arrival in the queue."""
    by_hand: bool
    """Its user keeps the turn by hand."""
    bytes_to_come: int
    """Of its memory: its cell waits until all of that is back."""


class Move(NamedTuple):
    """What is new in the line of a device."""

    device: DeviceId
    begun: tuple[Begun, ...]
    """Tenants that have the device and did not have it."""
    still: tuple[Begun, ...]
    """Those that had it and have it, where something of the turn is new."""
    ended: tuple[TenantId, ...]
    """Tenants that had the device and have it no longer."""
    recalled: tuple[TenantId, ...]
    """Of these, the ones whose turn was asked for."""
    queued: int
    """How many queue for it now."""
    waiters: tuple[Waiter, ...]
    """Those that have begun to queue, or of whose wait something is new."""
    left: tuple[TenantId, ...]
    """Those that queue no longer."""


class Moves:
    """One who follows the lines of a scheduler. It costs what has moved: `Lines` lists that.

    Where a failure has put another machine in the place of the one before, everything is looked
    at."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lines: Lines | None = None
        """Those that were looked at last."""
        self._holders: defaultdict[DeviceId, set[TenantId]] = defaultdict(set)
        """As they were then."""
        self._waiters: defaultdict[DeviceId, set[TenantId]] = defaultdict(set)

    def take(self) -> list[Move]:
        """What has moved since it was asked last."""
        state = self._scheduler._machine._state  # the core's own, as it is now
        hands = state.lines.hands
        if state.lines is not self._lines:
            self._lines = state.lines
            devices = dict.fromkeys([*self._holders, *self._waiters, *state.lines.of])
            hands = {device: self._everybody(state.lines, device) for device in devices}
        if not hands:
            return []
        moves = [self._look(state, device, tenants) for device, tenants in hands.items()]
        state.lines.hands.clear()
        return moves

    def _everybody(self, lines: Lines, device: DeviceId) -> dict[TenantId, bool]:
        line = lines.of.get(device)
        here = (*line.uses, *line.rank_of) if line else ()
        return dict.fromkeys([*self._holders[device], *self._waiters[device], *here], False)

    def _look(self, state: State, device: DeviceId, tenants: Mapping[TenantId, bool]) -> Move:
        line = state.lines.of.get(device)
        has, waits = (line.uses, line.rank_of) if line else ({}, {})
        known, waited = self._holders[device], self._waiters[device]
        begun: list[Begun] = []
        still: list[Begun] = []
        ended: list[TenantId] = []
        waiters: list[Waiter] = []
        left: list[TenantId] = []
        for each in tenants:
            if each in has:
                (still if each in known else begun).append(_begun(state, state.tenants[each]))
                known.add(each)
            elif each in known:
                ended.append(each)
                known.remove(each)
            if each in waits:
                waiters.append(Waiter.of(state, state.queue[each], device))
                waited.add(each)
            elif each in waited:
                left.append(each)
                waited.remove(each)
        if line is None:
            del self._holders[device], self._waiters[device]
        return Move(
            device=device,
            begun=tuple(begun),
            still=tuple(still),
            ended=tuple(ended),
            recalled=tuple([each for each in ended if tenants[each]]),
            queued=len(line.queue) if line else 0,
            waiters=tuple(waiters),
            left=tuple(left),
        )


def _begun(state: State, tenant: Tenant) -> Begun:
    return Begun(
        tenant=tenant.id,
        name=tenant.name,
        owner=tenant.owner,
        level=ORDINARY if tenant.turn is None else tenant.turn.level,
        place=tenant.place,
        by_hand=tenant.id in state.holds,
        bytes_to_come=bytes_to_come(tenant),
    )
