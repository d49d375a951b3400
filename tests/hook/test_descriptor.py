"""Descriptors that the hook keeps in a process that closes and uses any number."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hook.conftest import SOURCE
from tests.support.paths import hook_source
from tests.support.waits import WAIT_S_MAX


@pytest.mark.promise("bad-input-1")
def test_a_number_that_was_taken_over_is_left_alone(program: Callable[..., Path]) -> None:
    """The program closes the hook's descriptor and uses its number at once: its file stays open,
    the hook does without, and no duplicate of the file is left behind."""
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-Wl,--wrap=fcntl"]
    built = program("descriptor_race", hook_source("descriptor.c"), *flags)
    done = subprocess.run([built], capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
    assert done.stderr == ""
    adopted_open_left_behind = done.stdout.splitlines()
    assert adopted_open_left_behind == ["0 1 0", "0 1 0"]


@pytest.mark.promise("bad-input-1")
def test_a_program_that_closes_all_has_the_numbers_to_itself_first(
    program: Callable[..., Path],
) -> None:
    """The agent opens nothing before the program has had time to put its files in their places."""
    flags = ["-D_GNU_SOURCE", "-iquote", str(SOURCE), "-Wl,--wrap=syscall,--wrap=socketpair"]
    sources = [hook_source("bell.c"), hook_source("descriptor.c")]
    built = program("closes_bell", *sources, *flags)
    done = subprocess.run([built], capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
    assert done.stdout.splitlines() == ["pair", "program closes", "pause", "pair", "rings: 1"]
