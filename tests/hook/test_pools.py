"""What stream-ordered pools keep of the device, on the simulated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.session import MIB, Session
from tests.support.sim import SimulatedMachine

RELEASE_THRESHOLD = 4
SET_UP = (
    "def keeps(pool, count):",
    f"    threshold = (c_uint64 * 1)(count); which = {RELEASE_THRESHOLD}",
    "    assert call('cuMemPoolSetAttribute', c_void_p(pool), which, threshold) == 0",
    "def take(size, *pool):",
    "    name = 'cuMemAllocFromPoolAsync' if pool else 'cuMemAllocAsync'",
    "    return made(name, c_size_t(size), *map(c_void_p, pool), c_void_p(s))",
    "def give(address):",
    "    result = call('cuMemFreeAsync', c_uint64(address), c_void_p(s))",
    "    return result or call('cuStreamSynchronize', c_void_p(s))",
    "s = stream_create()",
    "pool = made('cuDeviceGetDefaultMemPool', 0)",
    "keeps(pool, 2**64 - 1)",
)


@pytest.fixture
def pooled(environment: dict[str, str], tmp_path: Path) -> Session:
    machine = SimulatedMachine(tmp_path / "machine")
    of_sim = {name: machine.env()[name] for name in ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")}
    return Session({**environment, **of_sim}, tmp_path / "trace", "backing_session")


@pytest.mark.promise(
    "accounts-55", "Memory that a pool keeps after a free counts until the pool gives it back"
)
def test_what_a_pool_keeps_counts(pooled: Session) -> None:
    """It is the process's as long as the driver holds it, and what is allocated again from it is
    counted once."""
    lines = [
        "a = take(64 * MIB)",
        "print(give(a))",
        "b = take(16 * MIB)",
        "print(call('cuMemPoolTrimTo', c_void_p(pool), c_size_t(0)), give(b))",
        "print(call('cuMemPoolTrimTo', c_void_p(pool), c_size_t(0)))",
    ]
    assert pooled.run(*SET_UP, *lines) == ["0", "0 0", "0"]
    counted = pooled.memory()
    assert counted[0] == (64, 64) and counted[-1] == (0, 0)
    assert (16, 16) in counted
    assert max(allocated for allocated, _ in counted) == 64


def test_a_cap_does_not_count_kept_memory_twice(pooled: Session) -> None:
    """What the pool keeps is taken again although the cap is reached; more than that is refused."""
    lines = [
        "a = take(64 * MIB)",
        "give(a)",
        "print(take(64 * MIB) > 0, take(16 * MIB), alloc(16 * MIB))",
    ]
    assert pooled.run(*SET_UP, *lines, FAKE_CAP=str(64 * MIB)) == ["True -2 -2"]


def test_a_pool_that_is_destroyed_keeps_nothing(pooled: Session) -> None:
    """Nor is the driver asked about it any more."""
    lines = [
        "own = made('cuMemPoolCreate', location(0))",
        "keeps(own, 2**64 - 1)",
        "print(give(take(32 * MIB, own)))",
        "print(call('cuMemPoolDestroy', c_void_p(own)), call('cuCtxSynchronize'))",
    ]
    assert pooled.run(*SET_UP, "from tests.hook.memory_session import location", *lines) == [
        "0",
        "0 0",
    ]
    assert (32, 32) in pooled.memory()
    assert pooled.memory()[-1] == (0, 0)


@pytest.mark.promise("accounts-55")
def test_memory_is_counted_on_the_device_of_its_stream(pooled: Session) -> None:
    """The driver takes it from that device, also where the thread has no current context."""
    lines = [
        "assert call('cuCtxSetCurrent', c_void_p(0)) == 0",
        "a = take(64 * MIB)",
        "print(give(a))",
    ]
    assert pooled.run(*SET_UP, *lines) == ["0"]
    assert pooled.memory()[0] == (64, 64)
