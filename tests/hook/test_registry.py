"""The registry of allocations, against a plain dictionary, and under threads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hook.conftest import SOURCE
from tests.support.paths import hook_source

OPERATIONS = ("add", "take", "find", "drop")

Build = Callable[..., Path]


@dataclass
class Record:
    bytes: int
    context: int


class Model:
    """What the registry promises, in words of Python."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, int], Record] = {}

    def perform(self, operation: str, space: int, key: int, size: int, context: int) -> int:
        where, known = (space, key), self.records.get((space, key))
        if operation == "add":
            self.records[where] = Record(size, context)
            return 1
        if operation == "drop":
            kept = {w: r for w, r in self.records.items() if not context or r.context != context}
            self.records = kept
            return 0
        if known is None:
            return 0
        if operation == "take":
            del self.records[where]
        return 1

    def sums(self) -> list[int]:
        there = sum(record.bytes for record in self.records.values())
        return [there, 0, there]  # what the driver has made is fixed


@pytest.fixture(scope="session")
def registry(program: Build) -> Path:
    sources = [hook_source("registry.c"), hook_source("locks.c")]
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-pthread", "-fsanitize=address,undefined"]
    return program("registry_operations", *sources, *flags)


@pytest.fixture(scope="session")
def registry_tsan(program: Build) -> Path:
    sources = [hook_source("registry.c"), hook_source("locks.c")]
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-pthread", "-fsanitize=thread"]
    return program("registry_operations", *sources, *flags, suffix="-tsan")


# Few keys, so that records meet; contexts 0 (none), 1 and 2.
steps = st.tuples(
    st.sampled_from(OPERATIONS),
    st.sampled_from((0, 1, 3)),
    st.integers(0, 600),
    st.integers(0, 1 << 40),
    st.integers(0, 2),
)


@pytest.mark.promise("hook-40", "The registry of allocations is right, under threads too")
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=900))
def test_the_registry_behaves_like_a_dictionary(
    registry: Path, operations: list[tuple[str, int, int, int, int]]
) -> None:
    """Every answer and the sums are the model's, with growth and removals in any order."""
    model = Model()
    expected = [str(model.perform(*operation)) for operation in operations]
    text = "".join(" ".join(map(str, operation)) + "\n" for operation in operations)
    done = subprocess.run([registry], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *answers, sums = done.stdout.splitlines()
    assert answers == expected
    assert [int(word) for word in sums.split()] == model.sums()


def test_many_records_come_and_go(registry: Path) -> None:
    """Twenty thousand allocations, freed in another order, leave nothing."""
    count = 20_000
    lines = [f"add 0 {0x7F0000000000 + i * 512} 3 0\n" for i in range(count)]
    order = sorted(range(count), key=lambda i: (i * 7919) % count)
    lines += [f"take 0 {0x7F0000000000 + i * 512} 0 0\n" for i in order]
    done = subprocess.run(
        [registry], input="".join(lines), capture_output=True, text=True, check=True
    )
    *answers, sums = done.stdout.split("\n")[:-1]
    assert set(answers) == {"1"}
    assert sums == "0 0 0"


@pytest.mark.promise("hook-40")
def test_threads_leave_nothing_behind(registry_tsan: Path) -> None:
    """Eight threads that claim, add and take at once: no race, and all sums back at zero."""
    done = subprocess.run([registry_tsan, "8"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "0 0 0\n"
