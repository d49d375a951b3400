"""What a soak runs on: two small simulated devices, or the real ones, cut small by a setting."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.gpu.conftest import DEVICES as REAL_DEVICES
from tests.support.machine import Machine, real_device_name
from tests.support.sim import GIB, MIB, SimulatedMachine

DEVICES_MAX = 2
SIMULATED_BYTES = 448 * MIB
TENANTS_FEW = 3
LITTLE_BYTES = 3 * GIB
"""On a machine with less memory than this, or with one core, there are so few tenants, on devices
of half the size."""
SIMULATED_RESERVE = 24 * MIB
REAL_RESERVE = 256 * MIB
REAL_LATER_CALL_MS_MAX = 2000
"""A real driver lets a launch stand behind another thread's call that waits for the context's work.
Work that waits for such a launch would wait for ever, also without us."""
REAL_SCALE = 3
"""A tenant's eight blocks for each thread are no larger."""


@dataclass(frozen=True)
class Ground:
    machine: Machine
    ordinals: tuple[str, ...]
    scale: int
    """How many times as much memory as TENANTS says each tenant holds."""
    settings: Mapping[str, int]
    left_out: str = ""
    """What there is less of, and why."""

    def devices_of(self, wanted: str) -> str:
        """Those of the wanted ordinals that there are, or the first one."""
        there = [each for each in wanted.split(",") if each in self.ordinals]
        return ",".join(there or self.ordinals[:1])


def why_little(cores: int, memory_bytes: int) -> str:
    """Why a machine cannot have all tenants of a soak; empty: it can."""
    if cores < 2:
        return "this machine has one core"
    if memory_bytes < LITTLE_BYTES:
        return f"this machine has {memory_bytes / GIB:.1f} GiB of memory"
    return ""


def simulated(folder: Path) -> Ground:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    why = why_little(len(os.sched_getaffinity(0)), memory_bytes)
    sim = SimulatedMachine(
        folder / "machine",
        devices=DEVICES_MAX,
        bytes_per_device=SIMULATED_BYTES // (2 if why else 1),
        context_bytes=MIB,
    )
    machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
    left_out = f"Left out: all but {TENANTS_FEW} tenants, and half of each device: {why}."
    settings = {"device_reserve_bytes": SIMULATED_RESERVE}
    return Ground(machine, ("0", "1"), 1, settings, left_out if why else "")


def real(gib: float) -> Ground:
    """Devices of which the scheduler uses so much: a context of each process, of half a GiB, and
    what is left, in which the tenants' memory does not fit. CUDA_VISIBLE_DEVICES says which."""
    name = real_device_name()
    if name is None:
        raise SystemExit("No NVIDIA driver answers here. Run the soak without --real.")
    settings = {"device_reserve_bytes": REAL_RESERVE, "device_bytes_max": int(gib * GIB)}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    ordinals = tuple(visible.split(",") if visible else map(str, range(REAL_DEVICES)))[:DEVICES_MAX]
    env = {**os.environ, "SOAK_LATER_CALL_MS_MAX": str(REAL_LATER_CALL_MS_MAX)}
    return Ground(Machine(name, env, None), ordinals, REAL_SCALE, settings)
