"""A program with memory on two devices that does what it is told, with the scheduler's end of it,
and files by which a test says when the simulated driver's faults happen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from jupyter_gpushare.protocol.messages import (
    DeviceOpened,
    MemoryMode,
    MemoryReported,
    TurnDropped,
    TurnRequested,
)
from tests.hook.runtime.memory_shell import MIB
from tests.hook.runtime.process import ANSWER_S_MAX, GpuProcess
from tests.support.fake_scheduler import FakeScheduler
from tests.support.paths import HOOK_LIBRARY, ROOT
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

CHUNK = 64 * MIB
"""The largest: an allocation of two is cut in the middle."""
COPIES = 2
"""With so many calls each of these is copied."""
PROGRAM = """
import sys
from tests.hook.backing_session import *

def fill(address, value, size):
    result = launch("fill", 0, c_uint64(address), c_uint(value), c_uint64(size // 4))
    return result or call("cuCtxSynchronize")

def words(address, size):
    data = read(address, size)
    return sorted({int.from_bytes(data[i : i + 4], "little") for i in range(0, size, 4096)})

def on(context):
    return call("cuCtxSetCurrent", c_void_p(context))

OTHER = opened(1)
print("opened", flush=True)
for line in sys.stdin:
    exec(line)
    sys.stdout.flush()
"""


class Files:
    """What the simulated driver's held calls wait for."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._folder = machine.directory

    def make(self, name: str) -> None:
        (self._folder / name).touch()

    def arrived(self, count: int) -> bool:
        """So many chunks were copied in."""
        kinds = [record.kind.name for record in self._machine.journal()]
        return kinds.count("COPY_H2D") >= count * COPIES

    def wait_for_held(self, name: str) -> None:
        wait_until((self._folder / f"{name}.held").exists)


class TwoDevices:
    """A program with memory on two devices, and a scheduler that does what the test says."""

    def __init__(self, process: GpuProcess, scheduler: FakeScheduler) -> None:
        self.process = process
        self.client = scheduler.accept()
        self.client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=200)
        self.devices = [self.client.expect(DeviceOpened).device for _ in range(2)]
        process.expect("opened")

    def say(self, statement: str) -> None:
        self.process.say(statement)

    def hears(self, word: str, *, within_s: float = ANSWER_S_MAX) -> str:
        return self.process.expect(f"{word} ", within_s=within_s).removeprefix(f"{word} ")

    def grant(self, *budgets: int) -> None:
        self.client.expect(TurnRequested)
        self.budgets(*budgets)
        self.client.grant()

    def budgets(self, *budgets: int) -> None:
        for device, budget in zip(self.devices, budgets, strict=True):
            self.client.budget(device, budget)

    def drop(self) -> None:
        self.client.recall()
        self.client.expect(TurnDropped)

    def has_begun_to_restore(self, times: int) -> None:
        """The mover's goal has changed so often to bringing all back."""
        wait_until(lambda: len(self.process.log_lines("restore: turn ")) == times)

    def parked(self) -> list[int]:
        """What each device's latest report says."""
        reports = [m for m in self.client.received if isinstance(m, MemoryReported)]
        return [[r for r in reports if r.device == d][-1].bytes_parked for d in self.devices]

    def expect_parked(self, holds: Callable[[list[int]], bool]) -> None:
        self.client.expect_memory(lambda _: holds(self.parked()))

    def expect_all_parked(self) -> None:
        self.expect_parked(lambda parked: parked == [2 * CHUNK] * 2)


def program_of(
    tmp_path: Path,
    scheduler: FakeScheduler,
    machine: SimulatedMachine,
    faults: str,
    **more: str,
) -> GpuProcess:
    log = tmp_path / "program.log"
    environment = machine.env(scheduler.env(hook=HOOK_LIBRARY, log=log))
    environment |= {"PYTHONPATH": str(ROOT), "GPUSHARE_SIM_FAULTS": faults, **more}
    return GpuProcess([sys.executable, "-c", PROGRAM], environment, log)
