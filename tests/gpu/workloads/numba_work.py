"""Numba: a launch of our own in a loop, also with the per-thread default stream
(NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM=1)."""

from __future__ import annotations

import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # NumPy 2.5 has dropped the name; Numba still asks for it

from numba import cuda

from tests.gpu.workloads.ballast import numba_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


@cuda.jit
def scale_and_add(x, y):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < x.size:
        x[i] = x[i] * numpy.float32(0.999) + y[i]


def run(steps: int) -> str:
    n = 1 << 18
    x = cuda.to_device(numpy.arange(n, dtype=numpy.float32) / n)
    y = cuda.to_device(numpy.full(n, 0.25, dtype=numpy.float32))
    for _ in range(steps):
        scale_and_add[(n + 255) // 256, 256](x, y)
    return digest(x.copy_to_host())


if __name__ == "__main__":
    steps = steps_from_argv(8000)
    ballast = numba_ballast()
    result = run(steps)
    report(workload="numba_work", steps=steps, digest=result, ballast_intact=ballast.intact())
