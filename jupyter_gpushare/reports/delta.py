"""What a node's next report says: of its rows, those that the view does not know yet. Pure.

One report is under way at a time. What it said counts as known once the view has answered; after a
new connection, or where the view asks for it, nothing is known and the report is whole.

A time that only passes is no news: of places and turns under way, the view knows since when they
are. What tenants have had is told in steps of `STEP_S`, so that GPU-hours are never far behind.

A report has `ROWS_MAX` new rows of tenants at most, and `BYTES_MAX` of rows of either kind. The
next one goes on where it was left off: the scheduler's loop is not kept long, however many there
are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from jupyter_gpushare.core.ids import Seconds
from jupyter_gpushare.core.snapshot import (
    DeviceSnapshot,
    HolderSnapshot,
    Snapshot,
    TenantSnapshot,
    WaiterSnapshot,
)
from jupyter_gpushare.core.transitions import TenantState

from .format import (
    DEVICES_MAX,
    TENANTS_MAX,
    TEXT_CHARACTERS_MAX,
    DeviceRow,
    NodeRow,
    Place,
    Report,
    Seen,
    TenantRow,
    printable,
)

STEP_S: Seconds = 15.0
ROWS_MAX = 400
BYTES_MAX = 512 << 10
QUEUE_MAX = 512
"""Places of a device's queue, and holders, in its row."""
GROUPS_MAX = 256
GROUPS_CHARACTERS_MAX = 2048
"""Of all groups of a row: the view bounds what it keeps of a node."""
PROBLEMS_MAX = 64
_SAME_MOMENT_S: Seconds = 0.5
_HOST_SHARE = 1 / 16
"""Of the host's memory that is available: a smaller change of it is no news."""
_ROW_BYTES = 600
_PLACE_BYTES = 200
_CHARACTER_BYTES = 12
"""Of a text in JSON, at most."""
Thing = TypeVar("Thing", DeviceSnapshot, TenantSnapshot)


@dataclass(frozen=True, slots=True)
class Whose:
    """What the core's snapshot does not tell of a tenant, or not in words."""

    owner: str
    groups: tuple[str, ...] = ()
    why: str = ""
    """Why it waits although its devices are free."""


@dataclass(frozen=True, slots=True)
class Now:
    """A node at one moment."""

    snapshot: Snapshot
    node: NodeRow
    whose: Callable[[TenantSnapshot], Whose]


class OutOfOrder(ValueError):
    """The view has answered another report than the one under way."""


@dataclass(slots=True)
class _Known:
    """What the view has. A device's row is with the moment that its times are of."""

    node: NodeRow | None = None
    devices: dict[str, tuple[DeviceRow, Seconds]] = field(default_factory=dict)
    tenants: dict[str, TenantRow] = field(default_factory=dict)


