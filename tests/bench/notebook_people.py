"""People at notebooks whose memory does not fit on the device at once: each thinks, runs a cell,
waits for it, and thinks again. The cells are those of notebook.c, each process a tenant under the
hook."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

from jupyter_gpushare.core.settings import SchedulerSettings
from jupyter_gpushare.simulator.base.hardware import Hardware
from jupyter_gpushare.simulator.base.workload import Cell, Notebook, Workload
from jupyter_gpushare.simulator.base.world import World
from jupyter_gpushare.simulator.policies import POLICIES
from jupyter_gpushare.simulator.run import run
from tests.support.memory_tenants import MemoryTenant

CELL_S_MAX = 600.0
OURS = "ours"


class CellFailed(RuntimeError):
    """A cell ended with an error, or found memory that was not what it had been."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One cell, by its process's clock (the machine's monotonic one), in seconds."""

    notebook: int
    began_s: float
    through_s: float
    """When its first launch was let through: its memory is there from then on."""
    computes_s: float
    """When it had touched all its memory, and began to compute."""
    done_s: float

    @property
    def latency_s(self) -> float:
        return self.done_s - self.began_s

    @property
    def work_s(self) -> float:
        return self.done_s - self.through_s

    @property
    def computing_s(self) -> float:
        return self.done_s - self.computes_s


class Person:
    """Of one notebook, with thinking times of its own from the seed."""

    def __init__(self, number: int, tenant: MemoryTenant, *, seed: int, thinking_s: float) -> None:
        self.number = number
        self.tenant = tenant
        self._random = random.Random(f"{seed} {number}")
        self._thinking_s = thinking_s

    def thinks_s(self) -> float:
        return self._random.expovariate(1 / self._thinking_s)

    def run_cell(self, work_s: float) -> Ran:
        """It raises CellFailed for an error and for a wrong byte."""
        command = f"cell {int(work_s * 1e9)}"
        result, *times_ns, wrong = self.tenant.ask(command, within_s=CELL_S_MAX)
        if result or wrong:
            raise CellFailed(
                f"notebook {self.number}: the driver answers {result}, and {wrong} parts of its "
                f"memory are wrong. {self.tenant.process.errors()}"
            )
        return Ran(self.number, *(at_ns / 1e9 for at_ns in times_ns))


def at_work(people: Sequence[Person], seconds: float, work_s: float) -> list[Ran]:
    """Everybody thinks and runs cells; no cell begins after that time. Returns when all have ended,
    with all cells in the order in which they began; the first that fails ends it at once."""
    until_s = time.monotonic() + seconds
    is_over = threading.Event()

    def live(person: Person) -> list[Ran]:
        ran = []
        while True:
            thinks_s = person.thinks_s()
            if time.monotonic() + thinks_s >= until_s or is_over.wait(thinks_s):
                return ran
            ran.append(person.run_cell(work_s))

    pool = ThreadPoolExecutor(len(people))
    try:
        lives = [pool.submit(live, person) for person in people]
        wait(lives, return_when=FIRST_EXCEPTION)
        failed = [each for each in lives if each.done() and each.exception()]
        cells = [cell for each in failed or lives for cell in each.result()]
    finally:
        is_over.set()
        pool.shutdown(wait=False)  # those who wait for a cell end with its process
    return sorted(cells, key=lambda cell: cell.began_s)


def ideal_latencies_s(ran: Sequence[Ran], work_s: float) -> list[float]:
    """What these cells would have taken if moving memory took no time: in virtual time, through the
    scheduler's own core and the simulated hooks, on a device on which everything fits. Each cell
    comes when it really came, and works for `work_s`. A hand-over takes no time either."""
    first_s = min((cell.began_s for cell in ran), default=0.0)
    numbers = sorted({cell.notebook for cell in ran})
    cells = [Cell(numbers.index(c.notebook), c.began_s - first_s, work_s) for c in ran]
    notebooks = [Notebook(name=f"notebook {number}", owner="student") for number in numbers]
    workload = Workload(title="ideal", notebooks=notebooks, cells=cells)
    world = World(settings=SchedulerSettings(), hardware=Hardware(hand_over_s=0.0))
    record = run(workload, POLICIES[OURS], devices=1, world=world)
    return [end_s - cell.at_s for end_s, cell in zip(record.ends_s, cells, strict=True)]
