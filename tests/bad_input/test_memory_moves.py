"""What can go wrong while memory is on its way: calls that fail, processes that end, users who
interrupt."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.swapping import (
    EACH_KIND,
    EVERY_KIND,
    FIRST_FURTHER_SLOT,
    OTHER_KINDS,
    OTHERS_AT_LENGTH,
    SLOW_BYTES_PER_S,
    SmallDevice,
    small_device,
)
from tests.hook.runtime.two_devices import Files
from tests.support.memory_tenants import CANCELLED, OUT_OF_MEMORY, SUCCESS, MemoryTenant
from tests.support.sim import MIB
from tests.support.waits import wait_until

ASSERT = 710
CONTEXT_IS_DESTROYED = 709
UNKNOWN = 999
CRAWLING_BYTES_PER_S = 40_000_000


@pytest.fixture
def kind() -> str:
    """Of the memory that alice and bob have."""
    return "plain"


@pytest.fixture
def device(tmp_path: Path, kind: str) -> Iterator[SmallDevice]:
    with small_device(tmp_path, kind=kind) as found:
        yield found


@pytest.fixture
def slow(tmp_path: Path, kind: str) -> Iterator[SmallDevice]:
    """A device on a bus so slow that a hand-over can be met half-way."""
    with small_device(tmp_path, copy_bytes_per_s=SLOW_BYTES_PER_S, kind=kind) as found:
        yield found


@pytest.fixture
def crawling(tmp_path: Path, kind: str) -> Iterator[SmallDevice]:
    """On this bus the rest of a hand-over is half a second away."""
    with small_device(tmp_path, copy_bytes_per_s=CRAWLING_BYTES_PER_S, kind=kind) as found:
        yield found


def faulty(plan: str) -> dict[str, dict[str, str]]:
    return {"env": {"GPUSHARE_SIM_FAULTS": plan}}


def hand_over_often(device: SmallDevice, *tenants: MemoryTenant) -> None:
    for _ in range(3):
        for tenant in tenants:
            tenant.verify()


@pytest.mark.promise(
    "bad-memory-13",
    "`cuMemCreate`, `cuMemMap` or `cuMemSetAccess` fails in the middle of a restore: nothing is "
    "lost, others are served meanwhile",
)
@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
@pytest.mark.parametrize("result", [OUT_OF_MEMORY, pytest.param(UNKNOWN, marks=pytest.mark.full)])
@OTHERS_AT_LENGTH
def test_an_allocation_that_fails_in_the_middle_of_a_restore(
    device: SmallDevice, call: str, result: int
) -> None:
    """The driver refuses the second chunk that is to come back, three times: nothing is lost, the
    launch waits for its memory, and everybody else has theirs."""
    second_back = device.chunks_of_an_allocation() + 2
    plan = f"fail {call} nth={second_back} result={result} times=3"
    alice = device.start("alice", seed=1, **faulty(plan))
    bob = device.start("bob", seed=2)
    hand_over_often(device, alice, bob)


@pytest.mark.promise("bad-memory-13")
@OTHERS_AT_LENGTH
def test_a_restore_that_succeeds_in_the_end(device: SmallDevice) -> None:
    """A restore that fails again and again is rolled back and tried again: the others are served
    meanwhile, and when the driver has memory all is there."""
    second_back = device.chunks_of_an_allocation() + 2
    plan = f"fail cuMemCreate nth={second_back} result=2 times=60"
    alice = device.start("alice", seed=1, **faulty(plan))
    bob = device.start("bob", seed=2)
    alice.ok("begin")
    alice.say("sums")
    hand_over_often(device, bob, device.bystander)
    assert alice.heard_sums() == alice.expected()
    alice.ok("end")
    hand_over_often(device, bob, alice)


@pytest.mark.full
@pytest.mark.promise("bad-memory-13")
@EACH_KIND
def test_a_restore_that_never_succeeds(device: SmallDevice) -> None:
    """The others are served; the launch that waits can be cancelled, and its process can end."""
    second_back = device.chunks_of_an_allocation() + 2
    plan = f"fail cuMemCreate nth={second_back} result=2 times=0"
    alice = device.start("alice", seed=1, **faulty(plan))
    bob = device.start("bob", seed=2)
    alice.ok("begin")
    alice.say("sums")
    hand_over_often(device, bob, device.bystander)
    alice.say("!cancel")
    alice.process.expect(f"sums {CANCELLED}")
    assert alice.process.finish() == 0
    hand_over_often(device, bob, device.bystander)


@pytest.mark.promise(
    "bad-memory-14",
    "A copy that fails or stalls while memory moves: no byte is changed",
)
@pytest.mark.parametrize("call", ["cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"])
@pytest.mark.parametrize("result", [OUT_OF_MEMORY, UNKNOWN])
@OTHERS_AT_LENGTH
def test_a_copy_that_fails(device: SmallDevice, call: str, result: int) -> None:
    """A copy out that fails leaves its chunk where it is, for good; a copy in is made again: no
    byte is changed, nobody is out of memory."""
    times = 1 if device.kind.name == "async" else 2  # of its chunks, bob can do without one
    plan = f"fail {call} nth=2 result={result} times={times}"
    alice = device.start("alice", seed=1, **faulty(plan))
    bob = device.start("bob", seed=2)
    hand_over_often(device, alice, bob)


@pytest.mark.promise("bad-memory-14")
@pytest.mark.promise("bad-memory-13")
@OTHER_KINDS
def test_all_that_a_move_calls_fails_once(device: SmallDevice) -> None:
    """One call after the other, in the middle of parks and restores of memory of other kinds."""
    before = device.chunks_of_an_allocation()
    plan = [f"fail cuMemCreate nth={before + 2} result={OUT_OF_MEMORY}"]
    plan += [f"fail cuMemMap nth={before + 3} result={UNKNOWN}"]
    plan += [f"fail cuMemSetAccess nth={before + 3} result={UNKNOWN}"]
    plan += [f"fail cuMemcpyHtoDAsync nth=4 result={UNKNOWN}"]
    plan += [f"fail cuMemcpyDtoHAsync nth=3 result={UNKNOWN}"]
    alice = device.start("alice", seed=1, **faulty(";".join(plan)))
    bob = device.start("bob", seed=2)
    hand_over_often(device, alice, bob)
    hand_over_often(device, alice, bob)
    assert sorted(device.machine.happened()) == sorted(" ".join(p.split()[:2]) for p in plan)


@pytest.mark.full
@pytest.mark.promise("bad-memory-14")
@EACH_KIND
def test_copies_that_stall(device: SmallDevice) -> None:
    """Copies that hang for a while are waited for."""
    plan = "stall cuMemcpyDtoHAsync nth=2 ms=400;stall cuMemcpyHtoDAsync nth=1 ms=400"
    alice = device.start("alice", seed=1, **faulty(plan))
    bob = device.start("bob", seed=2)
    hand_over_often(device, alice, bob)


@pytest.mark.promise("bad-memory-23")
@EACH_KIND
def test_host_memory_that_cannot_be_registered(device: SmallDevice) -> None:
    """While the driver registers nothing, memory parks where it cannot be pinned, and every byte
    is right. When it does again, memory moves as before."""
    plan = f"fail cuMemHostRegister nth=1 result={OUT_OF_MEMORY} times=2"
    alice = device.start("alice", seed=1, **faulty(plan))
    bob = device.start("bob")
    bob.ok("begin")
    wait_until(lambda: fits(bob, device.held), "alice parks after all")
    bob.refill(2, 3, device.held)
    bob.ok("end")
    hand_over_often(device, alice, bob)


@pytest.mark.promise(
    "bad-memory-15",
    "SIGKILL of either side in the middle of a full-duplex hand-over: the other goes on with "
    "every byte, the memory of the dead is there for the next",
)
@pytest.mark.parametrize(
    ("kind", "victim"),
    [
        pytest.param("plain", "giver", marks=pytest.mark.full),
        ("plain", "taker"),
        ("mapped", "giver"),
        pytest.param("mapped", "taker", marks=pytest.mark.full),
        pytest.param("async", "giver", marks=pytest.mark.full),
        pytest.param("async", "taker", marks=pytest.mark.full),
        ("managed", "giver"),
        pytest.param("managed", "taker", marks=pytest.mark.full),
    ],
)
def test_a_kill_in_the_middle_of_a_full_duplex_hand_over(slow: SmallDevice, victim: str) -> None:
    """Whichever of the two dies while memory is on its way both ways, the other one goes on with
    every byte, and the dead one's memory is there for the next."""
    giver, taker = slow.start("giver", seed=1), slow.start("taker", seed=2)
    giver.verify()
    unmapped = slow.bytes_moved(giver.process.pid, "UNMAP")
    mapped = slow.bytes_moved(taker.process.pid, "MAP")
    taker.ok("begin")
    taker.say("sums")
    slow.await_moved(giver.process.pid, "UNMAP", unmapped + 1)
    slow.await_moved(taker.process.pid, "MAP", mapped + 1)
    dead, survivor = (giver, taker) if victim == "giver" else (taker, giver)
    dead.process.signal(signal.SIGKILL)
    dead.process.wait()
    if survivor is taker:
        assert taker.heard_sums() == taker.expected()
        taker.ok("end")
    else:
        giver.verify()
    third = slow.start("third", seed=3)
    hand_over_often(slow, survivor, third)


