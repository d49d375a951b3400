"""Small allocations in a block, against a plain list of units."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hook.conftest import SOURCE
from tests.support.paths import hook_source

UNIT, UNITS = 512, 4096


@dataclass
class Model:
    """What slab.h promises, in words of Python."""

    used: list[int] = field(default_factory=lambda: [0] * UNITS)
    allocations: dict[int, tuple[int, int]] = field(default_factory=dict)
    ids: int = 0

    def take(self, size: int) -> str:
        self.ids += 1
        units = -(-size // UNIT)
        for first in range(UNITS - units + 1):
            if not any(self.used[first : first + units]):
                self.used[first : first + units] = [1] * units
                self.allocations[first * UNIT] = (size, self.ids)
                return str(first * UNIT)
        return "-1"

    def find(self, offset: int) -> str:
        for start, (size, number) in self.allocations.items():
            if start <= offset < start + size:
                return f"{start} {size} {number}"
        return "-1"

    def give(self, start: int) -> str:
        size, _ = self.allocations.pop(start)
        units = -(-size // UNIT)
        self.used[start // UNIT : start // UNIT + units] = [0] * units
        return str(sum(self.used))


@pytest.fixture(scope="session")
def slab(program: Callable[..., Path]) -> Path:
    flags = ["-iquote", str(SOURCE), "-fsanitize=address,undefined"]
    return program("slab_operations", hook_source("slab.c"), *flags)


sizes = st.one_of(st.integers(1, 2000), st.integers(1, 1 << 20), st.sampled_from((512, 1 << 20)))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), sizes),
        st.tuples(st.just("find"), st.integers(0, UNIT * UNITS + 600)),
        st.tuples(st.just("give"), st.integers(0, 1000)),
    ),
    max_size=60,
)


@pytest.mark.promise("backing-21")
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps)
def test_a_slab_behaves_like_a_list_of_units(slab: Path, chosen: list[tuple[str, int]]) -> None:
    """First fit, exact sizes, and every byte behind an allocation belongs to nobody."""
    model, lines, expected = Model(), [], []
    for operation, number in chosen:
        if operation == "give":
            if not model.allocations:
                continue
            number = sorted(model.allocations)[number % len(model.allocations)]
        lines.append(f"{operation} {number}\n")
        expected.append(getattr(model, operation)(number))
    done = subprocess.run([slab], input="".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.promise("backing-21")
def test_a_slab_can_be_filled_and_emptied(slab: Path) -> None:
    """4,096 allocations fit, no more; freed in another order, all of it is free again."""
    lines = ["take 512\n"] * (UNITS + 1) + ["take 1\n"]
    order = sorted(range(UNITS), key=lambda i: (i * 7919) % UNITS)
    lines += [f"give {i * UNIT}\n" for i in order] + ["take 1048576\n", "take 1048576\n"]
    done = subprocess.run([slab], input="".join(lines), capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert answers[: UNITS + 2] == [*(str(i * UNIT) for i in range(UNITS)), "-1", "-1"]
    assert answers[-3:] == ["0", "0", str(1 << 20)]
