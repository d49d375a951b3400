"""Programs that hold device memory whose every byte is known, each a tenant of a real scheduler.

programs/memory_tenant.c says what they can be told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from jupyter_gpushare.kernel.environment import tenant_environment, without_gpushare
from tests.hook.conftest import newer, one_at_a_time
from tests.hook.runtime.process import GpuProcess
from tests.support.paths import BUILD, BUILTINS_PTX, HOOK_LIBRARY, ROOT, SIM_LIBRARIES
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX

SOURCE = Path(__file__).parent / "programs" / "memory_tenant.c"
BLOCK_BYTES = 2 * MIB
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, CANCELLED = 0, 1, 2, 800
ANSWER_S_MAX = WAIT_S_MAX


def built_tenant(*flags: str, suffix: str = "", source: Path = SOURCE) -> Path:
    """The program; with a sanitizer's flags where the hook has them too."""
    program = BUILD / "tests" / "support" / f"{source.stem}{suffix}"
    program.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(f"support-{source.stem}{suffix}"):
        if not newer(program, source, *source.parent.glob("*.h"), BUILTINS_PTX):
            options = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
            options += ["-Wno-deprecated-declarations", "-isystem", str(cuda_headers()), *flags]
            options += [f'-DBUILTINS_PTX="{BUILTINS_PTX}"']
            libraries = [f"-L{SIM_LIBRARIES}", "-l:libcuda.so.1", "-ldl"]
            command = ["cc", *options, "-o", str(program), str(source), *libraries]
            subprocess.run(command, check=True)
    return program


def cuda_headers() -> Path:
    """Where cuda.h is."""
    find = ROOT / "hook" / "spec" / "find_headers.py"
    return Path(subprocess.check_output([sys.executable, str(find)], text=True).strip())


