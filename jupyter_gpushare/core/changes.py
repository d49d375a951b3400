"""What has changed since somebody looked, who is told of it, and what will change by itself: the
reason why an event costs what it changes.

Whoever changes the state says so to `Changes`; `State` and `Lines` do for most. Each list there has
one reader, who empties it. A reader looks at what is listed and at nothing else: a look at the rest
would change nothing. `Alarm` keeps the deadlines.

`Outbox` collects commands; nobody who puts one needs to know its cause. `Teller` tells clients what
has changed for them, and only then.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from .commands import (
    Command,
    GrantTurn,
    RecallReason,
    RecallTurn,
    TellContention,
    TellMemoryLimit,
    TellQueuePosition,
)
from .ids import ClientId, DeviceId, Seconds, TenantId
from .transitions import WITH_TURN

if TYPE_CHECKING:
    from .order.line import Rank
    from .records import Client, Tenant
    from .state import State

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


class Outbox:
    """Commands in the order in which they are to be performed. Each carries the cause of its time,
    unless it has one of its own."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self.cause = ""

    def put(self, command: Command) -> None:
        self._commands.append(self._with_cause(command))

    def _with_cause(self, command: Command) -> Command:
        """Nobody else has seen the command yet. Copies of all would cost as much as turns do."""
        if not command.cause:
            object.__setattr__(command, "cause", self.cause)
        return command

    def put_before_grant(self, client: ClientId, command: Command) -> None:
        """For what the client must know before its gate opens, if it is about to open."""
        for place, other in enumerate(self._commands):
            if isinstance(other, GrantTurn) and other.client == client:
                self._commands.insert(place, self._with_cause(command))
                return
        self.put(command)

    def granted(self) -> list[ClientId]:
        """Those whose gates are about to open."""
        return [each.client for each in self._commands if isinstance(each, GrantTurn)]

    def take_all(self) -> list[Command]:
        """Everything put since the last time."""
        commands, self._commands = self._commands, []
        return commands


@dataclass(slots=True)
class _Told:
    """What a client was told last."""

    contention: tuple[int, int, int] | None = None
    position: tuple[int, TenantId | None] | None = None
    limits: dict[DeviceId, tuple[int, int]] = field(default_factory=dict)


