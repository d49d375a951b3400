"""Ends of movable memory whose work is not done yet: who waits for it, and who does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

DESTROY, RESET = "cuCtxDestroy_v2", "cuDevicePrimaryCtxReset_v2"


@pytest.fixture
def backed(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    """A process whose memory follows the turn, with a mover that moves when it is told."""
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


@pytest.mark.parametrize("mode", [0, 2])
@pytest.mark.parametrize("end", [DESTROY, RESET])
def test_a_context_that_ends_beside_a_capture_has_done_its_work(
    backed: Session, sim: SimulatedMachine, end: str, mode: int
) -> None:
    """Its memory is not taken from under its work, and the capture in another context goes on."""
    ending, other = ("second.value", "CONTEXT")[:: 1 if end == DESTROY else -1]
    lines = [
        "second = c_void_p(0)",
        "assert call('cuCtxCreate_v2', byref(second), 0, 0) == 0",
        "on = lambda context: call('cuCtxSetCurrent', c_void_p(context))",
        f"on({other})",
        "s = stream_create()",
        f"on({ending})",
        "a, t = c_uint64(alloc(20 * MIB)), c_void_p(stream_create())",
        "fill = lambda: call('cuMemsetD32Async', a, 1, c_size_t(5 * MIB), t)",
        "assert fill() == 0",
        f"on({other})",
        f"assert call('cuStreamBeginCapture_v2', c_void_p(s), {mode}) == 0",
        f"on({ending})",
        "assert [fill() for _ in range(50)] == [0] * 50",
        f"print(call('{end}', {'second' if end == DESTROY else '0'}))",
        f"on({other})",
        "print(call('cuStreamEndCapture', c_void_p(s), byref(a)), a.value > 0, sums())",
    ]
    assert backed.run(*lines) == ["0", "0 True (0, 0)"]
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []
