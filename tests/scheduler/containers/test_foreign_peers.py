"""Peers of another pid namespace, as containers have: they are followed by a descriptor and known
by their token; no number that one of them says or has leads to another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.client.paths import TENANTS_DIR
from jupyter_gpushare.protocol.messages import QueuePosition, TurnGranted
from tests.scheduler.test_tenants_dir import hub_url
from tests.support.hook_client import ScriptedClient
from tests.support.other_user import let_others_in
from tests.support.paths import ROOT
from tests.support.scheduler_process import (
    END_S_MAX,
    SchedulerOfHub,
    SchedulerUnderTest,
    environment,
    running_scheduler,
)
from tests.support.sim import SimulatedMachine

__all__ = ["hub_url"]

IN_A_CONTAINER = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount-proc",
    "--kill-child",
]
HOLDER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from jupyter_gpushare.client import SchedulerClient
from tests.support.hook_client import ScriptedClient
socket, claimed, mode = Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
scheduler = SchedulerClient(socket, uids=frozenset(range(70000)), hub_token="ann")
tenant = scheduler.register_tenant("inside", "kernel")
client = ScriptedClient(Path(tenant.socket))
own, os.getpid = os.getpid(), lambda: claimed or own
client.join(tenant.token, device=bytes.fromhex(sys.argv[5]))
client.take_turn()
if mode == "fork" and os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print(own, flush=True)
sys.stdin.read()
"""


class Container:
    """A shell is the first process of its namespace, and the holder of the turn the second."""

    def __init__(
        self, scheduler: SchedulerUnderTest, *, claimed: int = 0, mode: str = "alone"
    ) -> None:
        socket, device = tenants_of(scheduler) / "http.sock", the_device(scheduler)
        words = [sys.executable, "-c", HOLDER, ROOT, socket, claimed, mode, device]
        self.process = subprocess.Popen(
            [*IN_A_CONTAINER, "sh", "-c", '"$@"; exec sleep 1000', "sh", *map(str, words)],
            env=environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.pid_inside = int(self.process.stdout.readline())

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()  # and with it all of its namespace
        self.process.communicate()


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def tenants_of(scheduler: SchedulerUnderTest) -> Path:
    return scheduler.directory / TENANTS_DIR


def as_(scheduler: SchedulerUnderTest, name: str) -> SchedulerClient:
    """The scheduler, for a user of the hub."""
    socket = tenants_of(scheduler) / "http.sock"
    return SchedulerClient(socket, uids=frozenset(range(70000)), hub_token=name)


def the_device(scheduler: SchedulerUnderTest) -> str:
    (device,) = as_(scheduler, "desk").status()["devices"]
    return str(device["id"])


def waiter(scheduler: SchedulerUnderTest) -> ScriptedClient:
    """Another user's process, beside the scheduler, that wants the device."""
    tenant = as_(scheduler, "ann").register_tenant("waits", "kernel")
    client = ScriptedClient(Path(tenant.socket))
    client.join(tenant.token, device=bytes.fromhex(the_device(scheduler)))
    client.ask()
    client.expect(QueuePosition)
    return client


def holder_in(status: dict[str, Any]) -> dict[str, Any]:
    (tenant,) = [each for each in status["tenants"] if each["name"] == "inside"]
    (client,) = tenant["clients"]
    return dict(client)


class OnAMachine(SchedulerOfHub):
    """Its device is a simulated one: only what NVML lists is shared among users."""

    def _start(self, arguments: list[str], env: dict[str, str], log: int, tell: int) -> Any:
        machine = SimulatedMachine(self.directory.parent / "machine")
        named = ("LD_LIBRARY_PATH", "GPUSHARE_SIM_DIR")
        leads_there = {name: machine.env()[name] for name in named}
        env = {**env, **leads_there, "CUDA_VISIBLE_DEVICES": "0"}
        return self._begin(arguments, env, log, tell)

    def _begin(self, arguments: list[str], env: dict[str, str], log: int, tell: int) -> Any:
        return super()._start(arguments, env, log, tell)


@pytest.fixture
def shared(runtime: Path, hub_url: str) -> Iterator[SchedulerUnderTest]:
    let_others_in(runtime.parent)
    with running_scheduler(runtime, kind=OnAMachine, api_url=hub_url) as scheduler:
        yield scheduler


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with all this."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.promise(
    "scheduler-58",
    "A process of a container is followed by a descriptor: its end frees the turn, though its "
    "number is another one here and a forked child keeps the socket",
)
@pytest.mark.parametrize("mode", ["alone", "fork"])
def test_its_end_is_seen(shared: SchedulerUnderTest, mode: str) -> None:
    """The status has the number that it has here, which is not the one inside."""
    with Container(shared, mode=mode) as container:
        pid = holder_in(shared.status())["pid"]
        assert pid != container.pid_inside
        with waiter(shared) as waits:
            os.kill(pid, signal.SIGKILL)
            waits.expect(TurnGranted)
            assert container.runs


