"""The nodes as one caller may see them, as plain data for JSON. Pure.

An administrator sees all. A user sees each node, its devices, how they are used and the tenants
that are theirs; of others that there is one, and for how long, without name, id or counter. What a
node says in free words (`problems`, `why`) may name people, so that users get none of it.

Answers are alike for all callers in their form. What is searched, counted or sorted by is only what
the caller may see.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from jupyter_gpushare.reports.format import DeviceRow, Place, TenantRow

from .advice import advice_of
from .caller import Viewer
from .fleet import SKEW_S, Fleet, Node
from .glance import Glance, Glances
from .query import ROWS_MAX, Query

OTHER = "another user"
"""Replaces a name that the caller may not see."""
UNKNOWN = "not reported"
"""The name of a tenant that stands at a device, and that its node says nothing else of."""
SOMETHING = (
    "Something keeps its memory off the GPU. The GPU panel beside the notebook says what it is."
)
"""Replaces the words of a node on why a tenant waits."""
HOLDERS_MAX = 8
FOUND_MAX = 5
"""Names in the row of a node."""
PLACES_MAX = 50
"""Of the holders of a device, and of its queue."""
PLACES_OF_NODE_MAX = 800
"""Of holders, and as many of queues: of a node with more than 16 devices, each has fewer."""
ENTRIES_MAX = 64
"""Of the problems of a node, and of each list of a tenant."""
OUTSIDE_BYTES = 1 << 30
"""More than this of programs outside the sharing is worth a mark."""
_TENANT_FIELDS = tuple(each.name for each in dataclasses.fields(TenantRow))
_TENANT_LISTS = ("groups", "devices")
_TIMES = frozenset({"at", "heard_s_ago"})


@dataclass(frozen=True)
class Sight:
    """One look of one caller. With `accounts_are_users` the accounts of nodes are the hub's users;
    else an account may be another person than the user of its name."""

    fleet: Fleet
    caller: Viewer
    now_s: float
    glances: Glances = field(default_factory=Glances)
    accounts_are_users: bool = False

    def may_see(self, node: Node, tenant: TenantRow | None) -> bool:
        return self.caller.is_admin or (tenant is not None and self.is_mine(node, tenant))

    def is_mine(self, node: Node, tenant: TenantRow) -> bool:
        known = node.row is not None and (node.row.owners == "hub" or self.accounts_are_users)
        return known and tenant.owner == self.caller.name

    def mine(self) -> Iterator[tuple[Node, str, TenantRow]]:
        for node, tenant_id, tenant in self.fleet.tenants_of(self.caller.name):
            if self.is_mine(node, tenant):
                yield node, tenant_id, tenant

    @cached_property
    def common_version(self) -> str:
        """Of most nodes; empty where none has reported."""
        counts = Counter(each.row.version for each in self.fleet.nodes.values() if each.row)
        return max(counts, key=lambda version: (counts[version], version), default="")

    @cached_property
    def rows(self) -> dict[str, _Row]:
        """All nodes in the table, by name."""
        self.glances.forget(self.fleet)
        return {name: _Row(self, node) for name, node in self.fleet.nodes.items()}


# ---- the answers ------------------------------------------------------------------------------


def answer_of_nodes(sight: Sight, query: Query) -> dict[str, Any]:
    found = [row for row in _rows_found(sight, query) if row.fits(query.state)]
    found.sort(key=_SORTS[query.sort])
    shown = found[query.offset : query.offset + query.limit]
    return {
        "at": round(sight.now_s, 3),
        "total": len(found),
        "nodes": [row.plain(query.find) for row in shown],
    }


def answer_of_node(sight: Sight, name: str) -> dict[str, Any] | None:
    """One node; None where there is none of this name. Of its tenants and places only the first
    are in it: those at devices come first."""
    node = sight.fleet.nodes.get(name)
    if node is None:
        return None
    row = _Row(sight, node)
    tenants = [(node, tenant_id, each) for tenant_id, each in node.tenants.items()]
    seen = [each for each in tenants if sight.may_see(node, each[2])]
    seen.sort(key=lambda each: (_rank(row.glance, each[1]), *_by_owner(each)))
    known = node.row
    return {
        "at": round(sight.now_s, 3),
        **row.plain(""),
        "owners": known.owners if known else "",
        "turns_on": known.turns_on if known else True,
        "bytes_host_available": known.bytes_host_available if known else 0,
        "devices": {each: _device(sight, node, each) for each in node.devices},
        "tenants": [_tenant(sight, *each) for each in seen[:ROWS_MAX]],
        "tenants_count": len(seen),
    }


def answer_of_tenants(sight: Sight, query: Query) -> dict[str, Any]:
    """Those that the caller may see, node by node."""
    total, shown = 0, []
    for node, tenants in _tenants_found(sight, query):
        first = max(0, query.offset - total)
        last = query.offset + query.limit - total
        if first < len(tenants) and last > 0:
            shown += sorted(((node, *each) for each in tenants), key=_by_owner)[first:last]
        total += len(tenants)
    return {
        "at": round(sight.now_s, 3),
        "total": total,
        "tenants": [_tenant(sight, *each) for each in shown],
    }


def answer_of_summary(sight: Sight) -> dict[str, Any]:
    """All nodes together, where there is room, and the caller's own tenants (at most ROWS_MAX)."""
    rows = sight.rows.values()
    serving = [row.glance for row in rows if row.state not in ("silent", "conflict")]
    mine = sorted(sight.mine(), key=lambda each: (natural(each[0].name), *_by_owner(each)))
    return {
        "at": round(sight.now_s, 3),
        "caller": {"name": sight.caller.name, "is_admin": sight.caller.is_admin},
        "nodes": len(rows),
        "states": dict(Counter(row.state for row in rows)),
        "problems": sum(row.rank < _FINE for row in rows),
        "version": sight.common_version,
        "devices": sum(len(each.devices) for each in serving),
        "busy": sum(each.busy for each in serving),
        "free": sum(len(each.free) for each in serving),
        "waiting": sum(each.waiting for each in serving),
        "bytes_total": sum(each.bytes_total for each in serving),
        "bytes_used": sum(each.bytes_used for each in serving),
        "bytes_parked": sum(each.bytes_parked for each in serving),
        "bytes_outside": sum(each.bytes_outside for each in serving),
        "advice": advice_of(sight.fleet, sight.now_s, sight.glances),
        "mine": {
            "total": len(mine),
            "tenants": [_tenant(sight, *each) for each in mine[:ROWS_MAX]],
        },
    }


