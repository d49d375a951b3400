"""The addresses of a pool, against what its header promises."""

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

UNIT, SLOT_UNITS, SLOTS = 512, 65536, 24
MIB = 1 << 20
Part = tuple[int, int, str, int]


@pytest.fixture(scope="session")
def space(program: Callable[..., Path]) -> Path:
    flags = ["-iquote", str(SOURCE), "-D_GNU_SOURCE", "-fsanitize=address,undefined"]
    return program("space_operations", hook_source("space.c"), *flags)


def units(size: int) -> int:
    return -(-size // UNIT)


@dataclass
class Running:
    """The program, and what is known of the addresses without it."""

    process: subprocess.Popen[str]
    parts: list[Part] = field(default_factory=lambda: [(0, SLOTS * SLOT_UNITS, "e", -1)])
    used: dict[int, int] = field(default_factory=dict)
    """Units of each allocation, by where it begins."""
    pending: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Freed and not over: start, end, stream, and the number of the free."""

    def do(self, operation: str, first: int, second: int) -> list[str]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{operation} {first} {second}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        assert line and "lost" not in line and "wrong" not in line, line
        split = [word.split(":") for word in line if ":" in word]
        self.parts = [(int(a), int(b), c, int(d)) for a, b, c, d in split]
        self.check()
        return [word for word in line if ":" not in word]

    def check(self) -> None:
        """The parts are side by side, and what is alike is one."""
        assert sum(size for _, size, _, _ in self.parts) == SLOTS * SLOT_UNITS
        for left, right in zip(self.parts, self.parts[1:], strict=False):
            assert left[0] + left[1] == right[0]
            assert left[2] in "ul" or left[2:] != right[2:], (left, right)
        assert all(
            start % SLOT_UNITS == size % SLOT_UNITS == 0
            for start, size, state, _ in self.parts
            if state == "e"
        )
        assert not [part for part in self.parts if part[2] == "c"]

    def memory(self) -> set[int]:
        """Slots that have memory."""
        return {
            slot
            for start, size, state, _ in self.parts
            if state != "e"
            for slot in range(start // SLOT_UNITS, -(-(start + size) // SLOT_UNITS))
        }

    def allocate(self, operation: str, size: int, stream: int) -> bool:
        before = self.memory()
        where, missing = self.do(operation, size, stream)
        if where == "none":
            assert self.memory() == before
            return False
        start, end = int(where), int(where) + units(size)
        assert all(end <= other or start >= other + n for other, n in self.used.items())
        self.used[start] = units(size)
        assert [part[:2] for part in self.parts if part[2] == "u"] == sorted(self.used.items())
        assert len(self.memory() - before) == int(missing)
        assert before <= self.memory()
        for other_start, other_end, other_stream, _ in self.pending:
            overlaps = start < other_end and other_start < end
            assert not overlaps or other_stream == stream, "others may use it yet"
        self.pending = [
            piece
            for a, b, s, point in self.pending
            for piece in ((a, min(b, start), s, point), (max(a, end), b, s, point))
            if piece[0] < piece[1]
        ]
        return True

    def free(self, start: int, stream: int) -> None:
        size = self.used.pop(start)
        point = int(self.do("free", start, stream)[0])
        self.pending.append((start, start + size, stream, point))

    def follow(self, stream: int, key: int) -> None:
        now = int(self.do("follow", stream, key)[0])
        moved = [(a, b, key, now) if s == stream else (a, b, s, p) for a, b, s, p in self.pending]
        self.pending = moved

    def over(self, stream: int, point: int) -> None:
        self.do("over", point, stream)
        gone = [p for p in self.pending if p[2] == stream and p[3] <= point]
        self.pending = [p for p in self.pending if p not in gone]

    def vacate(self, slot: int, count: int) -> None:
        start, end = slot * SLOT_UNITS, (slot + count) * SLOT_UNITS
        before = self.memory()
        may_go = not any(s < end and start < s + n for s, n in self.used.items())
        may_go = may_go and not any(a < end and start < b for a, b, _, _ in self.pending)
        may_go = may_go and before >= set(range(slot, slot + count))
        answer = self.do("vacate", start, count)
        assert answer == (["done"] if may_go else ["none"])
        assert self.memory() == (before - set(range(slot, slot + count)) if may_go else before)


sizes = st.one_of(
    st.integers(1, 4096), st.integers(1, 100 * MIB), st.sampled_from((MIB, 32 * MIB, 64 * MIB))
)
streams = st.integers(1, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("take", "grow", "fail")), sizes, streams),
        st.tuples(st.just("free"), st.integers(0, 1000), streams),
        st.tuples(st.just("now"), st.integers(0, 1000), st.just(0)),
        st.tuples(st.just("over"), st.integers(0, 20), streams),
        st.tuples(st.just("follow"), streams, streams),
        st.tuples(st.just("vacate"), st.integers(0, SLOTS - 2), st.integers(1, 2)),
    ),
    max_size=60,
)


def run(program: Path) -> Running:
    process = subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return Running(process)


def end(running: Running) -> None:
    _, errors = running.process.communicate()
    assert running.process.returncode == 0, errors


@pytest.mark.promise(
    "backing-53",
    "Memory of a pool that was freed in one stream is another one's only when that is over, "
    "and parts of what was freed are used again",
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps)
def test_addresses_are_kept_in_order(space: Path, chosen: list[tuple[str, int, int]]) -> None:
    """Whatever is allocated, freed, over and given back: no two have the same, nobody has what
    another stream may use yet, and nothing is lost."""
    running = run(space)
    for operation, first, second in chosen:
        starts = sorted(running.used)
        if operation in ("take", "grow"):
            running.allocate(operation, first, second)
        elif operation == "fail":
            parts = running.parts
            running.do(operation, first, second)
            assert running.parts == parts
        elif operation == "vacate":
            running.vacate(first, second)
        elif operation == "follow":
            if first != second:
                running.follow(first, second)
        elif operation == "over":
            running.over(second, first)
        elif starts and operation == "free":
            running.free(starts[first % len(starts)], second)
        elif starts:
            start = starts[first % len(starts)]
            del running.used[start]
            running.do("now", start, 0)
    end(running)


@pytest.mark.promise("backing-53")
def test_a_stream_has_its_own_and_what_lies_beside_it(space: Path) -> None:
    """Larger sizes grow out of what the stream has freed; other streams have it when it is over."""
    running = run(space)
    assert running.allocate("grow", 64 * MIB, 1)
    running.free(0, 1)
    assert running.allocate("grow", 96 * MIB, 1)
    assert sorted(running.used) == [0] and running.memory() == {0, 1, 2}
    running.free(0, 1)
    assert not running.allocate("take", MIB, 2)
    assert running.allocate("take", MIB, 1)
    running.over(1, 2)
    assert running.allocate("take", MIB, 2)
    assert running.memory() == {0, 1, 2}
    end(running)


@pytest.mark.promise("backing-53")
def test_what_is_lost_is_nobody_s_until_it_is_given_back(space: Path) -> None:
    """Of what lies in a slot: what is free, at once, and what is freed later. The slot goes when
    all of it is lost, and its addresses are used again."""
    running = run(space)
    assert running.allocate("grow", 64 * MIB, 1)
    running.free(0, 1)
    assert running.allocate("take", 20 * MIB, 1)
    running.do("lose", 0, 1)
    running.pending = [(SLOT_UNITS, 2 * SLOT_UNITS, 1, 1)]
    assert not running.allocate("take", 40 * MIB, 1)
    assert running.do("back", 0, 1) == ["none"]  # some of it is allocated
    running.free(0, 1)
    running.do("lose", 0, 1)
    assert running.do("back", 0, 2) == ["none"]  # the second slot is not lost
    assert running.do("back", 0, 1) == ["done"]
    assert running.memory() == {1}
    end(running)


@pytest.mark.promise("backing-53")
def test_a_run_of_which_some_is_lost(space: Path) -> None:
    """It cannot be settled. Nobody has its memory, and what was missing is missing as before."""
    running = run(space)
    assert running.allocate("grow", 32 * MIB, 1)
    running.free(0, 1)
    assert running.do("risk", 64 * MIB, 1) == ["lost_run"]
    running.pending = []
    assert running.parts[0] == (0, SLOT_UNITS, "l", -1) and running.memory() == {0}
    assert not running.allocate("take", MIB, 1)
    assert running.do("back", 0, 1) == ["done"] and running.memory() == set()
    end(running)
