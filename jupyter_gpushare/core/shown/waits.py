"""What a tenant that waits is told: its place, why it waits, and when its turn will begin
(estimates.py). Questions only."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from ..estimates import LOOKED_AT, start_range
from ..events import DeviceMode
from ..ids import DeviceId, Seconds, TenantId
from ..order.line import Line, quantum_left_s, take_turns
from ..policy import pressed_at_s
from ..records import Tenant
from ..shares.classes import BY_SHARE, ORDINARY, STARVED, URGENT, TenantClass
from ..shares.guarantees import Standing
from ..space.requests import Obstacle
from ..state import State


class Reason(enum.Enum):
    """Why a tenant waits."""

    TURN = "turn"
    """Others are before it."""
    MEMORY = "memory"
    """Somebody's memory is in the way, or its own may not move yet."""
    OWN = "own"
    """A notebook of the same owner has the device, until it has had more of late."""
    SHARE = "share"
    """Others that came later are before it, because its owner has had more of its share."""
    CLASS = "class"
    """Others are before it for what they are: `realtime`, or no `batch` as this one is."""
    LIMIT = "limit"
    """Its owner has had what the settings allow."""
    HELD = "held"
    """A user keeps a turn by hand."""
    PAUSED = "paused"
    """An admin has paused a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of a tenant that waits. Times are from now."""

    position: int
    """1: it is next."""
    earliest_s: Seconds
    latest_s: Seconds
    known: bool
    """Otherwise the times say nothing, and are 0."""
    reason: Reason
    full_s: Seconds = 0.0
    """When it would begin if all before it used their whole quanta, and nobody came: what estimates
    are compared with."""
    used_s: Seconds = 0.0
    """What its cell has had of devices: above 0, it was stopped in the middle."""
    own: str = ""
    """The name of that notebook, where the reason is OWN."""
    share: float = 1.0
    """The part of the device that is its owner's while all stay that are there now."""


class Waiter(NamedTuple):
    """A tenant that queues for a device, for who keeps a record of it. Of why it waits, this is
    what is its own; the rest hangs on who has the device (`reason_of_order`). It costs nothing that
    grows with the queue."""

    tenant: TenantId
    owner: str
    waited_s: Seconds
    used_s: Seconds
    """What its cell has had of devices."""
    level: int
    """How soon it is served (classes.py)."""
    place: int
    """The number of its arrival."""
    is_batch: bool
    reason: Reason | None
    """PAUSED, LIMIT or MEMORY."""
    obstacle: Obstacle | None
    """Where it waits for MEMORY and this is None, that ends with the present turn."""

    @staticmethod
    def of(state: State, tenant: Tenant, device: DeviceId) -> Waiter:
        now_s, line = state.accounts.now_s, state.lines.of[device]
        found = state.obstacles.get(tenant.id)
        reason = None
        if _is_paused(state, tenant):
            reason = Reason.PAUSED
        elif tenant.standing in (Standing.BLOCKED, Standing.OVER):
            reason = Reason.LIMIT
        elif found is not None or _waits_for_a_move(state, line, tenant, now_s):
            reason = Reason.MEMORY
        return Waiter(
            tenant=tenant.id,
            owner=tenant.owner,
            waited_s=now_s - tenant.waited_since_s,
            used_s=state.cell_used_s(tenant) if tenant.turn is None else 0.0,
            level=line.rank_of[tenant.id][0],
            place=tenant.place,
            is_batch=tenant.runs_as is TenantClass.BATCH,
            reason=reason,
            obstacle=found,
        )


def reason_of_order(
    own: int, place: int, before: Iterable[tuple[int, int]], *, is_batch: bool
) -> Reason:
    """Why a tenant of this level and arrival waits for others, of which these are before it."""
    levels = list(before)
    if any(_outclasses(level, own, is_batch=is_batch) for level, _ in levels):
        return Reason.CLASS
    return Reason.SHARE if _is_overtaken(own, place, levels) else Reason.TURN


def _outclasses(level: int, own: int, *, is_batch: bool) -> bool:
    classes = (URGENT, STARVED, ORDINARY) if is_batch else (URGENT, STARVED)
    return level < own and level in classes