def answer_of_events(sight: Sight, query: Query) -> dict[str, Any]:
    """What a follower of the query is sent: its answer, and what else it has asked for."""
    if query.show == "tenants":
        answer = answer_of_tenants(sight, query)
    else:
        answer = answer_of_nodes(sight, query)
    if query.summary:
        answer["summary"] = answer_of_summary(sight)
    if query.open:
        answer["node"] = answer_of_node(sight, query.open)
    return answer


def news_of(value: Any, at_s: float) -> Any:
    """An answer without what only time changes. When a turn or a wait began stays in it, to some
    seconds: the next turn of the same tenant is news."""
    if isinstance(value, dict):
        return {
            key: _began(each, at_s) if key == "for_s" else news_of(each, at_s)
            for key, each in value.items()
            if key not in _TIMES
        }
    if isinstance(value, list | tuple):
        return [news_of(each, at_s) for each in value]
    return value


def _began(for_s: float | None, at_s: float) -> int | None:
    return None if for_s is None else round((at_s - for_s) / 4)


# ---- what is found ----------------------------------------------------------------------------


def _rows_found(sight: Sight, query: Query) -> Iterable[_Row]:
    if not query.find:
        return sight.rows.values()
    mine = {node.name for node, _, tenant in sight.mine() if _has(tenant, query.find)}
    return [
        row
        for name, row in sight.rows.items()
        if query.find in name.casefold()
        or name in mine
        or (sight.caller.is_admin and query.find in row.glance.text())
    ]


def _has(tenant: TenantRow, find: str) -> bool:
    return find in tenant.owner.casefold() or find in tenant.name.casefold()


_Tenants = list[tuple[str, TenantRow]]


def _tenants_found(sight: Sight, query: Query) -> Iterator[tuple[Node, _Tenants]]:
    for node, tenants in _tenants_seen(sight, query.owner):
        if query.node and node.name != query.node:
            continue
        if query.find and query.find not in node.name.casefold():
            if sight.caller.is_admin and query.find not in sight.glances.of(node).text():
                continue
            tenants = [each for each in tenants if _has(each[1], query.find)]
        if tenants:
            yield node, tenants


