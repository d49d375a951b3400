"""Memory that cannot be moved, and memory of strangers, beside memory that follows the turn: passed
through, counted, shown; who has to wait for it is told so, and has every byte afterwards."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.bad_input.swapping import FOREIGN
from tests.hook.runtime.process import GpuProcess
from tests.hook.test_from_the_issue_movable import CANCELLED, DEVICE, HELD, Room, eventually, room
from tests.support.sim import MIB

FIXED, SEGMENT = 12, 32  # the driver has memory of pools and graphs by the segment
POOLED = """pool = made('cuMemPoolCreate', (ctypes.c_int * 64)(1, 1, 1, 0))
f = made('cuMemAllocFromPoolAsync', c_size_t(32 * MIB), c_void_p(pool), c_void_p(0))"""
MAPPED = """n = c_size_t(12 * MIB)
f = made('cuMemAddressReserve', n, c_size_t(0), c_uint64(0), c_uint64(0))
h = made('cuMemCreate', n, (ctypes.c_int * 64)(1, 1, 1, 0), c_uint64(0))
assert map_at(f, 12 * MIB, h) == 0
where = (ctypes.c_int * 4)(1, 0, 3, 0)
assert call('cuMemSetAccess', c_uint64(f), n, where, c_size_t(1)) == 0"""
EXPORTED = f"""{MAPPED}
given = ctypes.c_int(-1)
assert call('cuMemExportToShareableHandle', byref(given), c_uint64(h), 1, c_uint64(0)) == 0"""
MANAGED = """f = made('cuMemAllocManaged', c_size_t(12 * MIB), 1)
assert call('cuMemAdvise', c_uint64(f), c_size_t(12 * MIB), 1, 0) == 0"""
GRAPH = """s, graph, ready = stream_create(), c_uint64(0), c_uint64(0)
assert call('cuStreamBeginCapture_v2', c_void_p(s), 2) == 0
f = made('cuMemAllocAsync', c_size_t(32 * MIB), c_void_p(s))
assert call('cuStreamEndCapture', c_void_p(s), byref(graph)) == 0
assert call('cuGraphInstantiateWithFlags', byref(ready), graph, c_uint64(0)) == 0
assert call('cuGraphLaunch', ready, c_void_p(s)) == call('cuStreamSynchronize', c_void_p(s)) == 0"""
ARRAY = "made('cuArrayCreate_v2', byref(Array(1024, 3 * 1024, FLOAT, 1)))"
KINDS = {"pooled": POOLED, "exported": EXPORTED, "managed": MANAGED, "graph": GRAPH}
REST = sorted(KINDS.keys() - {"graph"})


def has_parked_all_that_it_can(shared: Room, name: str, fixed: int) -> None:
    """It may keep what fits beside the other; never less than what cannot be moved."""
    assert shared.memory(name, "fixed") == fixed
    assert shared.memory(name, "parked") > 0
    assert shared.memory(name, "resident") >= fixed


def reason(shared: Room, name: str) -> str:
    return shared.tenant(name)["blocked_reason"] or ""


def start_stranger(shared: Room, folder: Path, size_mib: int) -> GpuProcess:
    """A program without the hook that has so much of the device until its input ends. The scheduler
    has seen it, beside nothing but contexts: a turn that is granted before waits for memory."""
    command = [sys.executable, "-c", FOREIGN, str(size_mib * MIB)]
    process = GpuProcess(command, shared.machine.env(), folder / "stranger.log")
    process.expect("0")
    eventually(lambda: foreign_mib(shared) == size_mib, "the stranger is seen")
    return process


def foreign_mib(shared: Room) -> int:
    """Whole MiB of programs without the hook; -1 while there is something else on the device."""
    (device,) = shared.scheduler.status()["devices"]
    alone = device["bytes_used"] == device["bytes_foreign"]
    return int(device["bytes_foreign"]) // MIB if alone else -1


@pytest.mark.promise(
    "together-6",
    "Pools that others may have, exported, read-mostly managed and graph-owned memory and arrays "
    "are passed through, stay, are counted and shown",
)
@pytest.mark.parametrize(
    "kind",
    ["graph", "array", *(pytest.param(each, marks=pytest.mark.full) for each in REST)],
)
def test_memory_that_cannot_be_moved_stays_and_is_shown(tmp_path: Path, kind: str) -> None:
    """Pools that others may have, memory that was exported, managed memory that is mostly read,
    graph-owned memory, arrays: the driver's own, or others', counted as fixed, never touched while
    what can be moved leaves and comes back."""
    fixed = SEGMENT if kind in ("pooled", "graph") else FIXED
    with room(tmp_path, device_bytes=DEVICE + (fixed - FIXED) * MIB) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        with alice.cell():
            alice.do(*KINDS.get(kind, ARRAY).splitlines())
            if kind != "array":
                assert alice.ask(f"f > 0 and fill(f, 5, {fixed} * MIB)") == 0
        alice.hold("a", 7, 30)
        bob.hold("b", 1, HELD)
        for _ in range(3):
            eventually(lambda: shared.memory("alice", "parked") > 0, "alice makes room")
            has_parked_all_that_it_can(shared, "alice", fixed * MIB)
            assert alice.holds("a", 7, 30)
            if kind != "array":
                assert alice.holds("f", 5, fixed)
            assert bob.holds("b", 1, HELD)


@pytest.mark.promise(
    "together-7",
    "A waiting user and the owner of fixed memory in the way both read so, in the status, the "
    "panel, `%gpushare` and at the command line",
)
def test_fixed_memory_in_the_way_is_told_and_waited_for(tmp_path: Path) -> None:
    """A tenant whose memory cannot come back beside another's fixed memory is told whose it is and
    how much; when that is freed it goes on, with every byte."""
    with room(tmp_path) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        bob.hold("b", 1)
        with alice.cell():
            alice.do(*POOLED.splitlines())
            assert alice.ask("f > 0") is True
        bob.do("turn('began')")
        bob.begin_to_ask(f"fill(b, 2, {HELD} * MIB)")
        told = "alice has 32.0 MiB on Simulated GPU that cannot be moved, and "
        eventually(lambda: reason(shared, "bob").startswith(told), "bob is told")
        # A pool keeps what was freed until somebody waits.
        for call in ("'cuMemFreeAsync', c_uint64(f)", "'cuStreamSynchronize'"):
            assert alice.ask(f"call({call}, c_void_p(0))") == 0
        assert bob.answer() == 0
        bob.do("turn('ended')")
        assert bob.holds("b", 2)


@pytest.mark.promise("together-8", "A device that strangers fill while memory is parked")
def test_a_device_that_strangers_fill_while_memory_is_parked(tmp_path: Path) -> None:
    """Who is parked and whose place a program without the hook has taken waits, is told what is in
    the way, can be interrupted, and has every byte when the stranger has gone."""
    with room(tmp_path) as shared:
        alice, bob = shared.start("alice"), shared.start("bob")
        alice.do("import signal", "signal.signal(signal.SIGINT, lambda *_: None)")
        alice.hold("a", 7)
        bob.hold("b", 1, 60)
        assert bob.process.finish() == 0
        stranger = start_stranger(shared, tmp_path, 56)
        alice.do("turn('began')")
        alice.begin_to_ask(f"fill(a, 8, {HELD} * MIB)")
        told = " belong to programs that are not under gpushare and to the driver, and "
        eventually(lambda: told in reason(shared, "alice"), "alice is told")
        alice.process.signal(signal.SIGINT)
        assert alice.answer() == CANCELLED
        alice.do("turn('ended')", "turn('began')")
        alice.begin_to_ask(f"fill(a, 9, {HELD} * MIB)")
        eventually(lambda: told in reason(shared, "alice"), "alice is told again")
        assert stranger.finish() == 0
        assert alice.answer() == 0
        alice.do("turn('ended')")
        assert alice.holds("a", 9)
