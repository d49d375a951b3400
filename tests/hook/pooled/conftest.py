"""What the tests of stream-ordered memory share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import GIB, SimulatedMachine

pytest.register_assert_rewrite("tests.hook.pooled.words")


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", devices=2, bytes_per_device=GIB)


@pytest.fixture
def program(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    """A process whose memory follows the turn, with a mover that moves when it is told."""
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "pooled_session")
