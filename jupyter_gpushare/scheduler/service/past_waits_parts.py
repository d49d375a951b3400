"""The parts of a past wait, each with its reason. Pure questions to what is kept (past_waits.py).

A hand-over is kept once for a device, however many wait for it. So why each of them waited is found
here, from who had the device meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.shown.waits import Reason, reason_of_order
from jupyter_gpushare.core.space.requests import Obstacle

from .past_waits import Cause, Had, Holders, Lanes, PastWaits, Wait, what_is
from .timeline import Label

INTERVALS_MAX = 24
"""Of one wait, as they are told."""


class Restored(NamedTuple):
    """Memory that came back, or is coming back."""

    bytes_to_come: int
    is_over: bool
    came_all: bool


@dataclass(slots=True)
class Interval:
    """A part of a wait with one reason. None: it is forgotten, unless memory came back in it."""

    begin_s: Seconds
    end_s: Seconds
    reason: Reason | None
    obstacle: Obstacle | None = None
    whose: Label | None = None
    had: dict[TenantId, tuple[Label, Seconds]] = field(default_factory=dict)
    """Who had a device meanwhile, and for how long."""
    restored: Restored | None = None
    """The tenant had the device, and its memory came back."""

    def goes_on_in(self, later: Interval) -> bool:
        same = self.reason is later.reason and what_is(self.obstacle) == what_is(later.obstacle)
        return same and self.end_s == later.begin_s

    def take_in(self, later: Interval) -> None:
        self.end_s = later.end_s
        for tenant, (label, had_s) in later.had.items():
            self.had[tenant] = (label, self.had.get(tenant, (label, 0.0))[1] + had_s)


@dataclass(frozen=True, slots=True)
class Told:
    """A wait for somebody who asks."""

    wait: Wait
    intervals: list[Interval]


def told_of(waits: PastWaits, tenant: TenantId, now_s: Seconds) -> tuple[list[Told], int, Seconds]:
    """The waits that are kept, the earliest first; how many are not any more; and the moment in
    the times of the recorder."""
    kept, lanes, own_s = waits.kept_of(tenant, now_s)
    told = [Told(wait, _parts_of(tenant, wait, lanes, own_s)) for wait in kept.waits]
    return told, kept.forgotten, own_s


def _parts_of(tenant: TenantId, wait: Wait, lanes: Lanes, now_s: Seconds) -> list[Interval]:
    """The wait in parts, each with its reason: in the queue, and then for memory that came back."""
    parts = _in_the_queue(tenant, wait, lanes, now_s) if wait.causes else []
    if wait.came_from_s is not None and wait.end_s is not None:
        is_over = wait.came_to_s is not None
        end_s = max(wait.end_s, now_s if wait.came_to_s is None else wait.came_to_s)
        if end_s > wait.end_s or not parts:
            restored = Restored(wait.bytes_to_come, is_over, wait.came_all)
            parts.append(Interval(wait.end_s, end_s, None, restored=restored))
    if len(parts) > INTERVALS_MAX:
        forgotten = Interval(parts[0].begin_s, parts[-INTERVALS_MAX].end_s, None)
        parts = [forgotten, *parts[1 - INTERVALS_MAX :]]
    return parts


def _in_the_queue(tenant: TenantId, wait: Wait, lanes_of: Lanes, now_s: Seconds) -> list[Interval]:
    end_s = now_s if wait.end_s is None else wait.end_s
    devices = {cause.device for cause in wait.causes}
    lanes = {device: lanes_of.get(device, Holders(kept_from_s=end_s)) for device in devices}
    from_s = max([wait.begin_s, wait.kept_from_s, *(a.kept_from_s for a in lanes.values())])
    from_s = min(from_s, end_s)
    parts = [Interval(wait.begin_s, from_s, None)] if from_s > wait.begin_s else []
    at = _Moment()
    for moment_s, change in _changes(tenant, wait, lanes, from_s, end_s):
        if moment_s > from_s:
            _append(parts, at.interval(from_s, moment_s))
            from_s = moment_s
        change(at)
    if end_s > from_s or not parts:
        _append(parts, at.interval(from_s, end_s))
    return parts


class _Moment:
    """While the parts of a wait are found: what was so at one moment."""

    def __init__(self) -> None:
        self._causes: dict[DeviceId, Cause] = {}
        self._has: dict[tuple[DeviceId, TenantId], Had] = {}

    def cause(self, cause: Cause) -> None:
        self._causes[cause.device] = cause

    def cause_is_over(self, device: DeviceId) -> None:
        self._causes.pop(device, None)

    def begins(self, device: DeviceId, had: Had) -> None:
        self._has[device, had.label.tenant] = had

    def changes_hands(self, device: DeviceId) -> None:
        """What hung on the turn before is over."""
        cause = self._causes.get(device)
        if cause is not None and cause.reason is Reason.MEMORY and cause.obstacle is None:
            self._causes[device] = replace(cause, reason=None)

    def ends(self, device: DeviceId, had: Had) -> None:
        if self._has.get((device, had.label.tenant)) is had:
            del self._has[device, had.label.tenant]

    def interval(self, begin_s: Seconds, end_s: Seconds) -> Interval:
        reason, cause = self._reason()
        blocked = reason is Reason.MEMORY and cause is not None
        labels = {had.label.tenant: had.label for had in self._before()}
        return Interval(
            begin_s,
            end_s,
            reason,
            cause.obstacle if cause is not None and blocked else None,
            cause.whose if cause is not None and blocked else None,
            {tenant: (label, end_s - begin_s) for tenant, label in labels.items()},
        )

    def _reason(self) -> tuple[Reason, Cause | None]:
        """As estimates.py finds it for who waits now."""
        own = {cause.reason: cause for cause in self._causes.values()}
        for reason in (Reason.PAUSED, Reason.LIMIT):
            if reason in own:
                return reason, own[reason]
        if any(had.by_hand for had in self._before()):
            return Reason.HELD, None
        if Reason.MEMORY in own:
            return Reason.MEMORY, own[Reason.MEMORY]
        found = {self._order(cause) for cause in self._causes.values()}
        if Reason.CLASS in found:
            return Reason.CLASS, None
        if self._only_siblings_are_before():
            return Reason.OWN, None
        return (Reason.SHARE if Reason.SHARE in found else Reason.TURN), None

    def _only_siblings_are_before(self) -> bool:
        """Whether all that have the device for which it waits are of the tenant's own owner."""
        owners = {cause.owner for cause in self._causes.values()}
        return len(self._causes) == 1 and {had.label.owner for had in self._before()} == owners

    def _before(self) -> list[Had]:
        """Who has a device for which the tenant queues."""
        return [had for (device, _), had in self._has.items() if device in self._causes]

    def _order(self, cause: Cause) -> Reason:
        before = (
            (had.level, had.place)
            for (device, _), had in self._has.items()
            if device == cause.device
        )
        return reason_of_order(cause.level, cause.place, before, is_batch=cause.is_batch)


