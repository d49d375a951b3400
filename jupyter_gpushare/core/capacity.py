"""How much of a device each tenant can have. Questions only: nothing here changes the state.

The *reserve* of a device is never given out: contexts, modules and the driver itself need space
that no budget covers. Foreign bytes are not given out either. The rest is *usable*.

Contexts and modules are foreign as soon as they are there, and they grow while a notebook works.
Memory that was on the device before they grew may come back beside them. For such memory, and for
nothing new, foreign bytes count against the reserve first.
"""

from __future__ import annotations

from collections.abc import Iterator

from .ids import DeviceId, Seconds, TenantId
from .ledger import Share
from .obstacles import Obstacle, ObstacleKind
from .settings import RESERVE_BY_SIZE, SchedulerSettings
from .state import Device, State, Tenant
from .transitions import WITH_TURN

_RESERVE_BYTES_MIN = 1 << 30
_RESERVE_SHARE = 50
_RESERVE_SHARE_MAX = 8


def total_bytes(settings: SchedulerSettings, device: Device) -> int:
    """The device's memory, or as much of it as the settings allow."""
    limit = settings.device_bytes_max
    return min(device.bytes_total, limit) if limit else device.bytes_total


def reserve_bytes(settings: SchedulerSettings, device: Device) -> int:
    """The bytes kept free for contexts, modules and the driver."""
    total = total_bytes(settings, device)
    if settings.device_reserve_bytes != RESERVE_BY_SIZE:
        return min(settings.device_reserve_bytes, total)
    return min(max(_RESERVE_BYTES_MIN, total // _RESERVE_SHARE), total // _RESERVE_SHARE_MAX)


def usable_bytes(settings: SchedulerSettings, device: Device) -> int:
    """The bytes that clients may have together; below 0 when others have grown into the reserve."""
    taken = reserve_bytes(settings, device) + device.memory.bytes_foreign
    return total_bytes(settings, device) - taken - device.memory.bytes_ghost


def reserve_to_lend_bytes(settings: SchedulerSettings, device: Device) -> int:
    """How much of the reserve memory may use that was there before: see above."""
    return min(reserve_bytes(settings, device), device.memory.bytes_foreign)


def holding_shares(state: State, device: DeviceId) -> list[Share]:
    """The shares of clients with a turn on the device, those of the earliest turn first."""
    return [
        share
        for tenant in state.holders(device)
        for client in tenant.clients.values()
        if client.state in WITH_TURN
        and (share := client.devices.get(device)) is not None
        and not share.failed
    ]


def has_parked_memory(tenant: Tenant) -> bool:
    """Whether memory of those of its clients that have the turn has still to come back."""
    return any(
        client.devices[device].bytes_parked > 0
        for client in tenant.clients.values()
        if client.state in WITH_TURN
        for device in client.live_devices
    )


def own_bytes(share: Share) -> int:
    """The resident bytes of the share when all that can come back has come back."""
    return share.bytes_resident if share.failed else share.bytes_allocated


def memory_is_kept_away(state: State, tenant: TenantId, device: Device) -> bool:
    """Whether memory of the tenant is parked that could not come back to the device, even if
    everybody else had parked what they can."""
    own = [share for share in device.memory.shares.values() if share.tenant == tenant]
    if not any(share.bytes_parked for share in own if not share.failed):
        return False
    others = sum(
        share.bytes_staying for share in device.memory.shares.values() if share.tenant != tenant
    )
    lent = reserve_to_lend_bytes(state.settings, device)
    return sum(map(own_bytes, own)) + others > usable_bytes(state.settings, device) + lent


def obstacle(
    state: State, tenant: Tenant, now_s: Seconds, *, holders_stay: bool = True
) -> Obstacle | None:
    """What keeps the tenant's memory from being on its devices, all of it at once.

    Of tenants with a turn, all that they have and need is in the way; only what they cannot move if
    not `holders_stay`."""
    if not state.memory_moves:
        return None
    for device_id in sorted(tenant.wanted_devices):
        device = state.devices[device_id]
        found = _obstacle_on(state, tenant, device, holders_stay)
        if found is not None:
            return found
        releases = sum(state.devices[each].memory.releases for each in tenant.wanted_devices)
        if now_s < tenant.short_until_s and releases == tenant.short_releases:
            return Obstacle(
                kind=ObstacleKind.RETRY, device=device_id, bytes_in_the_way=0, bytes_short=0
            )
    return None


def _obstacle_on(
    state: State, tenant: Tenant, device: Device, holders_stay: bool
) -> Obstacle | None:
    own = [share for share in device.memory.shares.values() if share.tenant == tenant.id]
    if not any(share.bytes_parked + share.needed_bytes for share in own if not share.failed):
        return None  # it has there all that it needs
    settings, memory = state.settings, device.memory
    needed = sum(share.needed_bytes for share in own)
    wanted = needed + sum(map(own_bytes, own))
    in_the_way = list(_in_the_way(state, tenant, device, holders_stay))
    short = wanted - usable_bytes(settings, device) + sum(each[0] for each in in_the_way)
    if not needed:
        short -= reserve_to_lend_bytes(settings, device)
    if short <= 0:
        return None
    kind, whose = ObstacleKind.ITSELF, None
    most = wanted
    if wanted <= total_bytes(settings, device) - reserve_bytes(settings, device):
        outside = [
            (memory.bytes_foreign, ObstacleKind.FOREIGN, None),
            (memory.bytes_ghost, ObstacleKind.ENDED, None),
        ]
        most, kind, whose = max([*in_the_way, *outside], key=lambda each: each[0])
    return Obstacle(
        kind=kind,
        device=device.id,
        bytes_in_the_way=most,
        bytes_short=short,
        tenant=None if whose is None else whose.tenant,
    )


def _in_the_way(
    state: State, tenant: Tenant, device: Device, holders_stay: bool
) -> Iterator[tuple[int, ObstacleKind, Share]]:
    """The memory that others cannot give up, or need not."""
    holding = holding_shares(state, device.id)
    for share in device.memory.shares.values():
        if share.tenant == tenant.id:
            continue
        if share in holding and holders_stay:
            wanted = share.bytes_allocated + share.asked_bytes
            yield max(share.bytes_resident, wanted), ObstacleKind.HOLDER, share
        else:
            yield share.bytes_staying, _why_it_stays(share), share


def _why_it_stays(share: Share) -> ObstacleKind:
    if share.failed:
        return ObstacleKind.FAILED
    if share.silent:
        return ObstacleKind.SILENT
    if share.bytes_staying > share.bytes_fixed:
        return ObstacleKind.HOST
    return ObstacleKind.FIXED
