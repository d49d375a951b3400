"""The table of movable memory, against a plain list, and under threads."""

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

GRANULE = 2 << 20
SPAN = 8  # the most chunks of an allocation
AWAY = ("parked", "stuck", "unmapped", "leaving", "coming")
MOVING = ("leaving", "coming")
TO_COME = ("parked", "stuck", "unmapped")
"""The device memory of the latter two would not be taken back."""
FAILURES_MAX = 8

Build = Callable[..., Path]


@dataclass
class Chunk:
    address: int
    state: str = "resident"
    fixed: bool = False
    failures: int = 0
    stays_until: int = 0

    def may_move(self) -> bool:
        return not self.fixed and not self.stays_until

    def settle(self, state: str, now: int) -> None:
        self.state = "resident" if state == "failed" else state
        if state in TO_COME:
            self.failures = 0
        if state == "failed":
            self.failures += 1
            self.fixed |= self.failures == FAILURES_MAX
            if self.failures < FAILURES_MAX:
                self.stays_until = now + 2 ** (self.failures - 1)

    def let_go(self, now: int) -> bool:
        goes = 0 < self.stays_until <= now
        self.stays_until = 0 if goes else self.stays_until
        return goes and not self.fixed


class Model:
    """What chunks.h promises, in words of Python."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.given = 0

    def within(self, address: int, count: int) -> list[Chunk]:
        return [c for c in self.chunks if address <= c.address < address + count * GRANULE]

    def movable(self, *states: str) -> list[Chunk]:
        return [c for c in self.chunks if c.state in states and c.may_move()]

    def claim(self, states: tuple[str, ...], becomes: str) -> int:
        found = self.movable(*states)
        if not found:
            return 0
        found[0].state = becomes
        return found[0].address

    def perform(self, operation: str, address: int, count: int) -> int:
        within = self.within(address, count)
        if operation == "add":
            self.chunks += [Chunk(address + i * GRANULE) for i in range(count)]
            self.chunks.sort(key=lambda chunk: chunk.address)
            return 1
        if operation == "free":
            self.chunks = [chunk for chunk in self.chunks if chunk not in within]
            return len(within)
        if operation == "fix":
            if any(chunk.state in (*AWAY, "buried") for chunk in within):
                return 0
            for chunk in within:
                chunk.fixed = True
            return 1
        if operation == "confirm":
            back = [chunk for chunk in self.chunks if chunk.state == "back"]
            self.given += len(back)
            for chunk in back:
                chunk.state = "resident"
            return 0
        claims = {"leaving": ("resident",), "coming": TO_COME, "undo": ("back",)}
        if operation in claims:
            becomes = "coming" if operation == "coming" else "leaving"
            return self.claim(claims[operation], becomes)
        if operation == "let_go":
            return int(any([chunk.let_go(count) for chunk in self.chunks]))
        self.within(address, 1)[0].settle(operation, count)
        return 0

    def sums(self) -> list[int]:
        states = [chunk.state for chunk in self.chunks]
        off = states.count("parked") + states.count("buried")
        moving = sum(state in MOVING for state in states)
        claimable = [len(self.movable(*each)) for each in (("resident",), TO_COME, ("back",))]
        movable = len(self.movable("resident", "back", *MOVING))
        here = not any(state in AWAY for state in states)
        copies = states.count("back")
        bytes_there = [len(states) - off, movable, off, states.count("parked")]
        there = [int(here), int(here and not copies)]
        return [*bytes_there, moving, *claimable, copies, *there, self.given]


@pytest.fixture(scope="session")
def chunks(program: Build) -> Path:
    sources = [hook_source("chunks.c"), hook_source("locks.c")]
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-pthread", "-fsanitize=address,undefined"]
    return program("chunk_operations", *sources, *flags)


@pytest.fixture(scope="session")
def chunks_tsan(program: Build) -> Path:
    sources = [hook_source("chunks.c"), hook_source("locks.c")]
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-pthread", "-fsanitize=thread"]
    return program("chunk_operations", *sources, *flags, suffix="-tsan")


def run(program: Path, model: Model, operations: list[tuple[str, int, int]]) -> None:
    """Performs the operations on both, and compares every answer and all sums."""
    expected = [[model.perform(*operation), *model.sums()] for operation in operations]
    assert perform(program, operations) == [*expected, model.sums()]


def perform(program: Path, operations: list[tuple[str, int, int]]) -> list[list[int]]:
    """What the table answers to each, with the sums after it; the sums at the end."""
    lines = "".join(" ".join(map(str, operation)) + "\n" for operation in operations)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


steps = st.tuples(
    st.sampled_from(
        ("add", "free", "fix", "leaving", "coming", "undo", "confirm", "settle", "let_go")
    ),
    st.integers(0, 6),
    st.integers(1, SPAN),
    st.sampled_from(("parked", "stuck", "unmapped", "buried", "back", "resident", "failed")),
)


@pytest.mark.promise("backing", "Who moves, frees or asks for a chunk has it alone")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=120))
def test_the_table_behaves_like_a_list(
    chunks: Path, chosen: list[tuple[str, int, int, str]]
) -> None:
    """Every claim, fix and free, and the sums after each, are the model's."""
    planned, shadow = Model(), []
    for operation, place, count, state in chosen:
        address = (place + 1) * SPAN * GRANULE
        taken = planned.within(address, SPAN)
        if operation == "settle":
            moving = [chunk for chunk in planned.chunks if chunk.state in MOVING]
            if not moving:
                continue
            chosen_chunk = moving[place % len(moving)]
            if state == "failed" and chosen_chunk.state != "leaving":
                continue  # only copies out leave their chunk as it was
            step = (state, chosen_chunk.address, count)
        elif operation == "add" and taken:
            continue
        elif operation == "free":
            if any(chunk.state in MOVING for chunk in taken):
                continue  # it would wait
            step = (operation, address, SPAN)
        else:
            step = (operation, address, count)
        planned.perform(*step)
        shadow.append(step)
    run(chunks, Model(), shadow)


