"""PyTorch, four threads with a stream each; the digest covers every thread's matrix."""

from __future__ import annotations

import threading

import torch

from tests.gpu.workloads.report import digest, report, steps_from_argv


def work(index: int, steps: int, results: list[torch.Tensor | None]) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        generator = torch.Generator(device="cuda").manual_seed(index)
        matrix = torch.rand(512, 512, device="cuda", generator=generator)
        for _ in range(steps):
            matrix = torch.tanh(matrix @ matrix) * 0.5 + 0.1
        stream.synchronize()
    results[index] = matrix.cpu()


def run(steps: int) -> str:
    torch.cuda.init()
    results: list[torch.Tensor | None] = [None] * 4
    threads = [threading.Thread(target=work, args=(i, steps, results)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return digest(*(r.numpy() for r in results if r is not None))


if __name__ == "__main__":
    steps = steps_from_argv(3000)
    report(workload="torch_threads", steps=steps, digest=run(steps))
