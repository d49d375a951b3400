"""A notebook whose cells fill memory, or free it again.

usage: filling_cells. Prints `ready`, and for each line on its standard input a report. `fill MIB`
is a cell that fills so much besides what there is; the report says whether it got it. `free` is one
that frees all of it. At the end of its standard input it says whether what it has is well."""

from __future__ import annotations

import sys

import torch

from tests.gpu.workloads.ballast import PART_WORDS
from tests.gpu.workloads.report import Cells, report


class Notebook:
    def __init__(self) -> None:
        self._runner = Cells()
        self._held: list[torch.Tensor] = []
        self._runner.run(lambda: torch.zeros(1, device="cuda"))

    def fill(self, mib: int) -> bool:
        """Whether it got it."""
        got: list[torch.Tensor] = []

        def work() -> None:
            try:
                got.append(torch.arange(mib << 18, dtype=torch.int32, device="cuda"))
                torch.cuda.synchronize()
            except torch.OutOfMemoryError:
                got.clear()

        self._runner.run(work)
        self._held += got
        return bool(got)

    def free(self) -> bool:
        def work() -> None:
            self._held.clear()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

        self._runner.run(work)
        return True

    def intact(self) -> bool:
        """Whether each number that it holds is where it was."""
        return all(self._equal(held, first) for held in self._held for first in firsts(held))

    @staticmethod
    def _equal(held: torch.Tensor, first: int) -> bool:
        part = held[first : first + PART_WORDS]
        upwards = torch.arange(first, first + part.numel(), dtype=held.dtype, device=held.device)
        return torch.equal(part, upwards)


def firsts(held: torch.Tensor) -> range:
    return range(0, held.numel(), PART_WORDS)


if __name__ == "__main__":
    notebook = Notebook()
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["fill", mib]:
                report(got=notebook.fill(int(mib)))
            case ["free"]:
                report(got=notebook.free())
    report(intact=notebook.intact())
