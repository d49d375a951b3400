"""What has changed since somebody looked, and what will change by itself: the reason why an event
costs what it changes.

Whoever changes the state says so to `Changes`; `State` and `Lines` do for most. Each list there has
one reader, who empties it. A reader looks at what is listed and at nothing else: a look at the rest
would change nothing. `Alarm` keeps the deadlines.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .ids import DeviceId, Seconds, TenantId
from .order.line import Rank
from .records import Tenant

_HEAD: Rank = (-1, 0.0, 0.0, 0)
"""Before everybody in a queue."""
TAIL: Rank = (99, 0.0, 0.0, 0)
"""Behind everybody."""
Owner = tuple[str, str]
"""Of a deadline: what kind of thing it is, and its name."""
_STALE_MAX = 64


@dataclass(slots=True)
class Stirred:
    """Tenants that changed themselves, and devices on whose lines somebody came or went."""

    tenants: dict[TenantId, Tenant] = field(default_factory=dict)
    lines: dict[DeviceId, Rank] = field(default_factory=dict)
    """With the rank in the queue from which on something has changed there."""

    def clear(self) -> None:
        self.tenants.clear()
        self.lines.clear()


@dataclass(slots=True)
class Changes:
    """Lists of what each reader has not seen yet."""

    for_turns: Stirred = field(default_factory=Stirred)
    """For `Turns.settle`. What changes while turns are settled is looked at then and once more:
    the steps before the change have not seen it."""
    in_settling: Stirred = field(default_factory=Stirred)
    """What the present, or the last, `Turns.settle` looks at."""
    count: int = 0
    """Counts the changes of `in_settling`."""
    for_budgets: dict[DeviceId, None] = field(default_factory=dict)
    """For `Residency.settle`: devices whose memory or whose holders have changed."""
    to_tell: Stirred = field(default_factory=Stirred)
    """For `Teller.tell_changes`."""
    crowds_to_tell: dict[DeviceId, None] = field(default_factory=dict)
    """For `Teller.tell_changes`: devices that tenants have come to or left."""
    for_alarm: dict[TenantId, Tenant] = field(default_factory=dict)
    """For `Alarm.set`: tenants whose deadlines may have changed."""
    devices_for_alarm: dict[DeviceId, None] = field(default_factory=dict)
    pressed: dict[DeviceId, None] = field(default_factory=dict)
    """Devices at the head of whose queues somebody goes first. Whether a turn there ends for that
    depends on memory."""
    to_show: dict[TenantId, None] = field(default_factory=dict)
    """For `Status.take`: tenants that look different now."""

    def of_tenant(self, tenant: Tenant) -> None:
        """Something of the tenant has changed that turns, places or deadlines depend on."""
        self.count += 1
        for stirred in (self.for_turns, self.in_settling, self.to_tell):
            stirred.tenants[tenant.id] = tenant
        self.for_alarm[tenant.id] = tenant
        self.to_show[tenant.id] = None

    def of_line(self, device: DeviceId, rank: Rank = _HEAD) -> None:
        """Somebody has got the device or given it back, or has begun or ceased to queue for it, at
        this rank."""
        self.count += 1
        for stirred in (self.for_turns, self.in_settling, self.to_tell):
            before = stirred.lines.get(device)
            if before is None or rank < before:
                stirred.lines[device] = rank

    def of_look(self, tenant: TenantId) -> None:
        """The tenant only looks different."""
        self.to_show[tenant] = None

    def of_crowd(self, device: DeviceId) -> None:
        """A tenant has come to the device, or has left it."""
        self.crowds_to_tell[device] = None

    def of_memory(self, device: DeviceId) -> None:
        """Something has changed there that budgets depend on."""
        self.for_budgets[device] = None
        if device in self.pressed:
            self.of_line(device, TAIL)

    def of_everything(self, tenants: Iterable[Tenant], devices: Iterable[DeviceId]) -> None:
        """A setting, or the end of the recovery, concerns everybody."""
        for tenant in tenants:
            self.of_tenant(tenant)
        for device in devices:
            self.of_line(device)
            self.of_memory(device)

    def begin_settling(self) -> None:
        """Turns are about to be settled."""
        self.count += 1
        self.in_settling, self.for_turns = self.for_turns, Stirred()


@dataclass(slots=True)
class Alarm:
    """One deadline for each tenant and each device that has any.

    A deadline that has moved leaves its old entry on the heap, which is skipped when it comes up;
    when most entries are such, the heap is made anew."""

    _at_s: dict[Owner, Seconds] = field(default_factory=dict)
    _heap: list[tuple[Seconds, Owner]] = field(default_factory=list)

    def set(self, owner: Owner, at_s: Seconds | None) -> None:
        """The owner's deadline; None: it has none."""
        before_s = self._at_s.pop(owner, None)
        if at_s is None:
            return
        self._at_s[owner] = at_s
        if at_s == before_s:
            return
        heapq.heappush(self._heap, (at_s, owner))
        if len(self._heap) > 2 * len(self._at_s) + _STALE_MAX:
            self._heap = [(each_s, each) for each, each_s in self._at_s.items()]
            heapq.heapify(self._heap)

    def next_s(self) -> Seconds | None:
        """The earliest deadline."""
        while self._heap:
            at_s, owner = self._heap[0]
            if self._at_s.get(owner) == at_s:
                return at_s
            heapq.heappop(self._heap)
        return None

    def due(self, now_s: Seconds) -> Iterator[Owner]:
        """The owners whose deadlines have come; each has to set another one."""
        while (at_s := self.next_s()) is not None and at_s <= now_s:
            _, owner = heapq.heappop(self._heap)
            del self._at_s[owner]
            yield owner
