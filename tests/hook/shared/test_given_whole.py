"""Memory of several parts that a program exports itself, while another tenant takes turns with it:
programs under the real hook and scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.test_from_the_issue_movable import Program, eventually, room
from tests.hook.test_ipc import sibling
from tests.support.sim import MIB

SIZE = 150
"""MiB: three parts, of which two are of 64 MiB."""
WORDS = "from tests.hook.mapping_session import *"


def looks(program: Program, name: str, value: int) -> bool:
    return program.holds(name, value, SIZE)


@pytest.mark.promise("backing-14")
def test_it_is_exported_from_host_memory(tmp_path: Path) -> None:
    """It comes back with the turn, becomes one allocation, and is the same memory in both
    processes; from then on it stays, and the other tenant's memory moves beside it."""
    with room(tmp_path, device_bytes=256 * MIB) as shared:
        alice = shared.start("alice")
        alice.do(WORDS)
        with alice.cell():
            alice.do(f"handle, a = mapped({SIZE} * MIB, handle_types=1)")
            assert alice.ask(f"fill(a, 7, {SIZE} * MIB)") == 0
        bob = shared.start("bob")
        bob.hold("b", 1, 200)
        eventually(lambda: shared.memory("alice", "parked") > 0, "some of it is parked")
        with bob.cell():
            assert bob.ask("free(b)") == 0
            bob.do("b = alloc(90 * MIB)")
            assert bob.ask("fill(b, 1, 90 * MIB)") == 0
        with alice.cell():
            alice.do("fd = export(handle)")
            assert alice.ask("fd > 0"), alice.process.errors()
        eventually(lambda: shared.memory("alice", "fixed") == SIZE * MIB, "it is fixed")
        assert looks(alice, "a", 7)
        with sibling(alice, tmp_path) as other:
            other.do(WORDS, f"import os; fd = os.open('/proc/{alice.pid}/fd/{alice.ask('fd')}', 2)")
            with other.cell():
                other.do("came = made('cuMemImportFromShareableHandle', c_void_p(fd), 1)")
                other.do(f"a = reserve({SIZE} * MIB)", f"map_at(a, {SIZE} * MIB, came)")
                assert other.ask(f"grant(a, {SIZE} * MIB), fill(a, 8, {SIZE} * MIB)") == (0, 0)
            for value in (8, 9):
                assert bob.holds("b", 1, 90)
                assert looks(alice, "a", value)
                with alice.cell():
                    assert alice.ask(f"fill(a, {value + 1}, {SIZE} * MIB)") == 0
                assert looks(other, "a", value + 1)
