"""When each tenant waited for a device lately, why, and how each wait ended. Pure.

The recorder is told of what moves in the lines of devices (`Move`): who has a device, who queues,
and what of the reason to wait is the waiting tenant's own. A hand-over is noted once for a device,
however many wait for it: past_waits_parts.py finds why each of them waited when somebody asks. A
cell that has the device waits for its memory too, so that is a part of its wait; a cell that had
the device at once has only waited for its memory.

It is bounded, whatever happens. A tenant has `WAITS_MAX` waits with `CAUSES_MAX` changes of their
reasons each, a device `TURNS_MAX` turns. There are `TENANTS_MAX` tenants and `LANES_MAX` devices at
most. Tenants that do not wait are forgotten before those that do. What is forgotten of a wait is
told as such. It has no timer, and its clock never goes back.
A wait that is over is three objects: Python looks at all there are now and then, and turns wait for
that.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.shown.moves import Begun, Move
from jupyter_gpushare.core.shown.waits import Reason, Waiter
from jupyter_gpushare.core.space.requests import Obstacle

from .timeline import LANES_MAX, Label, LabelOf, OwnTime

WAITS_MAX = 16
CAUSES_MAX = 32
TURNS_MAX = 500
TENANTS_MAX = 5000
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
class Holders:
    """Who had a device, in the order in which they began."""

    turns: deque[Had] = field(default_factory=deque)
    open: dict[TenantId, Had] = field(default_factory=dict)
    """Those that go on."""
    kept_from_s: Seconds = 0.0
    """What was before is forgotten."""

    def begin(self, label: Label, begun: Begun, now_s: Seconds) -> None:
        """The tenant has a turn, or something of its turn is new."""
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

    def knows(self, label: Label, begun: Begun) -> bool:
        """Whether its turn goes on as it did, as far as others wait for it."""
        had = self.open.get(begun.tenant)
        return had is not None and (had.label, had.level, had.place, had.by_hand) == (
            label,
            begun.level,
            begun.place,
            begun.by_hand,
        )


@dataclass(slots=True)
class Cause:
    """From `begin_s` on, what of the reason was the tenant's own on one device (`Waiter`)."""

    begin_s: Seconds
    device: DeviceId
    owner: str
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

    def goes_on_in(self, waiter: Waiter, *, came_back: bool) -> bool:
        """`came_back`: it has another place, after it had left the queue for a moment."""
        return (
            self.owner == waiter.owner
            and self.level == waiter.level
            and (came_back or self.place == waiter.place)
            and self.reason is waiter.reason
            and what_is(self.obstacle) == what_is(waiter.obstacle)
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
    """Of its stay in the queue."""
    how: How = How.WAITS
    bytes_to_come: int = 0
    """What of its memory was parked when it had the device."""
    came_from_s: Seconds | None = None
    """Since when that came back; None: nothing was parked."""
    came_to_s: Seconds | None = None
    came_all: bool = False
    """All of it was back then. Otherwise its turn had ended, or it queued once more."""

    @property
    def over_s(self) -> Seconds | None:
        """When its cell went on, or waited no longer for another reason."""
        if self.end_s is None or self.came_from_s is None:
            return self.end_s
        return None if self.came_to_s is None else max(self.end_s, self.came_to_s)

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
    returning: Wait | None = None
    """One whose memory is coming back."""

    @property
    def open(self) -> Wait | None:
        last = self.waits[-1] if self.waits else None
        return last if last is not None and last.how is How.WAITS else None

    def goes_on(self, since_s: Seconds) -> Wait | None:
        """The last wait, if calls that wait since then were a part of it: a turn that stalls, or a
        process that was frozen, leaves the queue and comes back. It is open again then."""
        last = self.waits[-1] if self.waits else None
        if last is None or last.how is not How.GAVE_UP or since_s >= (last.end_s or 0.0):
            return None
        self.queues = {each.device: each for each in last.causes if each.end_s is None}
        last.end_s, last.how = None, How.WAITS
        return last

    def add(self, wait: Wait) -> Wait:
        self.forgotten += len(self.waits) == WAITS_MAX
        self.waits.append(wait)
        return wait

    def memory_comes(self, bytes_to_come: int, now_s: Seconds) -> None:
        """It has a device, and so much of its memory has still to come back to it. While it queues
        for another one besides, that is what it waits for."""
        if (wait := self.returning) is None:
            if self.open is not None:
                return
            wait = self.waits[-1] if self.waits else None
            if wait is None or wait.end_s != now_s or wait.came_from_s is not None:
                wait = self.add(Wait(now_s, 0.0, is_pause=False, end_s=now_s, how=How.SERVED))
            wait.came_from_s, self.returning = now_s, wait
        wait.bytes_to_come = max(wait.bytes_to_come, bytes_to_come)

    def memory_comes_no_more(self, now_s: Seconds, *, came_all: bool) -> None:
        """All of it is back, or it is not that any more for which the cell waits."""
        if (wait := self.returning) is not None:
            wait.came_to_s, wait.came_all, self.returning = now_s, came_all, None


Lanes = Mapping[DeviceId, Holders]


class PastWaits:
    """Of all tenants. What is noted counts from the moment that comes with it."""

    def __init__(self) -> None:
        self._lanes: dict[DeviceId, Holders] = {}
        self._tenants: dict[TenantId, Waiting] = {}
        self._resting: dict[TenantId, None] = {}
        """Those of them that do not wait; who waited last comes last."""
        self._time = OwnTime()

    def note(self, move: Move, label_of: LabelOf, now_s: Seconds) -> None:
        """`label_of` tells whose a tenant is that has the device, or that is in the way."""
        own_s = self._time.at(now_s)
        lane = self._lane(move.device)
        for tenant in move.ended:
            lane.end(tenant, own_s)
            if tenant in move.recalled or tenant in self._tenants:
                self._ends(self._of(tenant), tenant, tenant in move.recalled, own_s)
        for begun in move.begun:
            lane.begin(label_of(begun.tenant, begun.name, begun.owner), begun, own_s)
        for begun in move.still:
            label = label_of(begun.tenant, begun.name, begun.owner)
            if not lane.knows(label, begun):
                lane.begin(label, begun, own_s)
        for tenant in move.left:
            self._leaves(tenant, move.device, own_s)
        for begun in (*move.begun, *move.still):
            if begun.bytes_to_come:
                self._of(begun.tenant).memory_comes(begun.bytes_to_come, own_s)
            elif (kept := self._tenants.get(begun.tenant)) is not None:
                kept.memory_comes_no_more(own_s, came_all=True)
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
        self._resting.pop(tenant, None)

    def kept_of(self, tenant: TenantId, now_s: Seconds) -> tuple[Waiting, Lanes, Seconds]:
        """What is kept of a tenant, who had the devices, and the moment in the times of this
        recorder."""
        return self._tenants.get(tenant, Waiting()), self._lanes, self._time.at(now_s)

    # ---- what is noted -----------------------------------------------------------------------

    def _queues(self, waiter: Waiter, device: DeviceId, label_of: LabelOf, now_s: Seconds) -> None:
        kept = self._of(waiter.tenant)
        wait, came_back = kept.open, False
        if wait is None and (wait := kept.goes_on(now_s - waiter.waited_s)) is not None:
            came_back = True
            self._resting.pop(waiter.tenant, None)
        if wait is None:
            # It has a turn that lacks a further device: from now on it waits for that.
            kept.memory_comes_no_more(now_s, came_all=False)
            last_s = (kept.waits[-1].over_s or 0.0) if kept.waits else 0.0
            wait = Wait(
                begin_s=max(last_s, now_s - max(0.0, waiter.waited_s)),
                used_s=waiter.used_s,
                is_pause=kept.recalled and waiter.used_s > 0,
            )
            kept.is_interrupted = False
            kept.queues.clear()
            kept.add(wait)
            self._resting.pop(waiter.tenant, None)
        latest = kept.queues.get(device)
        if latest is not None and latest.goes_on_in(waiter, came_back=came_back):
            return
        if latest is not None:
            latest.end_s = now_s
        in_the_way = None if waiter.obstacle is None else waiter.obstacle.tenant
        cause = kept.queues[device] = Cause(
            now_s if wait.causes else wait.begin_s,
            device,
            waiter.owner,
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
        self._resting[tenant] = None
        wait.end_s = now_s
        wait.how = How.INTERRUPTED if kept.is_interrupted else How.GAVE_UP
        if tenant in self._lane(device).open:
            wait.how = How.SERVED

    def _ends(self, kept: Waiting, tenant: TenantId, recalled: bool, now_s: Seconds) -> None:
        """It has a device no longer."""
        kept.recalled = recalled
        if kept.returning and not any(tenant in lane.open for lane in self._lanes.values()):
            kept.memory_comes_no_more(now_s, came_all=False)

    def _of(self, tenant: TenantId) -> Waiting:
        kept = self._tenants.get(tenant)
        if kept is None:
            if len(self._tenants) >= TENANTS_MAX:
                self.forget(next(iter(self._resting or self._tenants)))
            kept = self._tenants[tenant] = Waiting()
            self._resting[tenant] = None
        return kept

    def _lane(self, device: DeviceId) -> Holders:
        if device not in self._lanes and len(self._lanes) >= LANES_MAX:
            del self._lanes[next(iter(self._lanes))]
        return self._lanes.setdefault(device, Holders())


def _over_s(cause: Cause) -> Seconds:
    return math.inf if cause.end_s is None else cause.end_s


def what_is(obstacle: Obstacle | None) -> object:
    """Apart from the bytes, which change all the time."""
    return obstacle and (obstacle.kind, obstacle.device, obstacle.tenant)
