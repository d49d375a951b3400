"""All nodes, as they have last reported. Pure: each call is given the time.

A node is named by the credential that it came with. Everything here is believed of that node alone.
`now_s` is a monotonic clock of the view, `wall_s` its seconds since 1970.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from jupyter_gpushare.reports.format import (
    DEVICES_MAX,
    FORMAT,
    HEARTBEAT_S,
    MESSAGE_BYTES_MAX,
    TENANTS_MAX,
    DeviceRow,
    NodeHello,
    NodeRow,
    Report,
    ReportError,
    Seen,
    TenantRow,
    characters_of,
)

SILENT_S = 3 * HEARTBEAT_S
"""Without a report for so long, a node counts as silent."""
FORGET_S = 7 * 24 * 3600.0
"""A node that is silent for so long is shown no more."""
CONFLICT_S = 60.0
"""For so long after two schedulers have come under one name, the page says so."""
SKEW_S = 30.0
"""A clock that is further off than this is worth a sentence."""
BOOTS_KEPT = 32
CHARACTERS_MAX = 4 * MESSAGE_BYTES_MAX
"""Of all rows of a node, however many reports bring them. Texts are short (reports/delta.py), so a
node with as many tenants as may be has half of it."""
Row = TypeVar("Row")


class OlderBoot(ReportError):
    """Another scheduler has come under this name since."""


@dataclass(slots=True)
class Node:
    """One node. `row` is None until its first report."""

    name: str
    boot: str = ""
    sequence: int = -1
    connected: bool = False
    heard_s: float = 0.0
    """When it last reported, or came."""
    skew_s: float = 0.0
    """Of its clock against ours; above 0, it is ahead."""
    row: NodeRow | None = None
    devices: dict[str, DeviceRow] = field(default_factory=dict)
    tenants: dict[str, TenantRow] = field(default_factory=dict)
    devices_at_s: dict[str, float] = field(default_factory=dict)
    """When each device's row came: its `for_s` are as of then."""
    earlier_boots: deque[str] = field(default_factory=lambda: deque(maxlen=BOOTS_KEPT))
    conflict_s: float | None = None
    """When a scheduler last came under this name that another had taken."""
    fault: str = ""
    """Why its last message could not be believed; empty: it could."""
    doubt: str = ""
    """What the view does not believe of its figures (`usage.py`); empty: nothing."""
    reports: int = 0
    """How many were taken, and how many messages were refused, since this view began."""
    refused: int = 0
    restarts: int = 0
    """Of its scheduler, that this view has seen."""
    characters: int = 0
    """Of its rows (`characters_of`)."""
    passed: tuple[bool, bool] = (False, False)
    """Whether it was silent or in conflict when `note_time` last looked."""

    def is_silent(self, now_s: float) -> bool:
        return now_s - self.heard_s > SILENT_S

    def is_in_conflict(self, now_s: float) -> bool:
        return self.conflict_s is not None and now_s - self.conflict_s <= CONFLICT_S


