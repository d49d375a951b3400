"""Who had each device in the last 15 minutes, how many waited, how busy and how full it was. Pure.

The recorder is told of each turn that begins or ends, of each change of a queue's length, and of
what NVML measured. It has no timer: while nothing happens it costs nothing, and what is too old
goes when more comes, or when somebody asks.

It is bounded, whatever happens. A device has `TURNS_MAX` turns, `STEPS_MAX` steps of its queue and
`SAMPLES_MAX` samples at most, some 500 KiB together, and there are `LANES_MAX` devices at most. A
tenant that had the device twice within `GRAIN_S` has one turn, which says for what part of its time
the tenant had the device. Where the turns are still too many, the grain gets coarser for those that
are there, and the oldest go last.

Its clock never goes back: where the caller's does, it stands still for that long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from jupyter_gpushare.core.ids import DeviceId, Seconds, TenantId
from jupyter_gpushare.core.shown.moves import Move

WINDOW_S: Seconds = 900.0
GRAIN_S: Seconds = 1.0
"""A picture of the window shows nothing finer."""
TURNS_MAX = 1000
STEPS_MAX = 2000
SAMPLE_S: Seconds = 2.0
SAMPLES_MAX = 1000
LANES_MAX = 256


@dataclass(frozen=True, slots=True)
class Label:
    """A tenant as it was when its turn began. `owner_key` says who may read its name, also when the
    tenant is gone; empty where nobody knows."""

    tenant: TenantId
    name: str
    owner: str
    owner_key: str = ""


LabelOf = Callable[[TenantId, str, str], Label]
"""Of a tenant, its name and its owner, as far as these are known."""


@dataclass(slots=True)
class PastTurn:
    """`end_s` is None while it goes on. From `begin_s` on, the tenant had the device for `held_s`,
    and since `resumed_s` where it goes on."""

    label: Label
    begin_s: Seconds
    resumed_s: Seconds
    end_s: Seconds | None = None
    held_s: Seconds = 0.0

    def end(self, now_s: Seconds) -> None:
        self.held_s += now_s - self.resumed_s
        self.end_s = now_s

    def resume(self, label: Label, now_s: Seconds) -> None:
        self.label, self.end_s, self.resumed_s = label, None, now_s

    def joins(self, later: PastTurn, grain_s: Seconds) -> bool:
        """Whether a later one of the same tenant is a part of this one from now on."""
        if self.end_s is None or later.begin_s - self.end_s >= grain_s:
            return False
        self.label, self.end_s = later.label, later.end_s
        self.resumed_s, self.held_s = later.resumed_s, self.held_s + later.held_s
        return True

    def part(self, now_s: Seconds) -> float:
        """Of its time, in which the tenant had the device: above 0, and 1 at most."""
        running_s = 0.0 if self.end_s is not None else now_s - self.resumed_s
        span_s = (now_s if self.end_s is None else self.end_s) - self.begin_s
        return min(1.0, (self.held_s + running_s) / span_s) if span_s > 0 else 1.0


@dataclass(slots=True)
class Step:
    """From `begin_s` on, so many waited at most; until the next step."""

    begin_s: Seconds
    waiting: int


@dataclass(slots=True)
class Sample:
    """What NVML measured from `begin_s` on, for `SAMPLE_S`: the mean use, and the most memory."""

    begin_s: Seconds
    bytes_used: int = 0
    percents: int = 0
    """All that were measured, added up."""
    measured: int = 0
    """How often; 0: this device does not tell."""

    @property
    def percent(self) -> float | None:
        return self.percents / self.measured if self.measured else None


@dataclass(slots=True)
class Lane:
    """One device. Turns are in the order in which they began."""

    turns: list[PastTurn] = field(default_factory=list)
    open: dict[TenantId, PastTurn] = field(default_factory=dict)
    """Those of `turns` that go on."""
    latest: dict[TenantId, PastTurn] = field(default_factory=dict)
    """Of each tenant of `turns`."""
    steps: list[Step] = field(default_factory=list)
    waiting: int = 0
    samples: list[Sample] = field(default_factory=list)

    def begin(self, label: Label, now_s: Seconds) -> None:
        tenant = label.tenant
        if tenant in self.open:
            return
        last = self.latest.get(tenant)
        if last is not None and last.end_s is not None and now_s - last.end_s < GRAIN_S:
            last.resume(label, now_s)
            self.open[tenant] = last
            return
        turn = self.open[tenant] = self.latest[tenant] = PastTurn(label, now_s, now_s)
        self.turns.append(turn)
        if len(self.turns) > TURNS_MAX:
            self._coarsen(now_s)

    def end(self, tenant: TenantId, now_s: Seconds) -> None:
        if (turn := self.open.pop(tenant, None)) is not None:
            turn.end(now_s)

    def wait(self, waiting: int, now_s: Seconds) -> None:
        """So many wait from now on. Within a grain the most that waited count."""
        if waiting == self.waiting:
            return
        begin_s = now_s - now_s % GRAIN_S
        while self.steps and self.steps[-1].begin_s > begin_s:
            self.steps.pop()
        if not self.steps or self.steps[-1].begin_s < begin_s:
            self.steps.append(Step(begin_s, self.waiting))
        self.steps[-1].waiting = max(self.steps[-1].waiting, waiting)
        if self.steps[-1].waiting != waiting:
            self.steps.append(Step(begin_s + GRAIN_S, waiting))
        self.waiting = waiting
        if len(self.steps) > STEPS_MAX:
            self.forget(now_s)

    def sample(self, percent: int | None, bytes_used: int, now_s: Seconds) -> None:
        begin_s = now_s - now_s % SAMPLE_S
        if not self.samples or self.samples[-1].begin_s < begin_s:
            self.samples.append(Sample(begin_s))
        last = self.samples[-1]
        last.bytes_used = max(last.bytes_used, bytes_used)
        if percent is not None:
            last.percents += percent
            last.measured += 1
        if len(self.samples) > SAMPLES_MAX:
            self.forget(now_s)

    def forget(self, now_s: Seconds) -> None:
        """What is older than the window. The last step before it still says how many wait."""
        from_s = now_s - WINDOW_S
        self._keep([each for each in self.turns if each.end_s is None or each.end_s > from_s])
        older = sum(step.begin_s <= from_s for step in self.steps)
        del self.steps[: max(0, older - 1)]
        self.samples = [each for each in self.samples if each.begin_s + SAMPLE_S > from_s]

    def _coarsen(self, now_s: Seconds) -> None:
        """To half of what there may be, so that this is done seldom."""
        self.forget(now_s)
        grain_s = GRAIN_S
        while len(self.turns) > TURNS_MAX // 2 and grain_s < WINDOW_S:
            grain_s *= 2
            self._keep(_joined(self.turns, grain_s))
        self._keep(self.turns[-(TURNS_MAX // 2) :])

    def _keep(self, turns: list[PastTurn]) -> None:
        self.turns = turns
        self.latest = {turn.label.tenant: turn for turn in turns}
        self.open = {tenant: turn for tenant, turn in self.latest.items() if turn.end_s is None}


def _joined(turns: Iterable[PastTurn], grain_s: Seconds) -> list[PastTurn]:
    """Those of a tenant that are less than a grain apart are one."""
    kept: list[PastTurn] = []
    latest: dict[TenantId, PastTurn] = {}
    for turn in turns:
        before = latest.get(turn.label.tenant)
        if before is None or not before.joins(turn, grain_s):
            latest[turn.label.tenant] = turn
            kept.append(turn)
    return kept


class OwnTime:
    """A clock that never goes back: where the caller's does, it stands still for that long."""

    def __init__(self) -> None:
        self._last_s: Seconds = 0.0
        self._gone_back_s: Seconds = 0.0

    def at(self, now_s: Seconds) -> Seconds:
        """What it shows when the caller's shows this."""
        if now_s + self._gone_back_s < self._last_s:
            self._gone_back_s = self._last_s - now_s
        self._last_s = now_s + self._gone_back_s
        return self._last_s