def expected_sum(seed: int, size: int) -> int:
    """What memory_tenant.c's checksum of an allocation with this seed is."""
    total, words = 0, size // 4
    for block in range(-(-size // BLOCK_BYTES)):
        value = ((seed * 2654435761) ^ (block * 2246822519)) & 0xFFFFFFFF
        first = block * BLOCK_BYTES // 4
        last = min(words, first + BLOCK_BYTES // 4)
        total += value * (last * last - first * first)
    return total % (1 << 64)


@dataclass
class MemoryTenant:
    """One such program, and what its memory must hold: seed and size by slot."""

    name: str
    process: GpuProcess
    held: dict[int, tuple[int, int]] = field(default_factory=dict)
    tenant_id: str = ""

    def say(self, command: str) -> None:
        self.process.say(command)

    def heard(self, command: str, *, within_s: float = ANSWER_S_MAX) -> list[int]:
        """The answer to a command that was given: its result, and what it found."""
        name = command.split()[0].lstrip("!")
        line = self.process.expect(f"{name} ", within_s=within_s)
        return [int(word) for word in line.split()[1:]]

    def ask(self, command: str, *, within_s: float = ANSWER_S_MAX) -> list[int]:
        self.say(command)
        return self.heard(command, within_s=within_s)

    def result(self, command: str, *, within_s: float = ANSWER_S_MAX) -> int:
        return self.ask(command, within_s=within_s)[0]

    def ok(self, command: str, *, within_s: float = ANSWER_S_MAX) -> list[int]:
        """What a command found that had to succeed."""
        result, *found = self.ask(command, within_s=within_s)
        assert result == SUCCESS, (self.name, command, result, self.process.errors())
        return found

    def hold(self, slot: int, seed: int, size: int) -> None:
        """Allocate, and write what the seed says."""
        self.ok(f"alloc {slot} {size}")
        self.refill(slot, seed, size)

    def refill(self, slot: int, seed: int, size: int) -> None:
        self.held.pop(slot, None)
        self.ok(f"fill {slot} {seed}")
        self.held[slot] = (seed, size)

    def free(self, slot: int) -> None:
        self.ok(f"free {slot}")
        self.held.pop(slot, None)

    def expected(self) -> dict[int, int]:
        return {slot: expected_sum(seed, size) for slot, (seed, size) in sorted(self.held.items())}

    def sums(self, *, within_s: float = ANSWER_S_MAX) -> dict[int, int]:
        """The checksum of each allocation, by launches on the device."""
        self.say("sums")
        return self.heard_sums(within_s=within_s)

    def heard_sums(self, *, within_s: float = ANSWER_S_MAX) -> dict[int, int]:
        result, *pairs = self.process.expect("sums ", within_s=within_s).split()[1:]
        assert int(result) == SUCCESS, (self.name, "sums", result, self.process.errors())
        return {int(slot): int(value) for slot, value in (pair.split(":") for pair in pairs)}

    def verify(self, *, within_s: float = ANSWER_S_MAX) -> None:
        """Every byte that it holds is what was written; asked in a cell of its own."""
        self.ok("begin")
        sums = self.sums(within_s=within_s)
        self.ok("end")
        assert sums == self.expected(), f"{self.name} has lost data"

    def cell(self, *commands: str) -> None:
        """Commands that succeed, as a cell: the turn goes back after it."""
        self.ok("begin")
        for command in commands:
            self.ok(command)
        self.ok("end")


class MemoryTenants:
    """Starts them, and ends what still runs at its own end."""

    def __init__(
        self,
        scheduler: SchedulerUnderTest,
        machine_env: Mapping[str, str],
        directory: Path,
        *,
        hook: Path = HOOK_LIBRARY,
        program: Path | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._env = without_gpushare(machine_env)
        self._directory = directory
        self._hook = hook
        self._program = program or built_tenant()
        self.started: list[MemoryTenant] = []

    def start(
        self,
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        opened: str = "open",
    ) -> MemoryTenant:
        """A program as a new tenant of this name, its device opened (unless `opened` is empty)."""
        registration = self.scheduler.tenant(name, "run")
        tenant_env = tenant_environment(
            {**self._env, **(env or {})},
            socket=registration.socket,
            token=registration.token,
            library=self._hook,
        )
        log = self._directory / f"{name}-{len(self.started)}.log"
        debug = {"GPUSHARE_LOG": "debug", "GPUSHARE_LOG_FILE": str(log)}
        process = GpuProcess([*wrapper, str(self._program)], tenant_env | debug, log)
        tenant = MemoryTenant(name, process, tenant_id=registration.tenant_id)
        self.started.append(tenant)
        if opened:
            tenant.ok(opened)
        return tenant

    def __enter__(self) -> MemoryTenants:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for tenant in self.started:
            tenant.process.end()


@contextmanager
def bare_tenant(machine_env: Mapping[str, str]) -> Iterator[MemoryTenant]:
    """The same program without the hook: a process that shares nothing."""
    env = without_gpushare(machine_env)
    process = GpuProcess([str(built_tenant())], env, Path("unused.log"))
    try:
        tenant = MemoryTenant("bare", process)
        tenant.ok("open")
        yield tenant
    finally:
        process.end()


SWAP = "--GPUShareScheduler.memory_mode=swap"


@contextmanager
def swapping_scheduler(
    directory: Path, machine_env: Mapping[str, str], *options: str, check: bool = False
) -> Iterator[SchedulerUnderTest]:
    """A scheduler under which memory follows the turn, as it runs in production, where speed is
    what counts; elsewhere with `check`: all its invariants are looked at after each event."""
    env = {"CUDA_VISIBLE_DEVICES": "0", **machine_env}
    settings = [SWAP, *options]
    with running_scheduler(directory, *settings, env=env, check=check) as scheduler:
        yield scheduler


def faults(machine: SimulatedMachine) -> list[str]:
    """What the simulated device saw that must not be: memory taken from under work that ran."""
    return [str(record) for record in machine.journal() if record.kind.name == "FAULT"]
