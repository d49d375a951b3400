"""CuPy: element-wise and matrix work, also with the per-thread default stream
(CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1), with its pools of stream-ordered and of managed memory
(CUPY_WORK_POOL=async and managed), and with RMM's two: of the driver's stream-ordered memory
(CUPY_WORK_POOL=rmm-async), and one of RMM's own over plain memory (CUPY_WORK_POOL=rmm-pool)."""

from __future__ import annotations

import os

import cupy

from tests.gpu.workloads.ballast import cupy_ballast
from tests.gpu.workloads.report import digest, report, steps_from_argv


def use_pool(name: str) -> None:
    """Whose memory CuPy takes from now on. An empty name: its own pool's."""
    if name == "async":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    elif name == "managed":
        cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    elif name:
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator

        if name == "rmm-async":
            resource = rmm.mr.CudaAsyncMemoryResource()
        else:
            resource = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 64 << 20)
        rmm.mr.set_current_device_resource(resource)
        cupy.cuda.set_allocator(rmm_cupy_allocator)


def run(steps: int) -> str:
    matrix = cupy.random.RandomState(5).rand(512, 512, dtype=cupy.float32)
    for _ in range(steps):
        matrix = cupy.tanh(matrix @ matrix) * 0.5 + 0.1
    return digest(cupy.asnumpy(matrix))


if __name__ == "__main__":
    steps = steps_from_argv(5000)
    use_pool(os.environ.get("CUPY_WORK_POOL", ""))
    ballast = cupy_ballast()
    result = run(steps)
    report(workload="cupy_work", steps=steps, digest=result, ballast_intact=ballast.intact())
