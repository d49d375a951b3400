"""What bench_notebooks.py reports, and what its figures are held to. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.bars import Bar, exit_status
from tests.bench.beside import Beside, slower_percent
from tests.bench.moves import (
    History,
    ahead_share,
    blind_bytes,
    least_bytes,
    moved_ratio,
    waited_parked,
)
from tests.bench.notebook_people import Ran, ideal_latencies_s
from tests.bench.notebook_plan import Plan
from tests.support.sim import GIB
from tests.support.timeline import percentile

P50_RATIO_BAR, P95_RATIO_BAR = 1.3, 1.5
MOVED_RATIO_BAR = 1.3
INTERFERENCE_BAR, INTERFERENCE_COPY_BAR = 3.0, 10.0
ALLOC_MS_BAR = 2.0
RESTORE_AHEAD = "a restore ahead"
BESIDE_CELLS_MIN = 5
"""Fewer cells beside a restore ahead tell nothing."""


@dataclass
class Samples:
    """All that was measured. `pids` are the notebooks' processes."""

    pids: list[int] = field(default_factory=list)
    alone: list[Ran] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    intact: bool = False
    from_s: float = 0.0
    to_s: float = 0.0


@dataclass(frozen=True)
class Result:
    """The last line."""

    device: str
    tenants: int
    device_bytes: int
    tenant_bytes: int
    cells: int
    checksums_ok: bool
    work_s: float
    latency_s_p50: float
    latency_s_p95: float
    ideal_s_p50: float
    ideal_s_p95: float
    ahead_share: float | None
    hand_overs_parked: int
    """Of these, `ahead_share` is a part."""
    bytes_moved: int
    bytes_least: int
    bytes_blind: int
    """What would have come back without knowledge of the turns to come."""
    bytes_moved_ratio: float | None
    """To the least."""
    bytes_moved_blind_ratio: float | None
    work_slower_percent: float
    """The cells' own work in the run, than alone."""
    interference_percent: float | None = None
    interference_copy_percent: float | None = None
    interference_copy_on_device_percent: float | None = None
    alloc_ms_p95_beside: float | None = None
    beside: dict[str, str] = field(default_factory=dict)
    """Beside whose restore each of the last four was measured."""
    unmeasured: dict[str, str] = field(default_factory=dict)
    """Why a figure is null."""


def result_of(
    device: str,
    plan: Plan,
    samples: Samples,
    history: History,
    beside: Beside,
    *,
    beside_ahead: Mapping[str, float],
    simulated: bool,
) -> Result:
    """The figures of what was measured. `beside_ahead`: those of a cell beside a restore ahead."""
    work_s = statistics.median(cell.work_s for cell in samples.alone)
    took_s = [cell.latency_s for cell in samples.ran]
    ideal_s = ideal_latencies_s(samples.ran, work_s)
    span = (samples.from_s, samples.to_s)
    waited = waited_parked(history.turns, *span)
    moved = history.moved_bytes(*span)
    least, blind = least_and_blind(history, *span)
    whole = [
        cell.work_s
        for cell in samples.ran
        if not history.was_paused(samples.pids[cell.notebook], cell.through_s, cell.done_s)
    ]
    in_run_s = statistics.median(whole) if whole else work_s
    found = dict.fromkeys(beside.figures, beside.by)
    ahead = None if simulated else interference_of_ahead(samples, history)
    figures = {**beside.figures, **beside_ahead}
    found |= dict.fromkeys(beside_ahead, RESTORE_AHEAD)
    if ahead is not None:
        figures["interference_percent"] = ahead
        found["interference_percent"] = RESTORE_AHEAD
    result = Result(
        device=device,
        tenants=plan.tenants,
        device_bytes=plan.device_bytes,
        tenant_bytes=plan.tenant_bytes,
        cells=len(samples.ran),
        checksums_ok=samples.intact,
        work_s=round(work_s, 4),
        latency_s_p50=round(percentile(took_s, 50), 4),
        latency_s_p95=round(percentile(took_s, 95), 4),
        ideal_s_p50=round(percentile(ideal_s, 50), 4),
        ideal_s_p95=round(percentile(ideal_s, 95), 4),
        ahead_share=rounded(ahead_share(waited)),
        hand_overs_parked=len(waited),
        bytes_moved=moved,
        bytes_least=least,
        bytes_blind=blind,
        bytes_moved_ratio=rounded(moved_ratio(moved, least)),
        bytes_moved_blind_ratio=rounded(moved_ratio(moved, blind)),
        work_slower_percent=round(100 * (in_run_s / work_s - 1), 2),
        beside=found,
        **{name: round(value, 4) for name, value in figures.items()},
    )
    result.unmeasured.update(unmeasured(result, beside.why))
    return result


def least_and_blind(history: History, from_s: float, to_s: float) -> tuple[int, int]:
    """The fewest bytes that could have come back for the turns of this time, and what would have
    come back without knowledge of the turns to come."""
    parked = history.parked_at(from_s)
    resident = {who: size - parked[who] for who, size in history.allocated.items()}
    room = history.most_usable_bytes(from_s, to_s)
    played = (history.allocated, resident, room, history.uses(from_s, to_s))
    return least_bytes(*played), blind_bytes(*played)


