"""Memory that follows the turn on two real devices at once: copies between them, peers, NCCL."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.gpu.conftest import DEVICES
from tests.gpu.support import command, run
from tests.gpu.test_swapping import BALLAST_MIB, QUANTUM_S, SMALL, Parked, memory_rival, run_parked
from tests.support.sim import GIB
from tests.support.tenants import tenants

pytestmark = pytest.mark.skipif(DEVICES < 2, reason="needs two GPUs")


@pytest.mark.promise(
    "gpu-19",
    "Two devices, parked and restored on the first: copies between them, and kernels that read a "
    "peer's memory, give what they give alone",
)
def test_tensors_that_walk_between_devices(tmp_path: Path) -> None:
    """Copies between two devices, and kernels that read a peer's memory, give what they give alone
    while the memory on the first device is parked and restored."""
    env = {**os.environ, "GPUSHARE_BALLAST_MIB": str(BALLAST_MIB)}
    alone = run(command("torch_peers"), env)
    shared, parked, served = run_parked(
        "torch_peers", env=env, directory=tmp_path / "run", quantum_s=QUANTUM_S
    )
    assert shared["digest"] == alone["digest"]
    assert shared["ballast_intact"] is True
    assert served["turns"] >= 3
    assert all(parked.most[name] >= GIB for name in ("torch_peers", "rival")), parked.most


@pytest.mark.promise(
    "gpu-20",
    "NCCL with two processes of one tenant whose other memory is parked, with buffers that it "
    "maps itself and with plain ones: results as alone",
)
@pytest.mark.parametrize("mapped", ["1", "0"], ids=["mapped_buffers", "plain_buffers"])
def test_nccl_beside_memory_that_moves(mapped: str, tmp_path: Path) -> None:
    """Two processes that reduce over NCCL, whether it maps its buffers itself or allocates them,
    get the sums that they get alone, while what else they hold is parked."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    argv = [*launcher, "--standalone", "-m", "tests.gpu.workloads.nccl_work"]
    env = {**os.environ, "NCCL_CUMEM_ENABLE": mapped}
    alone = run(argv, env)
    ballasted = {**env, "GPUSHARE_BALLAST_MIB": str(BALLAST_MIB)}
    with (
        tenants(tmp_path / "run", env, quantum_s=QUANTUM_S, settings=SMALL) as scheduler,
        memory_rival(scheduler, env),
        Parked(scheduler) as parked,
    ):
        shared = run(argv, scheduler.env("nccl", ballasted))
    assert shared["digest"] == alone["digest"]
    assert shared["ballast_intact"] is True
    assert all(parked.most[name] >= GIB for name in ("nccl", "rival")), parked.most