class Delta:
    """The reports of one scheduler, connection after connection."""

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._rows: dict[str, tuple[TenantSnapshot, TenantRow]] = {}
        """What rows of tenants were made from: the core shows the same object while nothing of a
        tenant is new."""
        self._left_at: dict[str, str | None] = {"devices": None, "tenants": None}
        """With which row the next report goes on."""
        self.is_behind = False
        """The last report has left something out for the next one."""
        self.restart()

    def restart(self) -> None:
        """A connection begins: the view may know nothing."""
        self._known = _Known()
        self._is_whole = True
        self._sequence = 0
        self._under_way: tuple[Report, Seconds] | None = None

    def next(self, now: Now, *, sent_at: float) -> Report:
        """Whoever does not send it may ask for another one in its place."""
        if self._is_whole:
            self._known = _Known()
        snapshot, known = now.snapshot, self._known
        node = _bounded_node(now)
        report = Report(
            boot=self._boot,
            sequence=self._sequence,
            whole=self._is_whole,
            sent_at=sent_at,
            node=node if _is_other_node(known.node, node) else None,
            devices=self._devices(snapshot),
            tenants=self._tenants(now),
        )
        self._under_way = report, snapshot.at_s
        self.is_behind = any(self._left_at.values())
        return report

    def seen(self, answer: Seen) -> None:
        """The view has answered the report under way. Raises OutOfOrder."""
        if self._under_way is None or answer.sequence != self._under_way[0].sequence:
            raise OutOfOrder(f"an answer to report {answer.sequence}")
        (report, at_s), self._under_way = self._under_way, None
        self._sequence += 1
        self._is_whole = answer.again
        if not answer.again:
            self._known.node = report.node or self._known.node
            timed = {name: row and (row, at_s) for name, row in report.devices.items()}
            _take(self._known.devices, timed)
            _take(self._known.tenants, report.tenants)

    # ---- rows ----

    def _devices(self, snapshot: Snapshot) -> dict[str, DeviceRow | None]:
        here, room = snapshot.devices[:DEVICES_MAX], _Room()
        rows: dict[str, DeviceRow | None] = _gone(self._known.devices, {each.id for each in here})
        begin, self._left_at["devices"] = self._left_at["devices"], None
        for device in _from(here, begin):
            if len(rows) >= DEVICES_MAX or not room.is_left:
                self._left_at["devices"] = device.id
                break
            row, before = _device_row(device), self._known.devices.get(device.id)
            if before is None or _is_other_device(*before, row, snapshot.at_s):
                rows[device.id] = row
                room.take((len(row.holders) + len(row.queue)) * _PLACE_BYTES, row.name)
        return rows

    def _tenants(self, now: Now) -> dict[str, TenantRow | None]:
        here, room = now.snapshot.tenants[:TENANTS_MAX], _Room()
        ids = {each.id for each in here}
        for name in [name for name in self._rows if name not in ids]:
            del self._rows[name]
        rows: dict[str, TenantRow | None] = _gone(self._known.tenants, ids)
        begin, self._left_at["tenants"] = self._left_at["tenants"], None
        for tenant in _from(here, begin):
            if len(rows) >= TENANTS_MAX or room.rows >= ROWS_MAX or not room.is_left:
                self._left_at["tenants"] = tenant.id
                break
            row, before = self._row(tenant, now, room), self._known.tenants.get(tenant.id)
            if before is None or _is_other_tenant(before, row):
                rows[tenant.id] = row
                room.take(0, row.name, row.owner, row.why, *row.groups, *row.devices)
        return rows

    def _row(self, tenant: TenantSnapshot, now: Now, room: _Room) -> TenantRow:
        made_from, row = self._rows.get(tenant.id, (None, None))
        if row is None or made_from is not tenant:
            row = _tenant_row(tenant, now.whose(tenant))
            self._rows[tenant.id] = tenant, row
            room.rows += 1
        return row


def is_news(report: Report) -> bool:
    """Whether it says more than that the node is there."""
    return bool(report.whole or report.node or report.devices or report.tenants)


class _Room:
    """What one report may still have of a kind of rows."""

    def __init__(self) -> None:
        self.rows = 0
        """Of tenants, that were made for it."""
        self._bytes = BYTES_MAX

    @property
    def is_left(self) -> bool:
        return self._bytes > 0

    def take(self, size: int, *texts: str) -> None:
        self._bytes -= size + _ROW_BYTES + _CHARACTER_BYTES * sum(map(len, texts))


def _gone(known: Mapping[str, Any], here: set[Any]) -> dict[str, Any]:
    return {name: None for name in known if name not in here}


def _take(known: dict[str, Any], news: Mapping[str, Any]) -> None:
    for name, row in news.items():
        if row is None:
            known.pop(name, None)
        else:
            known[name] = row


def _from(all_of_them: Sequence[Thing], begin: str | None) -> Iterator[Thing]:
    """The one that is named comes first; where it is gone, they come in their order."""
    start = next((n for n, each in enumerate(all_of_them) if each.id == begin), 0) if begin else 0
    yield from all_of_them[start:]
    yield from all_of_them[:start]


def _groups(names: Sequence[str]) -> tuple[str, ...]:
    """As many whole names as there is space for."""
    cut = [_text(each) for each in names[:GROUPS_MAX]]
    ends = itertools.accumulate(map(len, cut))
    return tuple(each for each, end in zip(cut, ends, strict=True) if end <= GROUPS_CHARACTERS_MAX)


def _text(text: str) -> str:
    return printable(text[:TEXT_CHARACTERS_MAX])


def _bounded_node(now: Now) -> NodeRow:
    """With a word on what no report has."""
    problems = [*_left_out(now.snapshot), *now.node.problems]
    return replace(now.node, problems=tuple(_text(each) for each in problems[:PROBLEMS_MAX]))


