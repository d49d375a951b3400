"""Memory that graphs allocate when they run, on the simulated GPU: it is the driver's, and counts
as long as it is reserved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import MIB, Session
from tests.support.sim import GIB, SimulatedMachine

ROOM_MADE = "2"


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", bytes_per_device=GIB)


@pytest.fixture
def program(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    of_sim = {name: sim.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "pooled.graph_session")


@pytest.mark.promise(
    "accounts-54",
    "What graphs allocate is claimed before a launch, counts as fixed while it is reserved, and "
    "is given up after a drain when memory is short",
)
def test_it_counts_from_the_launch_to_the_trim(program: Session) -> None:
    """By what is reserved, not by what was captured; a second graph has the same memory."""
    lines = [
        "small, large = executable(40 * MIB), executable(100 * MIB)",
        "print(run(small), run(small), run(large), run(small))",
        "print(graph_trim(), run(small))",
    ]
    assert program.run(*lines) == ["0 0 0 0", "0 0"]
    counted = program.memory()
    small = [(40, 40), (64, 64)]
    assert counted[:3] == [*small, (100, 100)] and counted[-3:] == [(0, 0), *small]
    assert all(allocated == fixed for allocated, fixed in counted)
    claims = [line.split() for line in program.told("claim")]
    assert [int(size) // MIB for _, _, size, _ in claims] == [40, 36, 40]


@pytest.mark.promise("accounts-54")
def test_a_launch_without_room_is_out_of_memory(program: Session) -> None:
    """Before the driver is asked; and a cap is looked at when the allocation is captured."""
    lines = ["print(run(executable(40 * MIB)))"]
    assert program.run(*lines, FAKE_CLAIM="refused") == ["2"]
    assert set(program.memory()) <= {(0, 0)}
    over = "print(made('cuMemAllocAsync', c_size_t(40 * MIB), c_void_p(s)))"
    begin = "begin_graph()"
    assert program.run(begin, over, FAKE_CAP=str(32 * MIB)) == ["-2"]


@pytest.mark.promise("accounts-54")
@pytest.mark.parametrize("call", ["run", "upload"])
def test_a_launch_for_which_the_driver_has_no_memory_asks_for_what_it_takes(
    program: Session, call: str
) -> None:
    """As an allocation from a pool does. A call that allocates nothing asks for more: on a device
    that is nearly full nobody could make that."""
    base = {"run": "cuGraphLaunch", "upload": "cuGraphUpload"}[call]
    fails = f"fail {base} nth=1 result=2 times=1"
    lines = [f"print({call}(executable(40 * MIB)))"]
    assert program.run(*lines, FAKE_ROOM=ROOM_MADE, GPUSHARE_SIM_FAULTS=fails) == ["0"]
    assert program.told("room") == [f"room 0 {72 * MIB} {base}"]
    lines = [f"print({call}(plain(alloc(MIB))))"]
    assert program.run(*lines, FAKE_ROOM=ROOM_MADE, GPUSHARE_SIM_FAULTS=fails) == ["0"]
    assert program.told("room") == [f"room 0 {512 * MIB} {base}"]


def test_memory_that_a_graph_leaves_is_freed_outside(program: Session) -> None:
    """It stays reserved until the driver is told to give it up."""
    lines = [
        "graph = executable(32 * MIB, freed=False)",
        "print(run(graph), call('cuCtxSynchronize'))",
        "print(graph_trim(), destroy(graph))",
    ]
    assert program.run(*lines) == ["0 0", "0 0"]
    assert program.memory()[-1] == (32, 32)
