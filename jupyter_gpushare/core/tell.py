"""Tells clients what has changed for them, and only then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .commands import TellContention, TellMemoryLimit, TellQueuePosition
from .ids import ClientId, DeviceId
from .outbox import Outbox
from .state import Client, State, Tenant


@dataclass(slots=True)
class _Told:
    """What a client was told last."""

    contention: tuple[int, int] | None = None
    position: tuple[int, str] | None = None
    limits: dict[DeviceId, tuple[int, int]] = field(default_factory=dict)


class Teller:
    """Remembers what each client was told, and tells the difference."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox
        self._told: dict[ClientId, _Told] = {}

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
            for device, opened in client.devices.items():
                sums[device] += opened.bytes_allocated
        for client in tenant.clients.values():
            limits = self._of(client).limits
            for closed in limits.keys() - client.devices.keys():
                del limits[closed]
            for device, opened in client.devices.items():
                limit = (tenant.cap_bytes, sums[device] - opened.bytes_allocated)
                if limits.get(device, (0, 0)) == limit:
                    continue
                limits[device] = limit
                self._outbox.put(
                    TellMemoryLimit(
                        client=client.id,
                        device=device,
                        cap_bytes=limit[0],
                        others_bytes=limit[1],
                        cause=self._outbox.cause,
                    )
                )

    def _tell_contention(self) -> None:
        wanted = {tenant.id: self._state.wanted_devices(tenant) for tenant in self._tenants()}
        registered = Counter(device for devices in wanted.values() for device in devices)
        undecided = sum(map(_has_opened_none, self._state.tenants.values()))
        missing = {tenant.id: self._state.missing_devices(tenant) for tenant in self._state.queue}
        waiting = Counter(device for devices in missing.values() for device in devices)
        for tenant in self._tenants():
            own = missing.get(tenant.id, set())
            for client in tenant.clients.values():
                live = self._state.live_devices(client)
                if not live:
                    continue
                contention = (
                    max(waiting[device] - (device in own) for device in live),
                    max(registered[device] for device in live) + undecided,
                )
                told = self._of(client)
                if told.contention != contention:
                    told.contention = contention
                    self._outbox.put(
                        TellContention(
                            client=client.id,
                            waiters=contention[0],
                            tenants=contention[1],
                            cause=self._outbox.cause,
                        )
                    )

    def _tell_positions(self) -> None:
        before: dict[DeviceId, list[Tenant]] = {}
        waiting: set[ClientId] = set()
        for tenant in self._state.queue:
            missing = self._state.missing_devices(tenant)
            longest = max((before.get(device, []) for device in sorted(missing)), key=len)
            position = (len(longest) + 1, self._name_ahead(tenant, missing, longest))
            for device in missing:
                before.setdefault(device, []).append(tenant)
            for client in self._state.ready_clients(tenant):
                waiting.add(client.id)
                self._tell_position(client, position)
        for client_id, told in self._told.items():
            if client_id not in waiting:
                told.position = None

    def _name_ahead(self, tenant: Tenant, missing: set[DeviceId], before: list[Tenant]) -> str:
        """Who has a device that the tenant lacks; else who is before it; nobody in a recovery."""
        for holder in self._state.turn_holders:
            if holder is not tenant and holder.turn is not None and holder.turn.devices & missing:
                return holder.name
        return before[-1].name if before else ""

    def _tell_position(self, client: Client, position: tuple[int, str]) -> None:
        told = self._of(client)
        if told.position == position:
            return
        told.position = position
        self._outbox.put(
            TellQueuePosition(
                client=client.id,
                position=position[0],
                holder=position[1],
                cause=self._outbox.cause,
            )
        )

    def _tenants(self) -> list[Tenant]:
        return [tenant for tenant in self._state.tenants.values() if tenant.clients]

    def _of(self, client: Client) -> _Told:
        return self._told.setdefault(client.id, _Told())


def _has_opened_none(tenant: Tenant) -> bool:
    """It may open any device next, and its first call must find a short queue of work there: so it
    counts as registered on all of them."""
    return not any(client.devices for client in tenant.clients.values())
