"""Nodes that report to a Fleet, without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpushare.reports.format import DeviceRow, NodeHello, NodeRow, Place, Report, TenantRow
from jupyter_gpushare.view.fleet import Fleet

WALL_S = 1_800_000_000.0
"""The time of day at 0 of the monotonic clock: 8:00 in UTC."""
GIB = 1 << 30


def device(**changes: Any) -> DeviceRow:
    row = DeviceRow(
        name="Simulated GPU",
        bytes_total=8 * GIB,
        bytes_used=3 * GIB,
        bytes_usable=7 * GIB,
        bytes_outside=1 * GIB,
        mode="open",
        lost=False,
    )
    return replace(row, **changes)


def tenant(owner: str = "alice", **changes: Any) -> TenantRow:
    row = TenantRow(
        name="train.ipynb",
        owner=owner,
        groups=(),
        kind="kernel",
        state="waiting",
        runs_as="interactive",
        devices=("0" * 32,),
        bytes_resident=1 * GIB,
        bytes_parked=0,
        turns=1,
        waits=0,
        waited_s=0.0,
        held_s=0.0,
    )
    return replace(row, **changes)


def place(tenant_id: str, for_s: float = 1.0) -> Place:
    return Place(tenant=tenant_id, for_s=for_s)


class Reporting:
    """A node. Its clock is right."""

    boots = 0

    def __init__(
        self, fleet: Fleet, name: str, *, now_s: float, devices: int = 1, **row: Any
    ) -> None:
        self.fleet, self.name = fleet, name
        self.devices: dict[str, DeviceRow] = {f"{n:032x}": device() for n in range(devices)}
        self.tenants: dict[str, TenantRow] = {}
        self.row = replace(NodeRow(version="0.1.0", owners="hub"), **row)
        self.starts(now_s)

    def starts(self, now_s: float) -> None:
        """Its scheduler does, and knows no counters any more."""
        Reporting.boots += 1
        self.boot = f"{Reporting.boots:032x}"
        self.row = replace(self.row, started_at=WALL_S + now_s)
        self.tenants = {id: replace(row, held_s=0.0) for id, row in self.tenants.items()}
        self._told: dict[str, TenantRow] = {}
        self._connected = False

    def connects(self, now_s: float) -> None:
        self.fleet.hello(self.name, NodeHello(boot=self.boot, version="0.1.0"), now_s=now_s)
        self._sequence = -1
        self._connected = True
        self._told = {}

    def breaks(self) -> None:
        """Its connection does."""
        self._connected = False

    def reports(self, now_s: float) -> None:
        """What has changed; at first, all."""
        if not self._connected:
            self.connects(now_s)
        self._sequence += 1
        whole = self._sequence == 0
        news: dict[str, TenantRow | None] = {
            id: row for id, row in self.tenants.items() if whole or self._told.get(id) is not row
        }
        news |= {id: None for id in self._told if id not in self.tenants}
        report = Report(
            boot=self.boot,
            sequence=self._sequence,
            whole=whole,
            sent_at=WALL_S + now_s,
            node=self.row if whole else None,
            devices=self.devices if whole else {},
            tenants=news,
        )
        self.fleet.report(self.name, report, now_s=now_s, wall_s=WALL_S + now_s)
        self._told = dict(self.tenants)

    def has(self, **tenants: TenantRow) -> None:
        self.tenants |= tenants

    def held(self, seconds: Mapping[str, float]) -> None:
        for id, held_s in seconds.items():
            self.tenants[id] = replace(self.tenants[id], held_s=held_s)
