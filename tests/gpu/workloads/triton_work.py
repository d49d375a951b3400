"""Triton: a launch of our own in a loop."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


@triton.jit
def scale_and_add(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) * 0.999 + tl.load(y + offsets, mask=mask)
    tl.store(x + offsets, value, mask=mask)


def run(steps: int) -> str:
    n = 1 << 20
    x = torch.arange(n, device="cuda", dtype=torch.float32) / n
    y = torch.ones(n, device="cuda") * 0.25
    for _ in range(steps):
        scale_and_add[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    return digest(x.cpu().numpy())


if __name__ == "__main__":
    steps = steps_from_argv(100000)
    ballast = torch_ballast()
    result = run(steps)
    report(workload="triton_work", steps=steps, digest=result, ballast_intact=ballast.intact())
