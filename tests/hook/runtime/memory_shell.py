"""A shell program whose memory follows the turn, and the scheduler's end of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jupyter_gpushare.protocol.messages import (
    DeviceOpened,
    MemoryMode,
    MemoryNeeded,
    MemoryReported,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import UNLIMITED, HookedClient

MIB = 1 << 20
PIECE_WORDS = MIB // 4


def checksum(seed: int, size: int) -> int:
    """What a tensor of this size and seed sums up to (shell.c fills it piece by piece)."""
    words = size // 4
    total, at, value = 0, 0, seed
    while at < words:
        end = min(at + PIECE_WORDS, words)
        total += value * (end * end - at * at)
        at, value = end, value + 1
    return total % 2**64


class MemoryShell:
    """A process with one thread of commands, and a scheduler that does what the test says."""

    def __init__(self, shell: GpuProcess, client: HookedClient, device: bytes) -> None:
        self.shell = shell
        self.client = client
        self.device = device
        self._seeds: dict[int, tuple[int, int]] = {}

    # ---- what the program does ----

    def run(self, command: str, *, thread: int = 0) -> int:
        """Does a command and returns its result."""
        self.say(command, thread=thread)
        return self.result(command, thread=thread)

    def say(self, command: str, *, thread: int = 0) -> None:
        self.shell.say(f"{thread} {command}")

    def result(self, command: str, *, thread: int = 0) -> int:
        line = self.shell.expect(f"{thread} {command.split()[0]} ")
        return int(line.split()[2])

    def begin_cell(self) -> None:
        """What was cancelled before was not this one's."""
        self.run("hook cell_began", thread=7)

    def fill(self, tensor: int, size: int) -> None:
        """Makes a tensor (with the turn and the budget that takes) and fills it."""
        seed = 1000 + 97 * tensor
        assert self.run(f"new {tensor} {size}") == 0
        assert self.run(f"pattern {tensor} {seed}") == 0
        assert self.run("sync") == 0
        self._seeds[tensor] = (seed, size)

    def wrote(self, tensor: int, seed: int) -> None:
        """The program filled it anew."""
        self._seeds[tensor] = (seed, self._seeds[tensor][1])

    def is_whole(self, tensor: int) -> bool:
        """What the device says of the tensor's contents; needs the turn."""
        self.say(f"sum {tensor}")
        found = int(self.shell.expect(f"checksum {tensor} ").split()[2])
        assert self.result(f"sum {tensor}") == 0
        return found == checksum(*self._seeds[tensor])

    # ---- what the scheduler does ----

    def budget(self, budget_bytes: int, **more: Any) -> int:
        return self.client.budget(self.device, budget_bytes, **more)

    def limit(self, budget_bytes: int, **more: Any) -> MemoryReported:
        """A budget that the process has heard of when this returns."""
        serial = self.budget(budget_bytes, **more)
        return self.client.expect_memory(lambda report: report.budget_serial == serial)

    def grant(self, budget_bytes: int = UNLIMITED, *, waiters: int = 0, **more: Any) -> None:
        """Answers a request as the real scheduler does: the budget first. Between the two some
        memory may come back ahead, unless `more` says that it does not."""
        self.client.expect(TurnRequested)
        self.budget(budget_bytes, **more)
        self.client.grant(waiters=waiters)

    def need(self, size: int) -> MemoryNeeded:
        """The next message that so much is needed."""
        while True:
            need = self.client.expect(MemoryNeeded)
            if need.bytes == size:
                return need

    def refuse(self, command: str, budget_bytes: int, **more: Any) -> int:
        """Refuses what the command needs, which was heard last, and returns its result."""
        self.budget(budget_bytes, refused=True, **more)
        return self.result(command)

    def take_turn(self) -> None:
        """Recalls, and waits until the turn is given back."""
        self.client.recall()
        self.client.expect(TurnDropped)

    def park_to(self, budget_bytes: int, **more: Any) -> MemoryReported:
        """Lowers the budget and waits until no more than that is on the device."""
        serial = self.budget(budget_bytes, **more)
        return self.client.expect_memory(
            lambda report: (
                report.budget_serial == serial
                and report.bytes_allocated - report.bytes_parked <= budget_bytes
            )
        )


Opened = Callable[..., MemoryShell]


def open_memory_shell(
    start: Callable[..., GpuProcess],
    accept: Callable[[], HookedClient],
    *,
    env: dict[str, str] | None = None,
    kind: str = "plain",
    **settings: Any,
) -> MemoryShell:
    """A shell that has opened its device, welcomed with the memory mode `swap`. Its tensors are of
    that kind (shell.c)."""
    shell = start("shell", env={**(env or {}), "TENSORS": kind})
    shell.say("0 open")
    client = accept()
    options = {"memory_mode": MemoryMode.SWAP, "reclaim_ms": 2000, **settings}
    client.welcome(**options)
    shell.expect("0 open 0")
    return MemoryShell(shell, client, client.expect(DeviceOpened).device)
