"""A program that makes and maps its memory itself, in threads that do what they are told, with the
scheduler's end of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jupyter_gpushare.protocol.messages import DeviceOpened, MemoryMode
from tests.hook.runtime.memory_shell import MIB, MemoryShell
from tests.hook.runtime.process import GpuProcess
from tests.hook.runtime.two_devices import Files
from tests.support.fake_scheduler import UNLIMITED, FakeScheduler
from tests.support.paths import HOOK_LIBRARY, ROOT
from tests.support.sim import SimulatedMachine
from tests.support.stacks import threads_of
from tests.support.waits import wait_until

SIZE = 4 * MIB
PROGRAM = """
import queue, sys, threading
from tests.hook.mapping_session import *

threads = {}

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def value_of(line):
    try:
        code = compile(line, "line", "eval")
    except SyntaxError:
        return exec(line, globals())
    return eval(code, globals())

def work(number, lines):
    call("cuCtxSetCurrent", c_void_p(CONTEXT))
    for line in iter(lines.get, None):
        say(number, "begins", threading.get_native_id())
        say(number, "ends", repr(value_of(line)))

for line in sys.stdin:
    number, _, line = line.partition(" ")
    if number not in threads:
        threads[number] = queue.Queue()
        threading.Thread(target=work, args=(number, threads[number]), daemon=True).start()
    threads[number].put(line.strip())
"""


class MappingProgram:
    """What it runs are lines of Python, with the words of mapping_session. `memory` has what the
    scheduler does."""

    def __init__(
        self, process: GpuProcess, scheduler: FakeScheduler, files: Files, **settings: Any
    ) -> None:
        self.process = process
        self.files = files
        self.client = scheduler.accept()
        self.client.welcome(memory_mode=MemoryMode.SWAP, reclaim_ms=300, **settings)
        self.memory = MemoryShell(process, self.client, self.client.expect(DeviceOpened).device)
        self._heard: list[str] = []
        self._threads: dict[int, int] = {}

    def run(self, line: str, *, thread: int = 1) -> str:
        """Does it, and returns its value as Python writes it."""
        self.say(line, thread=thread)
        return self.result(thread=thread)

    def say(self, line: str, *, thread: int = 1) -> None:
        """Returns when the thread has begun with it."""
        self.process.say(f"{thread} {line}")
        self._threads[thread] = int(self._hears(f"{thread} begins "))

    def result(self, *, thread: int = 1) -> str:
        return self._hears(f"{thread} ends ")

    def wait_until_it_waits(self, thread: int) -> None:
        """The thread sleeps in the call that it was told to make."""
        wait_until(lambda: self._sleeps(self._threads[thread]))

    def wait_until_the_mover_waits(self) -> None:
        """For something to do. Its thread has its name from its beginning on."""
        wait_until(
            lambda: any(
                name == "gpushare-mem" and self._sleeps(int(task.name))
                for task, name in threads_of(self.process.pid).items()
            )
        )

    def make(self, size: int = SIZE, asked: str = "") -> None:
        """With the turn, as `handle` at `at`, with b"kept" in it."""
        self.say(f"handle, at = mapped({size}, {asked})")
        self.memory.grant()
        assert self.result() == "None"
        assert self.run("write(at, b'kept'), call('cuCtxSynchronize')") == "(0, 0)"

    def park(self) -> None:
        self.memory.take_turn()
        assert self.memory.park_to(0).bytes_parked > 0

    def cancel_waits(self) -> None:
        assert int(self.run("hook.gpushare_cancel_waits()", thread=9)) > 0

    def begin_cell(self) -> None:
        """What was cancelled before was not this one's."""
        self.run("hook.gpushare_cell_began()", thread=9)

    def allow_all(self) -> None:
        """The turn, to a request that has come, and all of the memory."""
        self.memory.budget(UNLIMITED)
        self.client.grant()

    def expect_nothing_allocated(self) -> None:
        self.client.expect_memory(lambda report: report.bytes_allocated == 0)

    def _sleeps(self, thread: int) -> bool:
        stat = Path(f"/proc/{self.process.pid}/task/{thread}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "S"

    def _hears(self, beginning: str) -> str:
        """Threads answer in any order."""
        while not (found := [line for line in self._heard if line.startswith(beginning)]):
            self._heard.append(self.process.expect(""))
        self._heard.remove(found[0])
        return found[0].removeprefix(beginning)


Opens = Callable[..., MappingProgram]


def start_mapping_program(
    tmp_path: Path,
    scheduler: FakeScheduler,
    machine: SimulatedMachine,
    faults: str = "",
    env: dict[str, str] | None = None,
) -> GpuProcess:
    log = tmp_path / "program.log"
    environment = machine.env(scheduler.env(hook=HOOK_LIBRARY, log=log))
    environment |= {"PYTHONPATH": str(ROOT), "GPUSHARE_SIM_FAULTS": faults, **(env or {})}
    return GpuProcess([sys.executable, "-c", PROGRAM], environment, log)


def opening(
    tmp_path: Path, scheduler: FakeScheduler, machine: SimulatedMachine, words: str = ""
) -> Iterator[Opens]:
    """For a fixture: starts a program that has opened a device and is welcomed, with more words
    where another module of tests.hook is named."""
    started: list[GpuProcess] = []

    def start(faults: str = "", **env: str) -> MappingProgram:
        started.append(start_mapping_program(tmp_path, scheduler, machine, faults, env))
        program = MappingProgram(started[0], scheduler, Files(machine))
        if words:
            program.run(f"from tests.hook.{words} import *")
        return program

    yield start
    for process in started:
        process.end()
