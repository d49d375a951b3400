"""What programs have made of their memory stays valid when it has left the device and come back:
graphs, pitched rows, many small arrays, memory of several processes of one tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hook.test_from_the_issue_host import arena
from tests.hook.test_from_the_issue_movable import Program, Room, eventually, room
from tests.support.sim import MIB

pytestmark = pytest.mark.full  # the same by other means is in the short tests
CAPTURED = """s, graph, ready = stream_create(), c_uint64(0), c_uint64(0)
a, b = alloc(20 * MIB), alloc(20 * MIB)
assert fill(a, 3, 20 * MIB) == fill(b, 4, 20 * MIB) == 0
assert call('cuStreamBeginCapture_v2', c_void_p(s), 2) == 0
launch('fill', s, c_uint64(a), c_uint(5), c_uint64(5 * MIB))
call('cuMemcpyDtoDAsync_v2', c_uint64(b), c_uint64(a), c_size_t(10 * MIB), c_void_p(s))
call('cuMemsetD32Async', c_uint64(b + 10 * MIB), 6, c_size_t(MIB), c_void_p(s))
assert call('cuStreamEndCapture', c_void_p(s), byref(graph)) == 0
assert call('cuGraphInstantiateWithFlags', byref(ready), graph, c_uint64(0)) == 0"""
REPLAYED = "call('cuGraphLaunch', ready, c_void_p(s)) or call('cuStreamSynchronize', c_void_p(s))"
CHILD = """import subprocess, threading
child = subprocess.Popen([sys.executable, program], stdin=-1, stdout=-1, text=True)
def tell(line):
    child.stdin.write(line + chr(10)); child.stdin.flush()
    return child.stdout.readline().split()
assert child.stdout.readline() == 'ready' + chr(10)"""


def push_out(shared: Room, rival: Program, victim: Program) -> None:
    """The rival takes its memory, for which the victim has to make room."""
    before = shared.moved(victim, "UNMAP")
    assert rival.holds("r", 1)
    eventually(lambda: shared.moved(victim, "UNMAP") > before, "the victim makes room")


def run(program: Program, text: str) -> None:
    """Lines at the outermost level, blocks included, as one piece."""
    program.do(f"exec({text!r}, globals())")


@pytest.mark.promise(
    "together-20",
    "CUDA graphs are replayed after a restore; pitched and small memory is as it was; all "
    "processes of a tenant make room; the end of a context gives host memory back, too",
)
def test_graphs_are_replayed_after_a_restore(tmp_path: Path) -> None:
    """A graph of a launch, a copy and a fill, instantiated before its memory left the device, does
    the same to the same memory when that is back, again and again."""
    with room(tmp_path) as shared:
        alice, rival = shared.start("alice"), shared.start("rival")
        with alice.cell():
            run(alice, CAPTURED)
        rival.hold("r", 1)
        for _ in range(3):
            with alice.cell():
                run(alice, "assert fill(a, 3, 20 * MIB) == fill(b, 4, 20 * MIB) == 0")
            push_out(shared, rival, alice)
            with alice.cell():
                assert alice.ask(REPLAYED) == 0
                assert alice.ask("words(a, 20 * MIB)") == [5]
                parts = "words(b, 10 * MIB), words(b + 10 * MIB, 4 * MIB), words(b + 14 * MIB, MIB)"
                assert alice.ask(parts) == ([5], [6], [4])


@pytest.mark.promise("together-20")
def test_pitched_and_small_memory_is_as_it_was(tmp_path: Path) -> None:
    """Rows of pitched memory and four thousand small arrays, each with a value of its own, hold it
    at the same addresses after each hand-over; those that were freed meanwhile disturb no other."""
    with room(tmp_path) as shared:
        alice, rival = shared.start("alice"), shared.start("rival")
        with alice.cell():
            alice.do("p, pitch = pitched(3000, 6000)")
            alice.do("rows = b''.join(bytes([i % 251]) * pitch for i in range(6000))")
            assert alice.ask("write(p, rows)") == 0
            alice.do("small = [alloc(4096) for i in range(4000)]")
            alice.do("[write(a, i.to_bytes(4, 'little') * 1024) for i, a in enumerate(small)]")
        rival.hold("r", 1)
        alice.do("[free(a) for a in small[::7]]")
        live = "(a for i, a in enumerate(small) if i % 7)"
        whole = "all(read(a, 4096) == i.to_bytes(4, 'little') * 1024 for i, a in kept)"
        alice.do(f"kept = [(small.index(a), a) for a in {live}]")
        for _ in range(2):
            with alice.cell():
                assert alice.ask("read(p, len(rows)) == rows") is True
                assert alice.ask(whole) is True
            push_out(shared, rival, alice)


@pytest.mark.promise("together-20")
def test_all_processes_of_a_tenant_make_room_and_come_back(tmp_path: Path) -> None:
    """A program and its child, which take their turns together, are both parked for a newcomer, and
    both have every byte in the next turn."""
    with room(tmp_path) as shared:
        alice, rival = shared.start("alice"), shared.start("rival")
        alice.do(f"program = {str(tmp_path / 'program.py')!r}")
        run(alice, CHILD)
        alice.hold("a", 7, 24)
        half = ["c = alloc(24 * MIB)", "=fill(c, 8, 24 * MIB)"]
        with alice.cell():
            assert [alice.ask(f"tell({line!r})")[-1] for line in half] == ["done", "0"]
        eventually(lambda: shared.memory("alice", "resident") == 48 * MIB, "both are known")
        rival.hold("r", 1, 56)
        eventually(lambda: shared.memory("alice", "parked") >= 40 * MIB, "both make room")
        for _ in range(2):
            assert alice.holds("a", 7, 24)
            with alice.cell():
                assert alice.ask("tell('=words(c, 24 * MIB)')")[-1] == "[8]"
            assert rival.holds("r", 1, 56)
        alice.do("child.stdin.close()")
        assert alice.ask("child.wait()") == 0


@pytest.mark.promise("together-20")
def test_the_end_of_a_context_gives_host_memory_back_too(tmp_path: Path) -> None:
    """Device resets while memory is parked, one after the other: nothing of it is left on the host
    or on the device that the next context's memory could not use."""
    with room(tmp_path) as shared:
        alice, rival = shared.start("alice"), shared.start("rival")
        rival.hold("r", 1)
        for value in (5, 6, 7, 8):
            alice.hold("a", value)
            push_out(shared, rival, alice)
            assert alice.holds("a", value)
            push_out(shared, rival, alice)
            assert alice.ask("call('cuDevicePrimaryCtxReset_v2', 0)") == 0
            eventually(lambda: shared.memory("alice", "parked") == 0, "nothing is parked")
            assert arena(alice.pid)[0] <= 64 * MIB
            assert alice.ask("opened() > 0, free(a)") == (True, 1)
        assert rival.holds("r", 1)
