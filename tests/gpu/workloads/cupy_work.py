"""CuPy: element-wise and matrix work, also with the per-thread default stream
(CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1), and with its pools of stream-ordered and of managed memory
(CUPY_WORK_POOL=async and managed)."""

from __future__ import annotations

import os

import cupy

from tests.gpu.workloads.ballast import cupy_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


def run(steps: int) -> str:
    matrix = cupy.random.RandomState(5).rand(512, 512, dtype=cupy.float32)
    for _ in range(steps):
        matrix = cupy.tanh(matrix @ matrix) * 0.5 + 0.1
    return digest(cupy.asnumpy(matrix))


if __name__ == "__main__":
    steps = steps_from_argv(5000)
    if os.environ.get("CUPY_WORK_POOL") == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    if os.environ.get("CUPY_WORK_POOL") == "managed":
        cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    ballast = cupy_ballast()
    result = run(steps)
    report(workload="cupy_work", steps=steps, digest=result, ballast_intact=ballast.intact())
