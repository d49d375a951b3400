"""Users at their notebooks: each thinks, runs a cell, waits for it, and thinks again. Each holds
more than half of the device all the time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from tests.cluster.slurm import DEVICE_BYTES
from tests.demo.cluster.options import ClusterOptions
from tests.demo.cluster.stage import LOST, NodeStage
from tests.support import gpu_cells

SHARE_OF_DEVICE = 0.6
WORDS = int(DEVICE_BYTES * SHARE_OF_DEVICE) // 4096 * 1024
"""Of four bytes."""
CELL_S_MAX = 120.0
LOOK_EVERY_S = 0.05


class Person:
    """One user. `act` is called often, and never waits."""

    def __init__(self, stage: NodeStage, number: int, options: ClusterOptions) -> None:
        self._stage = stage
        self._number = number
        self._keeps = gpu_cells.keep_and_check(number + 1, WORDS)
        self._code = f"{self._keeps}{gpu_cells.spin(options.launch_ms, options.launches)}\n"
        self._thinking_s = options.thinking_s
        self._random = random.Random(f"{options.seed} {stage.users[number]}")
        self._cell: str | None = None
        self._at_s = 0.0
        """When the cell began, or when the next one is to begin."""
        self.to_come = options.cells

    @property
    def is_done(self) -> bool:
        return self._cell is None and not self.to_come

    def prepare(self) -> None:
        """From then on the notebook holds its memory."""
        self._stage.observed.kernels[self._number].run(self._keeps).ok()

    def act(self) -> None:
        now_s = time.monotonic()
        try:
            if self._cell is not None:
                self._look_at(self._cell, now_s)
            elif self.to_come and now_s >= self._at_s:
                self._cell = self._stage.observed.submit(self._number, self._code)
                self._at_s = now_s
                self.to_come -= 1
        except LOST:
            self._stage.lose(self._number)
            self._cell, self.to_come = None, 0

    def _look_at(self, cell: str, now_s: float) -> None:
        if self._stage.observed.kernels[self._number].done(cell):
            self._stage.observed.collect(self._number, cell)
            self._cell = None
            self._at_s = now_s + self._random.uniform(0.5, 1.5) * self._thinking_s
        elif now_s - self._at_s > CELL_S_MAX:
            raise TimeoutError


def at_work(people: Sequence[Person], look_on: Callable[[float], None]) -> None:
    """Until all cells have ended. `look_on` is told which part of the cells has begun."""
    cells = sum(person.to_come for person in people)
    while not all(person.is_done for person in people):
        for person in people:
            person.act()
        look_on(1 - sum(person.to_come for person in people) / cells)
        time.sleep(LOOK_EVERY_S)
