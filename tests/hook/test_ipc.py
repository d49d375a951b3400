"""Memory that follows the turn, given to another process by its handle (cuIpcGetMemHandle): two
programs under the real hook and scheduler, and a third one that wants the device for itself."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hook.runtime.process import GpuProcess
from tests.hook.test_from_the_issue_movable import DEVICE, Program, Room, eventually, room
from tests.support.sim import MIB
from tests.support.stacks import threads_of

INVALID_VALUE, INVALID_CONTEXT, MAP_FAILED, INVALID_HANDLE = 1, 201, 205, 400
SHARED = 4
THREE_CHUNKS = 140
"""MiB."""


@contextmanager
def sibling(of: Program, folder: Path, **more: str) -> Iterator[Program]:
    """Another process of the same tenant."""
    lines = Path(f"/proc/{of.pid}/environ").read_bytes().split(b"\0")
    env = dict(line.decode().split("=", 1) for line in lines if line)
    process = GpuProcess(
        [sys.executable, str(folder / "program.py")], env | more, folder / "sibling.log"
    )
    try:
        yield Program(process)
    finally:
        process.end()


class Pair:
    """A program that has given memory to another one of its tenant."""

    def __init__(self, shared: Room, exporter: Program, importer: Program) -> None:
        self.room = shared
        self.exporter = exporter
        self.importer = importer

    def share(self, name: str) -> str:
        with self.exporter.cell():
            return str(self.exporter.ask(f"repr(share({name}))"))

    def give(self, name: str) -> None:
        """The importer has it by the same name from then on."""
        self.importer.do(f"{name} = open_shared('{self.share(name)}')")
        assert self.importer.ask(f"{name} > 0"), self.importer.ask(name)


@contextmanager
def paired(tmp_path: Path, device_bytes: int) -> Iterator[Pair]:
    with room(tmp_path, device_bytes=device_bytes) as shared:
        exporter = shared.start("alice")
        exporter.hold("a", 7, SHARED)
        with sibling(exporter, tmp_path) as importer:
            yield Pair(shared, exporter, importer)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with paired(tmp_path, DEVICE) as two:
        yield two


@pytest.fixture
def roomy_pair(tmp_path: Path) -> Iterator[Pair]:
    """On a device with room for a block of three chunks."""
    with paired(tmp_path, 4 * DEVICE) as two:
        yield two


@pytest.mark.promise("backing-35")
def test_both_read_what_the_other_writes(pair: Pair) -> None:
    """The bytes are the same memory, seen from either side."""
    pair.give("a")
    assert pair.importer.holds("a", 7, SHARED)
    with pair.importer.cell():
        assert pair.importer.ask(f"fill(a, 8, {SHARED} * MIB)") == 0
    assert pair.exporter.holds("a", 8, SHARED)
    with pair.exporter.cell():
        assert pair.exporter.ask(f"fill(a, 9, {SHARED} * MIB)") == 0
    assert pair.importer.holds("a", 9, SHARED)


@pytest.mark.promise("backing-35")
def test_shared_memory_stays_and_the_rest_moves(pair: Pair) -> None:
    """What is shared counts as fixed and stays on the device when another tenant needs the room;
    the rest of both processes moves; no byte of either changes."""
    pair.exporter.hold("rest", 5, 20)
    pair.importer.hold("more", 6, 20)
    pair.give("a")
    eventually(lambda: pair.room.memory("alice", "fixed") == SHARED * MIB, "it counts as fixed")
    bob = pair.room.start("bob")
    bob.hold("b", 1)
    for value in (7, 8, 9):
        assert bob.holds("b", 1)
        assert pair.room.memory("alice", "parked") > 0
        assert pair.exporter.holds("a", value, SHARED) and pair.importer.holds("a", value, SHARED)
        assert pair.exporter.holds("rest", 5, 20) and pair.importer.holds("more", 6, 20)
        with pair.importer.cell():
            assert pair.importer.ask(f"fill(a, {value + 1}, {SHARED} * MIB)") == 0
    assert pair.room.memory("alice", "fixed") == SHARED * MIB


@pytest.mark.promise("backing-35")
def test_memory_that_is_parked_can_be_shared(pair: Pair) -> None:
    """The call waits for the turn, as an allocation does, and the memory comes back for it."""
    pair.exporter.hold("rest", 5, 36)
    bob = pair.room.start("bob")
    bob.hold("b", 1, 56)
    assert pair.room.moved(pair.exporter, "UNMAP") >= 34 * MIB
    pair.give("a")
    assert pair.importer.holds("a", 7, SHARED)
    assert bob.holds("b", 1, 56)


@pytest.mark.promise(
    "backing-44",
    "A handle opens the beginning of its allocation, large or small, any number of times; "
    "queries answer for its address as for any other",
)
def test_opening_twice_and_closing_twice(pair: Pair) -> None:
    """The same handle gives the same address, as often as it is opened; after as many closes it is
    not mapped any more, and a further close is refused."""
    handle = pair.share("a")
    assert pair.share("a") == handle
    ask = pair.importer.ask
    pair.importer.do(f"first = open_shared('{handle}')", f"second = open_shared('{handle}')")
    assert ask("first > 0 and first == second")
    assert ask("close_shared(first)") == 0
    assert pair.importer.holds("first", 7, SHARED)
    assert ask("close_shared(first)") == 0
    assert ask("address_range(first)") == -500
    assert ask("close_shared(first)") != 0
    pair.importer.do(f"first = open_shared('{handle}')")
    assert pair.importer.holds("first", 7, SHARED)


@pytest.mark.promise("backing-44")
def test_what_an_opened_address_is(pair: Pair) -> None:
    """Queries answer for the whole allocation, from any address in it; it cannot be freed, taken
    for mapped memory or given on."""
    pair.give("a")
    ask = pair.importer.ask
    assert ask("address_range(a + 5) == (a, 4 * MIB)")
    assert ask("[attribute(w, a + 5) - a for w in (3, 11)] == [5, 0]")
    assert ask("[attribute(w, a) for w in (1, 2, 9, 12, 13)]") == [
        ask("CONTEXT"),
        2,
        0,
        SHARED * MIB,
        1,
    ]
    assert ask("attributes(a, 11, 12) == [a, 4 * MIB]")
    assert ask("free(a)") != 0
    assert ask("unmap(a, 4 * MIB)") == INVALID_VALUE
    assert ask("share(a)") == -INVALID_VALUE
    assert pair.importer.holds("a", 7, SHARED)


@pytest.mark.promise("backing-44")
def test_small_allocations_lie_where_they_should(pair: Pair) -> None:
    """Of allocations that share a block each opens at its own beginning, in one mapping; a handle
    of an address inside one is that of the whole."""
    with pair.exporter.cell():
        pair.exporter.do("b, c = alloc(5000), alloc(70000)")
        assert pair.exporter.ask("write(b, b'b' * 5000), write(c, b'c' * 70000)") == (0, 0)
        assert pair.exporter.ask("share(c + 1234) == share(c)")
    pair.give("b")
    pair.give("c")
    with pair.importer.cell():
        assert pair.importer.ask("read(b, 5000) == b'b' * 5000 and read(c, 70000) == b'c' * 70000")
    ask = pair.importer.ask
    assert ask("address_range(c + 9) == (c, 70000)")
    assert ask("c - b") == pair.exporter.ask("c - b")
    assert ask("close_shared(b)") == 0
    with pair.importer.cell():
        assert ask("read(c, 70000) == b'c' * 70000")


@pytest.mark.promise(
    "backing-45",
    "Handles that are foreign, damaged, of this process, of freed memory, or of a process that is "
    "gone, and a driver or a process that cannot: the documented error, and one line on what to "
    "do where there is something",
)
def test_handles_that_are_refused(pair: Pair) -> None:
    """In the same process, without the flag, and damaged: each its documented error; what is not
    ours goes to the driver; addresses that are no allocation have no handle."""
    handle = pair.share("a")
    assert pair.exporter.ask(f"open_shared('{handle}')") == -INVALID_CONTEXT
    ask = pair.importer.ask
    assert ask(f"open_shared('{handle}', 0)") == -INVALID_VALUE
    for at in range(16, 128, 14):
        flipped = f"{int(handle[at], 16) ^ 1:x}"
        damaged = handle[:at] + flipped + handle[at + 1 :]
        assert ask(f"open_shared('{damaged}')") == -INVALID_HANDLE
    assert ask("open_shared('00' * 64)") < 0
    with pair.exporter.cell():
        assert pair.exporter.ask(f"int(share(a + {SHARED} * MIB), 16) < 0")
        assert pair.exporter.ask("call('cuIpcGetMemHandle', None, c_uint64(a))") == INVALID_VALUE
    assert pair.exporter.holds("a", 7, SHARED)


@pytest.mark.promise("backing-45")
def test_memory_that_was_freed_cannot_be_opened(pair: Pair) -> None:
    """A handle dies with its memory, also when other memory comes to the same address; the device
    has it back."""
    handle = pair.share("a")
    with pair.exporter.cell():
        assert pair.exporter.ask("free(a)") == 0
    assert pair.importer.ask(f"open_shared('{handle}')") == -INVALID_HANDLE
    eventually(lambda: pair.room.memory("alice", "fixed") == 0, "nothing of it is left")
    pair.exporter.hold("a", 3, SHARED)
    assert pair.importer.ask(f"open_shared('{handle}')") == -INVALID_HANDLE
    assert pair.share("a") != handle


@pytest.mark.promise(
    "backing-46",
    "A free, an end, a stop, a fork, a context's end or closed descriptors on either side harm "
    "nobody else",
)
def test_freed_while_it_is_open(pair: Pair) -> None:
    """What the importer then sees is nobody's promise; it can go on and close, and the exporter and
    others have theirs."""
    pair.exporter.hold("rest", 5, 10)
    pair.give("a")
    with pair.exporter.cell():
        assert pair.exporter.ask("free(a)") == 0
    with pair.importer.cell():
        pair.importer.ask("read(a, 100) is not None")
    pair.exporter.hold("other", 4, SHARED)
    with pair.importer.cell():
        assert pair.importer.ask(f"fill(a, 9, {SHARED} * MIB)") == 0
    assert pair.exporter.holds("other", 4, SHARED) and pair.exporter.holds("rest", 5, 10)
    assert pair.importer.ask("close_shared(a)") == 0


@pytest.mark.promise("backing-45")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_exporter_is_gone(pair: Pair, how: signal.Signals) -> None:
    """What is open stays usable; what is not cannot be opened any more."""
    pair.give("a")
    pair.exporter.hold("b", 2, SHARED)
    handle = pair.share("b")
    os.kill(pair.exporter.pid, how)
    pair.exporter.process.wait()
    assert pair.importer.ask(f"open_shared('{handle}')") == -MAP_FAILED
    assert pair.importer.holds("a", 7, SHARED)
    assert pair.importer.ask("close_shared(a)") == 0
    pair.importer.hold("c", 1, 50)


@pytest.mark.promise("backing-46")
def test_the_importer_is_gone(pair: Pair) -> None:
    """Killed with the memory open: the exporter has it as before, and can give it to others."""
    pair.give("a")
    os.kill(pair.importer.pid, signal.SIGKILL)
    pair.importer.process.wait()
    assert pair.exporter.holds("a", 7, SHARED)
    handle = pair.share("a")
    bob = pair.room.start("bob")
    bob.do(f"a = open_shared('{handle}')")
    assert bob.holds("a", 7, SHARED)


@pytest.mark.promise("backing-46")
def test_an_exporter_that_does_not_answer(pair: Pair) -> None:
    """One that is stopped makes an importer wait, and goes on serving when it goes on; killed in
    the middle of it, it has ended like any other."""
    handle = pair.share("a")
    for then, opens in ((signal.SIGCONT, True), (signal.SIGKILL, False)):
        os.kill(pair.exporter.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pair.exporter.pid, os.WSTOPPED | os.WNOWAIT)  # it may run on for a bit
        pair.importer.begin_to_ask(f"open_shared('{handle}')")
        os.kill(pair.exporter.pid, then)
        address = pair.importer.answer()
        assert address > 0 if opens else address == -MAP_FAILED
        if opens:
            assert pair.importer.ask(f"close_shared({address})") == 0


@pytest.mark.promise("backing-46")
def test_both_end_by_themselves(pair: Pair) -> None:
    """Neither the thread that serves nor memory that is open keeps a process from ending."""
    pair.give("a")
    assert pair.exporter.process.finish() == 0
    assert pair.importer.process.finish() == 0
    assert pair.exporter.process.errors() == pair.importer.process.errors() == ""


@pytest.mark.promise("backing-45")
@pytest.mark.parametrize(
    "call",
    [
        "cuMemImportFromShareableHandle",
        "cuMemMap",
        pytest.param("cuMemSetAccess", marks=pytest.mark.full),
        pytest.param("cuMemAddressReserve", marks=pytest.mark.full),
    ],
)
def test_a_driver_that_fails_while_it_is_opened(
    roomy_pair: Pair, tmp_path: Path, call: str
) -> None:
    """Nothing is left of it, and the next try is well."""
    roomy_pair.exporter.hold("b", 2, THREE_CHUNKS)
    handle = roomy_pair.share("b")
    nth = 1 if call in ("cuMemSetAccess", "cuMemAddressReserve") else 2
    plan = f"fail {call} nth={nth} result=999"
    with sibling(roomy_pair.exporter, tmp_path, GPUSHARE_SIM_FAULTS=plan) as other:
        assert other.ask(f"open_shared('{handle}')") == -MAP_FAILED
        mapped = [roomy_pair.room.moved(other, kind) for kind in ("MAP", "UNMAP")]
        assert mapped[0] == mapped[1]
        other.do(f"b = open_shared('{handle}')")
        assert other.holds("b", 2, THREE_CHUNKS)


@pytest.mark.promise("backing-46")
def test_a_close_in_a_capture_is_done_later(pair: Pair) -> None:
    """A capture is not disturbed by it, and what was closed goes with the next call."""
    pair.give("a")
    pair.give("a")
    ask = pair.importer.ask
    with pair.importer.cell():
        pair.importer.do("stream, graph = stream_create(), c_void_p(0)")
        assert ask("call('cuStreamBeginCapture_v2', c_void_p(stream), 0)") == 0
        assert ask("[close_shared(a), close_shared(a), address_range(a)]") == [0, 0, -500]
        assert pair.room.moved(pair.importer, "UNMAP") == 0
        assert ask("call('cuStreamEndCapture', c_void_p(stream), byref(graph))") == 0
    assert ask("close_shared(a)") == INVALID_VALUE
    pair.exporter.hold("b", 2, SHARED)
    pair.give("b")
    assert pair.room.moved(pair.importer, "UNMAP") == SHARED * MIB


@pytest.mark.promise("backing-44")
def test_the_memory_of_another_device(tmp_path: Path) -> None:
    """A context opens memory of a device that is not its own, under whatever number it sees it."""
    with room(tmp_path, devices=2) as shared:
        exporter = shared.start("alice")
        exporter.hold("a", 7, SHARED)
        with exporter.cell():
            handle = exporter.ask("repr(share(a))")
        for visible, own, theirs in (("0,1", 1, 0), ("1,0", 0, 1)):
            with sibling(exporter, tmp_path, CUDA_VISIBLE_DEVICES=visible) as other:
                other.do(f"on(opened({own}))", f"a = open_shared('{handle}')")
                assert other.ask("attribute(9, a), address_range(a)[1]") == (theirs, SHARED * MIB)
                assert other.holds("a", 7, SHARED)


@pytest.mark.promise("backing-35")
@pytest.mark.full
def test_a_block_of_many_chunks(tmp_path: Path) -> None:
    """More descriptors than go with one message: all of it is there, in order."""
    gib = 17
    with room(tmp_path, device_bytes=(gib + 1) << 30) as shared:
        exporter = shared.start("alice")
        with exporter.cell():
            exporter.do(f"a = alloc({gib} << 30)", f"places = range(0, {gib} << 30, 64 << 20)")
            exporter.do("[write(a + at, at.to_bytes(8, 'little')) for at in places]")
            handle = exporter.ask("repr(share(a))")
        with sibling(exporter, tmp_path) as other:
            other.do(f"a = open_shared('{handle}')", f"places = range(0, {gib} << 30, 64 << 20)")
            with other.cell():
                there = other.ask(
                    "all(read(a + at, 8) == at.to_bytes(8, 'little') for at in places)"
                )
            assert there and other.ask("len(places)") > 253


@pytest.mark.promise("backing-46")
def test_the_end_of_a_context_ends_what_it_had(pair: Pair) -> None:
    """In the exporter the memory and its handles go; in the importer what was open there."""
    pair.give("a")
    handle = pair.share("a")
    pair.importer.do("other = made('cuCtxCreate_v2', 0, 0)", f"b = open_shared('{handle}')")
    assert pair.importer.ask("b > 0 and b != a")
    pair.importer.do("call('cuCtxDestroy_v2', c_void_p(other))", "on(CONTEXT)")
    assert pair.importer.ask("address_range(b)") == -500
    assert pair.importer.holds("a", 7, SHARED)
    pair.exporter.do("call('cuDevicePrimaryCtxReset_v2', 0)", "CONTEXT = opened()")
    assert pair.importer.ask("close_shared(a)") == 0
    assert pair.importer.ask(f"open_shared('{handle}')") == -INVALID_HANDLE
    pair.exporter.hold("a", 2, SHARED)


@pytest.mark.promise("backing-46")
def test_forks_on_both_sides(pair: Pair) -> None:
    """Children have neither descriptors nor the thread that serves them; their parents go on."""
    pair.give("a")
    forked = "child = os.fork() or [time.sleep(600) for _ in (0,)] and os._exit(0)"
    for parent in (pair.exporter, pair.importer):
        parent.do("import os, time, signal", forked)
    child = pair.exporter.ask("child")
    eventually(lambda: memory_descriptors(child) == 0, "the child has none")
    assert memory_descriptors(pair.exporter.pid) > 0
    assert "gpushare-ipc" in threads(pair.exporter.pid)
    assert "gpushare-ipc" not in threads(child) | threads(pair.importer.pid)
    assert pair.importer.holds("a", 7, SHARED)
    pair.exporter.hold("b", 2, SHARED)
    pair.give("b")
    assert pair.importer.holds("b", 2, SHARED)
    for parent in (pair.exporter, pair.importer):
        parent.do("os.kill(child, signal.SIGKILL)", "os.waitpid(child, 0)")


def threads(pid: int) -> set[str]:
    return set(threads_of(pid).values())


def memory_descriptors(pid: int) -> int:
    """Those of the simulated device's memory that the hook keeps, out of the way of programs."""
    folder = Path(f"/proc/{pid}/fd")
    kept = [path for path in folder.iterdir() if int(path.name) >= 400]
    return sum("gpushare-sim-chunk" in str(path.readlink()) for path in kept)


