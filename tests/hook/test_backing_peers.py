"""Peer access to memory that can be moved, on two simulated devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import Session
from tests.support.sim import SimulatedMachine

ILLEGAL_ADDRESS = 700


@pytest.fixture
def pair(environment: dict[str, str], tmp_path: Path) -> Session:
    """A process with memory on device 0, and a context on device 1 that is current."""
    machine = SimulatedMachine(tmp_path / "machine", devices=2)
    of_sim = {name: machine.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    swapping = {**environment, **of_sim, "FAKE_SWAP": "1"}
    return Session(swapping, tmp_path / "trace", "backing_session")


SET_UP = (
    "def fill(address, value):",
    "    result = launch('fill', 0, c_uint64(address), c_uint(value), c_uint64(1024))",
    "    return result or call('cuCtxSynchronize')",
    "def seen(address):",
    "    call('cuCtxSetCurrent', c_void_p(CONTEXT))",
    "    values = set(read(address, 4096)[::4])",
    "    call('cuCtxSetCurrent', c_void_p(OTHER))",
    "    return values",
    "def enable(): return call('cuCtxEnablePeerAccess', c_void_p(CONTEXT), 0)",
    "def disable(): return call('cuCtxDisablePeerAccess', c_void_p(CONTEXT))",
    "a = alloc(20 * MIB)",
    "OTHER = opened(1)",
)


@pytest.mark.promise(
    "backing",
    "Peer access holds for present and future memory, and after a restore",
)
def test_a_peer_reaches_what_is_there_and_what_comes(pair: Session) -> None:
    """Memory from before and after the access was enabled, large and small."""
    lines = [
        *("print(attribute(16, a), enable(), attribute(16, a))", "print(fill(a, 7), seen(a))"),
        *("call('cuCtxSetCurrent', c_void_p(CONTEXT))", "b, c = alloc(4 * MIB), alloc(8192)"),
        "call('cuCtxSetCurrent', c_void_p(OTHER))",
        "print(fill(b, 8), seen(b), fill(c, 9), seen(c), enable() != 0)",
    ]
    assert pair.run(*SET_UP, *lines) == ["0 0 3", "0 {7}", "0 {8} 0 {9} True"]


@pytest.mark.promise("Peer access holds for present and...")
def test_a_peer_reaches_it_after_a_restore(pair: Session) -> None:
    """Enabled before the park, or while it was parked."""
    lines = [
        *("print(enable(), fill(a, 7))", "call('cuCtxSetCurrent', c_void_p(CONTEXT))"),
        *("print(park(), restore())", "call('cuCtxSetCurrent', c_void_p(OTHER))"),
        *("print(fill(a, 8), seen(a))", "call('cuCtxSetCurrent', c_void_p(CONTEXT))"),
        *("park()", "call('cuCtxSetCurrent', c_void_p(OTHER))", "print(disable(), enable())"),
        *("call('cuCtxSetCurrent', c_void_p(CONTEXT))", "restore()"),
        *("call('cuCtxSetCurrent', c_void_p(OTHER))", "print(fill(a, 9), seen(a))"),
    ]
    assert pair.run(*SET_UP, *lines) == ["0 0", "3 3", "0 {8}", "0 0", "0 {9}"]


@pytest.mark.promise("Peer access holds for present and...")
@pytest.mark.parametrize("before", ["", "enable(), disable()"])
def test_without_peer_access_it_is_a_fault(pair: Session, before: str) -> None:
    """Not enabled, or disabled again: the launch faults, as on a plain allocation."""
    lines = [before, "print(fill(a, 7))"]
    assert pair.run(*SET_UP, *lines) == [str(ILLEGAL_ADDRESS)]
    assert pair.run(*SET_UP, *lines, FAKE_SWAP="0") == [str(ILLEGAL_ADDRESS)]


@pytest.mark.promise("Peer access holds for present and...")
def test_the_end_of_a_context_ends_its_access(pair: Session) -> None:
    """Access that a context had enabled is not given to what is allocated after it has gone."""
    lines = [
        "print(enable(), call('cuDevicePrimaryCtxReset_v2', 1))",
        "call('cuCtxSetCurrent', c_void_p(CONTEXT))",
        "b = alloc(4 * MIB)",
        "OTHER = opened(1)",
        "print(attribute(16, b), fill(b, 7))",
    ]
    assert pair.run(*SET_UP, *lines) == ["0 0", f"0 {ILLEGAL_ADDRESS}"]
