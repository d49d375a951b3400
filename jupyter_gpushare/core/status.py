"""Makes the snapshot of the state."""

from __future__ import annotations

from collections.abc import Iterator

from .ids import Seconds
from .obstacles import Obstacle
from .room import reserve_bytes, usable_bytes
from .snapshot import (
    ClientDeviceSnapshot,
    ClientSnapshot,
    DeviceSnapshot,
    HolderSnapshot,
    Snapshot,
    TenantCounters,
    TenantMemorySnapshot,
    TenantSnapshot,
    WaiterSnapshot,
)
from .state import Client, Device, State, Tenant
from .transitions import TenantState

REFUSAL_SHOWN_S = 600.0
"""For so long the status says why a tenant was out of memory: its user is sent there, and may look
only when they come back to it."""


def take_snapshot(state: State, now_s: Seconds) -> Snapshot:
    """A frozen copy of the state; times are as of `now_s`."""
    return Snapshot(
        at_s=now_s,
        recovering=state.recovering_until_s is not None,
        devices=tuple(_device(state, device, now_s) for device in state.devices.values()),
        tenants=tuple(_tenant(state, tenant, now_s) for tenant in state.tenants.values()),
        settings=state.settings,
    )


def _device(state: State, device: Device, now_s: Seconds) -> DeviceSnapshot:
    return DeviceSnapshot(
        id=device.id,
        name=device.name,
        bytes_total=device.bytes_total,
        bytes_used=device.bytes_used,
        bytes_allocated=device.memory.bytes_allocated,
        bytes_foreign=device.memory.bytes_foreign + device.memory.bytes_ghost,
        bytes_reserved=reserve_bytes(state.settings, device),
        bytes_usable=max(0, usable_bytes(state.settings, device)),
        bytes_staying=sum(share.bytes_staying for share in device.memory.shares.values()),
        lost=device.lost,
        holders=tuple(
            HolderSnapshot(
                tenant=holder.id,
                name=holder.name,
                turn=holder.turn.id,
                held_for_s=now_s - holder.turn.granted_at_s,
                recalled=holder.state is not TenantState.HOLDING,
                overdue=any(client.overdue for client in holder.clients.values()),
                hold_left_s=_hold_left_s(state, holder, now_s),
            )
            for holder in state.holders(device.id)
            if holder.turn is not None
        ),
        queue=tuple(
            WaiterSnapshot(
                tenant=waiter.id, name=waiter.name, waited_s=now_s - waiter.waited_since_s
            )
            for waiter in state.queue
            if device.id in state.missing_devices(waiter)
        ),
    )


def _hold_left_s(state: State, tenant: Tenant, now_s: Seconds) -> Seconds:
    hold = state.holds.get(tenant.id)
    return 0.0 if hold is None else max(0.0, hold.until_s - now_s)


def _tenant(state: State, tenant: Tenant, now_s: Seconds) -> TenantSnapshot:
    counted = tenant.counters
    waits_for_s = now_s - tenant.waited_since_s if tenant.state is TenantState.WAITING else 0.0
    held_for_s = 0.0 if tenant.turn is None else now_s - tenant.turn.granted_at_s
    return TenantSnapshot(
        id=tenant.id,
        name=tenant.name,
        owner=tenant.owner,
        kind=tenant.kind,
        state=tenant.state.value,
        cap_bytes=tenant.cap_bytes,
        clients=tuple(_client(client) for client in tenant.clients.values()),
        counters=TenantCounters(
            turns=counted.turns,
            waits=counted.waits,
            waited_s_total=counted.waited_s_total + waits_for_s,
            held_s_total=counted.held_s_total + held_for_s,
            drain_stalls=counted.drain_stalls,
            recalls=counted.recalls,
        ),
        memory=tuple(_memory(tenant)),
        obstacle=_obstacle(state, tenant, now_s),
        hold_left_s=_hold_left_s(state, tenant, now_s),
        hold_to_come_s=state.holds_to_come.get(tenant.id, 0.0),
    )


def _obstacle(state: State, tenant: Tenant, now_s: Seconds) -> Obstacle | None:
    """What is in its way; where it waits for nothing, what was when it was refused memory."""
    refused_lately = now_s < tenant.refused_at_s + REFUSAL_SHOWN_S
    if tenant in state.queue or not refused_lately:
        return state.obstacles.get(tenant.id)
    return tenant.refused_for


def _memory(tenant: Tenant) -> Iterator[TenantMemorySnapshot]:
    devices = {device for client in tenant.clients.values() for device in client.devices}
    for device in sorted(devices):
        opened = (client.devices.get(device) for client in tenant.clients.values())
        shares = [share for share in opened if share is not None]
        yield TenantMemorySnapshot(
            device=device,
            bytes_resident=sum(share.bytes_resident for share in shares),
            bytes_parked=sum(share.bytes_parked for share in shares),
            bytes_fixed=sum(share.bytes_fixed for share in shares),
            bytes_staying=sum(share.bytes_staying for share in shares),
            cap_bytes=tenant.cap_bytes,
        )


def _client(client: Client) -> ClientSnapshot:
    return ClientSnapshot(
        id=client.id,
        pid=client.pid,
        process_name=client.process_name,
        state=client.state.value,
        in_cell=client.in_cell,
        overdue=client.overdue,
        devices=tuple(
            ClientDeviceSnapshot(
                device=device,
                bytes_allocated=opened.bytes_allocated,
                bytes_parked=opened.bytes_parked,
                bytes_fixed=opened.bytes_fixed,
                failed=opened.failed,
                silent=opened.silent,
            )
            for device, opened in client.devices.items()
        ),
    )