@pytest.mark.promise("backing-46")
def test_descriptors_go_with_the_memory(roomy_pair: Pair) -> None:
    """One for each chunk while it is there, none afterwards; the importer keeps none."""
    before = memory_descriptors(roomy_pair.exporter.pid)
    roomy_pair.exporter.hold("b", 2, THREE_CHUNKS)
    roomy_pair.give("b")
    assert memory_descriptors(roomy_pair.exporter.pid) == before + 3
    assert memory_descriptors(roomy_pair.importer.pid) == 0
    with roomy_pair.exporter.cell():
        assert roomy_pair.exporter.ask("free(b)") == 0
    assert memory_descriptors(roomy_pair.exporter.pid) == before


@pytest.mark.promise("backing-45")
def test_without_descriptors(pair: Pair) -> None:
    """The documented error on either side, and one sentence that says what to do; with descriptors
    again it works."""
    ask, limit = pair.exporter.ask, "resource.setrlimit(resource.RLIMIT_NOFILE, ({}, hard))"
    handle = pair.share("a")
    pair.exporter.hold("b", 2, 20)
    for program in (pair.exporter, pair.importer):
        program.do("import resource, os", "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]")
        program.do("soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]", "few = os.dup(0)")
        program.do(limit.format("few"))
    for _ in range(2):
        with pair.exporter.cell():
            assert ask("share(b)") == -MAP_FAILED
        assert pair.importer.ask(f"open_shared('{handle}')") == -MAP_FAILED
    for program in (pair.exporter, pair.importer):
        assert program.process.errors().count("ulimit -n") == 1
        program.do(limit.format("soft"))
    pair.give("b")
    assert pair.importer.holds("b", 2, 20)


