"""When each tenant waited for a device lately, why, and how each wait ended. Pure.

The recorder is told of what moves in the lines of devices (`Move`): who has a device, who queues,
and what of the reason to wait is the waiting tenant's own. A hand-over is noted once for a device,
however many wait for it: why each of them waited is found when somebody asks (`told_of`), from who
had the device meanwhile.

It is bounded, whatever happens. A tenant has `WAITS_MAX` waits with `CAUSES_MAX` changes of their
reasons each, a device `TURNS_MAX` turns. There are `TENANTS_MAX` tenants and `LANES_MAX` devices at
most. What is forgotten of a wait is told as such. It has no timer, and its clock never goes back.
A wait that is over is three objects: Python looks at all there are now and then, and turns wait for
that.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jupyter_gpushare.core.estimates import Reason, Waiter, reason_of_order
from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.records import Obstacle
from jupyter_gpushare.core.snapshot import Begun, Move

from .timeline import LANES_MAX, Label, LabelOf, OwnTime

WAITS_MAX = 16
CAUSES_MAX = 32
TURNS_MAX = 500
TENANTS_MAX = 5000
INTERVALS_MAX = 24
"""Of one wait, as they are told."""
INTERRUPT_S: Seconds = 2.0
"""The word of an interrupt may come so much later than the end of the wait."""


class How(enum.Enum):
    """How a wait ended."""

    WAITS = "waits"
    """It goes on."""
    SERVED = "served"
    GAVE_UP = "gave_up"
    """The calls that waited wait no longer, or their process has ended."""
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Had:
    """A tenant had a device, until now where `end_s` is None."""

    label: Label
    level: int
    place: int
    by_hand: bool
    begin_s: Seconds
    end_s: Seconds | None = None


@dataclass(slots=True)
class Lane:
    """Who had a device, in the order in which they began."""

    turns: deque[Had] = field(default_factory=deque)
    open: dict[TenantId, Had] = field(default_factory=dict)
    """Those that go on."""
    kept_from_s: Seconds = 0.0
    """What was before is forgotten."""

    def begin(self, label: Label, begun: Begun, now_s: Seconds) -> None:
        self.end(begun.tenant, now_s)
        had = Had(label, begun.level, begun.place, begun.by_hand, now_s)
        self.open[begun.tenant] = had
        self.turns.append(had)
        if len(self.turns) > TURNS_MAX:
            oldest = self.turns.popleft()
            forgotten_s = now_s if oldest.end_s is None else oldest.end_s
            self.kept_from_s = max(self.kept_from_s, forgotten_s)

    def end(self, tenant: TenantId, now_s: Seconds) -> None:
        if (had := self.open.pop(tenant, None)) is not None:
            had.end_s = now_s


@dataclass(slots=True)
class Cause:
    """From `begin_s` on, what of the reason was the tenant's own on one device (`Waiter`)."""

    begin_s: Seconds
    device: DeviceId
    level: int
    place: int
    is_batch: bool
    reason: Reason | None
    obstacle: Obstacle | None
    whose: Label | None
    """The tenant that is in the way, as it was then."""
    end_s: Seconds | None = None
    """Then another cause took its place, or the tenant needed the device no longer. None: it holds
    until the wait ends."""

    def goes_on_in(self, waiter: Waiter) -> bool:
        return (
            self.level == waiter.level
            and self.place == waiter.place
            and self.reason is waiter.reason
            and _what(self.obstacle) == _what(waiter.obstacle)
        )


@dataclass(slots=True)
class Wait:
    """One stay in the queue, for one device or several."""

    begin_s: Seconds
    used_s: Seconds
    """What the cell had had of devices by then."""
    is_pause: bool
    """The turn before was asked back while the cell went on."""
    causes: list[Cause] = field(default_factory=list)
    kept_from_s: Seconds = 0.0
    """Why it waited before that is forgotten."""
    end_s: Seconds | None = None
    how: How = How.WAITS

    def add(self, cause: Cause) -> None:
        self.causes.append(cause)
        if len(self.causes) > CAUSES_MAX:
            # Never one that holds, as long as there are others: it is the reason of now.
            oldest = min(self.causes, key=_over_s)
            self.causes = [each for each in self.causes if each is not oldest]
            self.kept_from_s = max(self.kept_from_s, min(_over_s(oldest), cause.begin_s))


@dataclass(slots=True)
class Waiting:
    """What is kept of a tenant."""

    waits: deque[Wait] = field(default_factory=lambda: deque(maxlen=WAITS_MAX))
    forgotten: int = 0
    """So many earlier waits are kept no longer."""
    recalled: bool = False
    """Its last turn ended because it was asked for."""
    is_interrupted: bool = False
    """The user has ended the wait that goes on."""
    queues: dict[DeviceId, Cause] = field(default_factory=dict)
    """The devices for which it queues now, and why."""

    @property
    def open(self) -> Wait | None:
        last = self.waits[-1] if self.waits else None
        return last if last is not None and last.how is How.WAITS else None


@dataclass(slots=True)
class Interval:
    """A part of a wait with one reason; None: it is forgotten."""

    begin_s: Seconds
    end_s: Seconds
    reason: Reason | None
    obstacle: Obstacle | None = None
    whose: Label | None = None
    had: dict[TenantId, tuple[Label, Seconds]] = field(default_factory=dict)
    """Who had a device meanwhile, and for how long."""

    def goes_on_in(self, later: Interval) -> bool:
        same = self.reason is later.reason and _what(self.obstacle) == _what(later.obstacle)
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


