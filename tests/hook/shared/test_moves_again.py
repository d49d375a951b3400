"""Memory that was given to another process by its handle moves again when no process has it any
more, and a handle that is opened later brings it back: programs under the real hook and scheduler,
and others that want the device for themselves."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hook.runtime.two_devices import Files
from tests.hook.test_from_the_issue_movable import Program, eventually, room
from tests.hook.test_ipc import Pair, memory_descriptors, sibling
from tests.support.sim import MIB

SHARED = 4
"""MiB."""
MAP_FAILED, INVALID_HANDLE = 205, 400


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with room(tmp_path) as shared:
        exporter = shared.start("alice")
        exporter.hold("a", 7, SHARED)
        with sibling(exporter, tmp_path) as importer:
            yield Pair(shared, exporter, importer)


def moves(pair: Pair) -> bool:
    return pair.room.memory("alice", "fixed") == 0


def fills(bob: Program) -> None:
    """It has the whole device for a moment, in which nothing of others stays."""
    with bob.cell():
        bob.do("c = alloc(4 * MIB)")
        assert bob.ask("c > 0 and free(c)") == 0


def parks(pair: Pair) -> Program:
    """Another tenant, for which all has left that can move; what is fixed has room beside it."""
    bob = pair.room.start("bob")
    bob.hold("b", 1, 56)
    fills(bob)
    eventually(lambda: pair.room.memory("alice", "parked") >= SHARED * MIB, "it is parked")
    return bob


@pytest.mark.promise(
    "backing-18",
    "Memory that was given to another process moves again when each importer has closed it or has "
    "died, and its handle opens it as before",
)
def test_after_the_last_close(pair: Pair) -> None:
    """Opened twice in one context and once in another, it stays until the third close. No
    descriptor is left, and no byte has changed."""
    pair.give("a")
    handle = pair.share("a")
    ask = pair.importer.ask
    pair.importer.do(f"again = open_shared('{handle}')", "other = made('cuCtxCreate_v2', 0, 0)")
    pair.importer.do(f"b = open_shared('{handle}')", "on(CONTEXT)")
    with pair.importer.cell():
        assert ask(f"fill(a, 9, {SHARED} * MIB)") == 0
    assert ask("close_shared(a), close_shared(a)") == (0, 0)
    eventually(lambda: pair.room.memory("alice", "fixed") == SHARED * MIB, "the other one has it")
    assert memory_descriptors(pair.exporter.pid) == 1
    assert ask("on(other), close_shared(b), on(CONTEXT)") == (0, 0, 0)
    eventually(lambda: moves(pair), "it moves again")
    assert memory_descriptors(pair.exporter.pid) == 0
    bob = parks(pair)
    assert pair.exporter.holds("a", 9, SHARED)
    assert bob.holds("b", 1, 56)


@pytest.mark.promise("backing-18")
def test_a_handle_that_nobody_opens(pair: Pair) -> None:
    """It keeps the memory for a moment alone, and can be opened when it was parked: as often as it
    has left, the other process finds what was written last."""
    handle = pair.share("a")
    for value in (7, 8):
        bob = parks(pair)
        pair.importer.do(f"a = open_shared('{handle}')")
        assert pair.importer.ask("a > 0"), pair.importer.ask("a")
        assert pair.importer.holds("a", value, SHARED)
        with pair.importer.cell():
            assert pair.importer.ask(f"fill(a, {value + 1}, {SHARED} * MIB)") == 0
        assert pair.exporter.holds("a", value + 1, SHARED)
        assert bob.holds("b", 1, 56)
        assert pair.exporter.holds("a", value + 1, SHARED)
        eventually(lambda: pair.room.memory("alice", "fixed") == SHARED * MIB, "it stays")
        assert pair.importer.ask("close_shared(a)") == 0
        assert bob.process.finish() == 0
    assert pair.share("a") == handle


@pytest.mark.promise("backing-18")
def test_it_is_opened_by_another_tenant(pair: Pair) -> None:
    """Who has the turn meanwhile waits for that of the memory's owner."""
    handle = pair.share("a")
    bob = parks(pair)
    with bob.cell():
        assert bob.ask("words(b, 8 * MIB)") == [1]
        bob.do(f"a = open_shared('{handle}')")
        assert bob.ask(f"a > 0 and words(a, {SHARED} * MIB)") == [7]
    assert pair.exporter.holds("a", 7, SHARED)
    assert bob.ask("close_shared(a)") == 0
    eventually(lambda: moves(pair), "it moves again")


@pytest.mark.promise("backing-18")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_an_importer_dies(pair: Pair, how: signal.Signals) -> None:
    """With the memory open."""
    pair.give("a")
    eventually(lambda: pair.room.memory("alice", "fixed") == SHARED * MIB, "it stays")
    os.kill(pair.importer.pid, how)
    pair.importer.process.wait()
    eventually(lambda: moves(pair), "it moves again")
    parks(pair)
    assert pair.exporter.holds("a", 7, SHARED)