@pytest.mark.promise("backing-46")
def test_a_program_that_closes_everything(pair: Pair) -> None:
    """Descriptors that it closed are made anew with the next handle, and none of its own are
    touched."""
    first = pair.share("a")
    pair.exporter.do("import os", "os.closerange(400, 1000)", "own = os.open('/dev/null', 0)")
    pair.exporter.do("[os.dup2(own, number) for number in range(400, 420)]")
    pair.give("a")
    assert pair.importer.holds("a", 7, SHARED)
    assert pair.share("a") != first
    with pair.exporter.cell():
        assert pair.exporter.ask("free(a)") == 0
    assert pair.exporter.ask("[os.readlink(f'/proc/self/fd/{n}') for n in (400, 419)]") == [
        "/dev/null",
        "/dev/null",
    ]


@pytest.mark.promise("backing-45")
def test_a_driver_that_takes_no_handle_types(tmp_path: Path) -> None:
    """Memory is made without, and moves; a handle is refused with what to do, and the pointer says
    so beforehand."""
    with room(tmp_path) as shared:
        alice = shared.start("alice", GPUSHARE_SIM_FAULTS="fail cuMemCreate nth=1 result=801")
        alice.hold("a", 7)
        with alice.cell():
            assert alice.ask("share(a)") == -INVALID_VALUE
            assert alice.ask("attribute(10, a)") == 0
        assert alice.process.errors().count("GPUSHARE_MEMORY=off") == 1
        bob = shared.start("bob")
        bob.hold("b", 1)
        assert shared.moved(alice, "UNMAP") > 0
        assert alice.holds("a", 7)


