"""Movable memory of processes and contexts that end while it is moved."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode, TurnDropped
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import GIB, MIB, SimulatedMachine

Start = Callable[..., GpuProcess]
HELD = 4 * 64 * MIB


def test_exit_handlers_that_free_end_soon(
    start: Start, scheduler: FakeScheduler, tmp_path: Path
) -> None:
    """The process ends while it parks, and a handler of exit frees what is on its way: the frees
    succeed, nothing waits for a mover that has stopped."""
    slow = SimulatedMachine(tmp_path / "slow", bytes_per_device=GIB, copy_bytes_per_s=100 * MIB)
    program = start("frees_at_exit", HELD // 4, machine=slow)
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=2000)
    device = client.expect(DeviceOpened).device
    client.budget(device, UNLIMITED)
    client.grant_request()
    program.expect("holds")
    client.recall()
    client.expect(TurnDropped)
    client.budget(device, 0)
    client.expect_memory(lambda report: 0 < report.bytes_parked < HELD)
    began_s = time.monotonic()
    assert program.finish() == 0
    program.expect("freed 4, context 0")
    assert time.monotonic() - began_s < 5