@pytest.mark.promise(
    "backing-19",
    "Memory of which nobody knows who has it (a lost connection, an export that cannot be seen) "
    "stays where it is",
)
def test_an_importer_that_closes_all_its_descriptors(pair: Pair) -> None:
    """It has the memory as long as it lives, whatever its connection says."""
    pair.give("a")
    pair.importer.do("import os, time", "os.closerange(400, 1000)", "time.sleep(2)")
    assert pair.room.memory("alice", "fixed") == SHARED * MIB
    bob = pair.room.start("bob")
    bob.hold("b", 1, 50)
    assert pair.importer.holds("a", 7, SHARED)
    with pair.importer.cell():
        assert pair.importer.ask(f"fill(a, 9, {SHARED} * MIB)") == 0
    assert pair.exporter.holds("a", 9, SHARED)
    os.kill(pair.importer.pid, signal.SIGKILL)
    pair.importer.process.wait()
    eventually(lambda: moves(pair), "it moves again")


@pytest.mark.promise("backing-19")
def test_an_exporter_that_closes_all_its_descriptors(pair: Pair) -> None:
    """It hears of nobody any more. With the memory all of it goes."""
    pair.give("a")
    pair.exporter.do("import os, time", "os.closerange(400, 1000)")
    assert pair.importer.ask("close_shared(a)") == 0
    pair.exporter.do("time.sleep(2)")
    handle = pair.share("a")
    pair.importer.do(f"a = open_shared('{handle}')")
    assert pair.importer.holds("a", 7, SHARED)
    assert pair.importer.ask("close_shared(a)") == 0
    pair.exporter.do("time.sleep(2)")
    assert pair.room.memory("alice", "fixed") == SHARED * MIB
    with pair.exporter.cell():
        assert pair.exporter.ask("free(a)") == 0
    eventually(lambda: moves(pair), "nothing of it is left")


@pytest.mark.promise("backing-19")
def test_an_importer_gives_it_on_unseen(pair: Pair) -> None:
    """As a descriptor for other devices: it stays, though the importer closes it and ends."""
    pair.give("a")
    ask = "call('cuMemGetHandleForAddressRange', byref(fd), c_uint64(a), c_size_t(MIB), 1, 0)"
    pair.importer.do("fd = c_int(-1)")
    assert pair.importer.ask(ask) == 0
    assert pair.importer.ask("close_shared(a)") == 0
    assert pair.importer.process.finish() == 0
    pair.exporter.do("import time", "time.sleep(2)")
    assert pair.room.memory("alice", "fixed") == SHARED * MIB
    parked = pair.room.start("bob")
    parked.hold("b", 1, 50)
    assert pair.room.memory("alice", "fixed") == SHARED * MIB


@pytest.mark.promise("backing-18")
def test_forks_keep_nothing(pair: Pair) -> None:
    """A child of the importer has neither the memory nor its connection: with the parent's close
    the memory moves, though the child lives."""
    pair.give("a")
    pair.importer.do("import os, signal, time")
    pair.importer.do("child = os.fork() or [time.sleep(600) for _ in (0,)] and os._exit(0)")
    assert pair.importer.ask("close_shared(a)") == 0
    eventually(lambda: moves(pair), "it moves again")
    pair.importer.do("os.kill(child, signal.SIGKILL)", "os.waitpid(child, 0)")


@pytest.mark.promise("backing-18")
def test_the_end_of_the_importers_context(pair: Pair) -> None:
    handle = pair.share("a")
    pair.importer.do("other = made('cuCtxCreate_v2', 0, 0)", f"b = open_shared('{handle}')")
    eventually(lambda: pair.room.memory("alice", "fixed") == SHARED * MIB, "it stays")
    pair.importer.do("call('cuCtxDestroy_v2', c_void_p(other))", "on(CONTEXT)")
    eventually(lambda: moves(pair), "it moves again")


@pytest.mark.promise("backing-18")
def test_it_is_freed_while_it_moves(pair: Pair) -> None:
    """Its handle opens nothing from then on, parked or not, also when other memory comes to its
    place."""
    handle = pair.share("a")
    parks(pair)
    with pair.exporter.cell():
        assert pair.exporter.ask("free(a)") == 0
    assert pair.importer.ask(f"open_shared('{handle}')") == -INVALID_HANDLE
    pair.exporter.hold("a", 3, SHARED)
    assert pair.importer.ask(f"open_shared('{handle}')") == -INVALID_HANDLE


