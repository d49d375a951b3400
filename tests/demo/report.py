"""What the demo found, and whether it is what this project promises. Pure."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tests.demo.memory import MemoryReport
from tests.demo.own import OwnReport
from tests.demo.scenes import Act
from tests.demo.training import TrainingReport
from tests.support.timeline import hand_overs, median, overlaps, waits_served

WAITS_MIN = 3


@dataclass(frozen=True)
class Report:
    """demo-report.json."""

    device: str
    simulated: bool
    judged_by: str
    cells: int
    cells_failed: int
    overlaps: int
    overlaps_without_turns: int
    waits: dict[str, int]
    """How often each kernel waited while another one had the device, and was served."""
    waits_min: int
    waits_told_by_scheduler: dict[str, int]
    hand_overs: int
    handoff_ms_p50: float | None
    handoff_ms_max: float | None
    waited_ms_p50: float | None
    seconds: float
    memory: MemoryReport
    training: TrainingReport
    own: OwnReport

    def as_json(self) -> dict[str, object]:
        """Flat: what is about memory, training and own cells stands beside the rest."""
        values = asdict(self)
        parts = [values.pop(name) for name in ("memory", "training", "own")]
        return dict(ChainMap(values, *parts))

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
        others = (self.memory, self.training, self.own)
        return found + [complaint for each in others for complaint in each.complaints()]


def complaints_about_turns(
    *,
    cells: int,
    cells_failed: int,
    overlaps: int,
    overlaps_without_turns: int,
    waits_min: int,
    waits_wanted: int,
) -> list[str]:
    """Of each form of the demo: one sentence for each thing that does not hold."""
    found = []
    if cells_failed:
        found.append(f"{cells_failed} of {cells} cells failed.")
    if overlaps:
        found.append(f"Work of two kernels was on the device at once, {overlaps} times.")
    if not overlaps_without_turns:
        found.append("Without turns nothing overlapped either, so that this run proves nothing.")
    if waits_min < waits_wanted:
        found.append(
            f"A kernel waited and was served only {waits_min} times; at least {waits_wanted} were "
            f"expected."
        )
    return found


def make_report(
    *,
    device: str,
    simulated: bool,
    judged_by: str,
    names: Sequence[str],
    shared: Act,
    control: Act,
    memory: MemoryReport,
    training: TrainingReport,
    own: OwnReport,
    others: Sequence[Act] = (),
    seconds: float,
) -> Report:
    """`shared` was played with turns, `control` without; of all others only failures count."""
    acts = [shared, control, *others]
    found = hand_overs(shared.works, shared.cells)
    waits = dict(zip(names, waits_served(found, len(names)), strict=True))
    gaps_ms = [hand_over.gap_ms for hand_over in found]
    waited_ms = [hand_over.waited_ns / 1e6 for hand_over in found]
    return Report(
        device=device,
        simulated=simulated,
        judged_by=judged_by,
        cells=sum(act.sent for act in acts),
        cells_failed=sum(len(act.failures) for act in acts),
        overlaps=overlaps(shared.works),
        overlaps_without_turns=overlaps(control.works),
        waits=waits,
        waits_min=min(waits.values()),
        waits_told_by_scheduler=dict(shared.waits_told),
        hand_overs=len(found),
        handoff_ms_p50=round(median(gaps_ms), 3) if gaps_ms else None,
        handoff_ms_max=round(max(gaps_ms), 3) if gaps_ms else None,
        waited_ms_p50=round(median(waited_ms), 1) if waited_ms else None,
        seconds=round(seconds, 1),
        memory=memory,
        training=training,
        own=own,
    )


@dataclass(frozen=True)
class HubReport:
    """The report, and what only a hub can show."""

    report: Report
    owners: Mapping[str, str]
    """Whom the scheduler takes each notebook for."""
    users: Mapping[str, str]
    """Who logged in and opened it."""

    @property
    def owners_from_hub(self) -> bool:
        return self.owners == self.users

    def as_json(self) -> dict[str, object]:
        return {
            **self.report.as_json(),
            "users": len(set(self.owners.values())),
            "owners_from_hub": self.owners_from_hub,
        }

    def complaints(self) -> list[str]:
        found = self.report.complaints()
        if not self.owners_from_hub:
            told = ", ".join(f"{name} is {owner}'s" for name, owner in self.owners.items())
            found.append(f"The scheduler takes other users for the notebooks' owners: {told}.")
        return found
