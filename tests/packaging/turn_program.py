"""Runs in an environment that has the installed package: one kernel, one cell, one turn.

Prints, as JSON, where package and library came from and how many turns the kernel was given.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jupyter_gpushare
from tests.support import gpu_cells
from tests.support.kernels import Kernel, kernel_env
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import SimulatedMachine

NAME = "installed.ipynb"
MAPPED_LIBRARY = (
    "print(next(line.split()[-1] for line in open('/proc/self/maps') if 'libgpushare' in line))"
)


def main() -> None:
    machine = SimulatedMachine(Path(sys.argv[1]))
    del os.environ["PYTHONPATH"]  # it was for this program; the kernel finds what is installed
    env = {**machine.env(), "CUDA_VISIBLE_DEVICES": "0"}
    env.pop("PYTHONPATH", None)
    with running_scheduler(Path(sys.argv[1]) / "run", env=env) as scheduler:
        kernel_environment = kernel_env(env, scheduler.directory)
        del kernel_environment["GPUSHARE_LIBRARY"]  # the packaged one is meant
        with Kernel(kernel_environment, name=NAME) as kernel:
            kernel.run(gpu_cells.setup()).ok()
            kernel.run(gpu_cells.fill_and_check(7)).ok()
            library = kernel.run(MAPPED_LIBRARY).ok().text.strip()
            tenants = scheduler.status()["tenants"]
    (tenant,) = (t for t in tenants if t["name"] == NAME)
    told = {
        "package": jupyter_gpushare.__file__,
        "library": library,
        "turns": tenant["counters"]["turns"],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
