"""Places for who records: there are so many, and a thread that has one may wait for a lock."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.conftest import SOURCE
from tests.support.paths import hook_source
from tests.support.waits import WAIT_S_MAX


@pytest.mark.promise("hook-19")
def test_nobody_asks_for_a_place_with_the_lock_held(
    program: Callable[..., Path], headers: Path
) -> None:
    """With more threads at their window than there are places, who holds the lock would wait for
    those that wait for it: the whole process would stand, and its agent with it."""
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-isystem", str(headers)]
    built = program("places_before_locks", hook_source("work.c"), *flags)
    done = subprocess.run([built], capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
    assert done.stdout.splitlines() == ["waits 2 2", "asked 5 wrong 0"]
