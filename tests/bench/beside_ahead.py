"""What a restore ahead costs the copies and the allocations of the cell that has the device.

Two notebooks take turns, of which one alone fits beside a third, small one. While a cell of the
small one copies to the device, or allocates, the one whose memory is parked queues. Its memory
comes back meanwhile, as far as the small one leaves it the bus. Hook and scheduler are those of
production."""

from __future__ import annotations

import statistics
from pathlib import Path

from tests.bench.beside import slower_percent
from tests.support.machine import Machine
from tests.support.memory_tenants import (
    MemoryTenant,
    MemoryTenants,
    built_tenant,
    swapping_scheduler,
)
from tests.support.paths import ROOT
from tests.support.sim import GIB

TENANT_BYTES = 8 * GIB
LIMIT_BYTES = 13 * GIB
"""Of the device, with its reserve and three contexts."""
BLOCKS = 8
CELL_S = 0.25
ROUNDS = 6
READY_S = 60.0


def measure_beside_ahead(
    machine: Machine,
    folder: Path,
    *,
    tenant_bytes: int = TENANT_BYTES,
    limit_bytes: int = LIMIT_BYTES,
    rounds: int = ROUNDS,
) -> dict[str, float]:
    """By how much the mean copy takes longer, and what allocations take (of each cell the 95th
    percentile, of these the median)."""
    limit = f"--GPUShareScheduler.device_bytes_max={limit_bytes}"
    program = built_tenant(source=ROOT / "tests" / "bench" / "notebook.c")
    alone: dict[str, list[int]] = {"copies": [], "allocs": []}
    beside: dict[str, list[int]] = {"copies": [], "allocs": []}
    with (
        swapping_scheduler(folder / "beside", machine.env, limit) as scheduler,
        MemoryTenants(scheduler, machine.env, folder, program=program) as tenants,
    ):
        small, *others = (tenants.start(name, opened="") for name in ("small", "left", "right"))
        for each in (small, *others):
            each.ok("open", within_s=READY_S)
        for each in others:
            each.ok(f"hold {BLOCKS} {tenant_bytes // BLOCKS}", within_s=READY_S)
        for number in range(-2, 2 * rounds):  # the first parks make the host's memory ready
            kind = "copies" if number % 2 else "allocs"
            took_alone, took_beside = _cell(small, kind), _cell(small, kind, others[number % 2])
            if number >= 0:
                alone[kind].append(took_alone)
                beside[kind].append(took_beside)
    return {
        "interference_copy_percent": slower_percent(beside["copies"], alone["copies"]),
        "alloc_ms_p95_beside": statistics.median(beside["allocs"]) / 1e6,
    }


def _cell(small: MemoryTenant, kind: str, comes: MemoryTenant | None = None) -> int:
    """Nanoseconds that a copy takes, or an allocation. `comes` queues meanwhile, and has its turn
    afterwards."""
    command = f"{kind} {int(CELL_S * 1e9)}"
    small.say(command)
    (result,) = small.heard("begun", within_s=READY_S)
    assert not result, (result, small.process.errors())
    if comes is not None:
        comes.say("cell 0")
    result, mean_ns, p95_ns = small.heard(command)
    assert not result, (result, small.process.errors())
    if comes is not None:
        result, *_, wrong = comes.heard("cell", within_s=READY_S)
        assert not result and not wrong, (result, wrong, comes.process.errors())
    return mean_ns if kind == "copies" else p95_ns
