"""A real scheduler in a process of its own, in a runtime directory of its own."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_gpushare.cli.main import main
from jupyter_gpushare.client import (
    HOOK_SOCKET,
    HTTP_SOCKET,
    SchedulerClient,
    TenantRegistration,
)
from tests.support.hook_client import ScriptedClient
from tests.support.nursery import ForkedProcess, Nursery, Order
from tests.support.waits import WAIT_S_MAX

COMMAND_LINE = "jupyter_gpushare.cli.main:main"
START_S_MAX = END_S_MAX = WAIT_S_MAX
CHARACTERS_MAX = 20_000
LOOK_EVERY_S = 0.01
"""Each look costs both processes a millisecond, which others could use."""


class SchedulerDidNotStart(AssertionError):
    """It ended before it was ready."""

    def __init__(self, exit_status: int, output: str) -> None:
        super().__init__(f"exit status {exit_status}: {output}")
        self.exit_status = exit_status
        self.output = output


class SchedulerUnderTest:
    """Starts at once and is ready when the constructor returns. Its log goes to `log_path`."""

    program: tuple[str, ...] = ()
    """For a Python interpreter of its own; none: a process that a nursery forks does `function`."""
    function = COMMAND_LINE
    imports: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | ForkedProcess

    def __init__(
        self,
        directory: Path,
        *options: str,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> None:
        self.directory = directory
        self.log_path = directory.parent / f"{directory.name}.log"
        self.journal_path = directory.parent / f"{directory.name}.journal.jsonl"
        journals = any(option.startswith("--journal=") for option in options)
        ready, tell = os.pipe()
        arguments = [
            "scheduler",
            f"--runtime-dir={directory}",
            f"--ready-fd={tell}",
            *(["--check"] if check else []),
            *([f"--journal={self.journal_path}"] if check and not journals else []),
            *options,
        ]
        with self.log_path.open("ab") as log:
            self.process = self._start(arguments, environment(env or {}), log.fileno(), tell)
        os.close(tell)
        self._await_ready(ready)

    def _start(
        self, arguments: list[str], env: dict[str, str], log: int, tell: int
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        if not self.program:
            streams = {1: log, 2: log, tell: tell}
            order = Order(self.function, arguments, self.imports)
            return nursery(env).start(order, env=env, cwd="/", descriptors=streams)
        return subprocess.Popen(
            [sys.executable, *self.program, *arguments],
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            cwd="/",
        )

    def _await_ready(self, ready: int) -> None:
        """The pipe has a line once it is ready, and only an end when it failed."""
        with os.fdopen(ready, "rb") as pipe:
            readable, _, _ = select.select([pipe], [], [], START_S_MAX)
            if readable and pipe.read(1):
                return
        if not readable:
            self.process.kill()
        raise SchedulerDidNotStart(self.process.wait(END_S_MAX), self.log)

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def client(self) -> SchedulerClient:
        return SchedulerClient(self.directory / HTTP_SOCKET, uids=frozenset(range(1 << 17)))

    def status(self) -> dict[str, Any]:
        return self.client.status()

    def tenant(self, name: str = "notebook", kind: str = "kernel") -> TenantRegistration:
        return self.client.register_tenant(name, kind)

    def connect(self) -> ScriptedClient:
        """A connection to hook.sock that has said nothing yet."""
        return ScriptedClient(self.directory / HOOK_SOCKET)

    def joined(self, name: str = "notebook", **options: Any) -> ScriptedClient:
        """A client of a new tenant, with a context on the test's device. It says who it is as soon
        as it has connected: for that there is a deadline."""
        token = self.tenant(name).token
        client = self.connect()
        client.join(token, **options)
        return client

    def eventually(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Ask for the status until it is as it should be; that one is returned. A device or tenant
        that is not there yet is not as it should be."""
        until_s = time.monotonic() + END_S_MAX
        while True:
            status = self.status()
            with contextlib.suppress(IndexError):
                if holds(status):
                    return status
            assert time.monotonic() < until_s, f"it never came true: {status}"
            time.sleep(LOOK_EVERY_S)

    def kill(self) -> None:
        """As an out-of-memory killer would: nothing is tidied up."""
        self.process.kill()
        self.process.wait(END_S_MAX)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(END_S_MAX)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What a test's scheduler and commands see: nothing of the machine's own GPUs or scheduler."""
    names = ("GPUSHARE_", "CUDA_", "XDG_RUNTIME_DIR", "JUPYTER", "LD_PRELOAD")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(names)}
    return {**kept, "CUDA_VISIBLE_DEVICES": "", **extra}


@functools.cache
def _nursery(**variables: str) -> Nursery:
    program = ("jupyter_gpushare.cli.main", "jupyter_gpushare.scheduler.app")
    return Nursery(*program, env={**environment({}), **variables})


def nursery(env: Mapping[str, str]) -> Nursery:
    """Where processes of our command line begin that are to have this environment."""
    return _nursery(**{k: v for k, v in env.items() if k.startswith(("LD_", "PYTHON"))})


def command_line(arguments: Sequence[str]) -> Order:
    """`jupyter gpushare ARGUMENTS`, for a nursery."""
    return Order(COMMAND_LINE, arguments)


def tell_about(scheduler: SchedulerUnderTest) -> None:
    """Print what a failed test's reader wants to know, which goes with the process: what the
    scheduler thinks, and the ends of its log and its journal."""
    print(f"exit status of the scheduler: {scheduler.process.poll()}")
    with contextlib.suppress(Exception):
        print(json.dumps(scheduler.status(), indent=1))
    print(scheduler.log[-CHARACTERS_MAX:])
    with contextlib.suppress(FileNotFoundError):
        print(scheduler.journal_path.read_text()[-CHARACTERS_MAX:])


def service_of_hub() -> object:
    """The command line in a process of the nursery, which is its parent as the hub is a service's:
    it would end without it."""
    sys.argv.append(f"--hub-pid={os.getppid()}")
    return main()


class SchedulerOfHub(SchedulerUnderTest):
    """As a service of a hub."""

    function = f"{__name__}:{service_of_hub.__name__}"
    imports = (__name__, "jupyter_gpushare.hub.api")

    def __init__(self, directory: Path, *options: str, api_url: str, **arguments: Any) -> None:
        flags = ("--serve-all-users", "--hub")
        env = {"JUPYTERHUB_API_URL": api_url, "JUPYTERHUB_API_TOKEN": "of the service"}
        super().__init__(directory, *flags, *options, env=env, **arguments)


@contextmanager
def running_scheduler(
    directory: Path,
    *options: str,
    kind: type[SchedulerUnderTest] = SchedulerUnderTest,
    **arguments: Any,
) -> Iterator[SchedulerUnderTest]:
    """A scheduler that is stopped at the end, and whose invariants have held until then."""
    scheduler = kind(directory, *options, **arguments)
    try:
        yield scheduler
    except BaseException:
        tell_about(scheduler)
        raise
    finally:
        status = scheduler.stop()
    assert status in (0, -signal.SIGKILL), scheduler.log
    assert "the core failed" not in scheduler.log, scheduler.log
    assert "Traceback" not in scheduler.log, scheduler.log
