"""Frameworks on a real device: whatever the turns do, the results are those of an unshared run."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from tests.gpu.conftest import DEVICES
from tests.gpu.support import command, counters, rival, run
from tests.support.tenants import tenants

PER_THREAD = {
    "CUPY_CUDA_PER_THREAD_DEFAULT_STREAM": "1",
    "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM": "1",
}
CASES = [
    ("torch", "torch_eager", {}),
    ("torch", "torch_graphs", {}),
    ("torch", "torch_threads", {}),
    ("torch", "torch_dataloader", {}),
    ("torch", "torch_children", {}),
    ("cupy", "cupy_work", {}),
    ("cupy", "cupy_work", PER_THREAD),
    ("jax", "jax_work", {}),
    ("triton", "triton_work", {}),
    ("numba", "numba_work", {}),
    ("numba", "numba_work", PER_THREAD),
]
NAMES = [w + ("-per_thread" if extra else "") for _, w, extra in CASES]


@pytest.mark.promise(
    "gpu-3",
    "PyTorch (eager, CUDA graphs, per-thread streams, a forked DataLoader, children): results "
    "equal to an unshared run",
)
@pytest.mark.promise(
    "gpu-4",
    "CuPy, JAX, Triton and Numba, with per-thread streams too: results equal to an unshared run",
)
@pytest.mark.parametrize(("module", "workload", "extra"), CASES, ids=NAMES)
def test_results_equal_an_unshared_run(
    module: str, workload: str, extra: dict[str, str], tmp_path: Path
) -> None:
    """A workload that was recalled again and again computes what it computes alone."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    env = {**os.environ, **extra}
    alone = run(command(workload), env)
    with (
        tenants(tmp_path / "run", env, quantum_s=0.05) as scheduler,
        rival(scheduler, launch_ms=2),
    ):
        shared = run(command(workload), scheduler.env(workload, env))
        served = counters(scheduler, workload)
    assert shared["digest"] == alone["digest"]
    assert served["turns"] >= 2, "the workload never had to share"


@pytest.mark.promise("gpu-5", "NCCL with two processes of one tenant")
@pytest.mark.skipif(DEVICES < 2, reason="needs two GPUs")
def test_nccl_in_one_tenant(tmp_path: Path) -> None:
    """Two processes that reduce over NCCL belong to one tenant and get both devices or none."""
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
    ]
    argv = [*launcher, "-m", "tests.gpu.workloads.nccl_work"]
    env = dict(os.environ)
    alone = run(argv, env)
    with (
        tenants(tmp_path / "run", env, quantum_s=0.2) as scheduler,
        rival(scheduler, launch_ms=2),
    ):
        shared = run(argv, scheduler.env("nccl", env))
    assert shared["digest"] == alone["digest"]
