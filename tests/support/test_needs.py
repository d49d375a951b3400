"""What the tests say of a machine that lacks something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.needs import GIB, Machine, this_machine, what_is_missing

ENOUGH = Machine(2 * GIB, "/tmp", 20 * GIB, has_ipv4_loopback=True)


def test_a_small_machine_is_enough() -> None:
    """2 GiB are; and this machine runs the tests."""
    assert what_is_missing(ENOUGH) is None
    assert what_is_missing(this_machine()) is None


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (replace(ENOUGH, has_ipv4_loopback=False), "ip addr add 127.0.0.1/8 dev lo"),
        (replace(ENOUGH, memory_bytes=GIB // 2), "0.5 GiB of memory"),
        (replace(ENOUGH, disk_bytes=GIB // 2), "/tmp has 0.5 GiB free"),
    ],
)
def test_what_is_missing_is_said(machine: Machine, words: str) -> None:
    assert words in (what_is_missing(machine) or "")