@pytest.mark.promise(
    "bad-memory-16",
    "Device reset and context destruction while parked free all of it; a process with parked "
    "memory ends well",
)
@pytest.mark.parametrize("how", ["reset", "close"])
def test_the_end_of_a_context_while_parked(device: SmallDevice, how: str) -> None:
    """A device reset, and the destruction of a context of one's own, free what is in host memory as
    well; the process can begin anew."""
    opened = "open" if how == "reset" else "open_own"
    alice = device.start("alice", seed=1, opened=opened)
    bob = device.start("bob", seed=2)
    device.park(alice, by=bob)
    alice.ok(how)
    alice.held.clear()
    device.await_memory(alice, lambda memory: memory.get("bytes_allocated", 0) == 0)
    bob.verify()
    alice.ok(opened)
    alice.ok("begin")
    alice.hold(0, 4, device.held)
    alice.ok("end")
    hand_over_often(device, bob, alice)


@pytest.mark.promise("bad-memory-16")
@pytest.mark.parametrize("how", ["reset", pytest.param("close", marks=pytest.mark.full)])
@OTHER_KINDS
def test_memory_of_the_device_outlives_its_context(device: SmallDevice, how: str) -> None:
    """Memory of the other kinds is the device's: the next context finds every byte of it, whether
    it was parked or not."""
    opened = "open" if how == "reset" else "open_own"
    alice = device.start("alice", seed=1, opened=opened)
    bob = device.start("bob", seed=2)
    for _ in range(2):
        device.park(alice, by=bob)
        alice.ok(how)  # waits for the turn: without a context nothing of it could come back
        alice.ok(opened)
        hand_over_often(device, bob, alice)


