"""Nine ordinary programs at once on a device that has room for half of what they hold."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support import command, counters, run
from tests.support.tenants import tenants

DEVICE_BYTES = 24 << 30
RESERVE_BYTES = 2 << 30
"""For contexts and modules, which grow while a framework works."""
HELD_MIB = 5 << 10
QUANTUM_S = 1.0
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
STEPS = 3000

PROGRAMS: dict[str, tuple[str, str, dict[str, str]]] = {
    "torch": ("torch", "torch_eager", {}),
    "torch-expandable": ("torch", "torch_eager", EXPANDABLE),
    "torch-async": ("torch", "torch_eager", ASYNC),
    "graphs": ("torch", "torch_graphs", {}),
    "graphs-async": ("torch", "torch_graphs", ASYNC),
    "cupy": ("cupy", "cupy_work", {}),
    "cupy-async": ("cupy", "cupy_work", {"CUPY_WORK_POOL": "async"}),
    "jax": ("jax", "jax_work", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    "numba": ("numba", "numba_work", {}),
}
"""By name: the module that it needs, the workload, and its settings."""


def all_at_once(environment: Callable[[str], dict[str, str]]) -> dict[str, dict[str, Any]]:
    """The reports of all programs, each in its environment."""
    with ThreadPoolExecutor(len(PROGRAMS)) as pool:
        started = {
            name: pool.submit(run, command(workload, STEPS), environment(name))
            for name, (_, workload, _) in PROGRAMS.items()
        }
        return {name: program.result() for name, program in started.items()}


@pytest.mark.promise(
    "gpu-7",
    "Nine programs with all kinds of memory, which together hold twice what the device has, all "
    "end, with the results that they have without each other",
)
def test_nine_programs_at_once(tmp_path: Path) -> None:
    """PyTorch with each of its allocators and with graphs (whose captures allocate, too), CuPy
    with both pools, JAX and Numba: digests and every byte are as on a device with room for all."""
    missing = {m for m, _, _ in PROGRAMS.values() if importlib.util.find_spec(m) is None}
    if missing:
        pytest.skip(f"{sorted(missing)} not installed")
    held = {**os.environ, "GPUSHARE_BALLAST_MIB": str(HELD_MIB)}
    alone = all_at_once(lambda name: {**os.environ, **PROGRAMS[name][2]})
    settings = {
        "memory_mode": "swap",
        "device_bytes_max": DEVICE_BYTES,
        "device_reserve_bytes": RESERVE_BYTES,
    }
    with tenants(tmp_path / "run", held, quantum_s=QUANTUM_S, settings=settings) as scheduler:
        shared = all_at_once(lambda name: scheduler.env(name, {**held, **PROGRAMS[name][2]}))
        turns = {name: counters(scheduler, name)["turns"] for name in PROGRAMS}
    print(turns)
    assert {name: r["digest"] for name, r in shared.items()} == {
        name: r["digest"] for name, r in alone.items()
    }
    assert all(report["ballast_intact"] for report in shared.values())
    assert all(count >= 2 for count in turns.values()), turns
