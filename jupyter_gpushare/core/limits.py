"""What guarantees and limits mean for those who wait and for those who have a turn.

Nothing here runs where the settings say nothing of it. How a tenant stands is found when it begins
to wait, when one of its devices changes hands, and when time alone changes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Protocol

from .accounts import ABSENCE_S, Accounts
from .changes import Changes
from .ids import DeviceId, Seconds
from .order.line import Line
from .records import Tenant
from .settings import SchedulerSettings, TurnTaking
from .shares.guarantees import Entitlement, Preset, Rules, Standing, Usage, parse

_LEFT_LEAST_S: Seconds = 0.05
"""Who could go on for no longer than this has had its limit."""


class DeviceLines(Protocol):
    """What is needed of `Lines`, which asks here how its tenants stand."""

    of: dict[DeviceId, Line]
    accounts: Accounts
    changes: Changes
    rules: Rules | None

    def charge_all(self, devices: Iterable[DeviceId]) -> None: ...


def rules_of(settings: SchedulerSettings) -> Rules | None:
    """None where nobody has a guarantee or a limit."""
    texts = (settings.requests, settings.limits, settings.hard_limits)
    nothing_said = not any(texts) and settings.sharing is Preset.BEST_EFFORT
    if nothing_said or settings.turns is TurnTaking.OFF:
        return None
    requests, limits, hard_limits = map(parse, texts)
    step_s = settings.quantum_s or settings.quantum_min_s
    return Rules(requests, limits, hard_limits, settings.sharing, settings.share_window_s, step_s)


def entitlement(lines: DeviceLines, rules: Rules, device: DeviceId, owner: str) -> Entitlement:
    """What an owner may have of the device."""
    owners = lines.of[device].owners
    known = lines.accounts.owners.get(owner)
    groups = frozenset[str]() if known is None else known.groups
    return rules.of(owner, groups, len(owners) + (owner not in owners))


def judge(lines: DeviceLines, tenant: Tenant) -> None:
    """How a tenant stands that waits."""
    rules, now_s = lines.rules, lines.accounts.now_s
    found = set[Standing]()
    tenant.judged_until_s = math.inf
    if rules is not None:
        lines.charge_all(tenant.wanted_devices)
        for to, usage in _of_devices(lines, rules, tenant):
            standing, until_s = rules.judge(to, usage, now_s)
            found.add(standing)
            tenant.judged_until_s = min(tenant.judged_until_s, until_s)
    limited = [each for each in (Standing.BLOCKED, Standing.OVER) if each in found]
    lacks = found == {Standing.GUARANTEED}
    tenant.standing = limited[0] if limited else Standing.GUARANTEED if lacks else Standing.FREE
    lines.changes.of_tenant(tenant)


def elastic_left_s(lines: DeviceLines, tenant: Tenant) -> Seconds:
    """How long a turn of the tenant may be at most while others wait, because of its limit. Its
    devices are charged up to now."""
    rules, now_s = lines.rules, lines.accounts.now_s
    if rules is None or not rules.limits:
        return math.inf
    found = _of_devices(lines, rules, tenant)
    left_s = (rules.elastic_left_s(to, usage, now_s) for to, usage in found)
    return min(left_s, default=math.inf)


def limit_turn(lines: DeviceLines, tenant: Tenant) -> None:
    """When the tenant's turn ends, or has to be looked at, because of its limit."""
    assert tenant.turn is not None
    rules, now_s = lines.rules, lines.accounts.now_s
    tenant.turn.limit_at_s = math.inf
    if rules is None:
        return
    lines.charge_all(tenant.wanted_devices)
    for to, usage in _of_devices(lines, rules, tenant):
        left_s = rules.left_s(to, usage, now_s)
        at_s = now_s + left_s if left_s >= _LEFT_LEAST_S else now_s
        tenant.turn.limit_at_s = min(tenant.turn.limit_at_s, at_s)
    lines.changes.of_tenant(tenant)


def watch(lines: DeviceLines, rules: Rules, device: DeviceId) -> None:
    """Count guarantees that are not kept. The device's time is charged up to now."""
    here, now_s = lines.accounts.of[device], lines.accounts.now_s
    for owner in [owner for owner, each in here.wishes.items() if now_s >= each.wronged_at_s]:
        wish = here.wishes[owner]
        if not wish.present:
            if now_s - wish.left_s >= ABSENCE_S:
                del here.wishes[owner]
            continue
        # What it did not want for a moment was not kept from it.
        known = (here.usage.get(owner, Usage()), wish.away)
        had_s = sum(each.used_s(now_s, rules.window_s) for each in known)
        least_s = rules.least_s(entitlement(lines, rules, device, owner))
        if had_s < least_s:
            here.violations[owner] = here.violations.get(owner, 0) + 1
        soon = had_s >= least_s > 0
        wish.wronged_at_s = now_s + (had_s - least_s if soon else rules.window_s)


def _of_devices(
    lines: DeviceLines, rules: Rules, tenant: Tenant
) -> Iterator[tuple[Entitlement, Usage]]:
    for device in sorted(tenant.wanted_devices):
        usage = lines.accounts.of[device].usage.get(tenant.owner, Usage())
        yield entitlement(lines, rules, device, tenant.owner), usage
