"""What another process's restore costs a cell that has the device: a compute-bound launch, and
copies on the device.

Plain driver processes without the hook stand in for both (mapping_costs.c): one brings 8 GiB back
again and again, in pieces as large as the hook's, and never makes way. The simulated device has
nothing to measure: its engines are apart, so a copy there slows a launch by no more than the
processors' time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.mapping_costs import Programs
from tests.support.machine import Machine
from tests.support.sim import GIB, MIB

STAND_IN = "a plain process"
NOTHING_COMES_BACK = "no memory comes back beside another tenant's cell"
PIECE_BYTES = 64 * MIB  # CHUNK_BYTES_MAX of hook/src/memory/chunks.h
DEVICE_BYTES = 10 * GIB
"""What the processes here hold on the device."""


@dataclass(frozen=True)
class Beside:
    """`by` says who brought memory back; empty: nobody did, and `why` says why."""

    by: str = ""
    why: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    """By their names in the report."""


def measure_beside(machine: Machine, seconds: float, free_bytes: int) -> Beside:
    """Each kind of work for so long alone, and so long beside a restore. Before any tenant is
    there: the processes have the device's memory outside of the scheduler's sight."""
    if machine.simulated:
        return Beside(why=f"{NOTHING_COMES_BACK}, and the simulated device's engines are apart")
    if seconds <= 0 or free_bytes < DEVICE_BYTES:
        return Beside(why=f"{NOTHING_COMES_BACK}, and no plain process was asked to")
    programs = Programs()
    alone: dict[str, list[int]] = {}
    beside: dict[str, list[int]] = {}
    for kind in ("compute", "copy"):
        alone |= programs.measured(kind, seconds)
        with programs.beside("restore", PIECE_BYTES, 1):
            beside |= programs.measured(kind, seconds)
    figures = {
        "interference_percent": slower_percent(beside["compute"], alone["compute"]),
        "interference_copy_on_device_percent": slower_percent(
            beside["copy_on_device"], alone["copy_on_device"]
        ),
    }
    return Beside(by=STAND_IN, figures=figures)


def slower_percent(beside: Sequence[float], alone: Sequence[float]) -> float:
    """By how much the mean is longer. The median would hide what happens to one launch of three."""
    return 100 * (statistics.mean(beside) / statistics.mean(alone) - 1)