_Change = tuple[Seconds, Callable[[_Moment], None]]


def _changes(
    tenant: TenantId, wait: Wait, lanes: dict[DeviceId, Holders], from_s: Seconds, end_s: Seconds
) -> list[_Change]:
    """What changed while it waited, in order. Who ends goes before who begins at that moment."""
    found: list[tuple[Seconds, int, Callable[[_Moment], None]]] = []
    for cause in wait.causes:
        begin_s = max(from_s, cause.begin_s)
        if cause.end_s is not None and cause.end_s < end_s:
            found.append((max(from_s, cause.end_s), 0, _leaving(cause.device)))
            if cause.end_s <= begin_s:
                continue
        found.append((begin_s, 1, _noting(cause)))
    for device, lane in lanes.items():
        for had in lane.turns:
            is_over = had.end_s is not None and had.end_s <= max(from_s, had.begin_s)
            if is_over or had.begin_s >= end_s or had.label.tenant == tenant:
                continue
            found.append((max(from_s, had.begin_s), 2, _beginning(device, had)))
            if had.begin_s > wait.begin_s:
                found.append((had.begin_s, 0, _handing(device)))
            if had.end_s is not None and had.end_s < end_s:
                found.append((had.end_s, 0, _ending(device, had)))
    found.sort(key=lambda each: each[:2])
    return [(moment_s, change) for moment_s, _, change in found]


def _noting(cause: Cause) -> Callable[[_Moment], None]:
    return lambda at: at.cause(cause)


def _leaving(device: DeviceId) -> Callable[[_Moment], None]:
    return lambda at: at.cause_is_over(device)


def _beginning(device: DeviceId, had: Had) -> Callable[[_Moment], None]:
    return lambda at: at.begins(device, had)


def _handing(device: DeviceId) -> Callable[[_Moment], None]:
    return lambda at: at.changes_hands(device)


def _ending(device: DeviceId, had: Had) -> Callable[[_Moment], None]:
    return lambda at: at.ends(device, had)


def _append(parts: list[Interval], part: Interval) -> None:
    if parts and parts[-1].goes_on_in(part):
        parts[-1].take_in(part)
    else:
        parts.append(part)
