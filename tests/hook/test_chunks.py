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
from tests.support.waits import WAIT_S_MAX

MOVING = ("leaving", "coming")
TO_COME = ("parked", "stuck")
"""The device memory of the latter would not be taken back."""
FAILURES_MAX = 8
NONE = 2**64 - 1
PLACES = 16

Build = Callable[..., Path]


@dataclass
class Chunk:
    place: int
    is_managed: bool = False
    turn: int = 0
    """Where it stands among those that wait to be claimed for the same."""
    state: str = "resident"
    was: str = ""
    """Before it was claimed."""
    copied: bool = False
    """It is back because it was copied ahead of need."""
    fixed: bool = False
    failures: int = 0
    stays_until: int = 0

    def may_move(self) -> bool:
        return not self.fixed and not self.stays_until


class Model:
    """What chunks.h promises, in words of Python."""

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        self.given = 0
        self.turns = 0

    def queue(self, chunk: Chunk) -> None:
        """Behind the others; ahead of them where it is as it was before it was claimed."""
        self.turns += 1
        same = ("parked" if chunk.state in TO_COME else chunk.state) == chunk.was
        chunk.turn = -self.turns if same else self.turns

    def movable(self, *states: str) -> list[Chunk]:
        found = [c for c in self.chunks.values() if c.state in states and c.may_move()]
        return sorted(found, key=lambda chunk: chunk.turn)

    def claim(self, states: tuple[str, ...], becomes: str, *, to_copy: bool = False) -> int:
        claimable = [c for c in self.movable(*states) if not (to_copy and c.is_managed)]
        for chunk in sorted(claimable, key=lambda chunk: chunk.copied):
            chunk.was, chunk.state, chunk.copied = states[0], becomes, False
            return chunk.place
        return NONE

    def settle(self, chunk: Chunk, state: str, now: int) -> None:
        becomes = {"failed": "resident", "hopeless": "resident", "copied": "back"}
        chunk.state = becomes.get(state, state)
        chunk.copied = state == "copied"
        if state in (*TO_COME, "copied"):
            chunk.failures = 0
        if state == "hopeless":
            chunk.fixed = True
        if state == "failed":
            chunk.stays_until = now + 2**chunk.failures
            chunk.failures += 1
            chunk.fixed |= chunk.failures == FAILURES_MAX
        self.queue(chunk)

    def let_go(self, now: int) -> int:
        staying = [c for c in self.chunks.values() if c.stays_until and not c.fixed]
        due = [chunk for chunk in staying if chunk.stays_until <= now]
        for chunk in due:
            chunk.stays_until = 0
        for chunk in sorted(due, key=lambda chunk: chunk.turn):
            self.queue(chunk)
        return int(bool(due))

    def perform(self, operation: str, place: int, now: int) -> int:
        claims = {"leaving": ("resident",), "coming": TO_COME, "undo": ("back",)}
        if operation == "copying":
            return self.claim(("resident",), "leaving", to_copy=True)
        if operation in claims:
            becomes = "coming" if operation == "coming" else "leaving"
            return self.claim(claims[operation], becomes)
        if operation == "let_go":
            return self.let_go(now)
        if operation in ("add", "manage"):
            self.chunks[place] = Chunk(place, operation == "manage")
            self.queue(self.chunks[place])
        elif operation == "free":
            del self.chunks[place]
        elif operation in ("confirm", "give_up"):
            self.confirm(copied_alone=operation == "give_up")
        elif operation == "fix":
            self.chunks[place].fixed = True
            self.queue(self.chunks[place])
        else:
            self.settle(self.chunks[place], operation, now)
        return 0

    def confirm(self, *, copied_alone: bool) -> None:
        back = [chunk for chunk in self.chunks.values() if chunk.state == "back"]
        for chunk in sorted(back, key=lambda chunk: (chunk.copied, chunk.turn)):
            if chunk.copied or not copied_alone:
                self.given += 1
                self.settle(chunk, "resident", 0)

    def sums(self) -> list[int]:
        states = [chunk.state for chunk in self.chunks.values()]
        away = [c for c in self.chunks.values() if c.state in ("parked", "buried")]
        moving = sum(state in MOVING for state in states)
        claimable = [len(self.movable(*each)) for each in (("resident",), TO_COME, ("back",))]
        movable = self.movable("resident", "back", *MOVING)
        here = not any(state in (*MOVING, *TO_COME) for state in states)
        copies = states.count("back")
        # What needs no host memory to leave; what cannot leave is no room for others.
        back = len(self.movable("back")) + states.count("leaving")
        to_copy = sum(not chunk.is_managed for chunk in self.movable("resident"))
        copied = sum(chunk.copied for chunk in self.chunks.values())
        coming = [chunk.state for chunk in self.movable(*TO_COME)]
        comes_next = int(coming[:1] == ["parked"])
        bytes_there = [len(states) - len(away), len(movable), managed(movable)]
        bytes_off = [len(away), managed(away), comes_next]
        bytes_in_both = [len(self.movable("back")), back]
        there = [int(here), int(here and not copies)]
        numbers = [moving, *claimable, to_copy, copies, copied, *there, self.given]
        return [*bytes_there, *bytes_off, *bytes_in_both, *numbers]


