"""What the tests of managed memory do with a shell, and what they ask it."""

from __future__ import annotations

from typing import Any

from jupyter_gpushare.protocol.messages import MemoryKindsReported, MemoryReported
from tests.hook.runtime.memory_shell import MIB, MemoryShell

SIZE = 64 * MIB
HELD = 2 * SIZE
PIECE = 8 * MIB
"""Of a tensor: what moves as a whole."""
READ_MOSTLY, PREFERRED, ACCESSED_BY, PREFETCHED = 1, 2, 3, 4
SET_READ_MOSTLY, UNSET_READ_MOSTLY, SET_PREFERRED, SET_ACCESSED_BY = 1, 2, 3, 5
CPU, NOWHERE = -1, -2


class Managed:
    """A shell with two tensors of managed memory."""

    def __init__(self, memory: MemoryShell) -> None:
        self.memory = memory
        self.client = memory.client

    def fill(self) -> None:
        self.memory.fill(0, SIZE)
        self.memory.fill(1, SIZE)

    def run(self, command: str, **options: Any) -> int:
        return self.memory.run(command, **options)

    def written_by_host(self, tensor: int, seed: int) -> None:
        """While it is wherever it is; the device is to see it."""
        assert self.run(f"write {tensor} {seed}", thread=1) == 0
        self.memory.wrote(tensor, seed)

    def noted(self, tensor: int, attribute: int) -> int:
        """What the driver says of the tensor."""
        self.memory.say(f"attribute {tensor} {attribute}")
        value = int(self.memory.shell.expect("attribute ").split()[1])
        assert self.memory.result("attribute") == 0
        return value

    def notes(self, tensor: int = 0) -> list[int]:
        return [self.noted(tensor, which) for which in (READ_MOSTLY, PREFERRED, ACCESSED_BY)]

    def park(self, budget_bytes: int = 0) -> MemoryReported:
        self.memory.take_turn()
        return self.memory.park_to(budget_bytes)

    def restore(self) -> None:
        self.memory.say("spin d 1000")
        self.memory.grant()
        assert self.memory.result("spin") == 0

    def is_whole(self) -> bool:
        return self.memory.is_whole(0) and self.memory.is_whole(1)

    def kinds(self) -> MemoryKindsReported:
        """As they were told last."""
        told = [m for m in self.client.received if isinstance(m, MemoryKindsReported)]
        return told[-1]
