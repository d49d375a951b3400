"""Caches of PyTorch and CuPy at the end of a cell, on a real device that the scheduler takes for a
small one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.gpu.support import command, run
from tests.gpu.test_swapping import RIVAL_MIB, run_parked
from tests.support.sim import GIB

CELLS = 6
CACHED_BYTES = 4 * GIB
QUANTUM_S = 1.0
"""Longer than a cell takes, so that turns change hands where cells end."""
assert RIVAL_MIB << 20 == 6 * GIB  # beside it, 4.5 GiB do not fit, and 0.5 GiB do


@pytest.mark.promise(
    "gpu-2",
    "Beside a tenant with which not everything fits, PyTorch and CuPy give their caches back at "
    "the end of a cell: what they kept unused is not parked, and the results are bit-identical",
)
@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_caches_are_given_back_at_the_end_of_a_cell(framework: str, tmp_path: Path) -> None:
    """With `trim off` the same cells park their cache instead, and compute the same."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    env = dict(os.environ)
    digests = {run(command("cached_cells", framework, "on", CELLS), env)["digest"]}
    parked_bytes, reports = {}, {}
    for trim in ("on", "off"):
        reports[trim], parked, _ = run_parked(
            "cached_cells",
            framework,
            trim,
            CELLS,
            env=env,
            directory=tmp_path / trim,
            quantum_s=QUANTUM_S,
        )
        digests.add(reports[trim]["digest"])
        parked_bytes[trim] = parked.most["cached_cells"]
    assert len(digests) == 1
    assert reports["on"]["problem"] == ""
    assert reports["on"]["given_bytes"] >= CACHED_BYTES, reports
    assert min(reports["on"]["unused_bytes"]) < GIB, reports
    assert reports["off"]["given_bytes"] == 0
    assert min(reports["off"]["unused_bytes"]) >= CACHED_BYTES, reports
    assert parked_bytes["off"] >= GIB, parked_bytes
    assert parked_bytes["on"] < parked_bytes["off"], parked_bytes
