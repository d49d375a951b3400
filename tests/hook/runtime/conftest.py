"""What the tests of the hook's runtime share: the pure parts as a library, small C programs on the
simulated GPU, and a fake scheduler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import DeviceOpened
from tests.hook.conftest import newer, one_at_a_time
from tests.hook.runtime.process import GpuProcess, Programs
from tests.hook.runtime.pure import Pure
from tests.support.fake_scheduler import FakeScheduler, HookedClient
from tests.support.paths import BUILD, HOOK_GENERATED, HOOK_LIBRARY, ROOT, hook_source
from tests.support.sim import SimulatedMachine

HERE = Path(__file__).parent
SOURCE = ROOT / "hook" / "src"
OUTPUT = BUILD / "tests" / "runtime"
PURE_PARTS = (
    *("turn_state.c", "idle_rule.c", "window_pace.c"),
    *("swap_plan.c", "cgroup_parse.c", "ipc_handle.c"),
)
SHIMS = ("turn_state_shim.c", "swap_shim.c", "ipc_shim.c")


@pytest.fixture(scope="session")
def pure() -> Pure:
    """The parts of the hook that are pure, as a library of their own."""
    library = OUTPUT / "libturnstate.so"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    sources = [hook_source(name) for name in PURE_PARTS] + [
        HERE / "programs" / name for name in SHIMS
    ]
    with one_at_a_time("libturnstate"):
        if not newer(library, *sources, *SOURCE.glob("*/*.h")):
            flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
            flags.append("-D_GNU_SOURCE")
            command = ["cc", *flags, "-I", SOURCE, "-I", HOOK_GENERATED, "-o", library, *sources]
            subprocess.run([str(part) for part in command], check=True)
    return Pure(library)


@pytest.fixture(scope="session")
def programs(headers: Path) -> Programs:
    """The C programs beside this file."""
    return Programs(headers, OUTPUT)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[FakeScheduler]:
    """A fake scheduler that listens."""
    with FakeScheduler(tmp_path / "hook.sock") as fake:
        yield fake


@pytest.fixture
def start(
    programs: Programs, sim: SimulatedMachine, scheduler: FakeScheduler, tmp_path: Path
) -> Iterator[Callable[..., GpuProcess]]:
    """Starts a program under the hook, on a simulated GPU, with the fake scheduler's address."""
    started: list[GpuProcess] = []

    def start_program(
        name: str,
        *arguments: object,
        hook: Path = HOOK_LIBRARY,
        env: dict[str, str] | None = None,
        machine: SimulatedMachine = sim,
        as_uid: int | None = None,
    ) -> GpuProcess:
        log = tmp_path / f"{name}-{len(started)}.log"
        environment = machine.env(scheduler.env(hook=hook, log=log))
        process = GpuProcess(
            [str(programs.built(name)), *map(str, arguments)],
            environment | (env or {}),
            log,
            as_uid=as_uid,
        )
        started.append(process)
        return process

    yield start_program
    for process in started:
        process.end()


@pytest.fixture
def opened(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> Callable[..., tuple[GpuProcess, HookedClient]]:
    """Starts a shell that has opened a device and is welcomed (with these settings)."""

    def open_shell(
        env: dict[str, str] | None = None, **settings: Any
    ) -> tuple[GpuProcess, HookedClient]:
        shell = start("shell", env=env)
        shell.say("0 open")
        client = scheduler.accept()
        client.welcome(**settings)
        shell.expect("0 open 0")
        client.expect(DeviceOpened)
        return shell, client

    return open_shell