def managed(chunks: list[Chunk]) -> int:
    return sum(chunk.is_managed for chunk in chunks)


@pytest.fixture(scope="session")
def chunks(program: Build) -> Path:
    sources = [hook_source(name) for name in ("chunks.c", "pages.c", "locks.c")]
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-pthread", "-fsanitize=address,undefined"]
    return program("chunk_operations", *sources, *flags)


@pytest.fixture(scope="session")
def chunks_tsan(program: Build) -> Path:
    sources = [hook_source(name) for name in ("chunks.c", "pages.c", "locks.c")]
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
        (
            *("add", "manage", "free", "fix", "leaving", "copying", "coming", "undo"),
            *("confirm", "give_up", "settle", "let_go"),
        )
    ),
    st.integers(0, PLACES - 1),
    st.integers(1, 8),
    st.sampled_from(
        ("parked", "stuck", "buried", "back", "resident", "copied", "failed", "hopeless")
    ),
)


@pytest.mark.promise("backing-42", "A thread that moves, frees or asks for a chunk has it alone")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=120))
def test_the_chunks_behave_like_lists(
    chunks: Path, chosen: list[tuple[str, int, int, str]]
) -> None:
    """Every claim, fix and free, and the sums after each, are the model's."""
    planned, shadow = Model(), []
    for operation, place, now, state in chosen:
        there = planned.chunks.get(place)
        stands = there is not None and there.state in ("resident", "back")
        if operation == "settle":
            moving = [chunk for chunk in planned.chunks.values() if chunk.state in MOVING]
            if not moving:
                continue
            chosen_chunk = moving[place % len(moving)]
            stays = state in ("copied", "failed", "hopeless")
            if stays and chosen_chunk.state != "leaving":
                continue  # only copies out leave their chunk as it was
            step = (state, chosen_chunk.place, now)
        elif operation == "free" and (there is None or there.state in MOVING):
            continue  # it would wait
        elif (operation == "fix" and not stands) or (
            operation in ("add", "manage") and there is not None
        ):
            continue
        else:
            step = (operation, place, now)
        planned.perform(*step)
        shadow.append(step)
    run(chunks, Model(), shadow)


@pytest.mark.promise("park-49")
def test_a_copy_ahead_of_need_that_succeeds_makes_up_for_failures(chunks: Path) -> None:
    """The next failure is the first in a row."""
    steps = [("add", 0, 0), ("leaving", 0, 0), ("failed", 0, 0), ("let_go", 0, 1)]
    steps += [("copying", 0, 0), ("copied", 0, 0), ("confirm", 0, 0), ("leaving", 0, 0)]
    run(chunks, Model(), [*steps, ("failed", 0, 1), ("let_go", 0, 2), ("leaving", 0, 0)])


