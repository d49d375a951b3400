"""The memory mode changes while a call that allocates waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpushare.protocol.messages import (
    MemoryMode,
    MemoryNeeded,
    RequestWithdrawn,
    RoomRequested,
    TurnRequested,
)
from tests.hook.runtime.memory_shell import MIB, MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_claims import REFUSED
from tests.hook.runtime.test_park_faults import CONTEXT, HELD, hold
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until

Start = Callable[..., GpuProcess]
CANCELLED = 800
CREATED_BY_HOLD = 2
"""Chunks; one more with CONTEXT."""
TWO_CHUNKS = 128 * MIB

pytestmark = pytest.mark.promise("accounts-49")


def opened(start: Start, scheduler: FakeScheduler, faults: str, mode: MemoryMode) -> MemoryShell:
    env = {"GPUSHARE_SIM_FAULTS": faults}
    return open_memory_shell(start, scheduler.accept, env=env, memory_mode=mode, reclaim_ms=20_000)


def refused_in_its_second_chunk(chunks_before: int) -> str:
    """Faults: the driver takes the first one's time until the test says."""
    return (
        f"hold cuMemCreate nth={chunks_before + 1} until=go;"
        f"fail cuMemCreate nth={chunks_before + 2} result={REFUSED}"
    )


def counts_on(memory: MemoryShell, sim: SimulatedMachine, held: int) -> None:
    """A claim counts while its allocation is made, whatever was claimed before, and no more when
    that has failed."""
    memory.say(f"new 3 {TWO_CHUNKS}")
    wait_until((sim.directory / "go.held").exists)
    memory.budget(UNLIMITED)
    memory.client.expect_memory(lambda report: report.bytes_allocated == held + TWO_CHUNKS)
    (sim.directory / "go").touch()
    assert memory.result("new") == REFUSED
    memory.client.expect_memory(lambda report: report.bytes_allocated == held)


def waiting_at_the_gate(start: Start, scheduler: FakeScheduler) -> MemoryShell:
    """An allocation that began while memory stayed where it was; now it follows the turn, and
    nothing of the call is told as memory."""
    memory = opened(start, scheduler, refused_in_its_second_chunk(0), MemoryMode.OFF)
    memory.say(f"new 2 {CONTEXT}")
    memory.client.expect(TurnRequested)
    memory.client.change_settings(memory_mode=MemoryMode.SWAP)
    assert memory.limit(0).bytes_allocated == 0
    return memory


def test_what_waits_at_the_gate_is_no_memory_yet(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """It counts when it was allocated."""
    memory = waiting_at_the_gate(start, scheduler)
    memory.budget(UNLIMITED)
    memory.client.grant()
    assert memory.result("new") == 0
    memory.client.expect_memory(lambda report: report.bytes_allocated == CONTEXT)
    counts_on(memory, sim, CONTEXT)


@pytest.mark.parametrize("waits_for", [MemoryNeeded, RoomRequested])
def test_what_waited_for_memory_waits_at_the_gate(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine, waits_for: type
) -> None:
    """Memory follows the turn no more, and then does so again."""
    faults = refused_in_its_second_chunk(CREATED_BY_HOLD + 1)
    if waits_for is RoomRequested:
        out = CREATED_BY_HOLD + 1
        faults = f"fail cuMemCreate nth={out} result=2;{refused_in_its_second_chunk(out + 1)}"
    memory = hold(opened(start, scheduler, faults, MemoryMode.SWAP))
    client = memory.client
    if waits_for is RoomRequested:
        memory.say(f"new 2 {CONTEXT}")
        client.expect(RoomRequested)
        memory.take_turn()
    else:
        memory.take_turn()
        memory.say(f"new 2 {CONTEXT}")
        client.expect(TurnRequested)
    client.change_settings(memory_mode=MemoryMode.OFF)
    if waits_for is RoomRequested:
        client.room(memory.device, made=True)
        client.expect(TurnRequested)
    client.change_settings(memory_mode=MemoryMode.SWAP)
    assert memory.limit(HELD).bytes_allocated == HELD
    memory.budget(UNLIMITED)
    client.grant()
    assert memory.result("new") == 0
    client.expect_memory(lambda report: report.bytes_allocated == HELD + CONTEXT)
    counts_on(memory, sim, HELD + CONTEXT)


def test_a_wait_at_the_gate_that_is_cancelled(
    start: Start, scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Nothing of it is left."""
    memory = waiting_at_the_gate(start, scheduler)
    memory.client.cancel()
    assert memory.result("new") == CANCELLED
    memory.client.expect(RequestWithdrawn)
    memory.begin_cell()
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    counts_on(memory, sim, 0)
