"""What the demo on a cluster found, and whether it is what this project promises. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.demo.memory import out_of_memory
from tests.demo.report import complaints_about_turns
from tests.demo.scenes import Act
from tests.support.sim import MIB
from tests.support.timeline import (
    cell_waits_ns,
    hand_overs,
    median,
    overlaps,
    percentile,
    turns_had,
    waits_served,
)

WAITS_MIN = 1
PARKED_SHARE_MIN = 0.5


@dataclass(frozen=True)
class NodePlayed:
    """What happened on a node. The numbers of cells and work are those of its users."""

    name: str
    users: Sequence[str]
    act: Act
    control: Act
    """The same notebooks, without turns."""
    most_parked: int
    """At one moment, as its scheduler says."""
    turns_told: Mapping[str, int]
    """By the scheduler, of each user."""
    owners: Mapping[str, str]
    """Whom the scheduler takes each user's notebook for."""
    lost: Sequence[str] = ()
    """Users whose kernel is gone."""


@dataclass(frozen=True)
class NodeReport:
    """What is in the report about a node."""

    users: list[str]
    cells: int
    cells_failed: int
    overlaps: int
    overlaps_without_turns: int
    waits: dict[str, int]
    """How often each user's kernel waited while another one had the device, and was served."""
    turns: dict[str, int]
    """How often the device came to each user's kernel, by its journal."""
    turns_told_by_scheduler: dict[str, int]
    hand_overs: int
    handoff_ms_p50: float | None
    """Between the work of two kernels, moving of memory included."""
    cell_wait_s_p50: float | None
    """From a cell's beginning until the device worked for it."""
    cell_wait_s_p95: float | None
    cell_s_p50: float | None
    """From a cell's beginning to its end."""
    cell_s_p95: float | None
    bytes_held: int
    bytes_parked: int
    """What has left the device, by its journal."""
    bytes_parked_at_most: int
    checksums_ok: bool


@dataclass(frozen=True)
class ClusterReport:
    """demo-cluster-report.json. Sums, smallest and largest values are those of all nodes."""

    device: str
    simulated: bool
    judged_by: str
    device_bytes: int
    users: int
    owners_are_accounts: bool
    owners: dict[str, str]
    cells: int
    cells_failed: int
    overlaps: int
    overlaps_without_turns: int
    """On the node where they were fewest."""
    waits_min: int
    hand_overs: int
    cell_wait_s_p50: float | None
    cell_wait_s_p95: float | None
    cell_s_p50: float | None
    cell_s_p95: float | None
    oversubscribed: bool
    """On each node the notebooks hold more memory than its device has."""
    checksums_ok: bool
    """Every cell found every byte that it had written, by launches on the device."""
    oom: int
    bytes_parked: int
    scheduler_restarts: int
    tenants_lost: int
    """Who was a tenant before the scheduler restarted, and is none any more."""
    kernels: int
    kernels_lost: int
    seconds: float
    nodes: dict[str, NodeReport]

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def complaints(self) -> list[str]:
        """One sentence for each thing that does not hold; none when all is well."""
        found = complaints_about_turns(
            cells=self.cells,
            cells_failed=self.cells_failed,
            overlaps=self.overlaps,
            overlaps_without_turns=self.overlaps_without_turns,
            waits_min=self.waits_min,
            waits_wanted=WAITS_MIN,
        )
        return found + self._about_memory() + self._about_kernels()

    def _about_memory(self) -> list[str]:
        found = []
        if not self.oversubscribed:
            found.append("Not on each node did notebooks hold more memory than its device has.")
        if not self.checksums_ok:
            found.append("Not every cell found all the bytes that its notebook had written.")
        if self.oom:
            found.append(f"Memory followed the turn, and {self.oom} cells were out of memory.")
        for name, node in self.nodes.items():
            if node.bytes_parked_at_most < PARKED_SHARE_MIN * self.device_bytes:
                found.append(
                    f"On {name} at most {node.bytes_parked_at_most} bytes were parked at a time, "
                    f"which is less than half of the device's {self.device_bytes}."
                )
        return found

    def _about_kernels(self) -> list[str]:
        found = []
        if not self.owners_are_accounts:
            told = ", ".join(f"{user}'s is {owner}'s" for user, owner in self.owners.items())
            found.append(f"The schedulers take other users for the notebooks' owners: {told}.")
        if not self.scheduler_restarts:
            found.append("No scheduler was restarted, so that this run proves nothing about that.")
        if self.tenants_lost:
            found.append(
                f"{self.tenants_lost} notebooks are no tenants any more since the scheduler of "
                f"their node was restarted."
            )
        if self.kernels_lost:
            found.append(f"{self.kernels_lost} of {self.kernels} kernels were lost.")
        return found


