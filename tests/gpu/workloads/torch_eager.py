"""PyTorch, eager: a small network trained with AdamW; the digest covers all weights."""

from __future__ import annotations

import torch

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


def train(steps: int) -> str:
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)
    ).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(256, 512, device="cuda")
    for _ in range(steps):
        optimiser.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimiser.step()
    return digest(*(p.detach().cpu().numpy() for p in model.parameters()))


if __name__ == "__main__":
    steps = steps_from_argv(1500)
    ballast = torch_ballast()
    result = train(steps)
    report(workload="torch_eager", steps=steps, digest=result, ballast_intact=ballast.intact())
