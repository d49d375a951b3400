"""Movable memory under many threads at once, watched by the sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.conftest import HERE, SOURCE
from tests.support.sim import SimulatedMachine

PARTS = (
    *("backing.c", "blocks.c", "slab.c", "chunks.c", "peers.c", "pointers.c", "memory.c"),
    *("registry.c", "contexts.c", "driver.c", "symbols.c", "elf_lookup.c", "locks.c", "log.c"),
    *("options.c", "refusal.c"),
)

# The simulated GPU is not built with the sanitizers: its own ordering is not seen.
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "TSAN_OPTIONS": "exitcode=66:ignore_noninstrumented_modules=1",
}


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_moves_and_frees_in_many_threads(
    sanitizer: str,
    program: Callable[..., Path],
    generated: Path,
    headers: Path,
    sim: SimulatedMachine,
) -> None:
    """Four threads allocate and free, one destroys contexts with memory in them, and one parks and
    restores all the while: nothing is touched by two, and only empty slabs are left."""
    sources = [SOURCE / name for name in PARTS]
    sources += [HERE / "fake_runtime.c", HERE / "fake_memory.c"]
    flags = ["-D_GNU_SOURCE", "-pthread", f"-fsanitize={sanitizer}", "-iquote", str(HERE)]
    flags += ["-iquote", str(SOURCE), "-iquote", str(generated), "-isystem", str(headers), "-ldl"]
    racing = program("backing_race", *sources, *flags, suffix=f"-{sanitizer.split(',')[0]}")
    plain = {key: value for key, value in sim.env().items() if not key.startswith("GPUSHARE_T")}
    done = subprocess.run(
        [racing],
        env={**os.environ, **plain, "FAKE_SWAP": "1", **OPTIONS},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    resident, parked, uncounted = map(int, done.stdout.split())
    assert resident + parked <= 1
    assert uncounted == parked
