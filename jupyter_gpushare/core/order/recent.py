"""What each tenant has had of each device of late, by which the tenants of one owner take turns,
and a credit of its own for its new cells (decision 0037).

*Recent use* is device time that fades by half in each longest quantum: decayed usage, as in the
fair share of Kay and Lauder (1988). All of it fades by the same factor, so the order of those who
wait does not change while they do (`Recent.key`). It fades in wall time, but not on a paused
device.

What tenants that have ended had of a device goes to the first tenant of their owner that asks for
the device and has had nothing of it, once: so a loop of short programs is one tenant in this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..ids import DeviceId, Seconds, TenantId

RECENT_LEAST_S: Seconds = 1e-3
"""Of less, nothing is known."""
_LESS_S: Seconds = 1.0
_LESS_PART = 0.1
"""Who waits has had less where both its use is below the holder's by so much, and by this part."""
_LESS_OF_HALF_LIFE = 0.25
"""Where the half-life is short, uses are small: less than a part of it is enough."""
_LN2 = math.log(2)


@dataclass(slots=True)
class Recent:
    """Of one tenant on one device."""

    used_s: Seconds = 0.0
    """As it was `at`."""
    at: float = 0.0
    """In half-lives."""

    def left_s(self, at: float) -> Seconds:
        """What of it has not faded by then."""
        return float(self.used_s * 2.0 ** min(0.0, self.at - at))

    def add(self, used_s: Seconds, from_at: float, to_at: float) -> None:
        """So much, evenly from then to then."""
        halves = to_at - from_at
        kept = -math.expm1(-halves * _LN2) / (halves * _LN2) if halves > 0 else 1.0
        self.used_s, self.at = self.left_s(to_at) + used_s * kept, to_at

    @property
    def key(self) -> float:
        """The same at all times while it only fades; of two, the larger one is of more use. Equal
        uses have equal keys, however the time was divided that they were charged in."""
        return round(math.log2(self.used_s) + self.at, 6) if self.used_s > 0 else -math.inf


@dataclass(slots=True)
class Own:
    """Of one tenant."""

    owner: str
    recent: dict[DeviceId, Recent] = field(default_factory=dict)
    credit_s: Seconds = math.inf
    """Device time that is left of it, as of `credit_at_s`; no more than the settings allow."""
    credit_at_s: Seconds = -math.inf


