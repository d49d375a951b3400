"""What is told, and to whom: the commands of one event, and the news of clients' places.

`Outbox` collects commands; nobody who puts one needs to know its cause. `Teller` tells clients what
has changed for them, and only then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace

from .commands import Command, GrantTurn, TellContention, TellMemoryLimit, TellQueuePosition
from .ids import ClientId, DeviceId, TenantId
from .state import Client, State, Tenant
from .transitions import WITH_TURN


class Outbox:
    """Commands in the order in which they are to be performed."""

    def __init__(self) -> None:
        self._commands: list[Command] = []

    def put(self, command: Command) -> None:
        self._commands.append(command)

    def put_before_grant(self, client: ClientId, command: Command) -> None:
        """For what the client must know before its gate opens, if it is about to open."""
        for place, other in enumerate(self._commands):
            if isinstance(other, GrantTurn) and other.client == client:
                self._commands.insert(place, command)
                return
        self._commands.append(command)

    def name_cause(self, cause: str) -> None:
        """Of all commands that have none yet."""
        self._commands = [
            command if command.cause else replace(command, cause=cause)
            for command in self._commands
        ]

    def take_all(self, cause: str) -> list[Command]:
        """Everything put since the last time; each carries its cause."""
        self.name_cause(cause)
        commands, self._commands = self._commands, []
        return commands


@dataclass(slots=True)
class _Told:
    """What a client was told last."""

    contention: tuple[int, int] | None = None
    position: tuple[int, TenantId | None] | None = None
    limits: dict[DeviceId, tuple[int, int]] = field(default_factory=dict)


class Teller:
    """Remembers what each client was told, and tells the difference."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._told: dict[ClientId, _Told] = {}
        self._placed: set[ClientId] = set()
        """Clients that were told a place in the queue, in the present wait."""
        self._crowd: dict[DeviceId, int] = {}
        """How many tenants there were on each device when everybody was told last."""

    def forget(self, client: ClientId) -> None:
        self._told.pop(client, None)

    def tell_changes(self) -> None:
        """Contention and places in the queue, of everybody."""
        self._tell_contention()
        self._tell_positions()

    def tell_memory_limits(self, tenant: Tenant) -> None:
        """Cap and siblings' memory, to each client of the tenant, for each device it has opened.

        A client that has not been told anything assumes no cap and no siblings."""
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
                if limits.get(device, (0, 0)) == limit:
                    continue
                limits[device] = limit
                self._outbox.put(
                    TellMemoryLimit(
                        client=client.id, device=device, cap_bytes=limit[0], others_bytes=limit[1]
                    )
                )

    def _tell_contention(self) -> None:
        """To clients with the turn. How many wait, the others hear with their grant; that somebody
        came to their device or left it, they hear at once."""
        state = self._state
        crowd = {device: count + len(state.undecided) for device, count in state.tenants_on.items()}
        if crowd != self._crowd:
            self._crowd = crowd
            concerned = state.tenants
        else:
            concerned = {**state.touched, **{holder.id: holder for holder in state.turn_holders}}
        waiting: Counter[DeviceId] = Counter()
        for tenant in state.queue:
            waiting.update(state.missing_devices(tenant))
        for tenant in concerned.values():
            own = state.missing_devices(tenant) if tenant in state.queue else frozenset()
            for client in tenant.clients.values():
                if client.live_devices:
                    waiters = max(waiting[each] - (each in own) for each in client.live_devices)
                    tenants = max(crowd[each] for each in client.live_devices)
                    self._tell_contention_to(client, waiters, tenants)

    def _tell_contention_to(self, client: Client, waiters: int, tenants: int) -> None:
        told = self._of(client)
        if told.contention == (waiters, tenants):
            return
        if told.contention and told.contention[1] == tenants and client.state not in WITH_TURN:
            return
        told.contention = (waiters, tenants)
        self._outbox.put(TellContention(client=client.id, waiters=waiters, tenants=tenants))

    def _tell_positions(self) -> None:
        before: dict[DeviceId, list[Tenant]] = {}
        waiting: set[ClientId] = set()
        for tenant in self._state.queue:
            missing = self._state.missing_devices(tenant)
            longest = max((before.get(device, []) for device in sorted(missing)), key=len)
            place, ahead = len(longest) + 1, self._tenant_ahead(tenant, missing, longest)
            for device in missing:
                before.setdefault(device, []).append(tenant)
            for client in self._state.ready_clients(tenant):
                waiting.add(client.id)
                self._tell_position(client, place, ahead)
        for client_id in self._placed - waiting:
            if client_id in self._told:
                self._told[client_id].position = None
        self._placed = waiting

    def _tenant_ahead(
        self, tenant: Tenant, missing: Set[DeviceId], before: list[Tenant]
    ) -> Tenant | None:
        """The tenant that has a device which this one lacks, or the one before it in the queue."""
        for holder in self._state.turn_holders:
            if holder is not tenant and holder.turn is not None and holder.turn.devices & missing:
                return holder
        return before[-1] if before else None

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
        return self._told.setdefault(client.id, _Told())
