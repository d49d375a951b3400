"""Where the demo's scenes are played: notebooks' kernels on one device, a scheduler and a view."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from jupyter_gpushare.client import SchedulerClient
from tests.demo.live import LiveView
from tests.demo.memory import ParkedBytes
from tests.demo.scenes import Act, Scene
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.machine import Machine
from tests.support.observed import ObservedKernels

NOTEBOOKS = ("alice.ipynb", "bob.ipynb")
LOOK_EVERY_S = 0.04
CELL_TIMEOUT_S = 120.0


class Stage:
    """Both forms of the demo set one up: the kernels may be a hub's or our own."""

    def __init__(
        self,
        machine: Machine,
        scheduler: SchedulerClient,
        kernels: Sequence[Kernel],
        view: LiveView,
    ) -> None:
        self.machine = machine
        self.scheduler = scheduler
        self.observed = ObservedKernels(machine, kernels)
        self._view = view
        view.headline("Both notebooks open the GPU.")
        self.observed.set_up()

    def play(self, scene: Scene) -> Act:
        """Send all cells to all kernels at once, and look on until they are done."""
        self.scheduler.change_settings(dict(scene.settings))
        if scene.moves_memory:
            follows = scene.settings["memory_mode"] == "swap"
            self.run_everywhere(gpu_cells.until_memory_follows(follows))
        self._view.headline(f"{scene.title}: {scene.cells} cells in each notebook, all at once.")
        self.observed.begin()
        parked = ParkedBytes()
        cells = [
            (number, self.observed.submit(number, scene.cell(number, turn)))
            for turn in range(scene.cells)
            for number in range(len(self.observed.kernels))
        ]
        deadline_s = time.monotonic() + CELL_TIMEOUT_S
        for number, cell in cells:
            kernel = self.observed.kernels[number]
            while not kernel.done(cell):
                status = self.scheduler.status()
                self._view.show(status)
                parked.look_at(status)
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{kernel.name} has not answered in {CELL_TIMEOUT_S} s")
                time.sleep(LOOK_EVERY_S)
            self.observed.collect(number, cell)
        self._view.show(self.scheduler.status())
        return Act(
            scene.title,
            list(self.observed.cells),
            self.observed.works(computing_only=scene.moves_memory),
            len(cells),
            [f"{reply.ename}: {reply.evalue}" for reply in self.observed.failed],
            waits_told=self._waits_told(),
            bytes_parked=self.observed.bytes_parked(parked.total),
        )

    def run_everywhere(self, code: str) -> None:
        """A cell that is no part of any act, in one notebook after the other."""
        for kernel in self.observed.kernels:
            kernel.run(code).ok()

    def _waits_told(self) -> dict[str, int]:
        """The scheduler's own count of waits until now, for comparison."""
        tenants = self.scheduler.status()["tenants"]
        return {t["name"]: t["counters"]["waits"] for t in tenants if t["name"] in NOTEBOOKS}

    def owners(self) -> dict[str, str]:
        """Whom the scheduler takes each notebook for."""
        tenants = self.scheduler.status()["tenants"]
        return {t["name"]: t["owner"] for t in tenants if t["name"] in NOTEBOOKS}


def new_view() -> LiveView:
    return LiveView(NOTEBOOKS, sys.stdout)


def print_device(machine: Machine) -> None:
    if machine.simulated:
        print("There is no NVIDIA GPU here: this is the SIMULATED GPU of hook/sim.")
    else:
        print(f"Device: {machine.device}")