@dataclass(slots=True)
class RecentUses:
    """Of all tenants."""

    half_s: Seconds = 30.0
    """In which use fades by half."""
    of: dict[TenantId, Own] = field(default_factory=dict)
    """Tenants that are here, and those that a scheduler before this one has known."""
    of_ended: dict[str, dict[DeviceId, Recent]] = field(default_factory=dict)
    """By owner, what tenants that have ended had."""
    credit_of_ended: dict[str, Own] = field(default_factory=dict)
    """By owner, what was left of the own credit of the tenant that ended last, and is taken over
    with that."""
    _halves: float = 0.0
    _at_s: Seconds = 0.0
    _stopped: dict[DeviceId, float] = field(default_factory=dict)
    """Paused devices: what the clock said when they were paused."""

    # ---- time --------------------------------------------------------------------------------

    def at(self, device: DeviceId, now_s: Seconds) -> float:
        """What the device's clock says, in half-lives."""
        if (stopped := self._stopped.get(device)) is not None:
            return stopped
        return self._halves + (now_s - self._at_s) / self.half_s

    def fade_in(self, half_s: Seconds, now_s: Seconds) -> None:
        """From now on. What there is stays."""
        if half_s != self.half_s:
            self._halves += (now_s - self._at_s) / self.half_s
            self._at_s, self.half_s = now_s, half_s

    def pause(self, device: DeviceId, paused: bool, now_s: Seconds) -> None:
        """Nothing fades there while it is paused."""
        if paused:
            self._stopped.setdefault(device, self.at(device, now_s))
        elif (stopped := self._stopped.pop(device, None)) is not None:
            passed = self.at(device, now_s) - stopped
            for recent in self._on(device):
                recent.at += passed

    def _on(self, device: DeviceId) -> list[Recent]:
        known = (*(own.recent for own in self.of.values()), *self.of_ended.values())
        return [recent[device] for recent in known if device in recent]

    # ---- who is there ------------------------------------------------------------------------

    def comes(self, tenant: TenantId, owner: str) -> None:
        """A tenant of the owner is here. One that is known keeps what it had."""
        self.of.setdefault(tenant, Own(owner))

    def asks(self, tenant: TenantId, devices: Iterable[DeviceId]) -> None:
        """What ended tenants of its owner had of these devices is the tenant's, as far as it has
        had nothing of them."""
        own = self.of[tenant]
        ended = self.of_ended.get(own.owner, {})
        for device in devices:
            if device in ended and device not in own.recent:
                own.recent[device] = ended.pop(device)
                left = self.credit_of_ended.pop(own.owner, own)
                if left.credit_s < own.credit_s:
                    own.credit_s = left.credit_s
                    own.credit_at_s = max(left.credit_at_s, own.credit_at_s)
        if not ended:
            self.of_ended.pop(own.owner, None)

    def ends(self, tenant: TenantId, owner: str, now_s: Seconds) -> None:
        """It is here no more. What has faded is forgotten."""
        into, own = self.of_ended.setdefault(owner, {}), self.of.pop(tenant, Own(owner))
        if own.credit_s < math.inf:
            self.credit_of_ended[owner] = own
        for device, recent in own.recent.items():
            at = self.at(device, now_s)
            into[device] = Recent(into.get(device, Recent()).left_s(at) + recent.left_s(at), at)
        for name, ended in list(self.of_ended.items()):
            if not self._left(ended, now_s):
                del self.of_ended[name]
                self.credit_of_ended.pop(name, None)

    def forget(self, but: Iterable[TenantId], now_s: Seconds) -> None:
        """Tenants that a scheduler before this one has known, and whose use has faded."""
        here = set(but)
        for tenant in [each for each in self.of if each not in here]:
            if not self._left(self.of[tenant].recent, now_s):
                del self.of[tenant]

    def remember(
        self, owner: str, used: Mapping[tuple[TenantId, DeviceId], Seconds], now_s: Seconds
    ) -> None:
        """Of a scheduler before this one; without a tenant: of those that have ended."""
        for (tenant, device), used_s in used.items():
            ended = None if tenant else self.of_ended.setdefault(owner, {})
            into = self.of.setdefault(tenant, Own(owner)).recent if ended is None else ended
            into[device] = Recent(used_s, self.at(device, now_s))

    def to_remember(self, now_s: Seconds) -> dict[str, dict[tuple[TenantId, DeviceId], Seconds]]:
        """By owner, what is left; also of tenants that are not back yet."""
        found: dict[str, dict[tuple[TenantId, DeviceId], Seconds]] = {}
        known = [(owner, TenantId(""), recent) for owner, recent in self.of_ended.items()]
        known += [(own.owner, id, own.recent) for id, own in self.of.items()]
        for owner, tenant, recent in known:
            for device, left_s in self._left(recent, now_s).items():
                found.setdefault(owner, {})[tenant, device] = left_s
        return found

    def _left(self, recent: Mapping[DeviceId, Recent], now_s: Seconds) -> dict[DeviceId, Seconds]:
        left = {device: each.left_s(self.at(device, now_s)) for device, each in recent.items()}
        return {device: left_s for device, left_s in left.items() if left_s > RECENT_LEAST_S}

    # ---- use ---------------------------------------------------------------------------------

    def use(
        self, tenant: TenantId, device: DeviceId, used_s: Seconds, from_s: Seconds, to_s: Seconds
    ) -> None:
        """The tenant has had so much of the device, evenly between these times."""
        recent = self.of[tenant].recent.setdefault(device, Recent())
        recent.add(used_s, self.at(device, from_s), self.at(device, to_s))

    def key(self, tenant: TenantId, devices: Iterable[DeviceId]) -> float:
        """By which tenants are compared that wait: of its largest use on these devices."""
        known = self.of[tenant].recent
        return max((known[each].key for each in devices if each in known), default=-math.inf)

    def left_s(self, tenant: TenantId, devices: Iterable[DeviceId], now_s: Seconds) -> Seconds:
        """Its largest recent use on these devices, as it has been charged."""
        known = self.of[tenant].recent
        here = ((each, known[each]) for each in devices if each in known)
        return max((recent.left_s(self.at(each, now_s)) for each, recent in here), default=0.0)

    # ---- credit ------------------------------------------------------------------------------

    def fill_credit(self, tenant: TenantId, share: float, most_s: Seconds, now_s: Seconds) -> None:
        """The tenant's own credit fills up at this share for the time since the last look."""
        own = self.of[tenant]
        if now_s > own.credit_at_s:
            own.credit_s += share * (now_s - own.credit_at_s)
            own.credit_at_s = now_s
        own.credit_s = min(most_s, own.credit_s)

    def spend(self, tenant: TenantId, used_s: Seconds, now_s: Seconds, most_s: Seconds) -> None:
        """Of its own credit, which is never further below 0 than it may be above."""
        own = self.of[tenant]
        own.credit_s, own.credit_at_s = max(-most_s, own.credit_s - used_s), now_s


def has_less_after_s(has_s: Seconds, waits_s: Seconds, half_s: Seconds) -> Seconds:
    """How long until somebody who waits has had less than the holder, of these recent uses now: one
    grows and fades, the other one fades. Endless where that never happens."""
    ceiling_s = half_s / _LN2
    """What is never reached by use without a break."""
    least_s = min(_LESS_S, _LESS_OF_HALF_LIFE * half_s)
    # With f for what is left of now: has = has_s * f + ceiling * (1 - f), waits = waits_s * f.
    apart_s, part_s = has_s - waits_s, (1 - _LESS_PART) * has_s - waits_s
    left = 1.0
    if apart_s < least_s:
        left = (ceiling_s - least_s) / (ceiling_s - apart_s)
    if part_s < 0:
        most_s = (1 - _LESS_PART) * ceiling_s
        left = min(left, most_s / (most_s - part_s))
    return -math.log2(left) * half_s
