"""PyTorch with a DataLoader whose workers are forked after CUDA is in use."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset

from tests.gpu.workloads.report import digest, report, steps_from_argv


class Squares(Dataset[torch.Tensor]):
    """Item i is a vector that depends on i alone."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(256, dtype=torch.float32) * index


def run(steps: int) -> str:
    total = torch.zeros(256, device="cuda")  # CUDA is open before the workers fork
    loader = DataLoader(
        Squares(steps * 8), batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    for batch in loader:
        total += batch.cuda(non_blocking=True).sum(dim=0).sqrt()
    return digest(total.cpu().numpy())


if __name__ == "__main__":
    steps = steps_from_argv(400)
    report(workload="torch_dataloader", steps=steps, digest=run(steps))