def _tenants_seen(sight: Sight, owner: str) -> Iterator[tuple[Node, _Tenants]]:
    """By node; an administrator's of everybody or of one owner, a user's own."""
    fleet = sight.fleet
    if sight.caller.is_admin and not owner:
        for name in sorted(fleet.nodes, key=natural):
            yield fleet.nodes[name], list(fleet.nodes[name].tenants.items())
        return
    if sight.caller.is_admin:
        each_of = fleet.tenants_of(owner)
    else:
        each_of = sight.mine() if owner in ("", sight.caller.name) else iter(())
    by_node: dict[str, _Tenants] = {}
    for node, tenant_id, tenant in each_of:
        by_node.setdefault(node.name, []).append((tenant_id, tenant))
    for name in sorted(by_node, key=natural):
        yield fleet.nodes[name], by_node[name]


def _by_owner(found: tuple[Node, str, TenantRow]) -> tuple[str, str, str]:
    _, tenant_id, tenant = found
    return tenant.owner, tenant.name, tenant_id


def _rank(glance: Glance, tenant_id: str) -> tuple[int, int]:
    """Holders, then those that wait in the order of their queues, then the rest."""
    stand = glance.stands().get(tenant_id)
    return (1, 0) if stand is None else (0, stand.position)


@lru_cache(maxsize=8192)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """To sort by: node-2 comes before node-10."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+", name)
    keys = [
        (0, int(each), "") if "0" <= each[0] <= "9" else (1, 0, each.casefold()) for each in parts
    ]
    return (*keys, (2, 0, name))


# ---- one node ---------------------------------------------------------------------------------

_FINE = 6


class _Row:
    """A node in the table."""

    def __init__(self, sight: Sight, node: Node) -> None:
        self.sight = sight
        self.node = node
        self.glance: Glance = sight.glances.of(node)
        self.state = _state(node, sight.now_s)
        self.version = node.row.version if node.row else ""
        self.version_differs = bool(self.version) and self.version != sight.common_version
        self.problems = _problems(node, self.glance, sight.now_s) if sight.caller.is_admin else []
        self.rank = self._rank()
        """The lower, the sooner an administrator should look."""

    def _rank(self) -> int:
        order = {"conflict": 0, "silent": 1, "recovering": 3}
        if self.problems and self.state not in ("conflict", "silent"):
            return 2
        if self.state in order:
            return order[self.state]
        if self.version_differs:
            return 4
        return 5 if self.glance.bytes_outside > OUTSIDE_BYTES else _FINE

    @property
    def free(self) -> int:
        """Devices that a newcomer finds free; of a node that is not there, none."""
        return len(self.glance.free) if self.state == "live" else 0

    def fits(self, wanted: str) -> bool:
        if wanted == "problems":
            return self.rank < _FINE
        if wanted == "free":
            return self.free > 0
        if wanted == "waiting":
            return self.glance.waiting > 0
        return wanted in ("", self.state)

    def plain(self, find: str) -> dict[str, Any]:
        node, glance, row = self.node, self.glance, self.node.row
        holders, found = self._names(find)
        return {
            "name": node.name,
            "state": self.state,
            "heard_s_ago": round(max(0.0, self.sight.now_s - node.heard_s), 1)
            if node.boot
            else None,
            "version": self.version,
            "version_differs": self.version_differs,
            "platform": row.platform if row else "",
            "devices": len(node.devices),
            "devices_free": self.free,
            "holders": holders,
            "holders_count": len(glance.holders),
            "found": found,
            "waiting": glance.waiting,
            "bytes_total": glance.bytes_total,
            "bytes_used": glance.bytes_used,
            "bytes_parked": glance.bytes_parked,
            "bytes_outside": glance.bytes_outside,
            "outside": glance.bytes_outside > OUTSIDE_BYTES,
            "problems": self.problems,
        }

    def _names(self, find: str) -> tuple[list[str], list[str]]:
        """Holders, those that were looked for first; and of the others, those looked for."""
        tenants, holders, sight = self.node.tenants, self.glance.holders, self.sight
        if not find or not (sight.caller.is_admin or any(self._own())):
            return [self._name(tenants.get(each)) for each in holders[:HOLDERS_MAX]], []
        sought = {
            tenant_id
            for tenant_id, tenant in tenants.items()
            if sight.may_see(self.node, tenant) and _has(tenant, find)
        }
        first = sorted(holders, key=lambda each: each not in sought)[:HOLDERS_MAX]
        others = sorted(self._name(tenants[each]) for each in sought.difference(holders))
        return [self._name(tenants.get(each)) for each in first], others[:FOUND_MAX]

    def _own(self) -> Iterator[TenantRow]:
        return (each for each in self.node.tenants.values() if self.sight.is_mine(self.node, each))

    def _name(self, tenant: TenantRow | None) -> str:
        if not self.sight.may_see(self.node, tenant):
            return OTHER
        if tenant is None:
            return UNKNOWN
        return f"{tenant.owner}: {tenant.name}" if self.sight.caller.is_admin else tenant.name


_SORTS: dict[str, Any] = {
    "name": lambda row: natural(row.node.name),
    "problems": lambda row: (row.rank, natural(row.node.name)),
    "waiting": lambda row: (-row.glance.waiting, natural(row.node.name)),
    "free": lambda row: (-row.free, -row.glance.bytes_unused_max(), natural(row.node.name)),
}


def _state(node: Node, now_s: float) -> str:
    if node.is_in_conflict(now_s):
        return "conflict"
    if not node.boot or node.is_silent(now_s):
        return "silent"
    return "recovering" if node.row is None or node.row.recovering else "live"


def _problems(node: Node, glance: Glance, now_s: float) -> list[str]:
    told = [each for each in (node.fault, node.doubt) if each]
    if node.is_in_conflict(now_s):
        told.append(
            "Two schedulers report under this name. Give each node a credential of its own."
        )
    if abs(node.skew_s) > SKEW_S:
        direction = "ahead of" if node.skew_s > 0 else "behind"
        told.append(
            f"Its clock is {abs(node.skew_s):.0f} s {direction} the view's. Set both by one time "
            f"server."
        )
    for device_id in glance.lost:
        told.append(
            f"The driver has lost {node.devices[device_id].name} ({device_id}). Restart the node."
        )
    said = node.row.problems if node.row else ()
    told += said[:ENTRIES_MAX]
    if len(said) > ENTRIES_MAX:
        told.append(f"And {len(said) - ENTRIES_MAX} more. Run `jupyter gpushare doctor` there.")
    return told


# ---- devices and tenants ----------------------------------------------------------------------


def _device(sight: Sight, node: Node, device_id: str) -> dict[str, Any]:
    device: DeviceRow = node.devices[device_id]
    since_s = max(0.0, sight.now_s - node.devices_at_s.get(device_id, sight.now_s))
    most = min(PLACES_MAX, PLACES_OF_NODE_MAX // len(node.devices))
    return {
        "name": device.name,
        "bytes_total": device.bytes_total,
        "bytes_used": device.bytes_used,
        "bytes_usable": device.bytes_usable,
        "bytes_outside": device.bytes_outside,
        "mode": device.mode,
        "lost": device.lost,
        "holders": [_place(sight, node, each, since_s) for each in device.holders[:most]],
        "holders_count": len(device.holders),
        "queue": [_place(sight, node, each, since_s) for each in device.queue[:most]],
        "queue_count": len(device.queue),
    }


def _place(sight: Sight, node: Node, place: Place, since_s: float) -> dict[str, Any]:
    tenant = node.tenants.get(place.tenant)
    seen = sight.may_see(node, tenant)
    return {
        "tenant": place.tenant if seen else None,
        "name": (tenant.name if tenant else UNKNOWN) if seen else OTHER,
        "owner": tenant.owner if seen and tenant else None,
        "mine": tenant is not None and sight.is_mine(node, tenant),
        "for_s": round(place.for_s + since_s, 1),
        "recalled": place.recalled,
        "overdue": place.overdue,
        "frozen": place.frozen,
    }


def _tenant(sight: Sight, node: Node, tenant_id: str, tenant: TenantRow) -> dict[str, Any]:
    """Of those that the caller may see."""
    stand = sight.glances.of(node).stands().get(tenant_id)
    since_s = 0.0
    if stand is not None:
        since_s = max(0.0, sight.now_s - node.devices_at_s.get(stand.device, sight.now_s))
    row = {name: getattr(tenant, name) for name in _TENANT_FIELDS}
    row.update({name: row[name][:ENTRIES_MAX] for name in _TENANT_LISTS})
    if tenant.why and not sight.caller.is_admin:
        row["why"] = SOMETHING
    return {
        "node": node.name,
        "node_state": _state(node, sight.now_s),
        "id": tenant_id,
        **row,
        "place": "" if stand is None else "queue" if stand.position else "holder",
        "position": stand.position if stand else 0,
        "device": stand.device if stand else None,
        "for_s": round(stand.place.for_s + since_s, 1) if stand else None,
    }