def _left_out(snapshot: Snapshot) -> Iterator[str]:
    for what, found, most in (
        ("devices", len(snapshot.devices), DEVICES_MAX),
        ("notebooks", len(snapshot.tenants), TENANTS_MAX),
    ):
        if found > most:
            yield (
                f"This node has {found} {what}, and {most} of them are shown here. See "
                f"`jupyter gpushare status` there for the others."
            )
    if any(max(len(each.holders), len(each.queue)) > QUEUE_MAX for each in snapshot.devices):
        yield (
            f"More than {QUEUE_MAX} notebooks wait for a device of this node, and the first of "
            f"them are shown here. See `jupyter gpushare queue` there for the others."
        )


def _device_row(device: DeviceSnapshot) -> DeviceRow:
    contexts_and_strangers = device.bytes_foreign - device.bytes_contexts
    return DeviceRow(
        name=_text(device.name),
        bytes_total=device.bytes_total,
        bytes_used=device.bytes_used,
        bytes_usable=device.bytes_usable,
        bytes_outside=max(0, contexts_and_strangers),
        mode=device.mode,
        lost=device.lost,
        holders=tuple(_holder(each) for each in device.holders[:QUEUE_MAX]),
        queue=tuple(_waiter(each) for each in device.queue[:QUEUE_MAX]),
    )


def _holder(holder: HolderSnapshot) -> Place:
    return Place(
        tenant=holder.tenant,
        for_s=max(0.0, holder.held_for_s),
        recalled=holder.recalled,
        overdue=holder.overdue,
        frozen=holder.frozen,
    )


def _waiter(waiter: WaiterSnapshot) -> Place:
    return Place(tenant=waiter.tenant, for_s=max(0.0, waiter.waited_s))


def _tenant_row(tenant: TenantSnapshot, whose: Whose) -> TenantRow:
    counters, memory = tenant.counters, tenant.memory
    return TenantRow(
        name=_text(tenant.name),
        owner=_text(whose.owner),
        groups=_groups(whose.groups),
        kind=_text(tenant.kind),
        state=tenant.state,
        runs_as=tenant.runs_as,
        devices=tuple(each.device for each in memory[:DEVICES_MAX]),
        bytes_resident=sum(each.bytes_resident for each in memory),
        bytes_parked=sum(each.bytes_parked for each in memory),
        turns=counters.turns,
        waits=counters.waits,
        waited_s=max(0.0, counters.waited_s_total),
        held_s=max(0.0, counters.held_s_total),
        why=_text(whose.why),
    )


# ---- what is news ----


def _is_other_node(before: NodeRow | None, now: NodeRow) -> bool:
    if before is None:
        return True
    was = before.bytes_host_available
    moved = abs(now.bytes_host_available - was) > was * _HOST_SHARE
    return moved or replace(now, bytes_host_available=was) != before


def _is_other_device(
    before: DeviceRow, before_at_s: Seconds, now: DeviceRow, at_s: Seconds
) -> bool:
    if replace(before, holders=(), queue=()) != replace(now, holders=(), queue=()):
        return True
    for was, places in ((before.holders, now.holders), (before.queue, now.queue)):
        if len(was) != len(places):
            return True
        pairs = zip(was, places, strict=True)
        if any(_is_other_place(*pair, at_s - before_at_s) for pair in pairs):
            return True
    return False


def _is_other_place(before: Place, now: Place, passed_s: Seconds) -> bool:
    """The same tenant may have come anew since: it is there for a shorter time then."""
    began_later_s = before.for_s + passed_s - now.for_s
    return (
        before.tenant != now.tenant
        or abs(began_later_s) > _SAME_MOMENT_S
        or (before.recalled, before.overdue, before.frozen)
        != (now.recalled, now.overdue, now.frozen)
    )


def _is_other_tenant(before: TenantRow, now: TenantRow) -> bool:
    if before is now or before == now:
        return False
    if now.state == TenantState.IDLE.value:
        return True
    passed_s = max(abs(now.waited_s - before.waited_s), abs(now.held_s - before.held_s))
    same_times = replace(now, waited_s=before.waited_s, held_s=before.held_s)
    return passed_s >= STEP_S or same_times != before
