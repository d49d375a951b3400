"""PyTorch, a training loop that is told how long to train, and says how far it came and when.

Prints `ready`. For each line on its standard input, a number of seconds, it trains that long in one
cell, or until a line `stop`. It prints a report then: how many steps were done at which moments of
the machine's monotonic clock. GPUSHARE_BALLAST_MIB says how much memory it holds besides; at the
end of its standard input it says whether all of that is well."""

from __future__ import annotations

import queue
import sys
import threading
import time
from functools import partial

import torch

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import Cells, report

WIDTH, LAYERS, BATCH = 4096, 3, 512
MARK_EVERY_S = 0.02
WARM_UP_STEPS = 30


class Training:
    def __init__(self) -> None:
        self.stopped = threading.Event()
        torch.manual_seed(7)
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        self._model = torch.nn.Sequential(*layers).cuda()
        self._optimiser = torch.optim.AdamW(self._model.parameters(), lr=1e-5)
        self._batch = torch.randn(BATCH, WIDTH, device="cuda")

    def step(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        (self._model(self._batch) - self._batch).square().mean().backward()
        self._optimiser.step()
        torch.cuda.synchronize()

    def run(self, seconds: float) -> None:
        """Prints when how many steps were done, from the first to the last moment."""
        self.stopped.clear()
        marks = [(time.monotonic(), 0)]
        ends_s = marks[0][0] + seconds
        steps = 0
        over = False
        while not over:
            self.step()
            steps += 1
            now_s = time.monotonic()
            over = now_s >= ends_s or self.stopped.is_set()
            if over or now_s - marks[-1][0] >= MARK_EVERY_S:
                marks.append((now_s, steps))
        report(workload="training_loop", marks=marks)


def answer(training: Training, lines: queue.SimpleQueue[str]) -> None:
    """Train for as long as each line says, until there are no more."""
    runner = Cells()
    runner.run(lambda: [training.step() for _ in range(WARM_UP_STEPS)])
    print("ready", flush=True)
    while line := lines.get():
        runner.run(partial(training.run, float(line)))


def listen(training: Training, lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        if line == "stop\n":
            training.stopped.set()
        else:
            lines.put(line)
    lines.put("")


if __name__ == "__main__":
    training, lines = Training(), queue.SimpleQueue[str]()
    ballast = torch_ballast()
    threading.Thread(target=listen, args=(training, lines), daemon=True).start()
    answer(training, lines)
    report(workload="training_loop", ballast_intact=ballast.intact())
