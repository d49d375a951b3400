"""The machine that a benchmark or the demo runs on: the real GPU where there is one, else a
simulated one. GPUSHARE_DRIVER=sim forces the simulated one."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.sim import SimulatedMachine


@dataclass(frozen=True)
class Machine:
    """`env` leads child processes to the device; `sim` is None on a real one."""

    device: str
    env: dict[str, str]
    sim: SimulatedMachine | None

    @property
    def simulated(self) -> bool:
        return self.sim is not None


def real_device_name() -> str | None:
    """The first device's name as the machine's NVML has it; None where there is no device."""
    if os.environ.get("GPUSHARE_DRIVER") == "sim":
        return None
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if not hasattr(nvml, "nvmlInit_v2") or nvml.nvmlInit_v2() != 0:
        return None
    device = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    found = nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    named = found and nvml.nvmlDeviceGetName(device, name, len(name)) == 0
    nvml.nvmlShutdown()
    return name.value.decode() if named else None


def choose_machine(directory: Path, **sim_config: Any) -> Machine:
    """The real device, or a fresh simulated machine below `directory`."""
    name = real_device_name()
    if name is not None:
        return Machine(device=name, env=dict(os.environ), sim=None)
    sim = SimulatedMachine(directory / "machine", **sim_config)
    return Machine(device="simulated GPU", env=sim.env(), sim=sim)
