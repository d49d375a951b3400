"""How much device time each owner has had, beside what was due: weighted fair sharing.

Each device has a *virtual time*: what a device that could be divided at will would have given each
owner by now, for a weight of 1. It goes on at 1/W of the device time that is used, where W is the
sum of the weights of the owners that are *present* (hold the device or queue for it). An owner's
own virtual time goes on at 1/w of what it really uses. So an owner whose time is behind the
device's has had less than its share, and one whose time is ahead is in debt. The device's time is
the mean of those of the owners present, by weight: whoever leaves ahead or behind takes that along,
and the others are neither held back nor favoured for it (as in EEVDF: Stoica and Abdel-Wahab 1995).

An owner that comes back starts at the device's time, or at its own where that is ahead: nobody
saves up idle time, and debts stay. A short absence (`ABSENCE_S`) is none: between two turns, a
process is away for a moment.

Who is next is decided by virtual *finish* times (weighted fair queueing: Demers, Keshav and
Shenker 1989; Parekh and Gallager 1993): the owner's time, plus what its next quantum adds. Such an
owner is at most one longest quantum behind the device that can be divided.

A *credit* is common to all that an owner runs, on all devices: some seconds of device time in which
fresh cells of the owner are served before everybody. It fills up again at the owner's share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .ids import DeviceId, Seconds
from .weights import WEIGHT_MIN, weight_of

ABSENCE_S = 1.0
"""Who is away for less has not been away."""


@dataclass(slots=True)
class Account:
    """Of one owner on one device."""

    virtual_s: float = 0.0
    present: int = 0
    """How many of its tenants have the device or queue for it."""
    left_s: Seconds = -math.inf
    """When the last of them ceased to."""


@dataclass(slots=True)
class DeviceAccounts:
    """Of one device."""

    virtual_s: float = 0.0
    weights_present: float = 0.0
    """The sum over the owners that are present."""
    charged_to_s: Seconds = 0.0
    accounts: dict[str, Account] = field(default_factory=dict)

    def take_in(self, virtual_s: float, weight: float) -> None:
        """An owner with this time is present from now on."""
        total = self.weights_present + weight
        self.virtual_s += (virtual_s - self.virtual_s) * weight / total
        self.weights_present = total

    def take_out(self, virtual_s: float, weight: float) -> None:
        """It is present no more. Where it was alone, the device's time stays as it is."""
        total = self.weights_present - weight
        if total > WEIGHT_MIN / 2:
            self.virtual_s -= (virtual_s - self.virtual_s) * weight / total
            self.weights_present = total
        else:
            self.weights_present = 0.0


@dataclass(slots=True)
class Owner:
    """What concerns an owner on all devices."""

    weight: float = 1.0
    groups: frozenset[str] = frozenset()
    credit_s: Seconds = math.inf
    """Device time that is left of it, as of `credit_at_s`; no more than the settings allow."""
    credit_at_s: Seconds = -math.inf


@dataclass(frozen=True, slots=True)
class Use:
    """Somebody uses a device now."""

    owner: str
    on_credit: bool


