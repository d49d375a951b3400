"""Movable memory under many threads at once, watched by the sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.conftest import HERE, SANITIZERS, SOURCE, sanitized_objects
from tests.support.paths import BUILD
from tests.support.sim import SimulatedMachine
from tests.support.waits import WAIT_S_MAX

PARTS = {
    *("backing", "blocks", "slab", "chunks", "pages", "pointers", "peer_mappings", "memory"),
    *("contexts", "streams", "failure", "peers", "work", "context_calls", "pools", "registry"),
    *("driver", "symbols", "elf_lookup", "locks", "log", "options", "refusal", "device_memory"),
    *("own_thread", "ipc", "ipc_open", "ipc_handle", "ipc_exports", "ipc_imports"),
    *("managing", "managed"),
    *("ipc_importers", "readers"),
    *("ipc_server", "ipc_client", "descriptor", "making", "physical", "handles"),
    *("pooled", "pooled_marks", "pooling", "pool_frees", "space", "graph_memory"),
    "pool_settings",
}

# The simulated GPU is not built with the sanitizers: its own ordering is not seen.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "exitcode=66:ignore_noninstrumented_modules=1",
}


@pytest.fixture(params=SANITIZERS)
def outcome(
    request: pytest.FixtureRequest,
    program: Callable[..., Path],
    headers: Path,
    sim: SimulatedMachine,
) -> Callable[[str], list[int]]:
    """Runs a program with a sanitizer, which has nothing to say; the numbers that it prints."""
    kind: str = request.param
    parts = [HERE / "fake_runtime.c", HERE / "fake_memory.c"]  # the linker takes the first
    parts += [path for path in sanitized_objects(kind) if path.stem in PARTS]
    flags = ["-D_GNU_SOURCE", "-pthread", f"-fsanitize={SANITIZERS[kind]}", "-Wl,-z,muldefs"]
    for folder in (HERE, SOURCE, BUILD / "hook" / "generated"):
        flags += ["-iquote", str(folder)]
    flags += ["-isystem", str(headers), "-ldl"]
    plain = {key: value for key, value in sim.env().items() if not key.startswith("GPUSHARE_T")}

    def run(name: str) -> list[int]:
        done = subprocess.run(
            [program(name, *parts, *flags, suffix=f"-{kind}")],
            env={**os.environ, **plain, "FAKE_SWAP": "1", **OPTIONS},
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S_MAX,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return [int(word) for word in done.stdout.split()]

    return run


@pytest.mark.full
@pytest.mark.promise("backing-20")
def test_moves_and_frees_in_many_threads(outcome: Callable[[str], list[int]]) -> None:
    """Four threads allocate and free, one destroys contexts with memory in them, and one parks and
    restores all the while: nothing is touched by two, and only empty slabs are left."""
    resident, parked, uncounted = outcome("backing_race")
    assert resident + parked <= 1
    assert uncounted == parked


@pytest.mark.full
@pytest.mark.promise("backing-46")
def test_memory_is_given_to_another_process_in_many_threads(
    outcome: Callable[[str], list[int]],
) -> None:
    """Four threads allocate, give to another process and free, four of that open, write and close,
    and memory is parked and restored meanwhile: each sees what the other wrote, and the other is
    left with nothing. Each of the four opens once what moves again, and may be away."""
    given, importer_status = outcome("ipc_race")
    assert given > 0
    assert importer_status == 0


@pytest.mark.full
@pytest.mark.promise("backing-46")
def test_a_block_that_is_given_away_stays_for_whoever_opens_it(
    outcome: Callable[[str], list[int]],
) -> None:
    """A look at what nobody has had for a second began before the block was given away, and ends
    after it."""
    (is_shared,) = outcome("ipc_idle")
    assert is_shared