def interference_of_ahead(samples: Samples, history: History) -> float | None:
    """How much longer cells that were not paused computed while other notebooks' memory came back
    than alone; None where that was the case for too few."""
    beside_s = [
        cell.computing_s
        for cell in samples.ran
        if history.came_beside(samples.pids[cell.notebook], cell.computes_s, cell.done_s)
        and not history.was_paused(samples.pids[cell.notebook], cell.computes_s, cell.done_s)
    ]
    if len(beside_s) < BESIDE_CELLS_MIN:
        return None
    return slower_percent(beside_s, [cell.computing_s for cell in samples.alone])


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def unmeasured(result: Result, why_not_beside: str) -> dict[str, str]:
    """Why a figure is null."""
    whys = {
        "ahead_share": "no notebook queued with parked memory",
        "bytes_moved_ratio": "memory moved although none had to",
        "bytes_moved_blind_ratio": "memory moved although none had to",
        "interference_percent": why_not_beside,
        "interference_copy_percent": why_not_beside,
        "interference_copy_on_device_percent": why_not_beside,
        "alloc_ms_p95_beside": why_not_beside,
    }
    return {name: why for name, why in whys.items() if getattr(result, name) is None}


# ---- bars ---------------------------------------------------------------------------------------


def bars_of(result: Result, simulated: bool) -> list[Bar]:
    """What the figures are held to. Of the simulated device, whose bus and processors are chosen,
    the bytes alone say something."""
    intact = Bar("checksums that are right", float(result.checksums_ok), at_least=1)
    if simulated:
        return [intact]
    return [intact, *wait_bars_of(result), *beside_bars_of(result, [RESTORE_AHEAD])]


def wait_bars_of(result: Result) -> list[Bar]:
    p50 = result.latency_s_p50 / result.ideal_s_p50
    p95 = result.latency_s_p95 / result.ideal_s_p95
    moved = math.inf if result.bytes_moved_ratio is None else result.bytes_moved_ratio
    return [
        Bar("latency / ideal, p50", p50, at_most=P50_RATIO_BAR, unit="times"),
        Bar("latency / ideal, p95", p95, at_most=P95_RATIO_BAR, unit="times"),
        Bar("bytes moved / least", moved, at_most=MOVED_RATIO_BAR, unit="times"),
    ]


def beside_bars_of(result: Result, whose: Sequence[str]) -> list[Bar]:
    """Those of cells beside a restore of one of these."""
    bars = {
        "interference_percent": ("computing beside a restore", INTERFERENCE_BAR, "% longer"),
        "interference_copy_percent": ("copies in beside it", INTERFERENCE_COPY_BAR, "% longer"),
        "alloc_ms_p95_beside": ("an allocation beside it, p95", ALLOC_MS_BAR, "ms"),
    }
    return [
        Bar(text, getattr(result, name), at_most=bar, unit=unit)
        for name, (text, bar, unit) in bars.items()
        if result.beside.get(name) in whose
    ]


# ---- tables -------------------------------------------------------------------------------------


def table(result: Result) -> list[str]:
    """The figures that have no bar, or none here."""
    size, device = result.tenant_bytes / GIB, result.device_bytes / GIB
    share = "null" if result.ahead_share is None else f"{result.ahead_share:.3f}"
    came, least = result.bytes_moved / GIB, result.bytes_least / GIB
    blind = result.bytes_blind / GIB
    lines = [
        f"{result.device}: {result.tenants} notebooks of {size:.2f} GiB on {device:.2f} GiB, "
        f"{result.cells} cells of {result.work_s:.3f} s",
        f"  {'':<24}{'p50':>9}{'p95':>9}",
        f"  {'latency, s':<24}{result.latency_s_p50:>9.3f}{result.latency_s_p95:>9.3f}",
        f"  {'ideal, s':<24}{result.ideal_s_p50:>9.3f}{result.ideal_s_p95:>9.3f}",
        f"  {result.hand_overs_parked} hand-overs with parked memory; ahead_share {share}",
        f"  {came:.2f} GiB came back; the least is {least:.2f} GiB, without knowledge of the turns "
        f"to come {blind:.2f} GiB",
        f"  the cells' own work took {result.work_slower_percent:.1f} % longer than alone",
    ]
    return lines + [f"  {name} is null: {why}" for name, why in result.unmeasured.items()]


def without_verdict(bars: Sequence[Bar], why: str) -> list[str]:
    """Figures whose bars do not count."""
    lines = [
        f"  {bar.name:<42}{bar.value:>9.3f} {bar.unit:<12} (at most {bar.at_most:g})"
        for bar in bars
    ]
    return [f"These bars do not count {why}:", *lines] if lines else []


def tell(result: Result, simulated: bool) -> int:
    """Prints the tables; the status."""
    lines = ["", *table(result)]
    if simulated:
        lines += without_verdict(wait_bars_of(result), "on the simulated GPU")
    else:
        others = set(result.beside.values()) - {RESTORE_AHEAD}
        for whose in sorted(others):
            lines += without_verdict(beside_bars_of(result, [whose]), f"beside {whose}")
    print("\n".join([*lines, "These bars count:"]))
    return exit_status(bars_of(result, simulated))