@pytest.mark.promise("backing-18")
def test_a_wait_for_it_is_interrupted(pair: Pair) -> None:
    """Its owner gets no turn: whoever opens the handle waits, and can be interrupted; an owner
    that dies ends the wait."""
    handle = pair.share("a")
    bob = parks(pair)
    bob.do("turn('began')")
    assert bob.ask("words(b, 8 * MIB)") == [1]
    bob.do("keeps = held(stream_create())")
    pair.importer.begin_to_ask(f"open_shared('{handle}')")
    eventually(lambda: pair.room.tenant("alice")["state"] == "waiting", "it waits for the turn")
    os.kill(pair.importer.pid, signal.SIGINT)
    with pytest.raises(AssertionError, match="ended before"):  # by Python's KeyboardInterrupt
        pair.importer.answer()
    bob.do("keeps.value = 1", "turn('ended')")
    assert pair.exporter.holds("a", 7, SHARED)


@pytest.mark.promise("backing-18")
@pytest.mark.parametrize("then", [signal.SIGKILL, signal.SIGTERM])
def test_its_owner_dies_while_it_is_waited_for(pair: Pair, then: signal.Signals) -> None:
    handle = pair.share("a")
    bob = parks(pair)
    bob.do("turn('began')", "keeps = held(stream_create())")
    pair.importer.begin_to_ask(f"open_shared('{handle}')")
    eventually(lambda: pair.room.tenant("alice")["state"] == "waiting", "it waits for the turn")
    os.kill(pair.exporter.pid, then)
    assert pair.importer.answer() == -MAP_FAILED
    bob.do("keeps.value = 1", "turn('ended')")


@pytest.mark.promise("backing-18")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.full)])
def test_opens_and_closes_among_hand_overs(pair: Pair, seed: int) -> None:
    """Whoever wrote last, and wherever the memory was meanwhile: each finds it."""
    chance = random.Random(seed)
    handle = pair.share("a")
    bob = pair.room.start("bob")
    bob.hold("b", 1, 56)
    value, is_open = 7, False
    for _ in range(25):
        what = chance.choice(("open", "close", "write", "write there", "bob", "look"))
        if what == "open" and not is_open:
            pair.importer.do(f"a = open_shared('{handle}')")
            assert pair.importer.ask("a > 0"), pair.importer.ask("a")
            is_open = True
        if what == "close" and is_open:
            assert pair.importer.ask("close_shared(a)") == 0
            is_open = False
        if what == "write" or (what == "write there" and is_open):
            writer = pair.exporter if what == "write" else pair.importer
            value += 1
            with writer.cell():
                assert writer.ask(f"fill(a, {value}, {SHARED} * MIB)") == 0
        if what == "bob":
            assert bob.holds("b", 1, 56)
        if what == "bob" and not is_open:
            fills(bob)
        reader = pair.importer if is_open and chance.random() < 0.5 else pair.exporter
        assert reader.holds("a", value, SHARED), (seed, what, value)


@pytest.mark.promise("backing-18")
def test_it_is_opened_while_it_leaves(tmp_path: Path) -> None:
    """In the middle of its copy to the host: nobody has it before it is back, and what is written
    then is not lost."""
    with room(tmp_path) as shared:
        held = "hold cuEventQuery thread=gpushare-mem nth=1 until=copied"
        alice = shared.start("alice", GPUSHARE_SIM_FAULTS=held)
        alice.hold("a", 7, SHARED)
        with sibling(alice, tmp_path, GPUSHARE_SIM_FAULTS="") as other:
            pair = Pair(shared, alice, other)
            handle = pair.share("a")
            eventually(lambda: moves(pair), "nobody has opened it")
            bob = shared.start("bob")
            bob.do("turn('began')")
            bob.begin_to_ask("[alloc(60 * MIB) > 0]")
            files = Files(shared.machine)
            files.wait_for_held("copied")
            other.begin_to_ask(f"open_shared('{handle}')")
            files.make("copied")
            assert bob.answer() == [True]
            bob.do("turn('ended')")
            assert bob.process.finish() == 0
            address = other.answer()
            assert address > 0
            with other.cell():
                assert other.ask(f"words({address}, {SHARED} * MIB)") == [7]
                assert other.ask(f"fill({address}, 8, {SHARED} * MIB)") == 0
            assert alice.holds("a", 8, SHARED)


def test_two_importers(pair: Pair, tmp_path: Path) -> None:
    """The memory moves with the last of them."""
    pair.give("a")
    handle = pair.share("a")
    with sibling(pair.exporter, tmp_path) as other:
        other.do(f"a = open_shared('{handle}')")
        assert pair.importer.ask("close_shared(a)") == 0
        other.do("import time", "time.sleep(2)")
        assert pair.room.memory("alice", "fixed") == SHARED * MIB
        assert other.ask("close_shared(a)") == 0
        eventually(lambda: moves(pair), "it moves again")
