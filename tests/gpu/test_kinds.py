"""Memory that frameworks make and map themselves follows the turn as plain memory does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import threading
from pathlib import Path

import pytest

from tests.gpu.support import TIMEOUT_S, command, counters, run
from tests.gpu.test_swapping import BALLAST_MIB, QUANTUM_S, SMALL
from tests.support.paths import ROOT
from tests.support.tenants import Tenants, tenants

RIVAL_MIB = 7768
"""With it the device has hardly room for anything else: 7.9 GiB can be had."""
SHARE_BAR = 0.9

KINDS = [
    pytest.param("torch", "torch_eager", {}, id="torch"),
    pytest.param(
        "torch",
        "torch_eager",
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        id="torch-expandable",
    ),
    pytest.param(
        "torch",
        "torch_eager",
        {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
        id="torch-async",
    ),
    pytest.param("jax", "jax_work", {}, id="jax"),
    pytest.param("cupy", "cupy_work", {}, id="cupy"),
    pytest.param("cupy", "cupy_work", {"CUPY_WORK_POOL": "async"}, id="cupy-async"),
    pytest.param("rmm", "cupy_work", {"CUPY_WORK_POOL": "rmm-async"}, id="rmm-async"),
    pytest.param("rmm", "cupy_work", {"CUPY_WORK_POOL": "rmm-pool"}, id="rmm-pool"),
    pytest.param("cupy", "cupy_work", {"CUPY_WORK_POOL": "managed"}, id="cupy-managed"),
]


class Shares:
    """The most that a tenant had in host memory at any time, of what it had in all."""

    def __init__(self, scheduler: Tenants, name: str) -> None:
        self.most, self.bytes_at_most = 0.0, 0
        self._scheduler, self._name = scheduler, name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            for tenant in self._scheduler.status()["tenants"]:
                devices = [d for client in tenant["clients"] for d in client["devices"]]
                allocated = sum(d["bytes_allocated"] for d in devices)
                if tenant["name"] == self._name and allocated >= BALLAST_MIB << 20:
                    share = sum(d["bytes_parked"] for d in devices) / allocated
                    if share > self.most:
                        self.most, self.bytes_at_most = share, allocated

    def __enter__(self) -> Shares:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.promise(
    "gpu-6",
    "More than nine tenths of what PyTorch (expandable segments and cudaMallocAsync, too), JAX, "
    "CuPy (its async pool and managed memory, too) and RMM hold is seen to leave the device, and "
    "their results are bit-identical",
)
@pytest.mark.parametrize(("module", "workload", "settings"), KINDS)
def test_memory_of_each_kind_is_seen_to_move(
    module: str, workload: str, settings: dict[str, str], tmp_path: Path
) -> None:
    """Nearly all of what the workload holds leaves the device between its turns, and what it
    computes is what it computes alone."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    env = {**os.environ, **settings}
    alone = run(command(workload), env)
    ballasted = {**env, "GPUSHARE_BALLAST_MIB": str(BALLAST_MIB)}
    with tenants(tmp_path / "run", env, quantum_s=QUANTUM_S, settings=SMALL) as scheduler:
        rival = subprocess.Popen(
            command("rival_memory", RIVAL_MIB, TIMEOUT_S),
            env=scheduler.env("rival", dict(os.environ)),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert rival.stdout and rival.stdout.readline() == "ready\n"
            with Shares(scheduler, workload) as shares:
                shared = run(command(workload), scheduler.env(workload, ballasted))
            served = counters(scheduler, workload)
            assert rival.poll() is None, "the rival found memory that was not what it had been"
        finally:
            rival.terminate()
            rival.wait(timeout=30)
    print(f"{workload} {settings}: {shares.most:.3f} of {shares.bytes_at_most >> 20} MiB")
    assert shared["digest"] == alone["digest"]
    assert shared["ballast_intact"] is True
    assert served["turns"] >= 3, "the workload never had to share"
    assert shares.most > SHARE_BAR