@pytest.mark.promise("backing-44")
def test_an_importer_whose_own_memory_stays(pair: Pair, tmp_path: Path) -> None:
    """A process with GPUSHARE_MEMORY=off opens such handles too."""
    handle = pair.share("a")
    with sibling(pair.exporter, tmp_path, GPUSHARE_MEMORY="off") as other:
        other.do(f"a = open_shared('{handle}')")
        assert other.holds("a", 7, SHARED)


@pytest.mark.promise(
    "backing-47",
    "Only a process that shows the token gets descriptors of device memory, and the hook "
    "believes nothing that comes from outside",
)
def test_nobody_without_the_token_is_served(pair: Pair) -> None:
    """Whoever connects and says nothing, nonsense or the wrong token gets no descriptor, and keeps
    nobody else from being served."""
    handle = bytes.fromhex(pair.share("a"))
    name = f"\0gpushare-memory-{int.from_bytes(handle[8:16], 'little'):016x}"
    request = b"gpipask1" + handle[32:40] + handle[16:32]
    wrong = request[:-1] + bytes([request[-1] ^ 1])
    served = []
    for packet in (b"", b"x", request + b"x", b"\0" * 32, wrong, request):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(name)
            if packet:
                peer.send(packet)
            _, fds, _, _ = socket.recv_fds(peer, 8192, 253)
            served.append(len(fds))
            for fd in fds:
                os.close(fd)
    assert served == [0, 0, 0, 0, 0, 1]
    pair.give("a")
