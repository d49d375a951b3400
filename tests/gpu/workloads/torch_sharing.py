"""PyTorch tensors given to a child process (torch.multiprocessing) and back: one tenant. Each side
sums up what the other has written; the digest covers all sums, and the tensors at last."""

from __future__ import annotations

from typing import Any

import torch
import torch.multiprocessing as processes

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv

SIZES = (7, 1000, 300_000, 3 << 20, 24 << 20)
"""Words: some of these share an allocation of the framework's, the last has several chunks."""


def answer(tasks: Any, answers: Any) -> None:
    """The child: sums, changes what it was given in place, and gives something of its own."""
    torch.cuda.init()
    while (tensor := tasks.get()) is not None:
        total = int(tensor.sum())
        tensor.add_(1)
        own = tensor * 2
        torch.cuda.synchronize()
        answers.put((total, own))
        del tensor, own


def exchange(tensors: list[torch.Tensor], rounds: int) -> tuple[list[int], bool]:
    """What was summed up on both sides, and whether that is what it should be."""
    context = processes.get_context("spawn")
    tasks, answers = context.Queue(), context.Queue()
    child = context.Process(target=answer, args=(tasks, answers))
    child.start()
    sums, right = [], True
    for step in range(rounds):
        for tensor in tensors:
            expected = int(tensor.sum())
            torch.cuda.synchronize()
            tasks.put(tensor)
            total, doubled = answers.get(timeout=120)
            changed = expected + tensor.numel()
            sums += [total, int(tensor.sum()), int(doubled.sum())]
            right = right and sums[-3:] == [expected, changed, 2 * changed]
            if step % 2 == 0:
                tensor.mul_(3).remainder_(1000)
            del doubled
    tasks.put(None)
    child.join(timeout=120)
    return sums, right and child.exitcode == 0


if __name__ == "__main__":
    rounds = steps_from_argv(120)
    ballast = torch_ballast()
    tensors = [torch.arange(size, dtype=torch.int32, device="cuda") % 1000 for size in SIZES]
    sums, right = exchange(tensors, rounds)
    contents = [tensor.cpu().numpy() for tensor in tensors]
    report(
        workload="torch_sharing",
        steps=rounds,
        digest=digest(torch.tensor(sums).numpy(), *contents),
        sums_right=right,
        ballast_intact=ballast.intact(),
    )
