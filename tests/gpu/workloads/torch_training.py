"""PyTorch, a training loop with some 4 GiB of weights and optimiser state, timed step by step.

usage: torch_training STEPS. The report has the digest of all weights and each step's seconds."""

from __future__ import annotations

import time

import torch

from tests.gpu.workloads.report import digest, report, steps_from_argv

WIDTH, LAYERS, BATCH = 8192, 3, 512
WARM_UP_STEPS = 20


def train(steps: int) -> tuple[str, list[float]]:
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = torch.randn(BATCH, WIDTH, device="cuda")
    step_s = []
    for _ in range(steps):
        began_s = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        (model(batch) - batch).square().mean().backward()
        optimiser.step()
        torch.cuda.synchronize()
        step_s.append(time.perf_counter() - began_s)
    weights = (p.detach().cpu().numpy() for p in model.parameters())
    return digest(*weights), step_s[WARM_UP_STEPS:]


if __name__ == "__main__":
    steps = steps_from_argv(800)
    result, step_s = train(steps)
    report(workload="torch_training", steps=steps, digest=result, step_s=step_s)