@pytest.mark.promise("bad-memory-16")
@pytest.mark.parametrize("how", ["reset", pytest.param("close", marks=pytest.mark.full)])
@EACH_KIND
def test_the_end_of_a_context_in_the_middle_of_a_restore(crawling: SmallDevice, how: str) -> None:
    """By another thread than the one whose launch waits for the memory: neither hangs. Memory of
    the device is whole in the next context, plain memory is gone."""
    opened = "open" if how == "reset" else "open_own"
    plan = "hold cuMemcpyHtoDAsync nth=2 until=go"
    alice = crawling.start("alice", seed=1, opened=opened, **faulty(plan))
    bob = crawling.start("bob", seed=2)
    crawling.park(alice, by=bob)
    alice.ok("begin")
    alice.say("sums")
    files = Files(crawling.machine)
    files.wait_for_held("go")
    alice.say(f"!{how}")
    files.make("go")
    answers = dict(alice.process.expect("").split()[:2] for _ in range(2))
    assert answers == {"sums": str(CONTEXT_IS_DESTROYED), how: str(SUCCESS)}
    alice.ok("end")
    alice.ok(opened)
    if crawling.kind.name == "plain":
        alice.held.clear()
    for tenant in (bob, alice):
        tenant.verify()


@pytest.mark.promise("bad-memory-27")
@pytest.mark.parametrize("kind", ["mapped", pytest.param("async", marks=pytest.mark.full)])
def test_frees_in_the_middle_of_an_exchange(slow: SmallDevice) -> None:
    """By other threads than those that wait, of memory that leaves and of memory that comes: what
    is left is whole, and what was freed is there for the next."""
    giver, taker = slow.start("giver", seed=1), slow.start("taker", seed=2)
    for tenant in (taker, giver):
        tenant.ok("!open")  # its other thread has a context then
        tenant.verify()
    unmapped = slow.bytes_moved(giver.process.pid, "UNMAP")
    mapped = slow.bytes_moved(taker.process.pid, "MAP")
    taker.ok("begin")
    taker.say("stamp")
    slow.await_moved(giver.process.pid, "UNMAP", unmapped + 1)
    slow.await_moved(taker.process.pid, "MAP", mapped + 1)
    for tenant, slot in ((giver, 0), (giver, FIRST_FURTHER_SLOT), (taker, FIRST_FURTHER_SLOT + 1)):
        tenant.say(f"!free {slot}")
        del tenant.held[slot]
    answers = sorted(taker.process.expect("").split()[:2] for _ in range(2))
    assert answers == [["free", str(SUCCESS)], ["stamp", str(SUCCESS)]]
    assert [giver.heard("free"), giver.heard("free")] == [[SUCCESS], [SUCCESS]]
    taker.ok("end")
    third = slow.start("third", seed=3)
    for tenant in (giver, taker, third):
        tenant.verify()


