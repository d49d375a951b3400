"""Each gated call, by cuda-python, under the real hook."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, DropReason, TurnDropped, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.hook.table import read_table
from tests.support.fake_scheduler import FakeScheduler
from tests.support.paths import BUILTINS_PTX, HOOK_GENERATED, HOOK_LIBRARY, ROOT
from tests.support.sim import SimulatedMachine

PROGRAM = Path(__file__).with_name("gated_calls_program.py")
WAITS_S = 0.03


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[FakeScheduler]:
    with FakeScheduler(tmp_path / "hook.sock") as fake:
        yield fake


@pytest.mark.promise(
    "hook-3",
    "Launches (`cuLaunchKernel`, `Ex`, cooperative, `cuGraphLaunch`, `cuGraphUpload`, host "
    "functions) wait for the turn",
)
@pytest.mark.promise("hook-4", "Copies (1D, 2D, 3D, peer, batch) wait for the turn")
@pytest.mark.promise("hook-5", "Memsets, prefetches and stream memory operations wait for the turn")
@pytest.mark.promise("hook-6", "Allocations of each kind wait for the turn")
def test_every_kind_of_gated_call_waits_for_the_turn(
    scheduler: FakeScheduler, sim: SimulatedMachine, tmp_path: Path
) -> None:
    """Launches of all kinds, copies, memsets, prefetches, stream memory operations and allocations:
    each asks by its name, has not happened before the grant, and happens after it."""
    env = sim.env(scheduler.env(hook=HOOK_LIBRARY, log=tmp_path / "log"))
    program = GpuProcess([sys.executable, str(PROGRAM), str(BUILTINS_PTX)], env, tmp_path / "log")
    try:
        client = scheduler.accept()
        client.welcome(idle_ms=600_000)
        client.expect(DeviceOpened)
        calls = program.expect("calls ").split()[1:]
        for call in calls:
            program.say(call)
            cause = client.expect(TurnRequested).cause
            assert cause.split("_")[0] == call, (cause, call)
            assert program.is_silent(for_s=WAITS_S), f"{call} did not wait"
            client.grant()
            program.expect(f"made {call}")
            assert client.expect(TurnDropped).reason is DropReason.CELL_END
        assert program.finish() == 0
    finally:
        program.end()


def test_every_gated_call_that_the_simulated_gpu_performs_is_made() -> None:
    """The program's list of calls is kept by hand: a call that is missing there is named here."""
    sources = (path.read_text() for path in (ROOT / "hook" / "sim").glob("*/*.c"))
    simulated = {
        name for text in sources for name in re.findall(r"^CUresult sim_(cu\w+)\(", text, re.M)
    }
    performed = {
        entry.base
        for entry in read_table(HOOK_GENERATED / "table.tsv")
        if entry.gate in ("launch", "sync", "alloc", "claim") and entry.exported_name in simulated
    }
    made = set(re.findall(r'^    "(cu\w+)": ', PROGRAM.read_text(), re.M))
    assert len(performed) > 50, "nothing is found any more: read the sources in another way here"
    missing = sorted(performed - made)
    assert not missing, f"CALLS of {PROGRAM.name} lacks {missing}. Add them."
