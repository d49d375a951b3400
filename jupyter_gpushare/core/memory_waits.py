"""Waits for memory that others have and cannot move: who waits, for how long, and where that could
not end (decision 0018). needs.py finds the calls that lack it."""

from __future__ import annotations

from collections.abc import Iterator

from .ids import Seconds, TenantId
from .ledger import Share
from .records import Device, MemoryWait, Tenant
from .state import State

STALLS_MAX = 3
"""One drain that makes no progress may only be long."""


def is_waiting(tenant: Tenant) -> bool:
    """Whether a call for which the tenant has begun to wait still lacks its bytes."""
    wait = tenant.memory_wait
    return (
        wait is not None
        and not wait.in_vain
        and any(
            share.needed_bytes > 0
            and share.need_short_since_s is not None
            and share.need_short_since_s <= wait.begun_s
            for client in tenant.clients.values()
            for share in client.devices.values()
        )
    )


def left_s(state: State, tenant: Tenant, now_s: Seconds) -> Seconds | None:
    """For how much longer it waits; None: it does not."""
    wait = tenant.memory_wait
    if wait is None or not is_waiting(tenant):
        return None
    return max(0.0, wait.begun_s + state.settings.memory_wait_s - now_s)


def stalls(state: State, tenant: Tenant) -> None:
    """The tenant's turn was asked for, and its drain makes no progress: its work in flight may wait
    for the call that waits for memory."""
    wait = tenant.memory_wait
    if wait is not None and is_waiting(tenant):
        wait.stalls += 1
        if wait.stalls >= STALLS_MAX:
            wait.in_vain = True
            state.changes.of_memory(wait.device)


def go_on(
    state: State,
    device: Device,
    share: Share,
    *,
    room_bytes: int,
    short_bytes: int,
    noticed_bytes: int,
    now_s: Seconds,
) -> tuple[Seconds | None, bool]:
    """Until when the call waits, which lacks so many bytes where its tenant could have `room_bytes`
    in all; None: it is refused. And whether the wait has begun, or the turn goes back for it.
    Smaller changes of the room than `noticed_bytes` are none."""
    tenant = state.tenants[share.tenant]
    wait = tenant.memory_wait
    if wait is not None and wait.in_vain:
        least = wait.rooms.setdefault(device.id, room_bytes)
        if room_bytes < least + noticed_bytes:
            return None, False
    begins = wait is None or not is_waiting(tenant)
    if wait is None or begins:
        wait = MemoryWait(device.id, now_s)
        if not (state.turns_are_on and state.settings.memory_wait_s):
            return None, False
    wait.short_bytes = short_bytes if wait.device == device.id else wait.short_bytes
    if begins and _could_not_end(state, tenant, wait):
        return None, False
    until_s = wait.begun_s + state.settings.memory_wait_s
    if now_s >= until_s:
        wait.in_vain, wait.rooms[device.id] = True, room_bytes
        return None, False
    tenant.memory_wait = wait
    gives_back = wait.turn is None and tenant.turn is not None
    if gives_back and tenant.turn is not None:
        wait.turn = tenant.turn.id
    return until_s, begins or gives_back


def _could_not_end(state: State, newcomer: Tenant, its_wait: MemoryWait) -> bool:
    """Whether the newcomer would lack memory even if all who do not wait themselves freed what they
    cannot move. Of those who wait, the ones whose waits can end count as such."""
    waits = {newcomer.id: its_wait}
    for tenant in state.tenants.values():
        if tenant is not newcomer and tenant.memory_wait is not None and is_waiting(tenant):
            waits[tenant.id] = tenant.memory_wait
    stuck = set(waits)
    while True:
        free = {
            each
            for each in stuck
            if sum(_freed_by_others(state, each, waits[each], stuck)) >= waits[each].short_bytes
        }
        if not free:
            return newcomer.id in stuck
        stuck -= free


def _freed_by_others(
    state: State, tenant: TenantId, wait: MemoryWait, stuck: set[TenantId]
) -> Iterator[int]:
    memory = state.devices[wait.device].memory
    yield memory.bytes_ghost  # of processes that have ended
    for share in memory.shares.values():
        if share.tenant != tenant and share.tenant not in stuck:
            is_stuck = share.failed or share.silent
            # What the host has no space for is not freed by waiting.
            most = share.bytes_staying if is_stuck else share.bytes_fixed
            yield min(share.bytes_staying, most)
