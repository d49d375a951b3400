"""Memory that processes give to each other, on a real device, while the rest of theirs moves."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.gpu.support import command, run
from tests.gpu.test_swapping import BALLAST_MIB, QUANTUM_S, run_parked
from tests.support.sim import GIB


@pytest.mark.promise("backing-35")
def test_tensors_that_are_given_to_a_child(tmp_path: Path) -> None:
    """torch.multiprocessing: a child sums and changes tensors that it was given, its parent those
    that come back, under a rival for the memory: bit for bit as without the hook, and the memory
    that was not given away is parked meanwhile."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    env = dict(os.environ)
    alone = run(command("torch_sharing"), env)
    ballasted = {**env, "GPUSHARE_BALLAST_MIB": str(BALLAST_MIB)}
    shared, parked, served = run_parked(
        "torch_sharing", env=ballasted, directory=tmp_path / "run", quantum_s=QUANTUM_S
    )
    assert alone["sums_right"] is True and shared["sums_right"] is True
    assert shared["digest"] == alone["digest"]
    assert shared["ballast_intact"] is True
    assert served["turns"] >= 3, "the workload never had to share"
    assert all(parked.most[name] >= GIB for name in ("torch_sharing", "rival")), parked.most