@pytest.mark.promise(
    "bad-input-54",
    "The overdue policy `kill` ends the process that is overdue, and never one whose number a "
    "container's process has or says",
)
def test_the_policy_kill(shared: SchedulerUnderTest, stranger: subprocess.Popen[bytes]) -> None:
    """It says a stranger's number in its Hello; it is ended itself, and its namespace goes on."""
    shared.client.change_settings({"quantum_s": 0.05, "overdue_s": 0.1, "overdue_policy": "kill"})
    with Container(shared, claimed=stranger.pid) as container:
        with waiter(shared) as waits:
            waits.expect(TurnGranted)
        assert container.runs
        assert stranger.poll() is None


IN_ITS_OWN = """
import os, sys
stranger = os.fork()
if stranger == 0:
    import time
    time.sleep(1000)
    os._exit(0)
print(stranger, flush=True)
os.execv(sys.executable, [sys.executable, "-m", "jupyter_gpushare.cli.main", *sys.argv[1:]])
"""


class SchedulerInAContainer(OnAMachine):
    """It is the first process of its namespace, and a stranger the second: no process of a kernel
    has a number there."""

    def _begin(self, arguments: list[str], env: dict[str, str], log: int, tell: int) -> Any:
        process = subprocess.Popen(
            [*IN_A_CONTAINER, sys.executable, "-c", IN_ITS_OWN, *arguments],
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**env, "PYTHONPATH": str(ROOT)},
            cwd="/",
        )
        assert process.stdout
        self.stranger_inside = int(process.stdout.readline())
        return process

    @property
    def stranger(self) -> int:
        """As it is numbered here."""
        ((first),) = children(self.process.pid)
        (second,) = children(first)
        return second


@pytest.mark.promise("bad-input-54")
def test_the_policy_kill_of_a_scheduler_in_a_container(runtime: Path, hub_url: str) -> None:
    """Processes outside have no number there. An overdue one cannot be ended, whatever number it
    says: the log tells, and the stranger of that number lives. The end of the process is seen."""
    let_others_in(runtime.parent)
    scheduler = SchedulerInAContainer(runtime, api_url=hub_url)
    try:
        for name, value in (("quantum_s", 0.05), ("overdue_s", 0.1), ("overdue_policy", "kill")):
            as_(scheduler, "desk").change_settings({name: value})
        claimed = scheduler.stranger_inside
        with Container(scheduler, claimed=claimed) as container, waiter(scheduler) as waits:
            while "cannot be killed" not in scheduler.log:
                assert container.runs
                waits.heard(TurnGranted, within_s=0.05)
            assert not waits.heard(TurnGranted)
            os.kill(scheduler.stranger, 0)
            (shell,) = children(container.process.pid)
            os.kill(children(shell)[0], signal.SIGKILL)
            waits.expect(TurnGranted)
    finally:
        scheduler.process.kill()
        scheduler.process.wait(END_S_MAX)
