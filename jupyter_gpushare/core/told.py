"""What clients are told.

`Outbox` collects commands; nobody who puts one needs to know its cause. `Teller` tells clients what
has changed for them (changes.py), and only then.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter

from .changes import Stirred
from .commands import (
    Command,
    GrantTurn,
    RecallReason,
    RecallTurn,
    TellContention,
    TellMemoryLimit,
    TellQueuePosition,
)
from .ids import ClientId, DeviceId, TenantId
from .records import Client, Tenant
from .state import State
from .transitions import WITH_TURN


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
