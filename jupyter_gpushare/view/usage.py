"""GPU time of owners and groups, from what nodes report. Pure: each call is given the time.

A tenant's row says for how long it has had the turn since it was registered (`held_s`). What that
has grown by is counted for each device that it has, for its owner and once for each of the owner's
groups. Each second is counted once, whoever starts anew:

- a node that comes back reports the same boot: only the growth since then is counted;
- a scheduler that starts anew has another boot, and its tenants count from 0;
- a view that starts anew has the counters of its file. A boot that began while no file could know
  of it is counted from what it says first.

A tenant cannot have had the turn for longer than the time that has passed. What a node reports
above that is not counted, and the node's `doubt` says so. The time that has passed is the node's:
tenants that it takes away and brings again, and boots that it makes up, give it no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from jupyter_gpushare.reports.format import TenantRow

from .fleet import FORGET_S, Fleet, Node

DAY_S = 86_400.0
HUB = "hub"
"""The owner is a user of the hub, the same one on all nodes."""
ACCOUNT = "account"
"""The owner is an account of one node."""
OTHERS = "(others)"
"""The owner of what a node reports of more owners than LINES_MAX allows."""
UNDER_WAY_S = 60.0
"""A report may have been under way for so long: so much more may have passed since it was made."""
DOUBT_S = 3600.0
"""For so long after a node has reported too much, the page says so."""
SAID_FROM_S = 1.0
LINES_MAX = 8192
"""Of a node and a day: owners, and groups of theirs."""


UNWRITTEN_MAX = 500_000
"""Lines that are kept in memory while nobody can write them; what is more is lost."""
GONE_S = 600.0
GONE_MAX = 1024
"""Counters of tenants that a node reports no more are kept for so long, and so many of them."""


class UsageLine(NamedTuple):
    """What seconds are added up for. Those of an owner have the group ""; those of a group are in
    a line for each owner in it."""

    day: int
    """Since 1970, in UTC."""
    kind: str
    owner: str
    group: str
    node: str


class HeardOf(NamedTuple):
    """A node, as the file knows it."""

    node: str
    boot: str
    wall_s: float
    """When it last reported."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the file of usage knows when a view starts."""

    until_wall_s: float
    """When it was last written: what began later is counted from its beginning."""
    nodes: Iterable[HeardOf] = ()
    counters: Iterable[tuple[str, str, float]] = ()
    """Node, tenant and its `held_s`."""


@dataclass(frozen=True, slots=True)
class UsageChanges:
    """What the file has to learn, all of it at once."""

    lines: Mapping[UsageLine, float]
    """Seconds to add."""
    nodes: list[HeardOf]
    cleared: list[str]
    """Nodes whose counters are of an earlier boot, or that are forgotten."""
    forgotten: list[str]
    ended: list[tuple[str, str]]
    counters: list[tuple[str, str, float]]


@dataclass(slots=True)
class _Counter:
    """A tenant's. `row` is the last one that was looked at."""

    held_s: float
    row: TenantRow | None = None


@dataclass(slots=True)
class _NodeCounters:
    boot: str
    at_s: float
    """When it was last looked at, by the monotonic clock, and by the time of day."""
    at_wall_s: float
    devices: int = 0
    used_to_s: float = -math.inf
    """Up to when its time has been used up, by the tenant that has used most of it."""
    counts: bool = True
    """False: its tenants count from what they say first."""
    tenants: dict[str, _Counter] = field(default_factory=dict)
    gone: dict[str, float] = field(default_factory=dict)
    """Of these, who is not reported any more, and since when."""
    touched: set[str] = field(default_factory=set)
    """Tenants whose counters the file does not know yet, or no more."""
    cleared: bool = False
    lines_day: int = -1
    lines: set[tuple[str, str]] = field(default_factory=set)
    cut_s: float = 0.0
    cut_at_s: float = -math.inf