class PastWaits:
    """Of all tenants. What is noted counts from the moment that comes with it."""

    def __init__(self) -> None:
        self._lanes: dict[DeviceId, Lane] = {}
        self._tenants: dict[TenantId, Waiting] = {}
        self._time = OwnTime()

    def note(self, move: Move, label_of: LabelOf, now_s: Seconds) -> None:
        """`label_of` tells whose a tenant is that has the device, or that is in the way."""
        own_s = self._time.at(now_s)
        lane = self._lane(move.device)
        for tenant in move.ended:
            lane.end(tenant, own_s)
            if tenant in move.recalled or tenant in self._tenants:
                self._of(tenant).recalled = tenant in move.recalled
        for begun in (*move.begun, *move.still):
            lane.begin(label_of(begun.tenant, begun.name, begun.owner), begun, own_s)
        for tenant in move.left:
            self._leaves(tenant, move.device, own_s)
        for waiter in move.waiters:
            self._queues(waiter, move.device, label_of, own_s)

    def interrupted(self, tenant: TenantId, now_s: Seconds) -> None:
        """Its user has asked for the end of the wait, or has ended it just now."""
        own_s = self._time.at(now_s)
        kept = self._tenants.get(tenant)
        if kept is None or not kept.waits:
            return
        last = kept.waits[-1]
        kept.is_interrupted = last.how is How.WAITS
        ended_now = last.end_s is not None and own_s - last.end_s <= INTERRUPT_S
        if last.how is How.GAVE_UP and ended_now:
            last.how = How.INTERRUPTED

    def forget(self, tenant: TenantId) -> None:
        """It is gone."""
        self._tenants.pop(tenant, None)

    def told_of(self, tenant: TenantId, now_s: Seconds) -> tuple[list[Told], int, Seconds]:
        """The waits that are kept, the earliest first; how many are not any more; and the moment
        in the times of this recorder."""
        own_s = self._time.at(now_s)
        kept = self._tenants.get(tenant, Waiting())
        told = [Told(wait, self._intervals(tenant, wait, own_s)) for wait in kept.waits]
        return told, kept.forgotten, own_s

    # ---- what is noted -----------------------------------------------------------------------

    def _queues(self, waiter: Waiter, device: DeviceId, label_of: LabelOf, now_s: Seconds) -> None:
        kept = self._of(waiter.tenant)
        wait = kept.open
        if wait is None:
            last_s = (kept.waits[-1].end_s or 0.0) if kept.waits else 0.0
            wait = Wait(
                begin_s=max(last_s, now_s - max(0.0, waiter.waited_s)),
                used_s=waiter.used_s,
                is_pause=kept.recalled and waiter.used_s > 0,
            )
            kept.is_interrupted = False
            kept.queues.clear()
            kept.forgotten += len(kept.waits) == WAITS_MAX
            kept.waits.append(wait)
        latest = kept.queues.get(device)
        if latest is not None and latest.goes_on_in(waiter):
            return
        if latest is not None:
            latest.end_s = now_s
        in_the_way = None if waiter.obstacle is None else waiter.obstacle.tenant
        cause = kept.queues[device] = Cause(
            now_s if wait.causes else wait.begin_s,
            device,
            waiter.level,
            waiter.place,
            waiter.is_batch,
            waiter.reason,
            waiter.obstacle,
            None if in_the_way is None else label_of(in_the_way, "", ""),
        )
        wait.add(cause)

    def _leaves(self, tenant: TenantId, device: DeviceId, now_s: Seconds) -> None:
        kept = self._tenants.get(tenant)
        wait = None if kept is None else kept.open
        if kept is None or wait is None:
            return
        cause = kept.queues.pop(device, None)
        if kept.queues:
            if cause is not None:
                cause.end_s = now_s
            return
        wait.end_s = now_s
        wait.how = How.INTERRUPTED if kept.is_interrupted else How.GAVE_UP
        if tenant in self._lane(device).open:
            wait.how = How.SERVED

    def _of(self, tenant: TenantId) -> Waiting:
        if tenant not in self._tenants and len(self._tenants) >= TENANTS_MAX:
            del self._tenants[next(iter(self._tenants))]
        return self._tenants.setdefault(tenant, Waiting())

    def _lane(self, device: DeviceId) -> Lane:
        if device not in self._lanes and len(self._lanes) >= LANES_MAX:
            del self._lanes[next(iter(self._lanes))]
        return self._lanes.setdefault(device, Lane())

    # ---- what is told ------------------------------------------------------------------------

    def _intervals(self, tenant: TenantId, wait: Wait, now_s: Seconds) -> list[Interval]:
        """The wait in parts, each with its reason."""
        end_s = now_s if wait.end_s is None else wait.end_s
        devices = {cause.device for cause in wait.causes}
        lanes = {device: self._lanes.get(device, Lane(kept_from_s=end_s)) for device in devices}
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
        if len(parts) > INTERVALS_MAX:
            forgotten = Interval(parts[0].begin_s, parts[-INTERVALS_MAX].end_s, None)
            parts = [forgotten, *parts[1 - INTERVALS_MAX :]]
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
        for reason in (Reason.CLASS, Reason.SHARE):
            if reason in found:
                return reason, None
        return Reason.TURN, None

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
    tenant: TenantId, wait: Wait, lanes: dict[DeviceId, Lane], from_s: Seconds, end_s: Seconds
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


def _over_s(cause: Cause) -> Seconds:
    return math.inf if cause.end_s is None else cause.end_s


def _append(parts: list[Interval], part: Interval) -> None:
    if parts and parts[-1].goes_on_in(part):
        parts[-1].take_in(part)
    else:
        parts.append(part)


def _what(obstacle: Obstacle | None) -> object:
    """Apart from the bytes, which change all the time."""
    return obstacle and (obstacle.kind, obstacle.device, obstacle.tenant)
