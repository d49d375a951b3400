"""A notebook that runs a short cell at fixed times: 0.2 s of matrix products.

usage: paced_cells EVERY_S. It calibrates itself, which wants the device alone, and prints `ready`.
For each line on its standard input, a number of cells, it runs so many and prints a report. A cell
that is late begins at once, and the next ones follow it at the same distance.
GPUSHARE_BALLAST_MIB says how much memory it holds besides; at the end of its standard input it says
whether all of that is well."""

from __future__ import annotations

import sys
import time

import torch

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import Cells, report
from tests.gpu.workloads.short_cells import WORK_S, products_for


class Notebook:
    def __init__(self) -> None:
        self._runner = Cells()
        self._matrix = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self._count = 0
        self._runner.run(self._calibrate)
        self.alone_s = min(self._runner.run(self._work) for _ in range(5))

    def _calibrate(self) -> None:
        self._count = products_for(WORK_S, self._matrix)
        torch.cuda.synchronize()

    def _work(self) -> None:
        for _ in range(self._count):
            self._matrix @ self._matrix
        torch.cuda.synchronize()

    def run(self, cells: int, every_s: float) -> list[float]:
        """Each cell's response, from its begin to its end."""
        responses_s = []
        due_s = time.monotonic()
        for _ in range(cells):
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s = max(due_s, time.monotonic()) + every_s
            responses_s.append(self._runner.run(self._work))
        return responses_s


if __name__ == "__main__":
    every_s = float(sys.argv[1])
    notebook = Notebook()
    ballast = torch_ballast()
    print("ready", flush=True)
    for line in sys.stdin:
        began_s = time.monotonic()
        responses_s = notebook.run(int(line), every_s)
        report(
            workload="paced_cells",
            alone_s=notebook.alone_s,
            responses_s=responses_s,
            began_s=began_s,
            ended_s=time.monotonic(),
        )
    report(workload="paced_cells", ballast_intact=ballast.intact())