@pytest.mark.promise("backing-42")
def test_all_leave_and_come_back_in_order(chunks: Path) -> None:
    """Every chunk is claimed once each way, the oldest first; then none is left to claim."""
    places = range(64)
    steps = [("add", at, 0) for at in places]
    steps += [step for at in places for step in (("leaving", 0, 0), ("parked", at, 1))]
    steps += [("leaving", 0, 0)]
    steps += [step for at in places for step in (("coming", 0, 0), ("back", at, 1))]
    steps += [("coming", 0, 0), ("confirm", 0, 0), ("leaving", 0, 0)]
    run(chunks, Model(), steps)


@pytest.mark.promise("backing-42")
def test_what_was_fixed_after_it_came_back_cannot_leave(chunks: Path) -> None:
    """Its host copy is no room for others, and goes with the rest."""
    steps = [("add", 0, 0), ("leaving", 0, 0), ("parked", 0, 0), ("coming", 0, 0), ("back", 0, 0)]
    run(chunks, Model(), [*steps, ("fix", 0, 0), ("undo", 0, 0), ("confirm", 0, 0)])


@pytest.mark.promise("backing-42")
def test_what_was_copied_ahead_leaves_as_it_is_or_is_given_up(chunks: Path) -> None:
    """In the order in which it would leave, behind what came back, and nothing that is managed.
    What left and came back is not given up. What is given up is the first to be copied again."""
    steps = [("manage", 0, 0), *(("add", at, 0) for at in (1, 2, 3, 4))]
    steps += [("leaving", 0, 0), ("parked", 0, 0), ("coming", 0, 0), ("back", 0, 0)]
    steps += [("manage", 5, 0), ("leaving", 0, 0), ("parked", 1, 0)]
    steps += [("coming", 0, 0), ("back", 1, 0)]
    steps += [step for at in (2, 3) for step in (("copying", 0, 0), ("copied", at, 0))]
    steps += [("copying", 0, 0), ("resident", 4, 0)]
    steps += [step for at in (0, 1, 2) for step in (("undo", 0, 0), ("parked", at, 0))]
    steps += [step for at in (0, 1, 2) for step in (("coming", 0, 0), ("back", at, 0))]
    steps += [("give_up", 0, 0), ("copying", 0, 0), ("copied", 3, 0), ("confirm", 0, 0)]
    steps += [("copying", 0, 0), ("copied", 3, 0), ("fix", 3, 0), ("undo", 0, 0)]
    model = Model()
    run(chunks, model, steps)
    assert (model.given, model.chunks[3].copied) == (5, True)


@pytest.mark.promise("park-49")
def test_a_chunk_that_could_not_be_copied_stays_for_a_while(chunks: Path) -> None:
    """Twice as long after each failure in a row, and after eight of them for good; one copy that
    succeeds makes up for all of them."""
    now = 0
    steps = [("add", 0, 0), ("add", 1, 0), ("leaving", 0, 0), ("failed", 0, now), ("let_go", 0, 1)]
    steps += [("leaving", 0, 0), ("parked", 0, 0), ("coming", 0, 0), ("resident", 0, 0)]
    steps += [("leaving", 0, 0), ("resident", 1, 0)]
    for failures in range(1, FAILURES_MAX + 1):
        steps += [("leaving", 0, 0), ("failed", 1, now), ("let_go", 0, now)]
        now += 2 ** (failures - 1)
        steps += [("let_go", 0, now - 1), ("let_go", 0, now)]
    steps += [("let_go", 0, 10**6), ("leaving", 0, 0), ("resident", 0, 0)]
    model = Model()
    run(chunks, model, steps)
    other, first = model.chunks[0], model.chunks[1]
    assert (first.fixed, first.failures, other.fixed) == (True, FAILURES_MAX, False)


@pytest.mark.promise("backing-42")
@pytest.mark.full
def test_threads_that_move_and_free_at_once(chunks_tsan: Path) -> None:
    """Six threads free what two movers park and restore: nobody has a chunk that another has
    claimed, and nothing is left."""
    done = subprocess.run(
        [chunks_tsan, "6"], capture_output=True, text=True, check=False, timeout=WAIT_S_MAX
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == "0 " * 15 + "1 1 0\n"
