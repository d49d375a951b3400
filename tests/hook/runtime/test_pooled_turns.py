"""Stream-ordered memory while the turn comes and goes, with the real mover: its device's last
context ends under it, and others want what its pool keeps."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode, TurnRequested
from tests.hook.runtime.mapping_program import (
    SIZE,
    MappingProgram,
    Opens,
    opening,
)
from tests.hook.runtime.memory_shell import MIB, MemoryShell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.test_mapped_turns import end_context
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.sim import GIB, SimulatedMachine
from tests.support.waits import wait_until


@pytest.fixture
def sim(tmp_path: Path) -> SimulatedMachine:
    return SimulatedMachine(tmp_path / "sim", devices=2, bytes_per_device=GIB)


@pytest.fixture
def opens(tmp_path: Path, scheduler: FakeScheduler, sim: SimulatedMachine) -> Iterator[Opens]:
    yield from opening(tmp_path, scheduler, sim, "pooled_session")


def take(program: MappingProgram, name: str, size: str) -> None:
    """With the turn."""
    program.say(f"{name} = take({size})")
    program.memory.grant()
    assert program.result() == "None"


@pytest.mark.promise("backing-8")
@pytest.mark.parametrize("frees", ["", "give(a)"])
def test_what_was_lost_is_not_handed_out_again(
    opens: Opens, sim: SimulatedMachine, frees: str
) -> None:
    """The last context of a device ended while memory of a pool was in host memory, and another
    device went on. The next context of the first one has other memory."""
    program = opens()
    take(program, "a", "8 * MIB")
    assert program.run("a > 0, write(a, b'kept'), call('cuCtxSynchronize')") == "(True, 0, 0)"
    program.park()
    end_context(program, "cuDevicePrimaryCtxRelease_v2")
    program.run("opened(1)")
    other = program.client.expect(DeviceOpened).device
    program.begin_cell()
    program.say(f"alloc({SIZE}) > 0")
    program.client.expect(TurnRequested)
    program.client.budget(other, UNLIMITED)
    program.allow_all()
    assert program.result() == "True"
    program.run("opened(0)")
    if frees:
        assert program.run(frees) == "0"
    program.say("b = take(40 * MIB)")
    program.client.expect(TurnRequested)
    program.client.budget(other, UNLIMITED)
    program.allow_all()
    assert program.result() == "None"
    assert program.run("b > 0, a // SEGMENT in range(b // SEGMENT, b // SEGMENT + 2)") == (
        "(True, False)"
    )
    assert program.run("write(b, b'new'), read(b, 3)") == "(0, b'new')"
    assert program.run("call('cuMemsetD8Async', c_uint64(b), 1, c_size_t(4096), None), wait()") == (
        "(0, 0)"
    )
    assert [record for record in sim.journal() if record.kind.name == "FAULT"] == []


@pytest.mark.promise("backing-9")
@pytest.mark.parametrize("asks", ["alloc(700 * MIB)", "create(700 * MIB)"])
def test_a_full_device_has_what_pools_keep(opens: Opens, asks: str) -> None:
    """Before others are asked for room, or after they made none."""
    program = opens()
    take(program, "a", "600 * MIB")
    assert program.run("keep(default_pool()), give(a), wait()") == "(0, 0, 0)"
    program.say(f"({asks}) > 0, figures(default_pool())[0]")
    program.client.room(program.memory.device, made=False, request=1)
    assert program.result() == "(True, 0)"


@pytest.mark.promise("backing-8")
def test_a_jump_out_of_an_allocation_keeps_no_pool(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler, sim: SimulatedMachine
) -> None:
    """Of the handler of SIGINT: the addresses of the pool are given back when it is destroyed, at
    the latest at the thread's next allocation."""
    process = start(
        "jumps_out_of_pools", env={"GPUSHARE_SIM_FAULTS": "stall cuMemAddressFree nth=1 ms=0"}
    )
    client = scheduler.accept()
    client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=300)
    memory = MemoryShell(process, client, client.expect(DeviceOpened).device)
    memory.grant()
    process.expect("created 0")
    memory.take_turn()
    assert memory.park_to(0).bytes_parked == 64 * MIB
    process.say("go on")
    client.expect(TurnRequested)
    process.signal(signal.SIGINT)
    for said in ("jumped", "freed 0", "destroyed 0", "waited 0"):
        process.expect(said)
    wait_until(lambda: sim.happened() == ["stall cuMemAddressFree"])


@pytest.mark.promise("backing-8")
@pytest.mark.parametrize("size", ["8 * MIB", "256 * MIB"])
@pytest.mark.parametrize("frees_first", [True, False])
def test_what_was_lost_counts_no_more_when_it_is_freed(
    opens: Opens, size: str, frees_first: bool
) -> None:
    """With the last context of its device, before or after that; what lies beside it and was
    free goes as well, and its addresses are used again."""
    program = opens()
    take(program, "a", size)
    assert program.run("a > 0, write(a, b'kept'), call('cuCtxSynchronize')") == "(True, 0, 0)"
    if frees_first:
        assert program.run("give(a)") == "0"
    program.park()
    end_context(program, "cuDevicePrimaryCtxRelease_v2")
    program.run("opened(1)")
    other = program.client.expect(DeviceOpened).device
    program.begin_cell()
    program.say(f"alloc({SIZE}) > 0")
    program.client.expect(TurnRequested)
    program.client.budget(other, UNLIMITED)
    program.allow_all()
    assert program.result() == "True"
    program.run("opened(0)")
    if not frees_first:
        assert program.run("give(a)") == "0"
    program.memory.budget(GIB)
    assert program.run("wait(), figures(default_pool())[::2]") == "(0, [0, 0])"
    program.client.expect_memory(
        lambda report: (
            report.device == program.memory.device
            and (report.bytes_allocated, report.bytes_parked) == (0, 0)
        )
    )