class Fleet:
    """`changed` collects the names of nodes that have changed, until somebody takes them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.changed: set[str] = set()
        self._of_owner: dict[str, set[tuple[str, str]]] = {}

    # ---- what nodes do ----

    def hello(self, name: str, hello: NodeHello, *, now_s: float) -> Seen:
        """A scheduler has come. Raises OlderBoot, and ReportError for one of another format."""
        node = self._node(name, now_s)
        self.changed.add(name)
        if hello.format != FORMAT:
            node.fault = (
                f"Its scheduler {hello.version} reports in format {hello.format}, and this view "
                f"reads format {FORMAT}. Bring both to one version."
            )
            raise ReportError(node.fault)
        if hello.boot in node.earlier_boots:
            node.conflict_s = now_s
            raise OlderBoot(
                f"Another scheduler reports as {name}, and it has come later. Give each node a "
                f"credential of its own."
            )
        if node.boot and node.boot != hello.boot:
            node.earlier_boots.append(node.boot)
            node.restarts += 1
        node.boot, node.sequence, node.connected, node.heard_s = hello.boot, -1, True, now_s
        return Seen(sequence=-1, again=True)

    def report(self, name: str, report: Report, *, now_s: float, wall_s: float) -> Seen:
        """Raises ReportError for one that is older than what is known, or that is out of order."""
        node = self.nodes.get(name)
        if node is None or report.boot != node.boot:
            raise OlderBoot(f"Another scheduler reports as {name} now, or none has said hello.")
        if report.sequence <= node.sequence:
            raise ReportError(
                f"Report {report.sequence} has come after report {node.sequence}. Restart the "
                f"scheduler of this node."
            )
        in_order = report.sequence == node.sequence + 1
        if not report.whole and (not in_order or node.row is None):
            return Seen(sequence=report.sequence, again=True)
        self._take(node, report, now_s)
        node.sequence, node.heard_s, node.fault = report.sequence, now_s, ""
        node.skew_s = report.sent_at - wall_s
        node.reports += 1
        self.changed.add(name)
        return Seen(sequence=report.sequence)

    def cannot_be_read(self, name: str, error: ReportError, *, now_s: float) -> None:
        """A message of this node's was refused; what it said before stays."""
        node = self._node(name, now_s)
        node.fault = str(error)
        node.refused += 1
        self.changed.add(name)

    def gone(self, name: str, boot: str, *, now_s: float) -> None:
        """Its connection has ended. It is silent once nothing follows."""
        node = self.nodes.get(name)
        if node is not None and node.boot == boot:
            node.connected = False
            self.changed.add(name)

    def note_time(self, now_s: float) -> None:
        """A node that has turned silent, or whose conflict is over, has changed by that alone."""
        for node in self.nodes.values():
            passed = (node.is_silent(now_s), node.is_in_conflict(now_s))
            if passed != node.passed:
                node.passed = passed
                self.changed.add(node.name)

    def forget_silent(self, now_s: float) -> None:
        for name in [n.name for n in self.nodes.values() if now_s - n.heard_s > FORGET_S]:
            node = self.nodes.pop(name)
            for tenant_id, row in node.tenants.items():
                self._unlist(name, tenant_id, row)
            self.changed.add(name)

    # ---- what is asked ----

    def tenants_of(self, owner: str) -> Iterator[tuple[Node, str, TenantRow]]:
        """Those whose owner has this name, on all nodes: whether it is the same person, the caller
        has to ask the node's row (`owners`)."""
        for name, tenant_id in sorted(self._of_owner.get(owner, ())):
            node = self.nodes[name]
            yield node, tenant_id, node.tenants[tenant_id]

    def take_changed(self) -> set[str]:
        changed, self.changed = self.changed, set()
        return changed

    # ---- how a report is taken ----

    def _node(self, name: str, now_s: float) -> Node:
        return self.nodes.setdefault(name, Node(name, heard_s=now_s))

    def _take(self, node: Node, report: Report, now_s: float) -> None:
        """All of it or nothing: what is too much is refused before anything is noted."""
        devices = _united({} if report.whole else node.devices, report.devices)
        tenants = _united({} if report.whole else node.tenants, report.tenants)
        for what, found, most in (
            ("devices", devices, DEVICES_MAX),
            ("tenants", tenants, TENANTS_MAX),
        ):
            if len(found) > most:
                raise ReportError(
                    f"The node reports more than {most} {what}. Look at what its scheduler serves."
                )
        if report.whole and report.node is None:
            raise ReportError("The whole report says nothing of the node. Bring it to our version.")
        characters = _characters(node, report)
        if characters > CHARACTERS_MAX:
            raise ReportError(
                f"The rows of the node have more than {CHARACTERS_MAX} characters together. Look "
                f"at what its scheduler reports."
            )
        touched = {*report.tenants, *(node.tenants if report.whole else ())}
        self._list_anew(node, touched, tenants)
        at_s = {} if report.whole else node.devices_at_s
        node.devices_at_s = {
            each: now_s if each in report.devices else at_s.get(each, now_s) for each in devices
        }
        node.devices, node.tenants, node.characters = devices, tenants, characters
        node.row = report.node or node.row

    def _list_anew(self, node: Node, touched: Iterable[str], tenants: dict[str, TenantRow]) -> None:
        for tenant_id in touched:
            before, after = node.tenants.get(tenant_id), tenants.get(tenant_id)
            if before is not None and (after is None or after.owner != before.owner):
                self._unlist(node.name, tenant_id, before)
            if after is not None:
                self._of_owner.setdefault(after.owner, set()).add((node.name, tenant_id))

    def _unlist(self, name: str, tenant_id: str, row: TenantRow) -> None:
        theirs = self._of_owner[row.owner]
        theirs.discard((name, tenant_id))
        if not theirs:
            del self._of_owner[row.owner]


def _united(before: Mapping[str, Row], news: Mapping[str, Row | None]) -> dict[str, Row]:
    united = dict(before)
    for key, row in news.items():
        if row is None:
            united.pop(key, None)
        else:
            united[key] = row
    return united


def _characters(node: Node, report: Report) -> int:
    """Of the node's rows once it has been taken. Costs what is in the report."""
    count = 0 if report.whole else node.characters
    for key, device in report.devices.items():
        before = None if report.whole else node.devices.get(key)
        count += (characters_of(device) if device else 0) - (characters_of(before) if before else 0)
    for key, tenant in report.tenants.items():
        was = None if report.whole else node.tenants.get(key)
        count += (characters_of(tenant) if tenant else 0) - (characters_of(was) if was else 0)
    return count
