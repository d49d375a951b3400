"""Where the demo's scenes are played: notebooks' kernels on one device, a scheduler and a view."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpushare.client import SchedulerClient
from tests.demo.live import LiveView
from tests.demo.memory import ParkedBytes
from tests.demo.scenes import NAMES, NOTEBOOKS, TRAINING_NUMBER, Act, Scene
from tests.demo.training import training_cell
from tests.support import gpu_cells
from tests.support.kernels import Kernel
from tests.support.machine import Machine
from tests.support.observed import ObservedKernels

LOOK_EVERY_S = 0.04
CELL_TIMEOUT_S = 600.0


class Stage:
    """Both forms of the demo set one up: the kernels may be a hub's or our own. They are
    those of `NAMES`."""

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
        view.headline("The notebooks open the GPU.")
        self.observed.set_up()

    def play(self, scene: Scene) -> Act:
        """Send the cells, and look on until they are done."""
        self.scheduler.change_settings(dict(scene.settings))
        if scene.moves_memory:
            follows = scene.settings["memory_mode"] == "swap"
            self.run_everywhere(gpu_cells.until_memory_follows(follows))
        when = f"one every {scene.every_s:g} s" if scene.every_s else "all at once"
        where = "each notebook" if len(scene.notebooks) > 1 else NAMES[scene.notebooks[0]]
        self._view.headline(f"{scene.title}: {scene.cells} cells in {where}, {when}.")
        self.observed.begin()
        parked = ParkedBytes()
        with self._training(scene.beside_training):
            time.sleep(scene.lead_s)
            sent = self._send(scene, parked)
        self._view.show(self.scheduler.status())
        return Act(
            scene.title,
            [cell for cell in self.observed.cells if cell.kernel != TRAINING_NUMBER],
            self.observed.works(computing_only=scene.moves_memory),
            sent,
            [f"{reply.ename}: {reply.evalue}" for reply in self.observed.failed],
            waits_told=self._waits_told(),
            bytes_parked=self.observed.bytes_parked(parked.total),
        )

    def _send(self, scene: Scene, parked: ParkedBytes) -> int:
        """All cells of the scene; how many they are."""
        all_at_once: list[tuple[int, str]] = []
        began_s = time.monotonic()
        for count in range(scene.cells * len(scene.notebooks)):
            turn, place = divmod(count, len(scene.notebooks))
            number = scene.notebooks[place]
            time.sleep(max(0.0, began_s + count * scene.every_s - time.monotonic()))
            cell = self.observed.submit(number, scene.cell(number, turn))
            if scene.every_s:
                self._look_on(number, cell, parked)
            else:
                all_at_once.append((number, cell))
        for number, cell in all_at_once:
            self._look_on(number, cell, parked)
        return scene.cells * len(scene.notebooks)

    def _look_on(self, number: int, cell: str, parked: ParkedBytes) -> None:
        """Until the cell is done."""
        kernel = self.observed.kernels[number]
        deadline_s = time.monotonic() + CELL_TIMEOUT_S
        while not kernel.done(cell):
            status = self.scheduler.status()
            self._view.show(status)
            parked.look_at(status)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{kernel.name} has not answered in {CELL_TIMEOUT_S} s")
            time.sleep(LOOK_EVERY_S)
        self.observed.collect(number, cell)

    @contextmanager
    def _training(self, wanted: bool) -> Iterator[None]:
        """The third notebook trains, for as long as the block lasts."""
        if not wanted:
            yield
            return
        with tempfile.TemporaryDirectory(prefix="gpushare-demo-") as folder:
            stop = Path(folder) / "stop"
            cell = self.observed.submit(TRAINING_NUMBER, training_cell(stop))
            try:
                yield
            finally:
                stop.touch()
                self.observed.collect(TRAINING_NUMBER, cell, CELL_TIMEOUT_S)

    def run_everywhere(self, code: str) -> None:
        """A cell that is no part of any act, in one notebook after the other."""
        for kernel in self.observed.kernels[: len(NOTEBOOKS)]:
            kernel.run(code).ok()

    def _waits_told(self) -> dict[str, int]:
        """The scheduler's own count of waits until now, for comparison."""
        tenants = self.scheduler.status()["tenants"]
        return {t["name"]: t["counters"]["waits"] for t in tenants if t["name"] in NOTEBOOKS}

    def owners(self) -> dict[str, str]:
        """Whom the scheduler takes each notebook for."""
        tenants = self.scheduler.status()["tenants"]
        return {t["name"]: t["owner"] for t in tenants if t["name"] in NAMES}


def new_view() -> LiveView:
    return LiveView(NAMES, sys.stdout)


def print_device(machine: Machine) -> None:
    if machine.simulated:
        print("There is no NVIDIA GPU here: this is the SIMULATED GPU of hook/sim.")
    else:
        print(f"Device: {machine.device}")
