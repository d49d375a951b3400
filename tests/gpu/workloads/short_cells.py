"""A notebook that runs a short cell now and then: 0.2 s of matrix products, then a pause.

usage: short_cells CELLS PAUSE_S. Prints each cell's response time and the work's own time."""

from __future__ import annotations

import sys
import time

import torch

from tests.gpu.workloads.report import Cells, report

WORK_S = 0.2


def products_for(seconds: float, matrix: torch.Tensor) -> int:
    """How many products keep the device busy for that long, measured when it is ours alone."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(10):
        matrix @ matrix
    start.record()
    for _ in range(50):
        matrix @ matrix
    end.record()
    end.synchronize()
    return max(1, int(50 * seconds * 1e3 / start.elapsed_time(end)))


if __name__ == "__main__":
    cells, pause_s = int(sys.argv[1]), float(sys.argv[2])
    runner = Cells()
    matrix = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
    count = 0

    def calibrate() -> None:
        global count
        count = products_for(WORK_S, matrix)
        torch.cuda.synchronize()

    def work() -> None:
        for _ in range(count):
            matrix @ matrix
        torch.cuda.synchronize()

    runner.run(calibrate)
    alone_s = min(runner.run(work) for _ in range(3))
    print("ready", flush=True)
    sys.stdin.readline()
    responses_s = []
    for _ in range(cells):
        responses_s.append(runner.run(work))
        time.sleep(pause_s)
    report(workload="short_cells", alone_s=alone_s, responses_s=responses_s)