def _is_overtaken(own: int, place: int, before: Iterable[tuple[int, int]]) -> bool:
    if own not in BY_SHARE:
        return False
    return any(level in BY_SHARE and other > place for level, other in before)


def find_estimate(state: State, tenant: Tenant, now_s: Seconds) -> Estimate:
    """Of a tenant in the queue."""
    lines = [state.lines.of[device] for device in tenant.places.queues]
    paused = _is_paused(state, tenant)
    told = None if paused else start_range(state, tenant, now_s)
    earliest_s, latest_s = told or (0.0, 0.0)
    reason = Reason.PAUSED if paused else _reason(state, tenant, lines, now_s)
    own = [each.name for line in lines for each in _siblings_with_turn(line, tenant)]
    shares = (state.accounts.share(each, tenant.owner) for each in tenant.places.queues)
    return Estimate(
        position=1 + max((line.index(tenant) for line in lines), default=0),
        earliest_s=earliest_s,
        latest_s=latest_s,
        known=told is not None,
        reason=reason,
        full_s=max((_full_s(line, tenant, now_s) for line in lines), default=0.0),
        used_s=state.cell_used_s(tenant) if tenant.turn is None else 0.0,
        own=own[0] if own and reason is Reason.OWN else "",
        share=min(shares, default=1.0),
    )


def _full_s(line: Line, tenant: Tenant, now_s: Seconds) -> Seconds:
    """What is left of the quanta of all before it."""
    turns = [holder.turn for holder in line.other_holders(tenant)]
    held_s = sum(quantum_left_s(turn, now_s) for turn in turns if turn is not None)
    return held_s + sum(other.next_quantum_s for other in line.before(tenant))


def _is_paused(state: State, tenant: Tenant) -> bool:
    """Whether a device that it needs is paused. A turn that lacks one gets it all the same."""
    needed = tenant.wanted_devices if tenant.turn is None else ()
    return any(state.devices[device].mode is not DeviceMode.OPEN for device in needed)


def _reason(state: State, tenant: Tenant, lines: list[Line], now_s: Seconds) -> Reason:
    if tenant.standing in (Standing.BLOCKED, Standing.OVER):
        return Reason.LIMIT
    if any(each.id in state.holds for line in lines for each in line.other_holders(tenant)):
        return Reason.HELD
    moves = any(_waits_for_a_move(state, line, tenant, now_s) for line in lines)
    if moves or tenant.id in state.obstacles:
        return Reason.MEMORY
    orders = {_reason_on(line, tenant) for line in lines}
    if Reason.CLASS in orders:
        return Reason.CLASS
    if any(_waits_for_siblings(line, tenant) for line in lines):
        return Reason.OWN
    return Reason.SHARE if Reason.SHARE in orders else Reason.TURN


def _reason_on(line: Line, tenant: Tenant) -> Reason:
    has = line.other_holders(tenant)
    before = [(each.turn.level, each.place) for each in has if each.turn is not None]
    for other in islice(line.before(tenant), LOOKED_AT):
        before.append((line.rank_of[other.id][0], other.place))
    is_batch = tenant.runs_as is TenantClass.BATCH
    return reason_of_order(line.rank_of[tenant.id][0], tenant.place, before, is_batch=is_batch)


def _siblings_with_turn(line: Line, tenant: Tenant) -> list[Tenant]:
    """From which the tenant takes over by recent use."""
    return [each for each in line.other_holders(tenant) if take_turns(each, tenant)]


def _waits_for_siblings(line: Line, tenant: Tenant) -> bool:
    """And for nobody else."""
    before = islice(line.before(tenant), LOOKED_AT)
    return bool(_siblings_with_turn(line, tenant)) and all(
        take_turns(other, tenant) for other in before
    )


def _waits_for_a_move(state: State, line: Line, tenant: Tenant, now_s: Seconds) -> bool:
    """Whether a turn would end for it at once, but for the memory that would have to move."""
    if not line.presses or next(line.in_order(), None) is not tenant:
        return False
    pressed = (pressed_at_s(state, holder) for holder in line.other_holders(tenant))
    return any(at_s is not None and at_s > now_s for at_s in pressed)
