"""Park and restore under the address, undefined-behaviour and thread sanitizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import TurnDropped, TurnRequested
from tests.hook.runtime.memory_shell import MIB, MemoryShell, open_memory_shell
from tests.hook.runtime.process import GpuProcess, Programs
from tests.hook.runtime.test_sanitizers import (
    COMPILER_FLAGS,
    ENVIRONMENT,
    Sanitized,
    assert_clean,
    build_hook,
    sanitized,
)
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import FakeScheduler
from tests.support.sim import SimulatedMachine

__all__ = ["sanitized"]

SIZE = 12 * MIB
HELD = 2 * SIZE
CHURN = 2 * MIB


@pytest.fixture
def kind() -> str:
    """Of its tensors."""
    return "plain"


@pytest.fixture
def memory(
    sanitized: Sanitized, scheduler: FakeScheduler, kind: str, monkeypatch: pytest.MonkeyPatch
) -> MemoryShell:
    """A shell that holds the turn and two tensors."""
    monkeypatch.setenv("TENSORS", kind)

    def start(name: str, **_: Any) -> GpuProcess:
        return sanitized(name)

    starts: Callable[..., GpuProcess] = start
    opened = open_memory_shell(starts, scheduler.accept)
    opened.say("spin d 1000")
    opened.grant()
    assert opened.result("spin") == 0
    opened.fill(0, SIZE)
    opened.fill(1, SIZE)
    return opened


@pytest.mark.promise(
    "park-60",
    "Park and restore are clean under the address, undefined-behaviour and thread sanitizers",
)
@pytest.mark.full
@pytest.mark.parametrize("kind", ["plain", "mapped", "pieces", "managed"])
def test_turns_that_park_under_a_sanitizer(memory: MemoryShell, kind: str) -> None:
    """Threads that allocate, free and launch, a fork, budgets up and down, recalls in every phase:
    no report, and every byte is there in the end."""
    for thread in (1, 2):
        assert memory.run("current", thread=thread) == 0
    memory.say(f"churn 2 {CHURN} 200", thread=1)
    memory.say("loop p 20000", thread=2)
    client = memory.client
    for number in range(9):
        memory.budget(HELD + CHURN // (1 + number % 2))
        memory.take_turn()
        client.expect(TurnRequested)
        waits = number % 4 == 1
        memory.budget(0 if waits else (0, SIZE, HELD)[number % 3])
        if waits:
            client.expect_memory(lambda report: report.bytes_parked > 0)
        memory.say("describe", thread=3)
        memory.budget(HELD + 2 * CHURN, hint_bytes=SIZE)
        client.grant()
        if number % 5 == 2:
            client.recall()
            client.expect(TurnDropped)
            client.expect(TurnRequested)
            memory.budget(HELD + 2 * CHURN)
            client.grant()
        if number == 6:
            assert memory.run("fork", thread=4) == 0
    memory.shell.say("0 stop")
    for thread in (1, 2):
        assert memory.run("echo", thread=thread) == 0
    assert memory.is_whole(0)
    assert memory.is_whole(1)
    memory.take_turn()
    memory.park_to(0)
    assert memory.run("drop 0") == 0
    assert_clean(memory.shell)


@pytest.mark.full
@pytest.mark.promise("park-60")
def test_a_process_that_ends_in_a_restore_under_a_sanitizer(memory: MemoryShell) -> None:
    """A wait that is cancelled in a restore, then the end of the process in another one."""
    memory.take_turn()
    memory.park_to(0)
    for _ in range(2):
        memory.say("spin d 1000")
        memory.grant(SIZE + 2 * MIB)
        memory.client.expect_memory(lambda report: report.bytes_parked < HELD)
        memory.client.cancel()
        assert memory.result("spin") == 800
        memory.client.expect(TurnDropped)
        memory.begin_cell()
    assert_clean(memory.shell)


@pytest.mark.full
@pytest.mark.promise("park-60")
@pytest.mark.promise("backing-14")
def test_memory_is_given_away_under_a_sanitizer(
    sanitized: Sanitized, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By two threads at once, while another one launches and the turn comes and goes; a third one
    drops some of it meanwhile. Every byte is there in the end."""
    monkeypatch.setenv("TENSORS", "given")
    starts: Callable[..., GpuProcess] = lambda name, **_: sanitized(name)  # noqa: E731
    memory = open_memory_shell(starts, scheduler.accept)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    for tensor in range(3):
        memory.fill(tensor, 70 * MIB)
    for thread in (1, 2, 3, 4):
        assert memory.run("current", thread=thread) == 0
    memory.say("loop p 20000", thread=2)
    memory.say("give 0", thread=1)
    memory.say("give 0", thread=3)
    memory.take_turn()
    memory.grant()
    assert {memory.shell.expect("") for _ in range(2)} == {"1 give 0", "3 give 0"}
    memory.say("give 1", thread=1)
    memory.say("drop 1", thread=4)
    answers = {memory.shell.expect("") for _ in range(2)}
    assert answers in ({"4 drop 0", "1 give 0"}, {"4 drop 0", "1 give 1"})
    memory.shell.say("0 stop")
    assert memory.run("echo", thread=2) == 0
    assert memory.is_whole(0)
    assert memory.is_whole(2)
    assert_clean(memory.shell)


@pytest.fixture
def pausing(
    programs: Programs, sim: SimulatedMachine, scheduler: FakeScheduler, tmp_path: Path
) -> Iterator[MemoryShell]:
    """A shell under the address sanitizer that holds a tensor, and whose mover pauses wherever it
    lets go of a lock. It asks for the end of a copy once there is the file that says so."""
    pauses = Path(__file__).parent / "programs" / "pauses.h"
    flags = [COMPILER_FLAGS["address"], "-rdynamic", "-include", str(pauses)]
    shell = programs.built("shell", *flags, suffix="-pauses")
    log = tmp_path / "shell.log"
    env = sim.env(scheduler.env(hook=build_hook("address"), log=log)) | ENVIRONMENT
    env["GPUSHARE_SIM_FAULTS"] = ";".join(
        f"hold cuEventQuery thread=gpushare-mem from={way} until={way}s"
        for way in ("leave", "come")
    )
    process = GpuProcess([str(shell)], env, log)
    memory = open_memory_shell(lambda *_, **__: process, scheduler.accept)
    memory.say("spin d 1000")
    memory.grant()
    assert memory.result("spin") == 0
    memory.fill(0, CHURN)
    assert memory.run("current", thread=1) == 0
    yield memory
    process.end()


@pytest.mark.full
@pytest.mark.promise("park-60")
@pytest.mark.parametrize("way", ["leave", "come"])
def test_memory_that_is_freed_while_it_moves(
    pausing: MemoryShell, sim: SimulatedMachine, way: str
) -> None:
    """A thread waits to free what the mover has in its hands: when that lets go of it, it does not
    look at it any more."""
    files = Files(sim)
    pausing.take_turn()
    if way == "come":
        pausing.park_to(0)
        pausing.say("spin d 1000")
    files.make(way)
    if way == "come":
        pausing.grant()
    else:
        pausing.budget(0)
    files.wait_for_held(f"{way}s")
    pausing.say("drop 0", thread=1)
    files.make(f"{way}s")
    answers = ["0 spin 0", "1 drop 0"] if way == "come" else ["1 drop 0"]
    assert sorted(pausing.shell.expect("") for _ in answers) == answers
    assert_clean(pausing.shell)
