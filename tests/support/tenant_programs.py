"""Small C programs under the real hook, each a tenant of a real scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from jupyter_gpushare.kernel.environment import tenant_environment, without_gpushare
from tests.hook.runtime.process import GpuProcess, Programs
from tests.support.paths import HOOK_LIBRARY
from tests.support.scheduler_process import SchedulerUnderTest


class TenantPrograms:
    """Starts programs of tests/hook/runtime/programs, and ends what still runs at its own end."""

    def __init__(
        self,
        scheduler: SchedulerUnderTest,
        machine_env: Mapping[str, str],
        programs: Programs,
        directory: Path,
    ) -> None:
        self._scheduler = scheduler
        self._machine_env = machine_env
        self._programs = programs
        self._directory = directory
        self._started: list[GpuProcess] = []

    def start(
        self,
        name: str,
        program: str = "shell",
        *arguments: object,
        env: Mapping[str, str] | None = None,
        token: str | None = None,
        socket: Path | None = None,
        wrapper: Sequence[str] = (),
    ) -> GpuProcess:
        """A program as a new tenant of this name; `token` makes it a process of another's, or of
        nobody's, `socket` leads it to another listener, `wrapper` is a command that executes it."""
        if token is None or socket is None:
            registration = self._scheduler.tenant(name, "run")
            token = token if token is not None else registration.token
            socket = socket if socket is not None else Path(registration.socket)
        tenant_env = tenant_environment(
            {**without_gpushare(self._machine_env), **(env or {})},
            socket=str(socket),
            token=token,
            library=HOOK_LIBRARY,
        )
        log = self._directory / f"{name}-{len(self._started)}.log"
        command = [*wrapper, str(self._programs.built(program)), *map(str, arguments)]
        debug = {"GPUSHARE_LOG": "debug", "GPUSHARE_LOG_FILE": str(log)}
        process = GpuProcess(command, debug | tenant_env, log)
        self._started.append(process)
        return process

    def opened(self, name: str, **options: object) -> GpuProcess:
        """A shell (programs/shell.c) that has opened the device."""
        shell = self.start(name, **options)  # type: ignore[arg-type]
        shell.say("0 open")
        shell.expect("0 open 0")
        return shell

    def __enter__(self) -> TenantPrograms:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._started:
            process.end()
