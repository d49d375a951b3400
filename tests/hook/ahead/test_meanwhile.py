"""What happens in the middle of a restore ahead of the turn, to the chunk: the mover stands still
in the copy of one until the test has done what it does."""

from __future__ import annotations

import pytest

from jupyter_gpushare.protocol.messages import RequestWithdrawn, TurnRequested
from tests.hook.ahead.conftest import HELD, KINDS, SEGMENT, TENSORS, Opens
from tests.hook.runtime.memory_shell import MemoryShell
from tests.hook.runtime.test_arena import Group
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import UNLIMITED
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

CANCELLED = 800
SECOND_CHUNK = {"managed": "cuMemPrefetchAsync thread=gpushare-mem nth=2"}
"""Else a chunk is a segment, and two copies."""


class Middle:
    """A process whose call waits for the turn, and whose memory comes back ahead of it: one chunk
    has come, and the mover stands in the second."""

    def __init__(self, opens: Opens, files: Files, sim: SimulatedMachine, kind: str) -> None:
        second = SECOND_CHUNK.get(kind, "cuMemcpyHtoDAsync thread=gpushare-mem nth=3")
        stop = f"hold {second} from=begin until=go"
        self.memory = opens(kind=kind, faults=stop)
        self._files, self._sim = files, sim
        self.memory.take_turn()
        assert self.memory.park_to(0).bytes_parked == HELD
        self.copied_out = self._copied_out()
        self.memory.say("sum 0")
        self.memory.client.expect(TurnRequested)
        files.make("begin")
        self.memory.budget(HELD)
        files.wait_for_held("go")

    def goes_on(self) -> None:
        self._files.make("go")

    def leaves_without_a_copy(self) -> None:
        """All that has come is gone again, and nothing was copied out for that."""
        assert self.memory.park_to(0).bytes_parked == HELD
        assert self._copied_out() == self.copied_out

    def _copied_out(self) -> int:
        return sum(r.amount for r in self._sim.journal() if r.kind.name == "COPY_D2H")


@pytest.fixture
def middle(opens: Opens, files: Files, sim: SimulatedMachine, kind: str) -> Middle:
    return Middle(opens, files, sim, kind)


def is_whole(memory: MemoryShell) -> bool:
    """In a turn."""
    return all(memory.is_whole(tensor) for tensor in range(TENSORS))


def is_whole_in_the_next_cell(memory: MemoryShell) -> bool:
    memory.begin_cell()
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    return is_whole(memory)


@pytest.mark.promise("bad-memory-7")
@pytest.mark.parametrize("next_one", ["still", "no more"])
@pytest.mark.parametrize("kind", [*KINDS, pytest.param("managed", marks=pytest.mark.full)])
def test_an_interrupt(middle: Middle, kind: str, next_one: str) -> None:
    """The call ends while the copy is still on its way. What has come stays for as long as the
    budget says, and leaves without a copy."""
    memory = middle.memory
    memory.client.cancel()
    assert memory.result("sum") == CANCELLED
    memory.client.expect(RequestWithdrawn)
    if next_one == "still":
        middle.goes_on()
        memory.client.expect_memory(lambda report: report.bytes_parked == 0)
    else:
        memory.limit(0)
        middle.goes_on()
    if kind != "managed":
        middle.leaves_without_a_copy()
    assert is_whole_in_the_next_cell(memory)


@pytest.mark.promise("bad-memory-8")
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_runs_out(middle: Middle, group: Group) -> None:
    """What has come needs none of it to leave again, and takes none. With the turn, all of it comes
    back, and gives its host memory to others piece by piece."""
    memory = middle.memory
    group.leave(HELD)
    assert group.taken()[0] == HELD, "there is no room left"
    memory.budget(0)
    middle.goes_on()
    middle.leaves_without_a_copy()
    assert group.taken() == (HELD, HELD)
    memory.budget(UNLIMITED)
    memory.client.grant()
    memory.shell.expect("0 sum 0")
    assert is_whole(memory)
    wait_until(lambda: group.taken()[0] <= SEGMENT)
    assert group.taken()[1] == HELD


@pytest.mark.promise("bad-memory-8")
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_runs_out_before_the_turn_comes(middle: Middle, group: Group) -> None:
    """The turn comes in the middle of it, too. It goes on with what has come."""
    memory = middle.memory
    group.leave(HELD)
    memory.budget(UNLIMITED)
    memory.client.grant()
    middle.goes_on()
    memory.shell.expect("0 sum 0")
    assert is_whole(memory)
    wait_until(lambda: group.taken()[0] <= SEGMENT)
    assert group.taken()[1] == HELD


@pytest.mark.promise("bad-memory-8")
@pytest.mark.parametrize("kind", KINDS)
def test_a_host_that_runs_out_and_has_memory_again(middle: Middle, group: Group) -> None:
    """Meanwhile the process says that it can park no more than what it has there."""
    memory = middle.memory
    group.leave(HELD)
    middle.goes_on()
    memory.client.expect_memory(lambda report: report.bytes_parked == 0)
    room_bytes = memory.limit(HELD).bytes_host_room
    assert room_bytes <= HELD
    group.leave(4 * HELD)
    if room_bytes < HELD:  # else it can park all that it has, and looks no further
        memory.client.expect_memory(lambda report: report.bytes_host_room > HELD)
    middle.leaves_without_a_copy()
    memory.budget(UNLIMITED)
    memory.client.grant()
    memory.shell.expect("0 sum 0")
    assert is_whole(memory)
