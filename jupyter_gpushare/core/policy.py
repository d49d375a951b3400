"""Who is next, what is in the way of a tenant's memory, and when a turn must end. Questions only:
nothing here changes the state.

The rules, in short:

- First come, first served. A tenant is served when each device that it lacks is free, and no
  earlier tenant in the queue lacks it. So a tenant that wants several devices gets them all or
  none, and nobody is skipped for ever; a device may idle for an earlier tenant meanwhile.
- A turn whose drain has stalled for a further device gets that device before all who wait without a
  turn: until it has it, the turn cannot end, and an earlier tenant may wait for just that end.
- The quantum is used up by time during which others wait for a device of the turn, and by that
  alone. A holder that was alone for an hour still has a whole quantum when the first other one
  comes; and one whose waiters come and go (interrupted cells) does not begin anew each time.
- A tenant whose memory cannot fit, for a reason that waiting for a turn will not fix, is skipped
  until it fits: those behind it go first.
- The quantum waits while memory of the turn's holder is still coming back.
- A turn that its user keeps by hand outlasts its quantum until the hold is over, and not longer:
  the quantum is used up meanwhile as ever.
- No turn begins on a device that an admin has paused, and a turn there is asked back at once, also
  one that is kept by hand. Tenants that need such a device are skipped. A turn that has stalled for
  one still gets it: it cannot end without.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from itertools import chain

from .commands import RecallReason
from .ids import DeviceId, Seconds, TenantId
from .ledger import Share
from .obstacles import Obstacle, ObstacleKind
from .state import Device, State, Tenant, Turn
from .transitions import ASKED_BACK, WITH_TURN, TenantState

_PROGRESS_STEPS = 16


Served = tuple[list[Tenant], dict[TenantId, Obstacle]]
"""Tenants that can be served now, in the order of the queue; and what is in the way of those that
could, but for somebody's memory."""


def grantable(state: State, devices: Iterable[DeviceId], now_s: Seconds) -> Served:
    """Of the tenants that queue for one of these devices. Where turns are off, of all."""
    if not state.turns_are_on:
        return _served_beside_others(state, now_s)
    if state.recovering_until_s is not None:
        return [], {}
    looked_at = set(devices)
    while (found := _served_first(state, looked_at, now_s)) is None:
        pass
    return found


def _served_beside_others(state: State, now_s: Seconds) -> Served:
    served: list[Tenant] = []
    obstacles: dict[TenantId, Obstacle] = {}
    for tenant in sorted(state.queue.values(), key=lambda each: each.turn is None):
        in_the_way = obstacle(state, tenant, now_s)
        if in_the_way is None:
            served.append(tenant)
        else:
            obstacles[tenant.id] = in_the_way
    return served, obstacles


def _served_first(state: State, devices: set[DeviceId], now_s: Seconds) -> Served | None:
    """Adds to `devices` and answers None, where a tenant at the head of a line depends on the lines
    of other devices too."""
    served: list[Tenant] = []
    obstacles: dict[TenantId, Obstacle] = {}
    free = {device for device in devices if not state.holders(device)}
    with_turn = _with_turn_in_line(state, devices)
    for place, tenant in enumerate(chain(with_turn, _in_line(state, free))):
        if not free:
            break
        if tenant in served:
            continue
        missing = state.missing_devices(tenant)
        if is_kept_waiting(state, tenant):
            continue
        if missing <= free:
            in_the_way = obstacle(state, tenant, now_s)
            if in_the_way is not None:
                obstacles[tenant.id] = in_the_way
                continue
            served.append(tenant)
        elif not any(each in devices or state.holders(each) for each in missing - free):
            devices |= missing
            return None
        elif place < len(with_turn):
            continue  # what it lacks is kept for it at its own place in the queue
        free -= missing
    return served, obstacles


def is_kept_waiting(state: State, tenant: Tenant) -> bool:
    """Whether the tenant gets no turn because a device that it needs is paused."""
    return tenant.turn is None and state.paused_device(tenant.wanted_devices) is not None


def _with_turn_in_line(state: State, devices: Iterable[DeviceId]) -> list[Tenant]:
    """Tenants with a turn that queue for one of these devices besides, first come first."""
    lacking = (each for device in devices for each in state.lines.of[device].lacking.values())
    waiting = {each.id: each for each in lacking if each.id in state.queue}
    return sorted(waiting.values(), key=lambda each: each.place)


def _in_line(state: State, free: Set[DeviceId]) -> Iterator[Tenant]:
    """Tenants that queue for one of these devices, in the order of the queue; the caller takes
    devices out of `free` meanwhile."""
    open_ones = (device for device in free if not state.devices[device].paused)
    queues = {device: state.lines.of[device].queue for device in open_ones}
    heads = [(queue[0].place, device, 0) for device, queue in queues.items() if queue]
    heapq.heapify(heads)
    last_place = 0
    while heads:
        place, device, index = heapq.heappop(heads)
        if device not in free:
            continue
        queue = queues[device]
        if index + 1 < len(queue):
            heapq.heappush(heads, (queue[index + 1].place, device, index + 1))
        if place != last_place:
            last_place = place
            yield queue[index]


def progress_time_s(state: State, now_s: Seconds) -> Seconds:
    """The next of the moments from which `park_timeout_s` counts: progress that goes on thus moves
    alarms seldom."""
    step_s = state.settings.park_timeout_s / _PROGRESS_STEPS
    return math.ceil(now_s / step_s) * step_s


def _has_parked_memory(tenant: Tenant) -> bool:
    """Whether memory of those of its clients that have the turn has still to come back."""
    return any(
        client.devices[device].bytes_parked > 0
        for client in tenant.clients.values()
        if client.state in WITH_TURN
        for device in client.live_devices
    )