class Timeline:
    """All devices. What is noted counts from the moment that comes with it."""

    def __init__(self) -> None:
        self._lanes: dict[DeviceId, Lane] = {}
        self._time = OwnTime()

    def note(self, move: Move, label_of: LabelOf, now_s: Seconds) -> None:
        """What is new in the line of a device."""
        for tenant in move.ended:
            self.ends(move.device, tenant, now_s)
        for each in move.begun:
            label = label_of(each.tenant, each.name, each.owner)
            self.begins(move.device, label, now_s)
        self.waits(move.device, move.queued, now_s)

    def begins(self, device: DeviceId, label: Label, now_s: Seconds) -> None:
        """The tenant has the device; it may have had it already."""
        self._lane(device).begin(label, self._time.at(now_s))

    def ends(self, device: DeviceId, tenant: TenantId, now_s: Seconds) -> None:
        """The tenant does not have the device (any more)."""
        self._lane(device).end(tenant, self._time.at(now_s))

    def waits(self, device: DeviceId, waiting: int, now_s: Seconds) -> None:
        """So many tenants queue for the device."""
        self._lane(device).wait(waiting, self._time.at(now_s))

    def measured(
        self, device: DeviceId, percent: int | None, bytes_used: int, now_s: Seconds
    ) -> None:
        """NVML says how busy the device is (None: it does not say) and how full."""
        self._lane(device).sample(percent, bytes_used, self._time.at(now_s))

    def lane(self, device: DeviceId, now_s: Seconds) -> tuple[Lane, Seconds]:
        """What is known of a device, and the moment in the times of this timeline."""
        own_s = self._time.at(now_s)
        lane = self._lanes.get(device, Lane())
        lane.forget(own_s)
        return lane, own_s

    def _lane(self, device: DeviceId) -> Lane:
        if device not in self._lanes and len(self._lanes) >= LANES_MAX:
            del self._lanes[next(iter(self._lanes))]  # so many are only named, and long gone
        return self._lanes.setdefault(device, Lane())
