"""What programs should not do to pools and streams, with the real mover and the real scheduler: a
tenant that does it may lose what it gave back, and nobody loses anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.test_from_the_issue_movable import Program, Room, eventually, room
from tests.support.sim import MIB

TAKEN, DEVICE, BOBS = 30, 112, 60
"""MiB. Alice has two segments of 32 MiB, or three; bob's memory does not fit beside them."""
BYTES, WORDS = f"{TAKEN} * MIB", f"c_uint64({TAKEN} * MIB // 4)"
NOT_READY = 600
SLOW_BYTES_PER_S = 400_000_000


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Room]:
    with room(tmp_path, device_bytes=DEVICE * MIB, copy_bytes_per_s=SLOW_BYTES_PER_S) as found:
        yield found


@pytest.fixture
def alice(shared: Room) -> Program:
    """With memory of a pool of hers and of the device's own pool, and streams."""
    program = shared.start("alice")
    program.do("from tests.hook.pooled_session import *")
    program.do("pool, s, other = pool_create(), stream_create(), stream_create()")
    with program.cell():
        program.do(f"a, kept = take({BYTES}, s, pool), take({BYTES}, s)", "wait(s)")
        assert program.ask(f"fill(a, 7, {BYTES}), fill(kept, 5, {BYTES})") == (0, 0)
    return program


def alice_has(shared: Room) -> int:
    return shared.memory("alice", "resident") + shared.memory("alice", "parked")


def parks(shared: Room, alice: Program, bob: Program) -> None:
    assert bob.holds("b", 1, BOBS)
    eventually(lambda: shared.memory("alice", "parked") > 0, "alice makes room")


@pytest.mark.promise(
    "bad-memory-20",
    "A pool that is destroyed with live allocations, parked, on the device or on their way back: "
    "they stay, move and are freed, and others have their memory then",
)
@pytest.mark.parametrize(
    "when", [pytest.param("there", marks=pytest.mark.full), "parked", "on its way"]
)
def test_a_pool_that_is_destroyed_with_live_allocations(
    shared: Room, alice: Program, when: str
) -> None:
    bob = shared.start("bob")
    bob.hold("b", 1, BOBS)
    if when != "there":
        parks(shared, alice, bob)
    if when == "on its way":
        alice.do("import threading, os", "go, went = os.pipe(), []")
        alice.do("wakes = lambda: (os.read(go[0], 1), went.append(pool_destroy(pool)))")
        alice.do("thread = threading.Thread(target=wakes)", "thread.start()", "turn('began')")
        pipe = Path(f"/proc/{alice.pid}/fd/{alice.ask('go[1]')}")
        before = shared.moved(alice, "MAP")
        alice.begin_to_ask(f"words(a, {BYTES})")
        eventually(lambda: shared.moved(alice, "MAP") > before, "memory comes back")
        pipe.write_bytes(b".")
        assert alice.answer() == [7]
        alice.do("turn('ended')", "thread.join()")
        assert alice.ask("went") == [0]
    else:
        assert alice.ask("pool_destroy(pool)") == 0
    assert alice.ask("pool_destroy(pool) != 0 and take(4, 0, pool) < 0")
    assert alice.holds("a", 7, TAKEN)
    parks(shared, alice, bob)
    assert alice.holds("a", 7, TAKEN) and alice.holds("kept", 5, TAKEN)
    assert alice.ask("[give(a), wait(), give(a), free(a)]") == [0, 0, 1, 1]
    eventually(lambda: alice_has(shared) == 32 * MIB, "it is given back")
    bob.hold("c", 2, DEVICE - BOBS - 32 - 8)
    assert alice.holds("kept", 5, TAKEN)
    assert bob.holds("b", 1, BOBS) and bob.holds("c", 2, DEVICE - BOBS - 32 - 8)
    assert alice.process.finish() == bob.process.finish() == 0


@pytest.mark.promise(
    "bad-memory-21",
    "A free on another stream before the work of the first one has ended: nothing but that memory "
    "is touched, and no turn ends before that work",
)
@pytest.mark.parametrize("stream", ["other", "0", pytest.param("2", marks=pytest.mark.full)])
def test_a_free_on_another_stream_before_the_work_has_ended(
    shared: Room, alice: Program, stream: str
) -> None:
    """That stream, the legacy one or the thread's own has the memory again at once, and both write
    to it. Somebody else waits for the device meanwhile."""
    bob = shared.start("bob")
    bob.hold("b", 1, BOBS)
    alice.do(
        f"fills = lambda at, value, s: launch('fill', s, c_uint64(at), c_uint(value), {WORDS})"
    )
    with alice.cell():
        alice.do("flag = held(s)")
        assert alice.ask(f"fills(a, 9, s), give(a, {stream})") == (0, 0)
        alice.do(f"again, b = take({BYTES}, {stream}, pool), take(MIB, {stream})")
        assert alice.ask(f"again == a and b > 0 and fills(again, 8, {stream}) == 0")
    bob.do("turn('began')")
    bob.begin_to_ask(f"fill(b, 3, {BOBS} * MIB)")
    eventually(lambda: shared.tenant("bob")["state"] == "waiting", "bob waits")
    assert alice.ask("call('cuStreamQuery', c_void_p(s))") == NOT_READY
    assert shared.tenant("alice")["state"] != "idle"
    alice.do("flag.value = 1")
    assert bob.answer() == 0
    bob.do("turn('ended')")
    with alice.cell():
        assert alice.ask(f"words(kept, {BYTES}), set(words(again, {BYTES})) <= {{8, 9}}") == (
            [5],
            True,
        )
        assert alice.ask("give(again, s), wait(s), free(kept), give(b), wait()") == (0,) * 5
    eventually(lambda: alice_has(shared) == 0, "nothing of it is left")
    assert bob.holds("b", 3, BOBS)
    assert alice.process.finish() == bob.process.finish() == 0
