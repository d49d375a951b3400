"""NCCL: two processes of one tenant, one on each of two GPUs, reduce the same tensor over and over.

Run it by `torchrun --nproc-per-node 2`; the first process prints the digest."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


def run(steps: int) -> tuple[str, bool]:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    ballast = torch_ballast()
    tensor = torch.full((1 << 20,), float(rank + 1), device="cuda")
    for _ in range(steps):
        dist.all_reduce(tensor)
        tensor *= 0.5
    result = digest(tensor.cpu().numpy())
    intact = torch.full((1,), float(ballast.intact()), device="cuda")
    dist.all_reduce(intact, dist.ReduceOp.MIN)
    both_intact = bool(intact.item())
    dist.destroy_process_group()
    return result, both_intact


if __name__ == "__main__":
    steps = steps_from_argv(2000)
    result, intact = run(steps)
    if os.environ["RANK"] == "0":
        report(workload="nccl_work", steps=steps, digest=result, ballast_intact=intact)
