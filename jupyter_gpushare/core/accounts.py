"""How much device time each owner has had, beside what was due: weighted fair sharing.

Each device has a *virtual time*: what a device that could be divided at will would have given each
owner by now, for a weight of 1. It goes on at 1/W of the device time that is used, where W is the
sum of the weights of the owners that are *present* (hold the device, or queue for it and could be
served). An owner's own virtual time goes on at 1/w of what it really uses. So an owner whose time
is behind the device's has had less than its share, and one whose time is ahead is in debt. Who
leaves takes its distance from the device's time along, and the others are neither held back nor
favoured for it (as in EEVDF: Stoica and Abdel-Wahab 1995).

An owner that comes back starts at the device's time, or ahead of it by what is left of its debt:
the device's time has gone on meanwhile. Nobody saves up idle time. A short absence (`ABSENCE_S`) is
none, since a process is away for a moment between two turns: such an owner is as far behind as it
was when it left, but by no more than one longest quantum if it left by itself.

The device's time is the mean of those of the owners present, by weight, less what they *owe*
together: debts that somebody has brought along, and that by which somebody who waited has fallen
behind by more than one longest quantum, because a turn did not end in time. A debt is to everybody.
It is not forgiven because those who waited have given up, or because nobody else is there for a
moment.

Who is next is decided by virtual *finish* times (weighted fair queueing: Demers, Keshav and
Shenker 1989; Parekh and Gallager 1993): the owner's time, plus what its next quantum adds. Such an
owner is at most one longest quantum behind the device that can be divided.

A *credit* is common to all that an owner runs, on all devices: some seconds of device time in which
fresh cells of the owner are served before everybody. It fills up again at the owner's share.

*Recent use* is what each tenant has had of each device of late, by which the tenants of one owner
take turns (decision 0037). Each has a credit of its own for its new cells. It is device time that
fades by half in each longest quantum: decayed usage, as in the fair share of Kay and Lauder (1988).
All of it fades by the same factor, so the order of those who wait does not change while they do
(`Recent.key`). It fades in wall time, but not on a paused device.

What tenants that have ended had of a device goes to the first tenant of their owner that asks for
the device and has had nothing of it, once: so a loop of short programs is one tenant in this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from .ids import DeviceId, Seconds, TenantId
from .shares.entries import value_of, weight_of
from .shares.guarantees import Usage

ABSENCE_S = 1.0
"""Who is away for less has not been away."""
DEBT_LEAST_S = 1e-3
"""Less is not kept over a restart."""
OWNERS_FEW = 64
"""So few may all be known for good."""
DEVICES_BEFORE_MAX = 256
"""Of more devices that are gone, debts are forgotten: clients may name devices as they like."""
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


@dataclass(slots=True)
class Account:
    """Of one owner on one device."""

    virtual_s: float = 0.0
    """Its virtual time, while it is present."""
    present: int = 0
    """How many of its tenants have the device, or queue for it and could be served."""
    ahead_s: float = 0.0
    """By how much it was ahead of the device's virtual time when it left; below 0: behind."""
    behind_s: Seconds = 0.0
    """By how much device time it was behind when it came."""
    left_s: Seconds = -math.inf
    """When it left."""
    left_at_s: float = 0.0
    """What the device's clock said then."""
    owed_s: Seconds = 0.0
    """Of what was owed then, the part that it took along; below 0: what is owed since."""


@dataclass(slots=True)
class Wish:
    """Of an owner, for one device."""

    present: int = 0
    """How many of its tenants have the device, or queue for it and could be served."""
    left_s: Seconds = -math.inf
    """When it left."""
    away: Usage = field(default_factory=Usage)
    """When it has been away for a moment."""
    wronged_at_s: Seconds = math.inf
    """When it may have had less than was guaranteed for a whole window, at the earliest."""


