"""Memory that one process has given to another, and either of them dies while its work is under
way: the other one, and a third tenant, go on with every byte, and the memory of the dead is
there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hook.test_from_the_issue_movable import Program, Room, eventually, room
from tests.hook.test_ipc import sibling
from tests.support.sim import MIB

GIVEN = 24
"""MiB."""
BESIDE, REST, DEVICE = 30, 26, 72
"""What another tenant can have beside it, and what besides when it has gone; the device."""
SESSION = ["from tests.hook.pooled_session import *", "import os, socket"]


@dataclass(frozen=True)
class Way:
    """How memory is given away: lines of Python for both processes, and how each gives it back."""

    made: list[str]
    """In the exporter: `a` is the address."""
    given: str
    """What the exporter then tells the importer, as `told`."""
    taken: list[str]
    """In the importer: `a` is its address."""
    freed: str
    closed: str


BYTES = f"{GIVEN} * MIB"
WAYS = {
    "ipc": Way(
        [f"a = alloc({BYTES})"],
        "share(a)",
        ["a = open_shared(told)", "assert a > 0, a"],
        "free(a)",
        "close_shared(a)",
    ),
    "descriptor": Way(
        [f"handle, a = mapped({BYTES}, handle_types=1)"],
        "sends(export(handle))",
        [
            "got = receives(told)",
            "foreign = made('cuMemImportFromShareableHandle', c_void_p(got), 1)",
            "os.close(got)",  # it would keep the memory
            f"a = reserve({BYTES})",
            f"assert map_at(a, {BYTES}, foreign) == grant(a, {BYTES}) == release(foreign) == 0",
        ],
        f"unmap(a, {BYTES}) or release(handle)",
        f"unmap(a, {BYTES})",
    ),
    "pool": Way(
        [
            "pool, shown = pool_create(handle_types=1), ctypes.create_string_buffer(64)",
            "of = made('cuMemPoolExportToShareableHandle', c_void_p(pool), 1, c_uint64(0))",
            f"a = take({BYTES}, 0, pool)",
            "assert wait() == call('cuMemPoolExportPointer', shown, c_uint64(a)) == 0",
        ],
        "(sends(of), shown.raw)",
        [
            "got = receives(told[0])",
            "where = (c_void_p(got), 1, c_uint64(0))",
            "pool = made('cuMemPoolImportFromShareableHandle', *where)",
            "os.close(got)",
            "a = made('cuMemPoolImportPointer', c_void_p(pool), told[1])",
            "assert a > 0, a",
        ],
        "give(a) or wait() or pool_destroy(pool)",
        "give(a) or wait() or pool_destroy(pool)",
    ),
}
PASSING = '''
def sends(descriptor):
    """A descriptor waits at an address for whoever asks for it, in a thread of its own."""
    assert descriptor >= 0, descriptor
    server = socket.socket(socket.AF_UNIX)
    server.bind("")
    server.listen()
    def serve():
        socket.send_fds(server.accept()[0], [b"."], [descriptor])
        os.close(descriptor)
        server.close()
    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname().hex()

def receives(address):
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(bytes.fromhex(address))
        return socket.recv_fds(peer, 1, 1)[1][0]
'''


@dataclass
class Given:
    """Alice has given memory to a sibling of hers; bob is another tenant."""

    room: Room
    way: Way
    exporter: Program
    importer: Program
    bob: Program

    def work_begins(self, program: Program) -> None:
        """In the middle of a cell: it ends when somebody says so, or with the process."""
        program.do("turn('began')", "s = stream_create()", "flag = held(s)")
        assert (
            program.ask(f"launch('fill', s, c_uint64(a), c_uint(9), c_uint64({BYTES} // 4))") == 0
        )

    def others_go_on(self, survivor: Program) -> None:
        """They take turns with what each of them has."""
        self.bob.hold("b", 1, BESIDE)
        for _ in range(2):
            assert survivor.holds("a", 7, GIVEN) and survivor.holds("own", 5, 12)
            assert self.bob.holds("b", 1, BESIDE)

    def all_of_it_is_there(self, survivor: Program) -> None:
        """For bob, who has nearly the whole device then."""
        eventually(self._has_the_rest, "the memory of the dead is there")
        assert self.bob.ask(f"fill(c, 2, {REST} * MIB)") == 0
        self.bob.do("turn('ended')")
        assert survivor.holds("own", 5, 12)
        assert self.bob.holds("b", 1, BESIDE) and self.bob.holds("c", 2, REST)

    def _has_the_rest(self) -> bool:
        self.bob.do("turn('ended')", "turn('began')", f"c = alloc({REST} * MIB)")
        return bool(self.bob.ask("c > 0"))


@pytest.fixture(params=WAYS)
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Given]:
    way = WAYS[request.param]
    wait = "--GPUShareScheduler.memory_wait_s=0"
    with room(tmp_path, wait, device_bytes=DEVICE * MIB) as shared:
        exporter, bob = shared.start("alice"), shared.start("bob")
        with sibling(exporter, tmp_path) as importer:
            for program in (exporter, importer, bob):
                program.do(*SESSION, f"exec({PASSING!r})")
            with exporter.cell():
                exporter.do(*way.made)
                assert exporter.ask(f"fill(a, 7, {BYTES})") == 0
                told = exporter.ask(f"repr({way.given})")
            with importer.cell():
                importer.do(f"told = {told!r}", *way.taken)
            for program in (exporter, importer):
                program.hold("own", 5, 12)
            yield Given(shared, way, exporter, importer, bob)


def killed(program: Program) -> None:
    os.kill(program.pid, signal.SIGKILL)
    program.process.wait()


@pytest.mark.promise(
    "bad-memory-11",
    "An importer that dies, its work under way: the exporter has all that it had, and what it "
    "frees is there for others",
)
def test_an_importer_that_dies(given: Given) -> None:
    given.work_begins(given.importer)
    killed(given.importer)
    with given.exporter.cell():  # what the dead one's work has left of it is nobody's promise
        assert given.exporter.ask(f"fill(a, 7, {BYTES})") == 0
    given.others_go_on(given.exporter)
    assert given.exporter.ask(given.way.freed) == 0
    given.all_of_it_is_there(given.exporter)
    assert given.exporter.process.finish() == given.bob.process.finish() == 0


@pytest.mark.promise(
    "bad-memory-12",
    "An exporter that dies first, its work under way: the importer keeps the memory, and what it "
    "closes is there for others",
)
def test_an_exporter_that_dies_first(given: Given) -> None:
    given.work_begins(given.exporter)
    killed(given.exporter)
    with given.importer.cell():
        assert given.importer.ask(f"fill(a, 7, {BYTES})") == 0
    given.others_go_on(given.importer)
    assert given.importer.ask(given.way.closed) == 0
    given.all_of_it_is_there(given.importer)
    assert given.importer.process.finish() == given.bob.process.finish() == 0
