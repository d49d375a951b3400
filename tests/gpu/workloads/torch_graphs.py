"""PyTorch, CUDA graphs: a captured training step replayed; the digest covers all weights."""

from __future__ import annotations

import torch

from tests.gpu.workloads.ballast import torch_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


def train(steps: int) -> str:
    torch.manual_seed(7)
    model = torch.nn.Linear(1024, 1024).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    batch = torch.randn(128, 1024, device="cuda")

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        (model(batch) - batch).square().mean().backward()
        optimiser.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(steps):
        graph.replay()
    return digest(*(p.detach().cpu().numpy() for p in model.parameters()))


if __name__ == "__main__":
    steps = steps_from_argv(5000)
    ballast = torch_ballast()
    result = train(steps)
    report(workload="torch_graphs", steps=steps, digest=result, ballast_intact=ballast.intact())
