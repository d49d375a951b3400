"""What hostile readers of the memory of graphs have found, on the simulated GPU, with a mover that
moves when it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.pooled.words import FILES, late
from tests.hook.session import MIB, Session
from tests.support.sim import SimulatedMachine, driver_with

ONE_ADDRESS = """
#include <dlfcn.h>
#include <stddef.h>

int cuGraphMemAllocNodeGetParams(void *node, unsigned long long *params) {
    static unsigned long long address;
    void *driver = dlopen("libcudb.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*real)(void *, void *) = dlsym(driver, "cuGraphMemAllocNodeGetParams");
    const int result = real(node, params);
    const size_t last = 14;
    if (result != 0) return result;
    if (address == 0) address = params[last];
    params[last] = address;
    return result;
}
"""
"""A driver that gives the same addresses to all, as an H100 does where each is freed before the
next."""

LATE_ANSWER = late(
    "cuDeviceGetGraphMemAttribute", "int device, int which, void *value", "device, which, value"
)


@pytest.fixture
def program(program: Session) -> Session:
    program.words = "pooled.graph_session"
    return program


@pytest.mark.promise("accounts-54")
def test_allocations_at_the_same_addresses_are_claimed_once(
    program: Session, tmp_path: Path
) -> None:
    """The first launch claims what they need at most, not their sum."""
    same = driver_with(tmp_path / "same", ONE_ADDRESS)
    lines = ["graph = executable(32 * MIB, times=20)", "go(graph)"]
    program.run(*lines, LD_LIBRARY_PATH=same)
    claims = [int(line.split()[2]) // MIB for line in program.told("claim")]
    assert claims[-1] == 32


@pytest.mark.promise("accounts-54")
def test_other_graphs_ask_for_nothing(program: Session, sim: SimulatedMachine) -> None:
    """Although one has allocated, and is there: their launches look at no figures of the driver."""
    lines = ["import os", "from pathlib import Path", "a = alloc(4096)"]
    lines += ["graphs = [plain(a) for _ in range(4)]", "graph = executable(32 * MIB)"]
    lines += ["print(run(graph), call('cuStreamSynchronize', c_void_p(s)))"]
    lines += ["(Path(os.environ['GPUSHARE_SIM_DIR']) / 'start').touch()"]
    lines += ["print([go(n) for n in graphs], [upload(n) for n in graphs])"]
    lines += ["import sys; sys.stdout.flush(); os._exit(0)"]
    counting = {"GPUSHARE_SIM_FAULTS": "stall cuDeviceGetGraphMemAttribute nth=1 ms=0 from=start"}
    assert program.run(*lines, **counting) == ["0 0", "[0, 0, 0, 0] [0, 0, 0, 0]"]
    assert sim.happened() == []


@pytest.mark.promise("accounts-54")
def test_a_graph_with_others_in_it_is_looked_after(program: Session, sim: SimulatedMachine) -> None:
    """Newer drivers let those allocate, so what is reserved is asked for when it was launched."""
    lines = [
        "import os",
        "from pathlib import Path",
        "graph, a = executable(32 * MIB), alloc(4096)",
    ]
    lines += ["begin_graph(); write_some(a); whole = within(captured())", "print(run(graph))"]
    lines += ["(Path(os.environ['GPUSHARE_SIM_DIR']) / 'start').touch()"]
    lines += ["print(go(whole)); import sys; sys.stdout.flush(); os._exit(0)"]
    counting = {"GPUSHARE_SIM_FAULTS": "stall cuDeviceGetGraphMemAttribute nth=1 ms=0 from=start"}
    assert program.run(*lines, **counting) == ["0", "0"]
    assert sim.happened() == ["stall cuDeviceGetGraphMemAttribute"]


@pytest.mark.promise("accounts-54")
def test_a_late_answer_does_not_replace_a_newer_one(program: Session, tmp_path: Path) -> None:
    """One thread asked before the launch of another one, and hears of it after that."""
    late = {"LD_LIBRARY_PATH": driver_with(tmp_path / "late", LATE_ANSWER)}
    lines = [*FILES, "graph = executable(64 * MIB)", "def looks():"]
    lines += ["    call('cuCtxSetCurrent', c_void_p(CONTEXT)); call('cuStreamSynchronize', "]
    lines[-1] += "c_void_p(s))"
    lines += ["thread = threading.Thread(target=looks)", "(files / 'late').touch()"]
    lines += ["thread.start(); until('asked')", "print(go(graph))", "(files / 'go').touch()"]
    lines += ["thread.join()", "import sys; sys.stdout.flush(); os._exit(0)"]
    assert program.run(*lines, **late) == ["0"]
    assert program.memory()[-1] == (64, 64)


@pytest.mark.promise("accounts-54")
def test_a_handle_that_comes_again_is_another_graph(program: Session) -> None:
    """What is told of a graph that is destroyed is told no more: of many, each is known."""
    lines = ["many = [executable(2 * MIB) for _ in range(40)]", "large = executable(64 * MIB)"]
    lines += ["print({destroy(n) for n in many}, run(large), destroy(large), graph_trim())"]
    lines += ["again = [executable(32 * MIB) for _ in range(40)]"]
    lines += ["print({run(n) for n in again}, sums())"]
    assert program.run(*lines)[0] == "{0} 0 0 0"
    assert (64, 64) in program.memory() and program.memory()[-1] == (32, 32)


@pytest.mark.promise("accounts-54")
def test_a_captured_launch_counts_what_is_reserved(program: Session) -> None:
    """The driver refuses it, and nothing is left of its claim."""
    lines = ["graph, t = executable(64 * MIB), stream_create()"]
    lines += ["print(call('cuStreamBeginCapture_v2', c_void_p(t), 2))"]
    lines += ["print(call('cuGraphLaunch', c_void_p(graph), c_void_p(t)) != 0)"]
    lines += ["call('cuStreamEndCapture', c_void_p(t), byref(c_uint64(0)))"]
    lines += ["print(call('cuCtxSynchronize'))"]
    assert program.run(*lines) == ["0", "True", "0"]
    assert program.memory()[-1] == (0, 0)
