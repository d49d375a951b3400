"""Who has each device, who queues for it, and who else could use it: an index over the tenants.

`note` is its only way in: it brings the places of one tenant up to date. Each change of a line is
told to `Changes`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .changes import Changes
from .ids import DeviceId, TenantId

if TYPE_CHECKING:
    from .state import Tenant

_NONE: frozenset[DeviceId] = frozenset()


@dataclass(slots=True, eq=False)
class Line:
    """The tenants of one device."""

    users: dict[TenantId, Tenant] = field(default_factory=dict)
    """Those that could use it."""
    holders: list[Tenant] = field(default_factory=list)
    """Those that have a turn on it, the earliest turn first."""
    lacking: dict[TenantId, Tenant] = field(default_factory=dict)
    """Those that have a turn, but not on this device of theirs."""
    queue: list[Tenant] = field(default_factory=list)
    """Those that queue for it, first come first."""

    def rank(self, place: int) -> int:
        """How many tenants are before this place in the queue."""
        return bisect_left(self.queue, place, key=_place)


@dataclass(frozen=True, slots=True)
class Places:
    """The devices on whose lines a tenant is."""

    uses: frozenset[DeviceId] = _NONE
    holds: frozenset[DeviceId] = _NONE
    lacks: frozenset[DeviceId] = _NONE
    queues: frozenset[DeviceId] = _NONE


NOWHERE = Places()


@dataclass(slots=True)
class Lines:
    """All lines of a node."""

    changes: Changes
    of: dict[DeviceId, Line] = field(default_factory=dict)

    def note(self, tenant: Tenant, *, queued: bool) -> None:
        """The tenant's devices, its turn or its place in the queue have changed."""
        uses, turn = tenant.wanted_devices, tenant.turn
        holds = _NONE if turn is None else frozenset(turn.devices)
        missing = uses - holds
        lacks = _NONE if turn is None else missing
        self._move(tenant, Places(uses, holds, lacks, missing if queued else _NONE))

    def forget(self, tenant: Tenant) -> None:
        """The tenant is gone."""
        self._move(tenant, NOWHERE)

    def _move(self, tenant: Tenant, now: Places) -> None:
        before = tenant.places
        if now == before:
            return
        tenant.places = now
        for device in before.uses ^ now.uses:
            if device in now.uses:
                self.of[device].users[tenant.id] = tenant
            else:
                del self.of[device].users[tenant.id]
            self.changes.of_crowd(device)
        for device in before.holds ^ now.holds:
            if device in now.holds:
                insort(self.of[device].holders, tenant, key=_turn)
            else:
                self.of[device].holders.remove(tenant)
            self.changes.of_line(device)
            self.changes.of_memory(device)
        for device in before.lacks ^ now.lacks:
            if device in now.lacks:
                self.of[device].lacking[tenant.id] = tenant
            else:
                del self.of[device].lacking[tenant.id]
        for device in before.queues ^ now.queues:
            line = self.of[device]
            if device in now.queues:
                insort(line.queue, tenant, key=_place)
            else:
                del line.queue[line.rank(tenant.place)]
            self.changes.of_line(device, tenant.place)

    def held_by_others(self, tenant: Tenant, device: DeviceId) -> bool:
        """Whether somebody else has a turn on the device."""
        return any(holder is not tenant for holder in self.of[device].holders)

    def others_queue(self, tenant: Tenant, device: DeviceId) -> bool:
        """Whether somebody else queues for the device."""
        return any(waiter is not tenant for waiter in self.of[device].queue[:2])


def _place(tenant: Tenant) -> int:
    return tenant.place


def _turn(tenant: Tenant) -> int:
    assert tenant.turn is not None
    return tenant.turn.id