def waits_for_its_memory(state: State, tenant: Tenant, now_s: Seconds) -> bool:
    """Whether memory of the tenant is coming back, or is about to. One that has made no progress
    for long need not be waited for."""
    turn = tenant.turn
    if turn is None or not _has_parked_memory(tenant):
        return False
    return now_s < turn.memory_progress_s + state.settings.park_timeout_s


def quantum_ends_s(state: State, turn: Turn) -> Seconds | None:
    """When the turn has used its quantum; None while nobody waits."""
    if turn.contended_since_s is None:
        return None
    return turn.contended_since_s + state.settings.quantum_s - turn.contended_s


@dataclass(frozen=True, slots=True)
class Recall:
    """Why a turn must be given back. It names no other tenant: that may be another user's."""

    reason: RecallReason
    device_name: str = ""
    """The device that is taken."""


def recall_due(state: State, tenant: Tenant, now_s: Seconds) -> Recall | None:
    """Why the tenant's turn must be given back now; None if it need not."""
    turn = tenant.turn
    if turn is None or not state.turns_are_on:
        return None
    if tenant.state is TenantState.HOLDING or tenant.id not in state.queue:
        for device in sorted(state.missing_devices(tenant)):
            if state.holders(device):
                return Recall(RecallReason.DEVICE_TAKEN, state.devices[device].name)
    if (paused := state.paused_device(turn.devices)) is not None:
        return Recall(RecallReason.PAUSED, paused.name)
    if _overlaps_an_earlier_one(state, tenant, turn):
        return Recall(RecallReason.NOT_FIRST)
    if turn.lacks_memory_on and not waits_for_its_memory(state, tenant, now_s):
        return Recall(RecallReason.NO_SPACE)
    if tenant.id in state.holds:
        return None
    ends_s = quantum_ends_s(state, turn)
    if ends_s is not None and turn.cell_ended:
        return Recall(RecallReason.CELL_ENDED)
    if ends_s is not None and now_s >= ends_s:
        return Recall(RecallReason.QUANTUM_OVER)
    return None


def _overlaps_an_earlier_one(state: State, tenant: Tenant, turn: Turn) -> bool:
    return any(state.holders(device)[0] is not tenant for device in turn.devices)


def deadline_of_tenant_s(state: State, tenant: Tenant) -> Seconds | None:
    """When something happens to the tenant's turn by itself, if nothing else does before."""
    turn = tenant.turn
    if turn is None:
        return None
    hold = state.holds.get(tenant.id)
    deadlines = [] if hold is None else [hold.until_s]
    if turn.restores:
        deadlines.append(turn.memory_progress_s + state.settings.park_timeout_s)
    if tenant.state is TenantState.STALLED:
        deadlines.append(turn.retry_at_s)
    elif tenant.state is TenantState.HOLDING:
        ends_s = quantum_ends_s(state, turn)
        if ends_s is not None and hold is None:
            deadlines.append(ends_s)
    else:
        deadlines += [
            client.recalled_at_s + state.settings.overdue_s
            for client in tenant.clients.values()
            if client.recalled_at_s is not None
            and client.state in ASKED_BACK
            and not client.overdue
        ]
    return min(deadlines, default=None)


def deadline_of_waiters_s(state: State) -> Seconds | None:
    """When something happens by itself to tenants without a turn."""
    deadlines = [] if state.recovering_until_s is None else [state.recovering_until_s]
    for tenant_id, in_the_way in state.obstacles.items():
        if in_the_way.kind is ObstacleKind.RETRY:
            deadlines.append(state.tenants[tenant_id].short_until_s)
    return min(deadlines, default=None)


# ---- what is in the way of a tenant's memory ---------------------------------------------------


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
    own = list(state.shares_of(tenant, device.id))
    if not any(share.bytes_parked + share.needed_bytes for share in own if not share.failed):
        return None  # it has there all that it needs
    memory = device.memory
    needed = sum(share.asked_bytes for share in own)
    wanted = needed + sum(share.bytes_own for share in own)
    holding = state.holding_shares(device.id) if holders_stay else []
    stays = memory.totals.bytes_staying - sum(share.bytes_staying for share in own)
    stays += sum(
        _bytes_while_held(share) - share.bytes_staying
        for share in holding
        if share.tenant != tenant.id
    )
    short = wanted - state.usable_bytes(device) + stays
    if not needed:
        short -= state.reserve_to_lend_bytes(device)
    if short <= 0:
        return None
    kind, whose = ObstacleKind.ITSELF, None
    most = wanted
    if wanted <= state.total_bytes(device) - state.reserve_bytes(device):
        outside = [
            (memory.bytes_foreign, ObstacleKind.FOREIGN, None),
            (memory.bytes_ghost, ObstacleKind.ENDED, None),
        ]
        in_the_way = _in_the_way(tenant, device, holding)
        most, kind, whose = max([*in_the_way, *outside], key=lambda each: each[0])
    return Obstacle(
        kind=kind,
        device=device.id,
        bytes_in_the_way=most,
        bytes_short=short,
        tenant=None if whose is None else whose.tenant,
    )


def _bytes_while_held(share: Share) -> int:
    """What a client with a turn needs of the device."""
    return max(share.bytes_resident, share.bytes_allocated + share.asked_bytes)


def _in_the_way(
    tenant: Tenant, device: Device, holding: list[Share]
) -> Iterator[tuple[int, ObstacleKind, Share]]:
    """The memory that others cannot give up, or need not."""
    for share in device.memory.shares.values():
        if share.tenant == tenant.id:
            continue
        if share in holding:
            yield _bytes_while_held(share), ObstacleKind.HOLDER, share
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