class Teller:
    """Remembers what each client was told, and tells the difference."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._told: dict[ClientId, _Told] = {}
        self._crowd: dict[DeviceId, int] = {}
        """How many tenants there were on each device when everybody was told last."""
        self._everywhere = 0
        """How many of them had opened no device."""

    def forget(self, client: ClientId) -> None:
        self._told.pop(client, None)

    def tell_changes(self) -> None:
        """Contention and places in the queue, of everybody for whom they may have changed."""
        stirred, lines = self._state.changes.to_tell, self._state.lines.of
        for device in stirred.lines.keys() - lines.keys():
            del stirred.lines[device]
        self._tell_contention(stirred)
        self._tell_positions(stirred)
        stirred.clear()
        self._state.changes.crowds_to_tell.clear()

    def tell_memory_limits(self, tenant: Tenant) -> None:
        """Cap and siblings' memory, to each client of the tenant, for each device it has opened. If
        the owner's tenants have a cap together, to the others too.

        A client that has not been told anything assumes no cap and no siblings."""
        owner_cap, tenants = self._state.siblings(tenant)
        of_owner: Counter[DeviceId] = Counter()
        if owner_cap:
            for each in tenants:
                for client in each.clients.values():
                    for device, share in client.devices.items():
                        of_owner[device] += share.bytes_allocated
        for each in tenants:
            self._tell_limits_of(each, owner_cap, of_owner)

    def _tell_limits_of(self, tenant: Tenant, owner_cap: int, of_owner: Counter[DeviceId]) -> None:
        sums: Counter[DeviceId] = Counter()
        for client in tenant.clients.values():
            for device, share in client.devices.items():
                sums[device] += share.bytes_allocated
        for client in tenant.clients.values():
            limits = self._of(client).limits
            for closed in limits.keys() - client.devices.keys():
                del limits[closed]
            for device, share in client.devices.items():
                limit = (tenant.cap_bytes, sums[device] - share.bytes_allocated)
                if owner_cap:
                    together = (owner_cap, of_owner[device] - share.bytes_allocated)
                    limit = min(together, limit, key=_room)
                if limits.get(device, (0, 0)) == limit:
                    continue
                limits[device] = limit
                self._outbox.put(
                    TellMemoryLimit(
                        client=client.id, device=device, cap_bytes=limit[0], others_bytes=limit[1]
                    )
                )

    def _tell_contention(self, stirred: Stirred) -> None:
        """To clients with the turn. How many wait, the others hear with their grant; that somebody
        came to their device or left it, they hear at once."""
        lines, setting_ms = self._state.lines, self._state.settings.idle_ms
        for tenant in self._concerned(stirred):
            own = tenant.places.queues
            for client in tenant.clients.values():
                if live := client.live_devices:
                    waiters = max(len(lines.of[each].queue) - (each in own) for each in live)
                    tenants = max(self._crowd[each] for each in live)
                    idle_ms = lines.idle_ms(tenant, live, setting_ms)
                    self._tell_contention_to(client, waiters, tenants, idle_ms)

    def _concerned(self, stirred: Stirred) -> list[Tenant]:
        """Everybody on devices that tenants have come to or left; besides, tenants that the event
        has touched, and holders for whom others have begun or ceased to queue."""
        state, lines = self._state, self._state.lines.of
        holders = {id: each for id, each in stirred.tenants.items() if each.turn is not None}
        for device in stirred.lines:
            holders.update((each.id, each) for each in lines[device].holders)
            holders.update(lines[device].lacking)
        concerned = {**state.touched}
        for holder in sorted(holders.values(), key=attrgetter("turn.id")):
            concerned.setdefault(holder.id, holder)
        crowds = self._crowds_that_changed()
        if not crowds:
            return list(concerned.values())
        for device in crowds:
            concerned.update(lines[device].users)
        return sorted(concerned.values(), key=attrgetter("order"))

    def _crowds_that_changed(self) -> list[DeviceId]:
        state, lines = self._state, self._state.lines.of
        everywhere = len(state.undecided)
        if everywhere != self._everywhere:
            self._everywhere, devices = everywhere, list(lines)
        else:
            devices = [device for device in state.changes.crowds_to_tell if device in lines]
        changed = []
        for device in devices:
            users = len(lines[device].users)
            crowd = users + everywhere
            if (users or device in self._crowd) and self._crowd.get(device) != crowd:
                self._crowd[device] = crowd
                changed.append(device)
        return changed

    def _tell_contention_to(self, client: Client, waiters: int, tenants: int, idle_ms: int) -> None:
        told = self._of(client)
        if told.contention == (waiters, tenants, idle_ms):
            return
        if told.contention and told.contention[1] == tenants and client.state not in WITH_TURN:
            return
        told.contention = (waiters, tenants, idle_ms)
        self._outbox.put(
            TellContention(client=client.id, waiters=waiters, tenants=tenants, idle_ms=idle_ms)
        )

    def _tell_positions(self, stirred: Stirred) -> None:
        state, lines = self._state, self._state.lines.of
        queued = {id: state.queue[id] for id in stirred.tenants if id in state.queue}
        for device, rank in stirred.lines.items():
            queued.update((each.id, each) for each in lines[device].behind(rank))
        for tenant in stirred.tenants.values():
            self._forget_positions(tenant)
        for tenant in sorted(queued.values(), key=attrgetter("place")):
            place, ahead = self._place_of(tenant)
            for client in state.ready_clients(tenant):
                self._tell_position(client, place, ahead)

    def _forget_positions(self, tenant: Tenant) -> None:
        """Of clients that wait no longer: in their next wait they are told again."""
        waiting = self._state.ready_clients(tenant) if tenant.id in self._state.queue else []
        for client in tenant.clients.values():
            told = self._told.get(client.id)
            if told is not None and client not in waiting:
                told.position = None

    def _place_of(self, tenant: Tenant) -> tuple[int, Tenant | None]:
        """Its place in the longest of its queues; and the tenant that has a device which this one
        lacks, or the one before it in that queue."""
        lines = [self._state.lines.of[device] for device in sorted(tenant.places.queues)]
        ahead = [line.index(tenant) for line in lines]
        most = max(ahead)
        holders = [each for line in lines for each in line.holders if each is not tenant]
        if holders:
            return most + 1, min(holders, key=attrgetter("turn.id"))
        return most + 1, lines[ahead.index(most)].queue[most - 1] if most else None

    def _tell_position(self, client: Client, place: int, ahead: Tenant | None) -> None:
        told, position = self._of(client), (place, ahead.id if ahead else None)
        if told.position == position:
            return
        told.position = position
        self._outbox.put(
            TellQueuePosition(
                client=client.id,
                position=place,
                holder=ahead.name if ahead else "",
                holder_tenant=position[1],
            )
        )

    def _of(self, client: Client) -> _Told:
        told = self._told.get(client.id)
        if told is None:
            told = self._told[client.id] = _Told()
        return told


def _room(limit: tuple[int, int]) -> float:
    """How much a client may have under a cap; what others have under it is taken off."""
    cap_bytes, others_bytes = limit
    return cap_bytes - others_bytes if cap_bytes else math.inf


def note_wanted(client: Client, now_s: Seconds) -> None:
    """Somebody wants the turn for which the client was asked."""
    if client.state in WITH_TURN and client.recalled_at_s is None:
        client.recalled_at_s = now_s


def forget_recall(client: Client) -> None:
    """Nobody wants its turn any more; what it owed is forgiven."""
    client.recalled_at_s, client.overdue = None, False
    client.drain_stalled = client.calls_wait_in_drain = False


def forget_recalls(tenant: Tenant) -> None:
    for client in tenant.clients.values():
        forget_recall(client)


def put_grant(outbox: Outbox, state: State, client: Client) -> None:
    """The client has the turn that it knows of."""
    tenant = state.tenants[client.tenant]
    devices = set[DeviceId]() if tenant.turn is None else tenant.turn.devices
    quantum_s = state.settings.quantum_s if tenant.turn is None else tenant.turn.quantum_s
    assert client.turn is not None
    outbox.put(
        GrantTurn(
            client=client.id,
            turn=client.turn,
            quantum_s=quantum_s,
            waiters=state.count_waiters(tenant, devices),
        )
    )


def put_recall(
    outbox: Outbox, client: Client, tenant: Tenant, reason: RecallReason, device_name: str = ""
) -> None:
    """Asks the client's turn back."""
    assert client.turn is not None
    outbox.put(
        RecallTurn(
            client=client.id,
            turn=client.turn,
            reason=reason,
            device_name=device_name,
            quantum_s=0.0 if tenant.turn is None else tenant.turn.quantum_s,
        )
    )