@dataclass(slots=True)
class DeviceAccounts:
    """Of one device."""

    virtual_s: float = 0.0
    clock_s: float = 0.0
    """Goes on as `virtual_s`, and does not change when somebody comes or leaves."""
    present: int = 0
    """How many owners are present."""
    weights_present: float = 0.0
    """The sum of their weights."""
    owed_s: Seconds = 0.0
    """The device time by which they are ahead, all together."""
    promised: float = 0.0
    """The sum of their requests."""
    charged_to_s: Seconds = 0.0
    accounts: dict[str, Account] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    """What they have had lately; kept where there are guarantees or limits (limits.py)."""
    wishes: dict[str, Wish] = field(default_factory=dict)
    """Of those that want the device, or did lately; kept there too."""
    not_promised_s: Seconds = math.inf
    """New cells may go first for so long: it fills up at what the requests of those who are
    present leave, up to the credit of one owner. Who has had less than its request takes nothing
    from it."""
    violations: dict[str, int] = field(default_factory=dict)
    """How often somebody has had less than was guaranteed for a whole window."""

    def ahead_s(self, account: Account, now_s: Seconds) -> float:
        """By how much virtual time the owner is ahead of the device, or would be if it came."""
        if account.present:
            return account.virtual_s - self.virtual_s
        if account.ahead_s > 0:
            return max(0.0, account.ahead_s - (self.clock_s - account.left_at_s))
        return account.ahead_s if now_s - account.left_s < ABSENCE_S else 0.0

    def pay(self, account: Account, weight: float, used_s: Seconds) -> None:
        """Time that an owner uses which is not ahead of the others: these wait, and what is owed
        becomes less by their part of that time."""
        if account.virtual_s <= self.virtual_s + self.owed_s / self.weights_present:
            waits = 1 - weight / self.weights_present
            paid_s = min(self.owed_s, max(0.0, waits) * used_s)
            self.owed_s -= paid_s
            self.virtual_s += paid_s / self.weights_present

    def take_in(self, account: Account, weight: float, now_s: Seconds) -> None:
        """An owner is present from now on. After a short absence, all is as if it had not left."""
        ahead_s = self.ahead_s(account, now_s)
        brings_s = ahead_s * weight
        owed_s = max(0.0, brings_s)
        if self.present and now_s - account.left_s < ABSENCE_S:
            owed_s = max(min(owed_s, account.owed_s), -self.owed_s)
        self.present += 1
        self.weights_present += weight
        self.owed_s += owed_s
        account.virtual_s = self.virtual_s + ahead_s
        self.virtual_s += (brings_s - owed_s) / self.weights_present
        account.behind_s = max(0.0, self.virtual_s - account.virtual_s) * weight

    def take_out(
        self, account: Account, weight: float, now_s: Seconds, most_s: Seconds, *, recalled: bool
    ) -> None:
        """It is present no more. What it has fallen behind by more than `most_s` of device time,
        the others owe from now on. It keeps what it is behind, and up to `most_s` if it was not
        recalled: it did not need all that it waited for."""
        behind_s = (self.virtual_s - account.virtual_s) * weight
        account.left_s, account.left_at_s = now_s, self.clock_s
        account.owed_s = 0.0
        self.present -= 1
        if not self.present:
            account.ahead_s = account.virtual_s - self.virtual_s
            account.owed_s = self.owed_s
            self.weights_present = self.owed_s = 0.0
            return
        self.weights_present -= weight
        if behind_s < 0:
            account.owed_s = min(-behind_s, self.owed_s)
        elif (late_s := behind_s - account.behind_s - most_s) > 0:
            account.owed_s = -late_s
        moves_s = (behind_s + account.owed_s) / self.weights_present
        self.owed_s -= account.owed_s
        self.virtual_s += moves_s
        if recalled or behind_s + account.owed_s <= most_s:
            account.ahead_s = account.virtual_s - self.virtual_s
        else:
            account.ahead_s = -most_s / weight - most_s / self.weights_present
            account.owed_s = 0.0


