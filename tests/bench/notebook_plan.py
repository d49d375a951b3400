"""Which notebooks bench_notebooks.py plays, and on how large a device."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import pynvml

from tests.support.paths import BUILD
from tests.support.sim import GIB, MIB

MEMORY_OF_DEVICE = 1.14
"""All notebooks' memory together."""
GRANULE_BYTES = 2 * MIB
BLOCK_BYTES_MIN = 64 * MIB
SIMULATED_BYTES = GIB
BUS_OF_THINKING = 0.14
"""Simulated, all memory of a notebook moves in this part of the mean thinking time, as 20 GiB do on
an H200 where people think for 3 s."""
END_S, END_NOTEBOOK_S = 4.0, 1.0
"""What the end of a run takes, and the last look at each notebook's memory."""
NOBODY_ELSE = 0.95
"""A device with so much of its memory free is ours alone."""


@dataclass(frozen=True)
class Plan:
    """`device_bytes` is what the scheduler takes the device for. `limit_bytes` is that, where the
    device has more; else 0."""

    tenants: int
    device_bytes: int
    limit_bytes: int
    blocks: int
    block_bytes: int
    work_s: float
    thinking_s: float
    warm_up_s: float
    seconds: float
    within_s: float
    seed: int

    @property
    def tenant_bytes(self) -> int:
        return self.blocks * self.block_bytes

    @property
    def all_bytes(self) -> int:
        return self.tenants * self.tenant_bytes

    def seconds_that_count(self, gone_s: float) -> float:
        """The time left for them, where so much has gone by since the start. They are fewer than
        asked for where the whole would take too long."""
        if not self.within_s:
            return self.seconds
        left_s = self.within_s - gone_s - END_S - END_NOTEBOOK_S * self.tenants
        return min(self.seconds, max(left_s, 0.0))

    @property
    def host_bytes(self) -> int:
        """Host memory that the run needs: for what does not fit, and for the copies of one notebook
        that comes and one that goes."""
        return max(0, self.all_bytes - self.device_bytes) + 2 * self.tenant_bytes


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_notebooks")
    add = parser.add_argument
    add("--seed", type=int, default=7001, help="of the thinking times")
    add("--tenants", type=int, default=8)
    add("--seconds", type=float, default=50.0, help="that count")
    add("--warm-up-s", type=float, default=8.0, help="before these")
    add("--work-s", type=float, default=0.18, help="what a cell computes takes an H200 so long")
    add("--thinking-s", type=float, default=3.0, help="the mean between two cells")
    add("--device-gib", type=float, default=0.0, help="0: all that is free")
    add("--blocks", type=int, default=20, help="allocations of each notebook, at most")
    add("--beside-s", type=float, default=1.5, help="each work beside a plain process; 0: none")
    add("--within-s", type=float, default=0.0, help="fewer seconds count where it takes longer")
    add("--limit-s", type=float, default=600.0, help="it ends after this time at the latest")
    add("--output", type=Path, default=BUILD / "bench", help="for the samples")
    return parser


def planned(options: argparse.Namespace, *, total_bytes: int, free_bytes: int) -> Plan:
    """Sizes that the device has room for, whatever was asked for."""
    there = total_bytes if free_bytes >= NOBODY_ELSE * total_bytes else free_bytes
    asked = int(options.device_gib * GIB) or there
    device_bytes = min(asked, there)
    wanted = int(device_bytes * MEMORY_OF_DEVICE / options.tenants)
    blocks = max(1, min(options.blocks, wanted // BLOCK_BYTES_MIN))
    return Plan(
        tenants=options.tenants,
        device_bytes=device_bytes,
        limit_bytes=device_bytes if device_bytes < total_bytes else 0,
        blocks=blocks,
        block_bytes=wanted // blocks // GRANULE_BYTES * GRANULE_BYTES,
        work_s=options.work_s,
        thinking_s=options.thinking_s,
        warm_up_s=options.warm_up_s,
        seconds=options.seconds,
        within_s=options.within_s,
        seed=options.seed,
    )


def simulated_device(options: argparse.Namespace) -> dict[str, int]:
    """How large and how fast it is; contexts take nothing of it."""
    device_bytes = int(options.device_gib * GIB) or SIMULATED_BYTES
    tenant_bytes = device_bytes * MEMORY_OF_DEVICE / options.tenants
    return {
        "bytes_per_device": device_bytes,
        "context_bytes": 0,
        "copy_bytes_per_s": int(tenant_bytes / (BUS_OF_THINKING * options.thinking_s)),
    }


def settings_of(plan: Plan, simulated: bool) -> list[str]:
    """Those that are not the defaults. A small device has the usual reserve in proportion."""
    settings = {}
    if plan.limit_bytes:
        settings["device_bytes_max"] = plan.limit_bytes
    if simulated:
        settings["device_reserve_bytes"] = plan.device_bytes // 50
    return [f"--GPUShareScheduler.{name}={value}" for name, value in settings.items()]


def device_memory() -> tuple[int, int]:
    """The real device's memory and what of it is free, as NVML has them."""
    pynvml.nvmlInit()
    memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    total, free = int(memory.total), int(memory.free)
    pynvml.nvmlShutdown()
    return total, free


def host_bytes_available() -> int:
    """As the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
