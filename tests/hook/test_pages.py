"""The table of what is mapped where, against a plain dictionary."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hook.conftest import SOURCE
from tests.support.paths import hook_source

PAGE = 2 << 20
LEAF = 1 << 42
HIGHEST = 1 << 57
"""No device has an address as high as this."""

Build = Callable[..., Path]
Step = tuple[str, int, int]


class Model:
    """What pages.h promises, in words of Python."""

    def __init__(self) -> None:
        self.mappings: dict[int, int] = {}

    def at(self, address: int) -> int:
        for start, pages in self.mappings.items():
            if start <= address < start + pages * PAGE:
                return start
        return 0

    def perform(self, operation: str, address: int, pages: int) -> int:
        found = self.at(address)
        if operation == "enter":
            if address + pages * PAGE > HIGHEST:
                return 0
            self.mappings[address] = pages
            return address
        if operation == "leave" and found:
            del self.mappings[found]
        if operation == "fork":
            self.mappings.clear()
        return found


@pytest.fixture(scope="session")
def pages(program: Build) -> Path:
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-fsanitize=address,undefined"]
    return program("page_operations", hook_source("pages.c"), *flags)


# Few places, so that mappings meet: low ones, around the border of a leaf, and at the very end.
places = st.builds(
    lambda base, page: base + page * PAGE,
    st.sampled_from((PAGE, 0x7F00_0000_0000, LEAF - 4 * PAGE, HIGHEST - 8 * PAGE, HIGHEST)),
    st.integers(0, 7),
)
steps = st.tuples(
    st.sampled_from(("enter", "leave", "find", "find", "fork")),
    places,
    st.integers(1, 6),
    st.integers(0, PAGE - 1),
)


@pytest.mark.promise("backing-52", "Any address in mapped memory leads to its mapping")
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=80))
def test_the_table_behaves_like_a_dictionary(
    pages: Path, chosen: list[tuple[str, int, int, int]]
) -> None:
    """Every answer is the model's, for addresses of every height that a device can have."""
    model, performed, expected = Model(), [], []
    for operation, place, count, offset in chosen:
        if operation == "enter" and any(model.at(place + i * PAGE) for i in range(count)):
            continue  # the driver maps nothing where something is mapped
        step = (operation, place if operation == "enter" else place + offset, count)
        performed.append(step)
        expected.append(model.perform(*step))
    text = "".join(" ".join(map(str, step)) + "\n" for step in performed)
    done = subprocess.run([pages], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [int(word) for word in done.stdout.split()] == expected