@pytest.mark.promise("Who moves, frees or asks for...")
def test_a_great_allocation_leaves_and_comes_back_in_order(chunks: Path) -> None:
    """Every chunk is claimed once each way, lowest address first; then none is left to claim."""
    base = 1 << 40
    addresses = [base + i * GRANULE for i in range(800)]
    steps = [("add", base + i * GRANULE, SPAN) for i in range(0, 800, SPAN)]
    steps += [step for at in addresses for step in (("leaving", 0, 0), ("parked", at, 1))]
    steps += [("leaving", 0, 0)]
    steps += [step for at in addresses for step in (("coming", 0, 0), ("back", at, 1))]
    steps += [("coming", 0, 0), ("confirm", 0, 0), ("leaving", 0, 0)]
    run(chunks, Model(), steps)


@pytest.mark.parametrize("operation", ["confirm", "undo"])
def test_a_chunk_that_is_held_is_not_passed_over(chunks: Path, operation: str) -> None:
    """While the driver is told of a peer, a chunk that came back is held: who confirms what came
    back, or takes it back, waits for that, so that no host copy outlives its worth."""
    base = 1 << 40
    steps = [("add", base, 1), ("leaving", 0, 0), ("parked", base, 1), ("coming", 0, 0)]
    steps += [("back", base, 1), ("hold", base, 1), (operation, 0, 0), ("held", 0, 0)]
    answers = perform(chunks, [*steps, ("undo", 0, 0), ("resident", base, 1), ("leaving", 0, 0)])
    claimed = base if operation == "undo" else 0
    assert [answers[at][0] for at in (6, 8, 10)] == [claimed, 0, base]


@pytest.mark.promise("A chunk that could not be...")
def test_a_chunk_that_could_not_be_copied_stays_for_a_while(chunks: Path) -> None:
    """Twice as long after each failure in a row, and after eight of them for good; one copy that
    succeeds makes up for all of them."""
    at, now = 1 << 40, 0
    steps = [("add", at, 2), ("leaving", 0, 0), ("failed", at, now), ("let_go", 0, 1)]
    steps += [("leaving", 0, 0), ("parked", at, 0), ("coming", 0, 0), ("resident", at, 0)]
    for failures in range(1, FAILURES_MAX + 1):
        steps += [("leaving", 0, 0), ("failed", at, now), ("let_go", 0, now)]
        now += 2 ** (failures - 1)
        steps += [("leaving", 0, 0), ("resident", at + GRANULE, 0), ("let_go", 0, now - 1)]
        steps += [("let_go", 0, now)]
    steps += [("let_go", 0, 10**6), ("leaving", 0, 0), ("resident", at + GRANULE, 0)]
    model = Model()
    run(chunks, model, steps)
    first, other = model.chunks
    assert (first.fixed, first.failures, other.fixed) == (True, FAILURES_MAX, False)


@pytest.mark.promise("Who moves, frees or asks for...")
def test_threads_that_move_and_free_at_once(chunks_tsan: Path) -> None:
    """Six threads free what two movers park and restore and a third holds: nobody has a chunk that
    another has claimed, and nothing is left."""
    done = subprocess.run(
        [chunks_tsan, "6"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == "0 0 0 0 0 0 0 0 0 1 1 0\n"
