"""The closing protocol of the gate by itself, at the speed at which memory orders matter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.hook.conftest import newer, one_at_a_time
from tests.hook.runtime.conftest import OUTPUT, SOURCE
from tests.support.paths import hook_source
from tests.support.waits import WAIT_S_MAX

PROGRAM = Path(__file__).parent / "programs" / "gate_litmus.c"
# The thread sanitizer's build has no membarrier: it proves the other way of closing.
FLAGS = {"membarrier": [], "no membarrier": ["-D__SANITIZE_THREAD__"]}


def build(headers: Path, name: str) -> Path:
    program = OUTPUT / f"gate_litmus{'-plain' if FLAGS[name] else ''}"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    sources = [PROGRAM, *(hook_source(part) for part in ("gate.c", "threads.c", "locks.c"))]
    with one_at_a_time(program.name):
        if not newer(program, *sources, *SOURCE.glob("*/*.h")):
            options = ["-D_GNU_SOURCE", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
            options += ["-Wno-deprecated-declarations", "-pthread", *FLAGS[name]]
            places = ["-I", SOURCE, "-isystem", headers, "-o", program]
            command = ["cc", *options, *places, *sources]
            subprocess.run([str(part) for part in command], check=True)
    return program


@pytest.mark.promise("hook-27", "No call is inside a gate that counts as shut")
@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("closings", [100_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_no_call_is_inside_a_gate_that_counts_as_shut(
    headers: Path, name: str, closings: int
) -> None:
    """As many closings under threads on the fast path, half of them through a gate that is
    windowed: nobody is inside afterwards. (Without
    the barrier a handful are, in some millions; without waiting for those inside, dozens.)"""
    command = [build(headers, name), str(closings)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
    passed, in_groups, escaped = (int(word) for word in done.stdout.split()[1::2])
    assert passed >= closings
    assert in_groups >= closings // 10
    assert escaped == 0


def test_a_launch_is_counted_in_its_own_call_or_not_at_all(headers: Path) -> None:
    """A launch admitted by the window that leaves while the window is off is forgotten: the next
    call of the thread, in another stream, does not count for its ring."""
    command = [build(headers, "membarrier"), "changes"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
    assert done.stdout == "counted 0\n"