@dataclass(slots=True)
class Owner:
    """What concerns an owner on all devices."""

    weight: float = 1.0
    groups: frozenset[str] = frozenset()
    request: float = 0.0
    """What of each device is guaranteed."""
    credit_s: Seconds = math.inf
    """Device time that is left of it, as of `credit_at_s`; no more than the settings allow."""
    credit_at_s: Seconds = -math.inf


@dataclass(frozen=True, slots=True)
class Use:
    """Somebody uses a device now."""

    owner: str
    on_credit: bool
    lacks: bool = False
    """Its owner had had less than was guaranteed to it when the turn began."""
    tenant: TenantId | None = None
    on_own_credit: bool = False
    """A sibling that has had less waits for it."""


@dataclass(slots=True)
class Accounts:
    """Of all owners on all devices. Times go on in `charge` alone."""

    now_s: Seconds = 0.0
    """The time of the event that is being handled."""
    quantum_longest_s: Seconds = 0.0
    """By the settings in force."""
    window_s: Seconds = 0.0
    """In which guarantees and limits count; 0: there are none."""
    requests: Mapping[str, float] = field(default_factory=dict)
    """By the settings in force: what is guaranteed to owners and groups."""
    credit_most_s: Seconds = math.inf
    """By the settings in force."""
    of: dict[DeviceId, DeviceAccounts] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)
    recent: RecentUses = field(default_factory=RecentUses)
    """Of tenants."""
    owners_many: int = OWNERS_FEW
    """With more owners than this, one looks who need not be known any more."""
    of_before: dict[DeviceId, dict[str, Seconds]] = field(default_factory=dict)
    """What owners owe on devices that are not here yet."""

    # ---- who is there ------------------------------------------------------------------------

    def add_device(self, device: DeviceId) -> None:
        self.of[device] = DeviceAccounts(charged_to_s=self.now_s)
        self._take_up(device)

    def remove_device(self, device: DeviceId) -> None:
        """What is owed there is owed when it comes back."""
        if owing := self._debts_on(self.of.pop(device)):
            self.of_before[device] = owing
            if len(self.of_before) > DEVICES_BEFORE_MAX:
                del self.of_before[next(iter(self.of_before))]

    def know(self, owner: str, groups: Iterable[str], weights: Mapping[str, float]) -> None:
        """The owner has come, or its groups or the weights have changed. Whoever calls this has
        charged all devices."""
        known = self.owners.setdefault(owner, Owner())
        known.groups = frozenset(groups)
        request = value_of(self.requests, owner, known.groups) or 0.0
        for here in self.of.values():
            wish = here.wishes.get(owner)
            if wish is not None and wish.present:
                here.promised += request - known.request
        known.request = request
        weight = weight_of(weights, owner, known.groups)
        if weight == known.weight:
            return
        # What is due to it, or what it owes, stays so many seconds of each device.
        for device in self.of.values():
            account = device.accounts.get(owner)
            if account is None:
                continue
            if account.present:
                ahead_s = account.virtual_s - device.virtual_s
                account.virtual_s = device.virtual_s + ahead_s * known.weight / weight
                device.weights_present += weight - known.weight
            else:
                # Of a debt, what is left by now.
                ahead_s = device.ahead_s(account, self.now_s)
                account.ahead_s = ahead_s * known.weight / weight
                account.left_at_s = device.clock_s
        known.weight = weight

    def comes(self, device: DeviceId, owner: str) -> bool:
        """One more of the owner's tenants has the device, or queues for it and could be served.
        Whether it is the first."""
        here = self.of[device]
        if self.window_s:
            self.add_wish(device, owner)
        account = here.accounts.setdefault(owner, Account())
        if not account.present:
            here.take_in(account, self.owners[owner].weight, self.now_s)
        account.present += 1
        return account.present == 1

    def add_wish(self, device: DeviceId, owner: str) -> None:
        """One more tenant, from now on, or still, after a moment."""
        here = self.of[device]
        wish = here.wishes.setdefault(owner, Wish())
        wish.present += 1
        if wish.present > 1:
            return
        here.promised += self.owners[owner].request
        away_s = self.now_s - wish.left_s
        if away_s >= ABSENCE_S:
            wish.wronged_at_s = self.now_s + self.window_s
        elif away_s > 0:
            wish.away.add(wish.left_s, self.now_s, away_s, self.window_s)

    def leaves(self, device: DeviceId, owner: str, *, recalled: bool) -> None:
        """One fewer."""
        here = self.of[device]
        if self.window_s:
            wish = here.wishes[owner]
            wish.present -= 1
            wish.left_s = self.now_s
            here.promised -= 0.0 if wish.present else self.owners[owner].request
        account = here.accounts[owner]
        account.present -= 1
        if account.present:
            return
        weight, most_s = self.owners[owner].weight, self.quantum_longest_s
        here.take_out(account, weight, self.now_s, most_s, recalled=recalled)
        if not here.present:
            here.accounts = {
                name: each for name, each in here.accounts.items() if here.ahead_s(each, self.now_s)
            }

    def remember(self, owner: str, credit_s: Seconds, debts: Mapping[DeviceId, Seconds]) -> None:
        """What a known owner owed before, on devices that are here or are still to come."""
        known = self.owners[owner]
        known.credit_s, known.credit_at_s = credit_s, self.now_s
        for device, debt_s in debts.items():
            self.of_before.setdefault(device, {})[owner] = debt_s
            if device in self.of:
                self._take_up(device)

    def _take_up(self, device: DeviceId) -> None:
        here = self.of[device]
        for owner, debt_s in self.of_before.pop(device, {}).items():
            account = here.accounts.setdefault(owner, Account())
            if not account.present:
                account.ahead_s = debt_s / self.owners[owner].weight
                account.left_at_s = here.clock_s

    def debts(self) -> dict[str, dict[DeviceId, Seconds]]:
        """What each owner owes on each device."""
        owing_on = {device: self._debts_on(here) for device, here in self.of.items()}
        debts: dict[str, dict[DeviceId, Seconds]] = {}
        for device, owing in {**owing_on, **self.of_before}.items():
            for name, debt_s in owing.items():
                debts.setdefault(name, {})[device] = debt_s
        return debts

    def _debts_on(self, here: DeviceAccounts) -> dict[str, Seconds]:
        """What somebody is behind by more than one longest quantum, all others owe besides: who is
        behind begins with nothing when all begin anew."""
        ahead_s = {name: here.ahead_s(each, self.now_s) for name, each in here.accounts.items()}
        most_s = {name: self.quantum_longest_s / self.owners[name].weight for name in ahead_s}
        late_s = max((-ahead_s[name] - most_s[name] for name in ahead_s), default=0.0)
        owing = {
            name: (ahead_s[name] + max(0.0, late_s)) * self.owners[name].weight
            for name, account in here.accounts.items()
            if account.present or ahead_s[name] > 0
        }
        return {name: owed_s for name, owed_s in owing.items() if owed_s > DEBT_LEAST_S}

    def forget_owners(self, but: Set[str], credit_s: Seconds) -> None:
        """Those that owe nothing and have all of their credit, but for these. It is done when half
        of the owners may be such."""
        if len(self.owners) <= self.owners_many:
            return
        owing = {name for names in self.of_before.values() for name in names}
        owing |= self.recent.of_ended.keys()
        for name in [name for name in self.owners if name not in but and name not in owing]:
            self.fill_credit(name, self.of, credit_s)
            if self.owners[name].credit_s < credit_s:
                continue
            accounts = [(each, each.accounts.get(name)) for each in self.of.values()]
            if not any(known and each.ahead_s(known, self.now_s) for each, known in accounts):
                del self.owners[name]
                for each, _ in accounts:
                    each.accounts.pop(name, None)
        self.owners_many = max(OWNERS_FEW, 2 * len(self.owners))

    # ---- time goes on ------------------------------------------------------------------------

    def charge(self, device: DeviceId, uses: list[Use]) -> None:
        """The time since the last charge, in which these used the device: each had a part of it.
        Time in which nobody did counts for nobody."""
        here = self.of[device]
        passed_s = self.now_s - here.charged_to_s
        here.charged_to_s = self.now_s
        taken = sum(each.on_credit and not each.lacks for each in uses) / max(1, len(uses))
        left_s = here.not_promised_s + (max(0.0, 1.0 - here.promised) - taken) * passed_s
        here.not_promised_s = min(self.credit_most_s, left_s)
        if passed_s <= 0 or not uses:
            return
        each_s = passed_s / len(uses)
        for use in uses:
            weight = self.owners[use.owner].weight
            here.pay(here.accounts[use.owner], weight, each_s)
            here.accounts[use.owner].virtual_s += each_s / weight
            if self.window_s:
                usage = here.usage.setdefault(use.owner, Usage())
                usage.add(self.now_s - passed_s, self.now_s, each_s, self.window_s)
            if use.on_credit:
                self.owners[use.owner].credit_s -= each_s
            if use.tenant is None:
                continue
            self.recent.use(use.tenant, device, each_s, self.now_s - passed_s, self.now_s)
            if use.on_own_credit:
                self.recent.spend(use.tenant, each_s, self.now_s, self.credit_most_s)
        here.virtual_s += passed_s / here.weights_present
        here.clock_s += passed_s / here.weights_present

    def skip_time(self) -> None:
        """Nobody is charged for the time since the last charge."""
        for here in self.of.values():
            here.charged_to_s = self.now_s

    def finish_s(self, device: DeviceId, owner: str, quantum_s: Seconds) -> float:
        """The owner's virtual time after one more such quantum."""
        here, weight = self.of[device], self.owners[owner].weight
        account = here.accounts.get(owner)
        ahead_s = 0.0 if account is None else here.ahead_s(account, self.now_s)
        return here.virtual_s + ahead_s + quantum_s / weight

    def ahead_s(self, device: DeviceId, owner: str) -> Seconds:
        """By how much device time the owner is ahead of its share; below 0: behind."""
        account = self.of[device].accounts.get(owner)
        if account is None:
            return 0.0
        return self.of[device].ahead_s(account, self.now_s) * self.owners[owner].weight

    def has_alone(self, device: DeviceId, owner: str) -> bool:
        """Whether nobody else has the device or queues for it."""
        here = self.of[device]
        account = here.accounts.get(owner)
        return here.present == int(account is not None and account.present > 0)

    # ---- credit ------------------------------------------------------------------------------

    def fill_credit(self, owner: str, devices: Iterable[DeviceId], most_s: Seconds) -> None:
        """The owner's credit is what it is at this moment: it fills up for the time since the last
        look, at the owner's share of the device of these where that is the smallest."""
        known = self.owners[owner]
        passed_s = self.now_s - known.credit_at_s
        if passed_s > 0:
            share = min((self.share(each, owner) for each in devices), default=1.0)
            known.credit_s += share * passed_s
            known.credit_at_s = self.now_s
        known.credit_s = min(most_s, known.credit_s)

    def fill_own_credit(
        self, tenant: TenantId, owner: str, tenants: Mapping[DeviceId, int], most_s: Seconds
    ) -> None:
        """The same of a tenant's own credit. It fills up at the tenant's part of the owner's time,
        which is equal for so many of its tenants on each device: also for those that rest, or they
        would win by it."""
        parts = [
            self.share(device, owner) / max(1, number)
            for device, number in tenants.items()
            if owner in self.of[device].accounts
        ]
        self.recent.fill_credit(tenant, min(parts, default=1.0), most_s, self.now_s)

    def share(self, device: DeviceId, owner: str) -> float:
        """The part of the device that is the owner's while those are present who are now."""
        here, weight = self.of[device], self.owners[owner].weight
        account = here.accounts.get(owner)
        others = here.weights_present - (weight if account and account.present else 0.0)
        return weight / (weight + max(0.0, others))
