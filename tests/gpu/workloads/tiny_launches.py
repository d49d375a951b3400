"""PyTorch, a loop that is bound by its launches: each works on a few numbers only.

It runs on the one core that its argument names, and prints `ready`. For each line on its standard
input, a number of launches, it makes so many in one cell and prints a report."""

from __future__ import annotations

import os
import sys

import torch

from tests.gpu.workloads.report import Cells, report

WARM_UP_LAUNCHES = 20_000
LOOK_EVERY = 1_000
"""Launches between two looks at a result, as a loop that prints its loss has them."""


def loop(numbers: torch.Tensor, launches: int) -> None:
    for launch in range(launches):
        numbers.add_(1.0)
        if launch % LOOK_EVERY == 0:
            numbers[0].item()
    torch.cuda.synchronize()


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    runner = Cells()
    numbers = torch.zeros(1024, device="cuda")
    runner.run(lambda: loop(numbers, WARM_UP_LAUNCHES))
    print("ready", flush=True)
    for line in sys.stdin:
        launches = int(line)
        elapsed_s = runner.run(lambda launches=launches: loop(numbers, launches))
        report(workload="tiny_launches", launches=launches, elapsed_s=elapsed_s)
