"""What happened at a real scheduler, as a workload: from its journal ("what if" about last week).

A cell begins when a tenant asks for a turn, and ends when it gives its turn back of itself. Its
work is the time that it had turns, without that in which memory came back. So the work is what was
measured under the scheduler that ran, beside the others that ran then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpushare.core.ids import Seconds

from .base.errors import SimulationError
from .base.workload import GIB, Cell, Notebook, Workload
from .trace import CELLS_MAX, TIME_S_MAX

FORMAT = 1
_JITTER_S = 0.001
_SHORTEST_S = 0.001
"""A cell whose turn ended at once has this much work."""
_PAUSES = {"recall", "memory_short"}
"""Reasons of a drop after which the cell goes on."""


@dataclass(slots=True)
class _Tenant:
    name: str
    owner: str
    groups: tuple[str, ...]
    is_program: bool
    opens_s: Seconds
    closes_s: Seconds | None = None
    device: int | None = None
    bytes_of: dict[tuple[int, str], int] = field(default_factory=dict)
    bytes_most: int = 0
    parked_of: dict[tuple[int, str], int] = field(default_factory=dict)
    holding: set[int] = field(default_factory=set)
    working_since_s: Seconds | None = None
    asked_s: Seconds | None = None
    work_s: Seconds = 0.0


def is_journal(head: dict[str, Any]) -> bool:
    return "journal" in head


def read_journal(lines: Iterable[tuple[int, dict[str, Any]]]) -> Workload:
    """The workload of a journal, or of several that go on one after another; raises
    SimulationError with the number of the line."""
    reader = _Reader()
    for number, line in lines:
        try:
            reader.take(number, line)
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            if isinstance(error, SimulationError):
                raise
            raise SimulationError(
                f"Line {number} of the journal is not as the scheduler writes it. Remove the line, "
                f"or simulate the files before it."
            ) from error
    return reader.workload()


class _Reader:
    def __init__(self) -> None:
        self._first_wall_s: Seconds | None = None
        self._file_wall_s: Seconds = 0.0
        self._offset_s: Seconds | None = None
        """What to add to the clock of a scheduler for the time since the beginning of it all; None
        until the first event of a scheduler."""
        self._now_s: Seconds = 0.0
        self._devices: dict[str, int] = {}
        self._device_bytes = 0
        self._tenants: dict[str, _Tenant] = {}
        self._tenant_of: dict[int, str] = {}
        self._cells: list[tuple[Seconds, _Tenant, Seconds]] = []
        self._settings: dict[str, object] = {}
        self._takes_standing = False
        """What stood before the first of the files is to be known."""

    def take(self, number: int, line: dict[str, Any]) -> None:
        if "journal" in line:
            self._take_head(line)
            return
        if "standing" in line:
            if self._takes_standing:
                self._take_event({**line["standing"], "held_turn": None})
            return
        clock_s = float(line["at_s"])
        if self._offset_s is None:
            assert self._first_wall_s is not None
            since_s = self._file_wall_s - self._first_wall_s
            self._offset_s = max(since_s, self._now_s) - clock_s
        at_s = clock_s + self._offset_s
        if not self._now_s - _JITTER_S <= at_s <= TIME_S_MAX:
            raise SimulationError(
                f"Line {number} of the journal jumps in time, from {self._now_s:g} s to "
                f"{at_s:g} s. Name the files in the order of their times, each once."
            )
        self._now_s = max(at_s, self._now_s)
        self._take_event(line["event"])
        for command in line["commands"]:
            if command["type"] == "GrantTurn":
                self._granted(command["client"], self._now_s)

    def _take_event(self, event: dict[str, Any]) -> None:
        handler = getattr(self, "_on_" + event["type"].lower(), None)
        if handler is not None:
            handler(event, self._now_s)

    def workload(self) -> Workload:
        """Raises SimulationError where there is nothing to simulate."""
        for tenant in self._tenants.values():
            self._cell_ends(tenant, self._now_s)
        numbers: dict[int, int] = {}
        notebooks: list[Notebook] = []
        cells = []
        for at_s, tenant, work_s in sorted(self._cells, key=lambda cell: cell[0]):
            if id(tenant) not in numbers:
                numbers[id(tenant)] = len(notebooks)
                notebooks.append(_notebook(tenant))
            cells.append(Cell(numbers[id(tenant)], at_s, work_s))
        if not cells:
            raise SimulationError(
                "The journal has no turns. Name one of a time in which notebooks used a device."
            )
        return Workload(
            title="journal",
            notebooks=notebooks,
            cells=cells,
            devices=max(1, len(self._devices)),
            device_bytes=self._device_bytes or 80 * GIB,
            settings=self._settings,
        )

    def _take_head(self, head: dict[str, Any]) -> None:
        if head["journal"] != FORMAT:
            raise SimulationError(
                "The journal is of another version. Use the version that wrote it."
            )
        self._file_wall_s = float(head["wall_s"])
        is_first = self._first_wall_s is None
        if self._first_wall_s is None:
            self._first_wall_s = self._file_wall_s
        self._takes_standing = is_first and head["continues"]
        if not head["continues"]:
            self._scheduler_starts()
        self._settings = dict(head["settings"])

    def _scheduler_starts(self) -> None:
        """Another scheduler, with another clock: its clients connect again."""
        self._offset_s = None
        for tenant in self._tenants.values():
            self._cell_ends(tenant, self._now_s)
            tenant.bytes_of.clear()
            tenant.parked_of.clear()
        self._tenant_of.clear()

    # ---- events, by the names of their types -------------------------------------------------

    def _on_devicefound(self, event: dict[str, Any], at_s: Seconds) -> None:
        self._devices.setdefault(event["device"], len(self._devices))
        self._device_bytes = max(self._device_bytes, _count_of(event["bytes_total"]))

    def _on_settingschanged(self, event: dict[str, Any], at_s: Seconds) -> None:
        self._settings = dict(event["settings"])

    def _on_tenantregistered(self, event: dict[str, Any], at_s: Seconds) -> None:
        if event["tenant"] not in self._tenants:
            self._tenants[event["tenant"]] = _Tenant(
                name=f"{event['name']} ({event['tenant'][:8]})",
                owner=event["owner"],
                groups=tuple(event["groups"] or ()),
                is_program=event["kind"] == "run",
                opens_s=at_s,
            )

    def _on_tenantremoved(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenants.pop(event["tenant"], None)
        if tenant is not None:
            self._cell_ends(tenant, at_s)
            tenant.closes_s = at_s

    def _on_clientjoined(self, event: dict[str, Any], at_s: Seconds) -> None:
        self._tenant_of[event["client"]] = event["tenant"]
        if event["held_turn"] is not None:
            self._granted(event["client"], at_s)

    def _on_clientlost(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenant(event["client"])
        self._tenant_of.pop(event["client"], None)
        if tenant is not None:
            for table in (tenant.bytes_of, tenant.parked_of):
                for key in [key for key in table if key[0] == event["client"]]:
                    del table[key]
            self._dropped(tenant, event["client"], "closing", at_s)

    def _on_deviceopened(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenant(event["client"])
        if tenant is not None and tenant.device is None:
            tenant.device = self._devices.get(event["device"])

    def _on_turnrequested(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenant(event["client"])
        if tenant is not None and tenant.asked_s is None:
            tenant.asked_s, tenant.work_s = at_s, 0.0

    def _on_requestwithdrawn(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenant(event["client"])
        if tenant is not None and not tenant.holding:
            self._cell_ends(tenant, at_s)

    def _on_turndropped(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenant(event["client"])
        if tenant is not None:
            self._dropped(tenant, event["client"], event["reason"], at_s)

    def _on_memoryreported(self, event: dict[str, Any], at_s: Seconds) -> None:
        tenant = self._tenant(event["client"])
        if tenant is None:
            return
        key = (event["client"], event["device"])
        tenant.bytes_of[key] = _count_of(event["bytes_allocated"])
        tenant.parked_of[key] = _count_of(event["bytes_parked"])
        on: defaultdict[str, int] = defaultdict(int)
        for (_, device), count in tenant.bytes_of.items():
            on[device] += count
        tenant.bytes_most = max(tenant.bytes_most, *on.values())
        self._look(tenant, at_s)

    # ---- turns -------------------------------------------------------------------------------

    def _tenant(self, client: int) -> _Tenant | None:
        return self._tenants.get(self._tenant_of.get(client, ""))

    def _granted(self, client: int, at_s: Seconds) -> None:
        tenant = self._tenant(client)
        if tenant is not None:
            if tenant.asked_s is None:
                tenant.asked_s, tenant.work_s = at_s, 0.0
            tenant.holding.add(client)
            self._look(tenant, at_s)

    def _dropped(self, tenant: _Tenant, client: int, reason: str, at_s: Seconds) -> None:
        if client not in tenant.holding:
            return
        tenant.holding.discard(client)
        self._look(tenant, at_s)
        if not tenant.holding and reason not in _PAUSES:
            if reason == "idle":
                tenant.work_s -= float(str(self._settings.get("idle_ms", 50))) / 1000
            self._cell_ends(tenant, at_s)

    def _look(self, tenant: _Tenant, at_s: Seconds) -> None:
        """It works while it has its turn and all its memory."""
        parked = any(tenant.parked_of.get(key, 0) for key in tenant.bytes_of)
        works = bool(tenant.holding) and not parked
        if works and tenant.working_since_s is None:
            tenant.working_since_s = at_s
        elif not works and tenant.working_since_s is not None:
            tenant.work_s += at_s - tenant.working_since_s
            tenant.working_since_s = None

    def _cell_ends(self, tenant: _Tenant, at_s: Seconds) -> None:
        tenant.holding.clear()
        self._look(tenant, at_s)
        if tenant.asked_s is None:
            return
        if tenant.work_s > 0:
            if len(self._cells) >= CELLS_MAX:
                raise SimulationError(
                    f"The journal has more than {CELLS_MAX:,} cells. Simulate fewer of its files."
                )
            self._cells.append((tenant.asked_s, tenant, max(tenant.work_s, _SHORTEST_S)))
        tenant.asked_s = None


def _count_of(value: object) -> int:
    """Of bytes; raises ValueError."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a number of bytes")
    return value


def _notebook(tenant: _Tenant) -> Notebook:
    return Notebook(
        name=tenant.name,
        owner=tenant.owner,
        groups=tenant.groups,
        bytes_used=tenant.bytes_most,
        opens_s=tenant.opens_s,
        closes_s=tenant.closes_s,
        device=tenant.device,
        is_program=tenant.is_program,
    )
