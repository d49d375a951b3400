"""Runs a workload under a policy, node by node: nodes share nothing, and each has a scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from .base.errors import SimulationError
from .base.kernel import Kernel, Policy
from .base.loop import Loop
from .base.record import Foretold, Record
from .base.workload import Cell, Workload, placed
from .base.world import World
from .fit import check

MakePolicy = Callable[[range, Loop, World], Policy]
"""A policy for the devices of one node."""


def run(
    workload: Workload,
    make_policy: MakePolicy,
    *,
    devices: int,
    world: World,
    progress: Callable[[int], None] = lambda cells: None,
) -> Record:
    """What happens; `progress` hears how many more cells have ended."""
    check(workload, devices=devices, world=world)
    record = Record(len(workload.cells))
    places = placed(workload.notebooks, devices)
    cells_of: dict[int, list[int]] = {}
    for number, cell in enumerate(workload.cells):
        cells_of.setdefault(places[cell.notebook] // world.devices_per_node, []).append(number)
    for node, cells in sorted(cells_of.items()):
        first = node * world.devices_per_node
        on_node = range(first, min(devices, first + world.devices_per_node))
        _NodeRun(workload, on_node, places, make_policy, world, record, progress).run(cells)
    return record


class _NodeRun:
    """One node, from its first cell to its last."""

    def __init__(
        self,
        workload: Workload,
        devices: range,
        places: list[int],
        make_policy: MakePolicy,
        world: World,
        record: Record,
        progress: Callable[[int], None],
    ) -> None:
        self._workload = workload
        self._places = places
        self._record = record
        self._progress = progress
        self._loop = Loop()
        self._policy = make_policy(devices, self._loop, world)
        self._kernels: dict[int, Kernel] = {}
        self._left = 0

    def run(self, cells: list[int]) -> None:
        self._left = len(cells)
        self._open_notebooks(cells)
        self._arrivals = iter(cells)
        self._next_arrives()
        self._record.foretold += self._run_to_the_end()

    def _run_to_the_end(self) -> list[Foretold]:
        """What was told to those who waited; by baselines, nothing."""
        while self._left:
            if not self._loop.step():
                raise SimulationError(
                    f"{self._left} cells never end under this policy, which is a bug. Report the "
                    f"workload, the policy and the settings."
                )
        return getattr(self._policy, "foretold", [])

    def _open_notebooks(self, cells: list[int]) -> None:
        """In the order of their times; at the same time, before the cells."""
        counts = Counter(self._workload.cells[cell].notebook for cell in cells)
        for number in sorted(counts, key=lambda each: self._workload.notebooks[each].opens_s):
            notebook = self._workload.notebooks[number]
            kernel = Kernel(
                number,
                notebook,
                self._places[number],
                cells=counts[number],
                loop=self._loop,
                record=self._record,
                finished=self._finished,
            )
            kernel.policy = self._policy
            self._kernels[number] = kernel
            self._loop.at(notebook.opens_s, partial(self._policy.opened, kernel))
            if notebook.closes_s is not None:
                self._loop.at(notebook.closes_s, kernel.close)

    def _next_arrives(self) -> None:
        number = next(self._arrivals, None)
        if number is not None:
            cell = self._workload.cells[number]
            self._loop.at(cell.at_s, lambda: self._arrives(number, cell))

    def _arrives(self, number: int, cell: Cell) -> None:
        self._kernels[cell.notebook].send(number, cell)
        self._next_arrives()

    def _finished(self) -> None:
        self._left -= 1
        self._progress(1)
