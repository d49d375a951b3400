"""A process whose memory is copied to the host ahead of need, and what the device says of it."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.protocol.messages import Ahead, MemoryReported, TurnRequested
from tests.hook.runtime.memory_shell import MemoryShell
from tests.hook.runtime.test_arena import SEGMENT, Group
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import UNLIMITED
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

TENSORS = 3
HELD = TENSORS * SEGMENT
TWO = 2 * SEGMENT
FIRST_PIECE_OF_SECOND = 3
"""Each tensor is two copies."""


def stop_at(piece: int) -> str:
    """The mover stands still in this copy to the host, until the test goes on."""
    return f"hold cuMemcpyDtoHAsync thread=gpushare-mem nth={piece} from=begin until=go"


def take_turns_until(has_host_memory: Callable[[], bool], take_one: Callable[[], None]) -> None:
    """Pages that are there may not be registered yet, or the system had none left, and is asked
    again a second later: further turns end that."""
    wait_until(lambda: has_host_memory() or take_one(), "host memory for copies")


def last_report(memory: MemoryShell) -> MemoryReported:
    return [each for each in memory.client.received if isinstance(each, MemoryReported)][-1]


def take_a_turn(memory: MemoryShell, *, hint_bytes: int = 0) -> None:
    memory.say("spin d 1000")
    memory.client.expect(TurnRequested)
    memory.budget(UNLIMITED, hint_bytes=hint_bytes)
    memory.client.grant()
    assert memory.result("spin") == 0


def make_ready(memory: MemoryShell, group: Group, size: int = HELD) -> None:
    """Host memory for copies, in its turn, which it gives back then."""
    memory.limit(UNLIMITED, hint_bytes=size)
    wait_until(lambda: group.taken()[0] >= size)
    memory.take_turn()

    def take_another() -> None:
        take_a_turn(memory, hint_bytes=size)
        memory.take_turn()

    take_turns_until(lambda: last_report(memory).bytes_to_copy >= size, take_another)


class Copier:
    """A process without the turn, and host memory that was made ready for it."""

    def __init__(
        self, memory: MemoryShell, files: Files, sim: SimulatedMachine, group: Group
    ) -> None:
        self.memory, self.client = memory, memory.client
        self._files, self._sim, self._group = files, sim, group

    def readies(self, size: int) -> Copier:
        """In the turn, which it gives back then."""
        make_ready(self.memory, self._group, size)
        return self

    def last_report(self) -> MemoryReported:
        return last_report(self.memory)

    def reports(self, holds: Callable[[MemoryReported], bool]) -> MemoryReported:
        """The last report, or the first one to come, of which this holds."""
        last = self.last_report()
        return last if holds(last) else self.client.expect_memory(holds)

    def copies(self, size: int, *, hint_bytes: int | None = None) -> MemoryReported:
        """Until so much is copied."""
        hint_bytes = size if hint_bytes is None else hint_bytes
        self.memory.limit(HELD, hint_bytes=hint_bytes, ahead=Ahead.COPIES)
        return self.reports(lambda report: report.bytes_copied == size)

    def stops_in_a_copy(self, hint_bytes: int) -> None:
        self._files.make("begin")
        self.memory.budget(HELD, hint_bytes=hint_bytes, ahead=Ahead.COPIES)
        self._files.wait_for_held("go")

    def goes_on(self) -> None:
        self._files.make("go")

    def copied_out(self) -> int:
        """By the device's own account."""
        records = (r for r in self._sim.journal() if r.pid == self.memory.shell.pid)
        return sum(record.amount for record in records if record.kind.name == "COPY_D2H")

    def writes(self, tensor: int = 0) -> None:
        """In the turn."""
        assert self.memory.run(f"pattern {tensor} 777") == 0
        assert self.memory.run("sync") == 0
        self.memory.wrote(tensor, 777)

    def parks_all(self) -> None:
        assert self.memory.park_to(0).bytes_parked == self.last_report().bytes_allocated

    def takes_a_turn(self, *, hint_bytes: int = 0) -> None:
        take_a_turn(self.memory, hint_bytes=hint_bytes)

    def is_whole(self, tensors: int = TENSORS) -> bool:
        """In a turn."""
        return all(self.memory.is_whole(tensor) for tensor in range(tensors))

    def is_whole_after_a_park(self) -> bool:
        self.memory.take_turn()
        self.parks_all()
        self.takes_a_turn()
        return self.is_whole()


Copiers = Callable[..., Copier]
