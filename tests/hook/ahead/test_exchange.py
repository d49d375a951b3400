"""Two processes of one control group that exchange device memory for host memory, and a host that
runs out in the middle of it."""

from __future__ import annotations

import pytest

from jupyter_gpushare.protocol.messages import MemoryReported, TurnDropped, TurnRequested
from tests.hook.ahead.conftest import HELD, KINDS, SEGMENT, TENSORS, Opens
from tests.hook.runtime.memory_shell import MemoryShell
from tests.hook.runtime.test_arena import Group
from tests.hook.runtime.two_devices import Files
from tests.support.waits import wait_until

SINCE_ALWAYS = 0


def last_report(memory: MemoryShell) -> MemoryReported:
    return [each for each in memory.client.received if isinstance(each, MemoryReported)][-1]


def has_parked(memory: MemoryShell, size: int) -> None:
    if last_report(memory).bytes_parked != size:
        memory.client.expect_memory(lambda report: report.bytes_parked == size)


def piece_by_piece(comes: MemoryShell, leaves: MemoryShell, done: int = 0) -> None:
    """What is back gives its host memory up, and the other one parks into that."""
    for back in range(done + 1, TENSORS + 1):
        comes.budget(back * SEGMENT)
        has_parked(comes, (TENSORS - back) * SEGMENT)
        leaves.budget((TENSORS - back) * SEGMENT)
        has_parked(leaves, back * SEGMENT)


def asks_for_its_turn(memory: MemoryShell) -> None:
    memory.say("sum 0")
    memory.client.expect(TurnRequested)


def is_whole(memory: MemoryShell) -> bool:
    memory.shell.expect("0 sum 0")
    return all(memory.is_whole(tensor) for tensor in range(TENSORS))


@pytest.fixture
def pair(opens: Opens, group: Group, kind: str) -> tuple[MemoryShell, MemoryShell]:
    """The first one's memory is parked, and the other one's is on the device. The host has room for
    one piece."""
    first = opens(kind=kind)
    first.take_turn()
    assert first.park_to(0).bytes_parked == HELD
    stop = "hold cuMemcpyDtoHAsync thread=gpushare-mem nth=2 from=begin until=go"
    second = opens(kind=kind, faults=stop)
    second.take_turn()
    second.limit(HELD)
    wait_until(lambda: group.taken()[0] == HELD)
    group.leave(HELD + SEGMENT)
    asks_for_its_turn(first)
    return first, second


@pytest.mark.promise("park-64")
@pytest.mark.parametrize("kind", KINDS)
def test_all_of_it_changes_hands(pair: tuple[MemoryShell, MemoryShell], group: Group) -> None:
    """With room for one piece."""
    first, second = pair
    first.budget(0)
    first.client.grant()
    piece_by_piece(first, second)
    assert is_whole(first)
    assert group.taken()[1] <= HELD + SEGMENT


@pytest.mark.promise(
    "bad-memory-30",
    "A host that runs out of memory in the middle of an exchange: each piece stays whole where it "
    "is, in either process, and the exchange goes on when there is room for one",
)
@pytest.mark.parametrize("turn", ["is kept", "is taken back"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_runs_out(
    pair: tuple[MemoryShell, MemoryShell], group: Group, turn: str
) -> None:
    """Others take what the first piece gave up: the second one can park nothing, says so, and loses
    nothing. Nor can the first one, whose piece has no copy any more."""
    first, second = pair
    first.budget(SEGMENT)
    first.client.grant()
    wait_until(lambda: group.taken()[0] == HELD - SEGMENT)
    group.leave(HELD - SEGMENT)
    report = second.limit(HELD - SEGMENT)
    if report.bytes_host_room:
        report = second.client.expect_memory(lambda report: report.bytes_host_room == 0)
    assert (report.bytes_parked, report.bytes_allocated) == (0, HELD)
    if turn == "is taken back":
        first.client.recall()
        first.client.expect(TurnDropped)
        first.client.expect(TurnRequested)
        first.budget(0)
        first.client.expect_memory(lambda report: report.bytes_host_room == 0)
        assert last_report(first).bytes_parked == HELD - SEGMENT
        first.budget(SEGMENT)
        first.client.grant()
    assert group.taken() == (HELD - SEGMENT, HELD)
    group.leave(HELD)
    has_parked(second, SEGMENT)
    piece_by_piece(first, second, done=1)
    assert is_whole(first)
    asks_for_its_turn(second)
    first.take_turn()
    second.client.grant()
    piece_by_piece(second, first)
    assert is_whole(second)


@pytest.mark.promise("bad-memory-30")
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_runs_out_in_the_middle_of_a_piece(
    pair: tuple[MemoryShell, MemoryShell], group: Group, files: Files
) -> None:
    """What has its place on the host already gets there; what has none stays."""
    first, second = pair
    first.budget(SEGMENT)
    first.client.grant()
    wait_until(lambda: group.taken()[0] == HELD - SEGMENT)
    files.make("begin")
    second.budget(0)
    files.wait_for_held("go")
    group.leave(SINCE_ALWAYS)
    files.make("go")
    second.client.expect_memory(
        lambda report: report.bytes_host_room == 0 and report.bytes_parked > 0
    )
    assert last_report(second).bytes_parked < HELD
    group.leave(HELD + SEGMENT)
    piece_by_piece(first, second, done=1)
    assert is_whole(first)
    asks_for_its_turn(second)
    first.take_turn()
    second.client.grant()
    piece_by_piece(second, first)
    assert is_whole(second)