def make_cluster_report(
    played: Sequence[NodePlayed],
    *,
    device: str,
    judged_by: str,
    device_bytes: int,
    bytes_each: int,
    restarts: int,
    tenants_lost: int,
    seconds: float,
) -> ClusterReport:
    """`bytes_each` is what a notebook holds."""
    nodes = {each.name: _about_node(each, bytes_each) for each in played}
    failures = [error for each in played for error in each.act.failures]
    waits_s = [wait_s for each in played for wait_s in _waits_s(each.act)]
    took_s = [each_s for each in played for each_s in _took_s(each.act)]
    owners = {user: owner for each in played for user, owner in each.owners.items()}
    users = [user for each in played for user in each.users]
    found = nodes.values()
    return ClusterReport(
        device=device,
        simulated=True,
        judged_by=judged_by,
        device_bytes=device_bytes,
        users=len(users),
        owners_are_accounts=owners == {user: user for user in users},
        owners=owners,
        cells=sum(node.cells for node in found),
        cells_failed=sum(node.cells_failed for node in found),
        overlaps=sum(node.overlaps for node in found),
        overlaps_without_turns=min(node.overlaps_without_turns for node in found),
        waits_min=min(count for node in found for count in node.waits.values()),
        hand_overs=sum(node.hand_overs for node in found),
        cell_wait_s_p50=_rounded(waits_s, 50),
        cell_wait_s_p95=_rounded(waits_s, 95),
        cell_s_p50=_rounded(took_s, 50),
        cell_s_p95=_rounded(took_s, 95),
        oversubscribed=all(node.bytes_held > device_bytes for node in found),
        checksums_ok=all(node.checksums_ok for node in found),
        oom=out_of_memory(failures),
        bytes_parked=sum(node.bytes_parked for node in found),
        scheduler_restarts=restarts,
        tenants_lost=tenants_lost,
        kernels=len(users),
        kernels_lost=sum(len(each.lost) for each in played),
        seconds=round(seconds, 1),
        nodes=nodes,
    )


def summary(report: ClusterReport) -> dict[str, str]:
    """What is told at the end, by name."""
    turns = {user: n for node in report.nodes.values() for user, n in node.turns.items()}
    parked = ", ".join(
        f"{name} {node.bytes_parked // MIB} MiB, at most {node.bytes_parked_at_most // MIB} at once"
        for name, node in report.nodes.items()
    )
    return {
        "device of each node": f"{report.device}, {report.device_bytes // MIB} MiB",
        "judged by": report.judged_by,
        "users": "; ".join(f"{n} {', '.join(node.users)}" for n, node in report.nodes.items()),
        "cells": f"{report.cells}, of which {report.cells_failed} failed",
        "overlaps with turns": str(report.overlaps),
        "overlaps without turns": f"{report.overlaps_without_turns} at least on each node",
        "cells waited": _in_words(report.cell_wait_s_p50, report.cell_wait_s_p95),
        "cells took": _in_words(report.cell_s_p50, report.cell_s_p95),
        "turns": ", ".join(f"{user} {count}" for user, count in turns.items()),
        "memory in all": "more than the devices have" if report.oversubscribed else "fits",
        "checksums": "right" if report.checksums_ok else "WRONG",
        "parked": parked,
        "out of memory": str(report.oom),
        "scheduler restarts": str(report.scheduler_restarts),
        "kernels lost": f"{report.kernels_lost} of {report.kernels}",
        "in all": f"{report.seconds} s",
    }


def _in_words(median_s: float | None, p95_s: float | None) -> str:
    return f"{median_s} s in the median, {p95_s} s at p95"


def _about_node(played: NodePlayed, bytes_each: int) -> NodeReport:
    act, control, users = played.act, played.control, played.users
    found = hand_overs(act.works, act.cells)
    gaps_ms = [hand_over.gap_ms for hand_over in found]
    waits_s = _waits_s(act)
    complete = not act.failures and len(act.cells) == act.sent
    return NodeReport(
        users=list(users),
        cells=act.sent + control.sent,
        cells_failed=_failed(act) + _failed(control),
        overlaps=overlaps(act.works),
        overlaps_without_turns=overlaps(control.works),
        waits=dict(zip(users, waits_served(found, len(users)), strict=True)),
        turns=dict(zip(users, turns_had(act.works, len(users)), strict=True)),
        turns_told_by_scheduler=dict(played.turns_told),
        hand_overs=len(found),
        handoff_ms_p50=round(median(gaps_ms), 3) if gaps_ms else None,
        cell_wait_s_p50=_rounded(waits_s, 50),
        cell_wait_s_p95=_rounded(waits_s, 95),
        cell_s_p50=_rounded(_took_s(act), 50),
        cell_s_p95=_rounded(_took_s(act), 95),
        bytes_held=bytes_each * len({cell.kernel for cell in act.cells}),
        bytes_parked=act.bytes_parked,
        bytes_parked_at_most=played.most_parked,
        checksums_ok=complete,
    )


def _failed(act: Act) -> int:
    """With an error, or never: a kernel that is lost takes its times with it."""
    return max(len(act.failures), act.sent - len(act.cells))


def _waits_s(act: Act) -> list[float]:
    return [wait_ns / 1e9 for wait_ns in cell_waits_ns(act.works, act.cells)]


def _took_s(act: Act) -> list[float]:
    return [(cell.ended_ns - cell.began_ns) / 1e9 for cell in act.cells]


def _rounded(values: Sequence[float], percent: int) -> float | None:
    return round(percentile(values, percent), 3) if values else None