class UsageRecord:
    """`accounts_are_users`: accounts of all nodes are the hub's users of these names."""

    def __init__(
        self, known: Known, *, now_s: float, wall_s: float, accounts_are_users: bool = False
    ) -> None:
        self._began_wall_s = min(known.until_wall_s, wall_s)
        self._accounts_are_users = accounts_are_users
        self._lines: dict[UsageLine, float] = {}
        self._looked_at: set[str] = set()
        self._forgotten: set[str] = set()
        self._nodes: dict[str, _NodeCounters] = {}
        for name, boot, at_wall_s in known.nodes:
            silent_s = max(0.0, wall_s - at_wall_s)
            if silent_s <= FORGET_S:
                self._nodes[name] = _NodeCounters(boot, now_s - silent_s, at_wall_s)
            else:
                self._forgotten.add(name)
        for name, tenant, held_s in known.counters:
            if name in self._nodes:
                self._nodes[name].tenants[tenant] = _Counter(held_s)

    def take(self, fleet: Fleet, changed: Iterable[str], *, now_s: float, wall_s: float) -> None:
        """These nodes have changed."""
        for name in changed:
            node = fleet.nodes.get(name)
            if node is None:
                self._forget(name)
            elif node.sequence >= 0 and node.row is not None:  # else its rows are of another boot
                self._take_node(node, now_s, wall_s)

    def changes(self) -> UsageChanges:
        """What has become of it since this was last asked."""
        nodes, cleared, ended, counters = [], [*self._forgotten], [], []
        for name in self._looked_at:
            known = self._nodes[name]
            nodes.append(HeardOf(name, known.boot, known.at_wall_s))
            if known.cleared:
                cleared.append(name)
            for tenant in known.touched:
                counter = known.tenants.get(tenant)
                if counter is None:
                    ended.append((name, tenant))
                else:
                    counters.append((name, tenant, counter.held_s))
            known.cleared, known.touched = False, set()
        made = UsageChanges(self._lines, nodes, cleared, [*self._forgotten], ended, counters)
        self._lines, self._looked_at, self._forgotten = {}, set(), set()
        return made

    def tell_all(self) -> None:
        """The file knows nothing any more: the next changes have all counters."""
        for name, known in self._nodes.items():
            self._looked_at.add(name)
            known.cleared, known.touched = True, {*known.tenants}

    # ---- a node ----

    def _forget(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._looked_at.discard(name)
            self._forgotten.add(name)

    def _take_node(self, node: Node, now_s: float, wall_s: float) -> None:
        known = self._nodes.get(node.name)
        if known is None:
            known = self._nodes[node.name] = self._met(node, now_s, wall_s)
        elif known.boot != node.boot:
            known.boot, known.tenants, known.gone, known.touched = node.boot, {}, {}, set()
            known.cleared, known.counts = True, True
        self._looked_at.add(node.name)
        shares = list(_days(known.at_wall_s, wall_s))
        devices = max(len(node.devices), known.devices)
        used_to_s = max(known.used_to_s, known.at_s - UNDER_WAY_S)
        most_s, longest_s = max(0.0, now_s - used_to_s), 0.0
        for tenant, row in node.tenants.items():
            counter = known.tenants.get(tenant)
            if counter is not None and counter.row is row:
                continue
            grown_s = _growth_of(known, tenant, row)
            counted_s = min(grown_s, most_s)
            if counted_s < grown_s:
                _note_cut(known, grown_s - counted_s, now_s)
            if counted_s > 0:
                longest_s = max(longest_s, counted_s)
                held = min(devices, max(1, len(row.devices)))
                self._add(known, shares, row, node, held * counted_s)
        known.used_to_s = used_to_s + longest_s
        _keep_gone(known, node.tenants.keys(), now_s)
        known.at_s, known.at_wall_s, known.devices = now_s, wall_s, len(node.devices)
        known.counts = True
        node.doubt = _doubt_of(known, now_s)

    def _met(self, node: Node, now_s: float, wall_s: float) -> _NodeCounters:
        """A node that nobody has known. If its scheduler began before somebody watched, nobody
        knows what of its time has been counted already."""
        assert node.row is not None
        began_wall_s = min(node.row.started_at - node.skew_s, wall_s)
        counts = began_wall_s >= self._began_wall_s
        since_wall_s = began_wall_s if counts else wall_s
        self._forgotten.discard(node.name)
        return _NodeCounters(
            node.boot, now_s - (wall_s - since_wall_s), since_wall_s, counts=counts, cleared=True
        )

    def _counts_as_users(self, node: Node) -> bool:
        assert node.row is not None
        return self._accounts_are_users or node.row.owners == HUB

    # ---- a tenant ----

    def _add(
        self,
        known: _NodeCounters,
        shares: list[tuple[int, float]],
        row: TenantRow,
        node: Node,
        seconds: float,
    ) -> None:
        for day, share in shares:
            owner, kind = row.owner, HUB if self._counts_as_users(node) else ACCOUNT
            if day > known.lines_day:
                known.lines_day, known.lines = day, set()
            if not _has_line(known, (owner, "")):
                kind, owner = ACCOUNT, OTHERS
            self._add_to(UsageLine(day, kind, owner, "", node.name), seconds * share)
            for group in {*row.groups} - {""}:
                if _has_line(known, (owner, group)):
                    self._add_to(UsageLine(day, kind, owner, group, node.name), seconds * share)

    def _add_to(self, line: UsageLine, seconds: float) -> None:
        if line in self._lines or len(self._lines) < UNWRITTEN_MAX:
            self._lines[line] = self._lines.get(line, 0.0) + seconds


def _growth_of(known: _NodeCounters, tenant: str, row: TenantRow) -> float:
    """Seconds that are new. A counter that falls is passed over until it is above again."""
    counter = known.tenants.get(tenant)
    if counter is None:
        counter = known.tenants[tenant] = _Counter(0.0 if known.counts else row.held_s)
        known.touched.add(tenant)
    counter.row = row
    known.gone.pop(tenant, None)
    grown_s = row.held_s - counter.held_s
    if grown_s <= 0:
        return 0.0
    counter.held_s = row.held_s
    known.touched.add(tenant)
    return grown_s


def _keep_gone(known: _NodeCounters, present: Set[str], now_s: float) -> None:
    """A whole report may have come in pieces: a tenant that is in none of them yet comes back with
    all that it has counted before."""
    if len(known.tenants) == len(present):
        return
    for tenant in known.tenants.keys() - present:
        known.gone.setdefault(tenant, now_s)
        known.tenants[tenant].row = None
    for tenant, since_s in list(known.gone.items()):
        if now_s - since_s <= GONE_S and len(known.gone) <= GONE_MAX:
            break
        del known.gone[tenant], known.tenants[tenant]
        known.touched.add(tenant)


def _has_line(known: _NodeCounters, line: tuple[str, str]) -> bool:
    """It is there, or there is room for it."""
    if line in known.lines:
        return True
    if len(known.lines) >= LINES_MAX:
        return False
    known.lines.add(line)
    return True


def _note_cut(known: _NodeCounters, cut_s: float, now_s: float) -> None:
    if now_s - known.cut_at_s > DOUBT_S:
        known.cut_s = 0.0
    known.cut_s += cut_s
    known.cut_at_s = now_s


def _doubt_of(known: _NodeCounters, now_s: float) -> str:
    if known.cut_s < SAID_FROM_S or now_s - known.cut_at_s > DOUBT_S:
        return ""
    return (
        f"It has reported {known.cut_s:.0f} s more of GPU time than can have passed, which the "
        f"view has not counted. Look at the clock and the version of its scheduler."
    )


def _days(from_wall_s: float, to_wall_s: float) -> Iterator[tuple[int, float]]:
    """Each day of a time, and its share of that time. What nobody has seen is spread evenly, over
    a week at most; a clock that was set back has no time to spread over."""
    from_wall_s = max(from_wall_s, to_wall_s - FORGET_S)
    first, last = int(from_wall_s // DAY_S), int(to_wall_s // DAY_S)
    if first >= last:
        yield last, 1.0
        return
    for day in range(first, last + 1):
        seconds = min(to_wall_s, (day + 1) * DAY_S) - max(from_wall_s, day * DAY_S)
        if seconds > 0:
            yield day, seconds / (to_wall_s - from_wall_s)
