"""Fleets for tests: as nodes would report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpushare.reports.format import DeviceRow, NodeHello, NodeRow, Place, Report, TenantRow
from jupyter_gpushare.view.fleet import Fleet

GIB = 1 << 30
WALL_S = 1_700_000_000.0


def place(tenant: str, for_s: float = 10.0, **flags: bool) -> Place:
    return Place(tenant=tenant, for_s=for_s, **flags)


def device(**values: Any) -> DeviceRow:
    usual = {
        "name": "NVIDIA H100 80GB HBM3",
        "bytes_total": 80 * GIB,
        "bytes_used": 19 * GIB,
        "bytes_usable": 78 * GIB,
        "bytes_outside": 0,
        "mode": "open",
        "lost": False,
    }
    return DeviceRow(**{**usual, **values})


def tenant(owner: str, name: str, **values: Any) -> TenantRow:
    usual = {
        "groups": (),
        "kind": "kernel",
        "state": "idle",
        "runs_as": "interactive",
        "devices": (),
        "bytes_resident": 4 * GIB,
        "bytes_parked": 0,
        "turns": 3,
        "waits": 2,
        "waited_s": 4.5,
        "held_s": 60.0,
    }
    return TenantRow(owner=owner, name=name, **{**usual, **values})


def node_row(**values: Any) -> NodeRow:
    return NodeRow(**{"version": "0.1.0", "owners": "hub", "platform": "machine", **values})


def boot_of(name: str, again: int = 0) -> str:
    return f"{sum(map(ord, name)):016x}{again:016x}"


def reports(
    fleet: Fleet,
    name: str,
    devices: Mapping[str, DeviceRow],
    tenants: Mapping[str, TenantRow],
    *,
    now_s: float = 0.0,
    row: NodeRow | None = None,
    skew_s: float = 0.0,
) -> None:
    """The node comes, or has come before, and reports all that it has."""
    boot = boot_of(name)
    node = fleet.nodes.get(name)
    if node is None or node.boot != boot:
        fleet.hello(name, NodeHello(boot=boot, version="0.1.0"), now_s=now_s)
    report = Report(
        boot=boot,
        sequence=fleet.nodes[name].sequence + 1,
        whole=True,
        sent_at=WALL_S + now_s + skew_s,
        node=row or node_row(),
        devices=dict(devices),
        tenants=dict(tenants),
    )
    fleet.report(name, report, now_s=now_s, wall_s=WALL_S + now_s)


def small_fleet() -> Fleet:
    """Alice and Bob on node-a, nobody on node-b, accounts on node-c."""
    fleet = Fleet()
    reports(
        fleet,
        "node-a",
        {
            "a0": device(holders=(place("t-alice", 12.0),), queue=(place("t-bob", 5.0),)),
            "a1": device(bytes_outside=3 * GIB, bytes_used=3 * GIB),
        },
        {
            "t-alice": tenant("alice", "train.ipynb", state="holding", devices=("a0",)),
            "t-bob": tenant("bob", "secret-plan.ipynb", state="waiting", bytes_parked=GIB),
        },
        row=node_row(problems=("The notebook secret-plan.ipynb of bob is stuck.",)),
    )
    reports(fleet, "node-b", {"b0": device(bytes_used=17 * GIB)}, {})
    reports(
        fleet,
        "node-c",
        {"c0": device(holders=(place("t-other"),))},
        {"t-other": tenant("alice", "of-an-account.ipynb", state="holding")},
        row=node_row(owners="accounts", platform="slurm"),
    )
    return fleet
