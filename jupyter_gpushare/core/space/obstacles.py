"""What is in the way of a tenant's memory, or of a context of it: the largest thing."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from ..ids import Seconds, TenantId
from ..ledger import Share
from ..needs import is_waiting
from ..records import Device, Tenant, bytes_while_held
from ..state import State
from .exchange import exchanged_bytes, host_lacks_bytes
from .requests import Obstacle, ObstacleKind

InTheWay = tuple[int, ObstacleKind, Share]


def _two_largest(device: Device, holding: tuple[Share, ...]) -> list[InTheWay]:
    """Of two tenants: the memory that they cannot give up, or need not."""
    found: dict[TenantId, InTheWay] = {}
    for share in device.memory.shares.values():
        if share in holding:
            each = (bytes_while_held(share), ObstacleKind.HOLDER, share)
        else:
            each = (share.bytes_staying, _why_it_stays(share), share)
        if share.tenant not in found or each[0] > found[share.tenant][0]:
            found[share.tenant] = each
    return heapq.nlargest(2, found.values(), key=lambda each: each[0])


def _largest_contexts(device: Device) -> list[InTheWay]:
    """Of two tenants: a share of them, and what all their contexts take."""
    sums, of_tenant = Counter[TenantId](), dict[TenantId, Share]()
    for share in device.memory.shares.values():
        sums[share.tenant] += share.context.bytes
        of_tenant.setdefault(share.tenant, share)
    return [
        (count, ObstacleKind.CONTEXTS, of_tenant[tenant])
        for tenant, count in sums.most_common(2)
        if count
    ]


@dataclass(slots=True)
class Largest:
    """What is largest in the way on each device: found once for a look at many tenants."""

    in_the_way: Callable[[Device, tuple[Share, ...]], list[InTheWay]] = field(
        default_factory=partial(cache, _two_largest)
    )
    contexts: Callable[[Device], list[InTheWay]] = field(
        default_factory=partial(cache, _largest_contexts)
    )


def _why_it_stays(share: Share) -> ObstacleKind:
    if share.failed:
        return ObstacleKind.FAILED
    if share.silent:
        return ObstacleKind.SILENT
    if share.bytes_staying > share.bytes_fixed:
        return ObstacleKind.HOST
    return ObstacleKind.FIXED


def obstacle(
    state: State,
    tenant: Tenant,
    now_s: Seconds,
    *,
    holders_stay: bool = True,
    largest: Largest | None = None,
) -> Obstacle | None:
    """What keeps the tenant's memory from being on its devices, all of it at once.

    Of tenants with a turn, all that they have and need is in the way; only what they cannot move if
    not `holders_stay`."""
    if not state.memory_moves:
        return None
    for device_id in sorted(tenant.wanted_devices):
        device = state.devices[device_id]
        found = obstacle_on(state, tenant, device, holders_stay=holders_stay, largest=largest)
        if found is not None:
            return found
        releases = sum(state.devices[each].memory.releases for each in tenant.wanted_devices)
        if now_s < tenant.short_until_s and releases == tenant.short_releases:
            return Obstacle(
                kind=ObstacleKind.RETRY, device=device_id, bytes_in_the_way=0, bytes_short=0
            )
    return None


def obstacle_to_tell(state: State, tenant: Tenant, now_s: Seconds) -> Obstacle | None:
    """The one for which the tenant was passed over last. Of a call that waits behind somebody's
    turn, or on a paused device: the one that there is besides."""
    if tenant.space_waits and tenant.id not in state.obstacles:
        return next(iter(tenant.space_waits.values())).obstacle
    if tenant.id in state.obstacles or not is_waiting(tenant):
        return state.obstacles.get(tenant.id)
    return obstacle(state, tenant, now_s, holders_stay=False)


def obstacle_on(
    state: State,
    tenant: Tenant,
    device: Device,
    *,
    holders_stay: bool,
    largest: Largest | None = None,
) -> Obstacle | None:
    """The same for one of its devices."""
    own = list(state.shares_of(tenant, device.id))
    if not any(share.bytes_parked + share.needed_bytes for share in own if not share.failed):
        return None  # it has there all that it needs
    memory = device.memory
    needed = sum(share.asked_bytes for share in own)
    wanted = needed + sum(share.bytes_own for share in own)
    holding = state.holding_shares(device.id) if holders_stay else []
    stays = memory.totals.bytes_staying - sum(share.bytes_staying for share in own)
    stays += sum(
        bytes_while_held(share) - share.bytes_staying
        for share in holding
        if share.tenant != tenant.id
    )
    room = state.usable_bytes(device) - stays
    if not needed:
        room += state.reserve_to_lend_bytes(device)
    short, held = wanted - room, [share.client for share in holding]
    if short <= 0:
        return None
    if short <= exchanged_bytes(memory, tenant.id, own, room, begun=False, holding=held):
        return None
    if wanted > state.total_bytes(device) - state.least_reserve_bytes(device):
        return Obstacle(
            kind=ObstacleKind.ITSELF, device=device.id, bytes_in_the_way=wanted, bytes_short=short
        )
    found = largest_in_the_way(state, tenant.id, device, holding, short, largest)
    if found.kind is not ObstacleKind.HOST:
        return found
    return replace(found, bytes_short=host_lacks_bytes(memory, tenant.id, own, room, short))


def comes_back_no_more(state: State, tenant: Tenant, device: Device) -> bool:
    """Whether memory of a tenant with a turn cannot come back to the device, even when all others
    have parked what they can. Memory of processes that have ended will be gone soon. Where this is
    so, `obstacle_on` finds something when the turn has ended."""
    memory, held = device.memory, [share.client for share in state.holding_shares(device.id)]
    own, others = [], memory.totals.bytes_staying
    for share in state.shares_of(tenant, device.id):
        own.append(share)
        others -= share.bytes_staying
    for client in held:
        share = memory.shares[client]
        if share.tenant != tenant.id:
            others += bytes_while_held(share) - share.bytes_staying
    room = state.usable_bytes(device) + memory.bytes_ghost - others
    wanted = sum(s.bytes_own if s.client in held else s.bytes_resident for s in own)
    short = wanted - room - state.reserve_to_lend_bytes(device)
    if short <= 0:
        return False
    return short > exchanged_bytes(memory, tenant.id, own, room, begun=True, holding=held)


def largest_in_the_way(
    state: State,
    tenant: TenantId,
    device: Device,
    holding: Sequence[Share],
    short: int,
    largest: Largest | None = None,
) -> Obstacle:
    """What keeps memory of the tenant, or a context of it, off the device, where `short` bytes are
    missing. Holders' memory is not asked for."""
    memory, largest = device.memory, largest or Largest()
    to_come = state.reserve_bytes(device) - state.least_reserve_bytes(device)
    found: list[tuple[int, ObstacleKind, Share | None]] = [
        each for each in largest.in_the_way(device, tuple(holding)) if each[2].tenant != tenant
    ]
    found += [
        (memory.bytes_of_strangers, ObstacleKind.FOREIGN, None),
        (memory.bytes_of_contexts + to_come, ObstacleKind.CONTEXTS, None),
        (memory.bytes_ghost, ObstacleKind.ENDED, None),
    ]
    most, kind, whose = max(found, key=lambda each: each[0])
    if kind is ObstacleKind.CONTEXTS:
        others = (each[2] for each in largest.contexts(device) if each[2].tenant != tenant)
        whose = next(others, None)
    return Obstacle(
        kind=kind,
        device=device.id,
        bytes_in_the_way=most,
        bytes_short=short,
        tenant=None if whose is None else whose.tenant,
    )
