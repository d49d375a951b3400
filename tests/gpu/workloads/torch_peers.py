"""PyTorch on two devices: a tensor walks from one to the other and back, by copies between them and
by a kernel of one that reads the other's memory; the digest covers what came of it.

GPUSHARE_BALLAST_MIB says how much is held besides, on each device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tests.gpu.workloads.ballast import PART_WORDS, ballast_words
from tests.gpu.workloads.report import digest, report, steps_from_argv


def upwards(device: int) -> Iterator[torch.Tensor]:
    for first in range(0, ballast_words(), PART_WORDS):
        yield torch.arange(first, first + PART_WORDS, dtype=torch.int32, device=f"cuda:{device}")


def walk(steps: int) -> str:
    torch.manual_seed(7)
    here = torch.rand(1 << 20, device="cuda:0")
    there = torch.rand(1 << 20, device="cuda:1")
    for step in range(steps):
        there = there * 0.5 + here.to("cuda:1")
        here = here * 0.5 + there.to("cuda:0").flip(0)
        if step % 16 == 0:  # by a kernel that reads over the link, where the devices are peers
            here[::3] += torch.ops.aten.copy_(torch.empty_like(here[::3]), there[::3])
        here /= here.abs().max()
    return digest(here.cpu().numpy(), there.cpu().numpy())


if __name__ == "__main__":
    steps = steps_from_argv(4000)
    ballast = [list(upwards(device)) for device in (0, 1)]
    result = walk(steps)
    intact = all(
        torch.equal(held, fresh)
        for device in (0, 1)
        for held, fresh in zip(ballast[device], upwards(device), strict=True)
    )
    report(workload="torch_peers", steps=steps, digest=result, ballast_intact=intact)
