"""The primary context's memory lives as long as the context, whoever holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.paths import SIM_LIBRARIES
from tests.support.sim import SimulatedMachine

RESET = "assert call('cuDevicePrimaryCtxReset_v2', 0) == 0"
RELEASE = "assert call('cuDevicePrimaryCtxRelease_v2', 0) == 0"


@pytest.fixture
def backed(environment: dict[str, str], sim: SimulatedMachine, tmp_path: Path) -> Session:
    swapping = {**environment, **sim.env(), "LD_PRELOAD": environment["LD_PRELOAD"]}
    swapping |= {"LD_LIBRARY_PATH": str(SIM_LIBRARIES), "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


@pytest.mark.promise("backing-41", "The memory of a primary context goes with the context alone")
def test_a_release_after_a_reset_takes_no_live_memory(backed: Session) -> None:
    """One module holds the primary context, another resets it, retains it again and allocates. A
    reset takes no holder away, so that a release by the first ends nothing."""
    lines = [
        RESET,
        "opened()",
        "a = alloc(20 * MIB)",
        "assert call('cuMemsetD32_v2', c_uint64(a), 90, c_size_t(5 * MIB)) == 0",
        RELEASE,
        "print(read(a, 4), sums(), free(a))",
    ]
    assert backed.run(*lines) == ["b'Z\\x00\\x00\\x00' (10, 0) 0"]


@pytest.mark.promise("backing-41")
def test_the_last_release_after_a_reset_takes_the_memory(backed: Session) -> None:
    """The driver has counted on: its last release ends the context, and its memory with it."""
    lines = [RESET, "opened()", "alloc(20 * MIB)", RELEASE, RELEASE, "print(sums())"]
    assert backed.run(*lines) == ["(0, 0)"]
    assert backed.memory()[-1] == (0, 0)


@pytest.mark.promise("backing-41")
def test_what_was_made_before_a_reset_goes_although_the_context_is_back(backed: Session) -> None:
    """The same handle is a context of another generation."""
    lines = ["a = alloc(20 * MIB)", RESET, "opened()", "print(free(a), sums())"]
    assert backed.run(*lines) == ["1 (0, 0)"]


@pytest.mark.promise("backing-41")
def test_a_retain_that_overtakes_a_release_keeps_the_memory(
    backed: Session, sim: SimulatedMachine
) -> None:
    """The driver has the last word: a release that began as the last and is not ends nothing."""
    (sim.directory / "faults").write_text("hold cuDevicePrimaryCtxRelease until=go\n")
    lines = [
        "import pathlib, time",
        f"folder = pathlib.Path({str(sim.directory)!r})",
        "a = alloc(20 * MIB)",
        "assert call('cuMemsetD32_v2', c_uint64(a), 90, c_size_t(5 * MIB)) == 0",
        "ends = threading.Thread(target=call, args=('cuDevicePrimaryCtxRelease_v2', 0))",
        "ends.start()",
        "while not (folder / 'go.held').exists(): time.sleep(0.001)",
        "opened()",
        "(folder / 'go').touch()",
        "ends.join()",
        "print(read(a, 4), sums(), free(a))",
    ]
    assert backed.run(*lines) == ["b'Z\\x00\\x00\\x00' (10, 0) 0"]
