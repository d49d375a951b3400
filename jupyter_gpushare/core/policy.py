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
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .commands import RecallReason
from .ids import Seconds, TenantId
from .ledger import Share
from .obstacles import Obstacle, ObstacleKind
from .state import Device, State, Tenant, Turn
from .transitions import ASKED_BACK, WITH_TURN, TenantState

_PROGRESS_STEPS = 16


def grantable(state: State, now_s: Seconds) -> tuple[list[Tenant], dict[TenantId, Obstacle]]:
    """The tenants of the queue that can be served now, in its order; and what is in the way of
    those that could, but for somebody's memory."""
    served: list[Tenant] = []
    obstacles: dict[TenantId, Obstacle] = {}
    if state.turns_are_on and state.recovering_until_s is not None:
        return served, obstacles
    free = state.devices.keys() - (state.held_devices() if state.turns_are_on else set())
    with_turn = [tenant for tenant in state.queue if tenant.turn is not None]
    for place, tenant in enumerate([*with_turn, *state.queue]):
        if not free:
            break
        if tenant in served:
            continue
        missing = state.missing_devices(tenant)
        if missing <= free:
            in_the_way = obstacle(state, tenant, now_s)
            if in_the_way is not None:
                obstacles[tenant.id] = in_the_way
                continue
            served.append(tenant)
        elif place < len(with_turn):
            continue  # what it lacks is kept for it at its own place in the queue
        if state.turns_are_on:
            free -= missing
    return served, obstacles


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
    if tenant.state is TenantState.HOLDING or tenant not in state.queue:
        for device in sorted(state.missing_devices(tenant)):
            if any(state.holders(device)):
                return Recall(RecallReason.DEVICE_TAKEN, state.devices[device].name)
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
    for other in state.turn_holders:
        if other is tenant:
            return False
        if other.turn is not None and other.turn.devices & turn.devices:
            return True
    return False


def next_deadline_s(state: State) -> Seconds | None:
    """When something happens by itself, if nothing else does before."""
    deadlines = [] if state.recovering_until_s is None else [state.recovering_until_s]
    deadlines += [hold.until_s for hold in state.holds.values()]
    deadlines += [
        device.memory.due_s for device in state.devices.values() if device.memory.due_s is not None
    ]
    for tenant_id, in_the_way in state.obstacles.items():
        if in_the_way.kind is ObstacleKind.RETRY:
            deadlines.append(state.tenants[tenant_id].short_until_s)
    for tenant in state.turn_holders:
        if tenant.turn is None:
            continue
        if tenant.turn.restores:
            deadlines.append(tenant.turn.memory_progress_s + state.settings.park_timeout_s)
        if tenant.state is TenantState.STALLED:
            deadlines.append(tenant.turn.retry_at_s)
        elif tenant.state is TenantState.HOLDING:
            ends_s = quantum_ends_s(state, tenant.turn)
            if ends_s is not None and tenant.id not in state.holds:
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
    own = [share for share in device.memory.shares.values() if share.tenant == tenant.id]
    if not any(share.bytes_parked + share.needed_bytes for share in own if not share.failed):
        return None  # it has there all that it needs
    memory = device.memory
    needed = sum(share.asked_bytes for share in own)
    wanted = needed + sum(share.bytes_own for share in own)
    in_the_way = list(_in_the_way(state, tenant, device, holders_stay))
    short = wanted - state.usable_bytes(device) + sum(each[0] for each in in_the_way)
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
    holding = state.holding_shares(device.id)
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