@dataclass(slots=True)
class Accounts:
    """Of all owners on all devices. Times go on in `charge` alone."""

    now_s: Seconds = 0.0
    """The time of the event that is being handled."""
    of: dict[DeviceId, DeviceAccounts] = field(default_factory=dict)
    owners: dict[str, Owner] = field(default_factory=dict)

    # ---- who is there ------------------------------------------------------------------------

    def add_device(self, device: DeviceId) -> None:
        self.of.setdefault(device, DeviceAccounts(charged_to_s=self.now_s))

    def remove_device(self, device: DeviceId) -> None:
        del self.of[device]

    def know(self, owner: str, groups: Iterable[str], weights: Mapping[str, float]) -> None:
        """The owner has come, or its groups or the weights have changed. Whoever calls this has
        charged all devices."""
        known = self.owners.setdefault(owner, Owner())
        known.groups = frozenset(groups)
        weight = weight_of(weights, owner, known.groups)
        if weight == known.weight:
            return
        for device in self.of.values():
            account = device.accounts.get(owner)
            if account is None:
                continue
            if account.present:
                device.take_out(account.virtual_s, known.weight)
            # What is due to it, or what it owes, stays so many seconds of the device.
            account.virtual_s = (
                device.virtual_s + (account.virtual_s - device.virtual_s) * known.weight / weight
            )
            if account.present:
                device.take_in(account.virtual_s, weight)
        known.weight = weight

    def comes(self, device: DeviceId, owner: str) -> None:
        """One more of the owner's tenants has the device or queues for it."""
        here = self.of[device]
        account = here.accounts.setdefault(owner, Account())
        if not account.present:
            if self.now_s - account.left_s >= ABSENCE_S:
                account.virtual_s = max(account.virtual_s, here.virtual_s)
            here.take_in(account.virtual_s, self.owners[owner].weight)
        account.present += 1

    def leaves(self, device: DeviceId, owner: str) -> None:
        """One fewer."""
        here = self.of[device]
        account = here.accounts[owner]
        account.present -= 1
        if account.present:
            return
        account.left_s = self.now_s
        if any(each.present for each in here.accounts.values()):
            here.take_out(account.virtual_s, self.owners[owner].weight)
        else:
            here.weights_present = 0.0  # sums of floats
            here.accounts = {
                name: each
                for name, each in here.accounts.items()
                if each.virtual_s > here.virtual_s or self.now_s - each.left_s < ABSENCE_S
            }

    def take_over(self, before: Accounts) -> None:
        """What owners owe, and what is left of their credits. Nobody of before is present."""
        for device, old in before.of.items():
            if device in self.of:
                for name, account in old.accounts.items():
                    if account.virtual_s > old.virtual_s and name in self.owners:
                        ahead_s = account.virtual_s - old.virtual_s
                        self.of[device].accounts[name] = Account(virtual_s=ahead_s)
        for name, owner in self.owners.items():
            if (known := before.owners.get(name)) is not None:
                owner.credit_s, owner.credit_at_s = known.credit_s, known.credit_at_s

    # ---- time goes on ------------------------------------------------------------------------

    def charge(self, device: DeviceId, uses: list[Use]) -> None:
        """The time since the last charge, in which these used the device: each had a part of it.
        Time in which nobody did counts for nobody."""
        here = self.of[device]
        passed_s = self.now_s - here.charged_to_s
        here.charged_to_s = self.now_s
        if passed_s <= 0 or not uses:
            return
        each_s = passed_s / len(uses)
        for use in uses:
            here.accounts[use.owner].virtual_s += each_s / self.owners[use.owner].weight
            if use.on_credit:
                self.owners[use.owner].credit_s -= each_s
        here.virtual_s += passed_s / here.weights_present

    def finish_s(self, device: DeviceId, owner: str, quantum_s: Seconds) -> float:
        """The owner's virtual time after one more such quantum."""
        known = self.of[device].accounts[owner]
        return known.virtual_s + quantum_s / self.owners[owner].weight

    def ahead_s(self, device: DeviceId, owner: str) -> Seconds:
        """By how much device time the owner is ahead of its share; below 0: behind."""
        account = self.of[device].accounts.get(owner)
        if account is None:
            return 0.0
        weight = self.owners[owner].weight
        return (account.virtual_s - self.of[device].virtual_s) * weight

    # ---- credit ------------------------------------------------------------------------------

    def credit_left_s(self, owner: str, devices: Iterable[DeviceId], most_s: Seconds) -> Seconds:
        """The owner's credit at this moment, filled up for the time since it was asked for last,
        at the owner's share of the device of these where that is the smallest."""
        known = self.owners[owner]
        passed_s = self.now_s - known.credit_at_s
        if passed_s > 0:
            share = min((self.share(each, owner) for each in devices), default=1.0)
            known.credit_s = min(most_s, known.credit_s + share * passed_s)
            known.credit_at_s = self.now_s
        return min(most_s, known.credit_s)

    def share(self, device: DeviceId, owner: str) -> float:
        """The part of the device that is the owner's while those are present who are now."""
        here, weight = self.of[device], self.owners[owner].weight
        account = here.accounts.get(owner)
        others = here.weights_present - (weight if account and account.present else 0.0)
        return weight / (weight + max(0.0, others))