@pytest.mark.promise(
    "bad-memory-17",
    "A fork while parked and with an arena takes nothing from the parent",
)
@pytest.mark.parametrize(
    "kind", ["plain", "mapped", pytest.param("async", marks=pytest.mark.full), "managed"]
)
def test_a_fork_while_parked_and_with_an_arena(device: SmallDevice) -> None:
    """A child has neither CUDA nor the parent's host memory, and its end takes nothing away."""
    alice, bob = device.start("alice", seed=1), device.start("bob", seed=2)
    device.park(alice, by=bob)
    assert alice.ok("fork") == []
    hand_over_often(device, alice, bob)
    assert alice.ok("fork") == []  # resident now, and the arena is there
    hand_over_often(device, bob, alice)


@pytest.mark.promise(
    "bad-memory-18",
    "An interrupt during a restore ends the wait at once, and the memory is all there at the next "
    "launch",
)
@EACH_KIND
def test_an_interrupt_during_a_restore(tmp_path: Path, kind: str) -> None:
    """The launch that waits for its memory is cancelled at once, though a copy of it is stuck in
    the driver; what had come and what had not are both there at the next launch."""
    with small_device(tmp_path, kind=kind) as device:
        alice = device.start("alice", seed=1, **faulty("hold cuMemcpyHtoDAsync nth=2 until=go"))
        bob = device.start("bob", seed=2)
        device.park(alice, by=bob)
        alice.ok("begin")
        alice.say("sums")
        files = Files(device.machine)
        files.wait_for_held("go")
        alice.say("!cancel")
        assert alice.process.expect("sums ") == f"sums {CANCELLED}"
        assert device.memory_of(alice)["bytes_parked"] > 0, "all of it had come"
        files.make("go")
        alice.ok("end")
        alice.verify()
        bob.verify()


@pytest.mark.promise(
    "bad-memory-19",
    "A device-side assert while holding memory: others are served, and have its memory when the "
    "process ends",
)
@EVERY_KIND
def test_a_device_side_assert_while_holding_memory(device: SmallDevice) -> None:
    """A context with a sticky error is nobody's victim: its memory stays in the way until its
    process ends, others are out of memory only if they need that much, and none is harmed."""
    alice, bob = device.start("alice", seed=1), device.start("bob")
    alice.ok("begin")
    alice.ok("assert")
    assert alice.result("sync") == ASSERT
    bob.ok("begin")
    assert bob.result(f"alloc 0 {device.held}") == OUT_OF_MEMORY
    bob.hold(1, 2, 8 * MIB)
    bob.ok("end")
    hand_over_often(device, bob, device.bystander)
    alice.process.signal(signal.SIGKILL)
    alice.process.wait()
    bob.ok("begin")
    bob.ok("stamp")
    wait_until(lambda: fits(bob, device.size // 2), "the memory of the broken process comes back")
    bob.refill(2, 3, device.size // 2)
    bob.ok("end")
    hand_over_often(device, bob, device.bystander)


def fits(tenant: MemoryTenant, size: int) -> bool:
    """Whether an allocation in slot 2 succeeds."""
    result = tenant.result(f"alloc 2 {size}")
    assert result in (SUCCESS, OUT_OF_MEMORY)
    return result == SUCCESS
