"""From what happened in a simulation to the figures that are compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from jupyter_gpushare.core.ids import Seconds

from . import metrics
from .base.record import Kind, PartOfTime, Record
from .base.workload import Workload, placed, solo_ends
from .base.world import World
from .fluid import Demand, fluid


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """One policy on one workload. Shares are of all devices' time until the last cell ended."""

    policy: str
    jain: float
    lag_s_max: Seconds
    short_wait_s_p50: Seconds
    short_wait_s_p95: Seconds
    makespan_s: Seconds
    idle_while_eligible: float
    swap_share: float
    work_share: float
    cells: int
    cells_failed: int
    estimate_coverage: Mapping[str, float] | None = None
    """By reason. None of a policy that gives no estimates, or where nobody waited for a second."""
    estimate_starts: Mapping[str, int] | None = None
    """How many each of these stands for."""
    estimate_score: float | None = None
    estimate_unknown: float | None = None

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def summarised(
    policy: str,
    workload: Workload,
    record: Record,
    *,
    devices: int,
    world: World,
) -> PolicyFigures:
    """The figures of a record."""
    ends = [end_s for end_s in record.ends_s if not math.isnan(end_s)]
    makespan_s = max(ends, default=0.0)
    works = [cell.work_s for cell in workload.cells]
    waits = metrics.short_waits(record.ends_s, solo_ends(workload), works)
    spans = list(record.spans())
    device_s = devices * makespan_s or 1.0
    indices, lag_s = _fairness(workload, spans, devices, world)
    return PolicyFigures(
        policy=policy,
        jain=metrics.mean(indices),
        lag_s_max=lag_s,
        short_wait_s_p50=metrics.quantile(waits, 0.5),
        short_wait_s_p95=metrics.quantile(waits, 0.95),
        makespan_s=makespan_s,
        idle_while_eligible=metrics.idle_while_eligible_s(spans) / device_s,
        swap_share=metrics.time_of(spans, Kind.SWAP) / device_s,
        work_share=metrics.time_of(spans, Kind.WORK) / device_s,
        cells=len(workload.cells),
        cells_failed=record.failed,
        estimate_coverage=metrics.coverage(record.foretold),
        estimate_starts=metrics.known_starts(record.foretold),
        estimate_score=metrics.score(record.foretold),
        estimate_unknown=metrics.unknown(record.foretold),
    )


def _fairness(
    workload: Workload,
    spans: list[PartOfTime],
    devices: int,
    world: World,
) -> tuple[list[float], Seconds]:
    """Jain's indices and the largest lag, device by device. The reference has the cells on the
    devices on which they were sent; a policy that moves notebooks is measured against that."""
    owners = [notebook.owner for notebook in workload.notebooks]
    weights = world.weights(workload.notebooks)
    places = placed(workload.notebooks, devices)
    demands: defaultdict[int, list[Demand]] = defaultdict(list)
    for cell in workload.cells:
        demand = Demand(cell.at_s, owners[cell.notebook], cell.work_s)
        demands[places[cell.notebook]].append(demand)
    uses: defaultdict[int, list[metrics.OwnerUse]] = defaultdict(list)
    for span in spans:
        if span.kind is not Kind.WAIT:
            use = metrics.OwnerUse(owners[span.notebook], span.start_s, span.end_s, span.share)
            uses[places[span.notebook]].append(use)
    indices: list[float] = []
    lag_s = 0.0
    for device, sent in demands.items():
        reference = fluid(sent, weights)
        window = metrics.window_s(len({each.owner for each in sent}), world.longest_quantum_s)
        indices += metrics.jain(uses[device], reference, window=window)
        lag_s = max(lag_s, metrics.lag_s_max(uses[device], reference))
    return indices, lag_s
