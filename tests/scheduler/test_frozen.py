"""How the scheduler notices that a process was stopped from outside."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.core.events import ClientFrozen, Event
from jupyter_gpushare.core.ids import ClientId
from jupyter_gpushare.scheduler.service.frozen import (
    FreezeWatch,
    is_group_frozen,
    time_used_if_stopped,
)
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.waits import until, wait_until

PROC = Path("/proc")


class Machine:
    """Files as the kernel would show them; `said` has what the watch has told."""

    def __init__(self, path: Path) -> None:
        self.proc, self.cgroups = path / "proc", path / "cgroup"
        self.pids: dict[ClientId, int] = {}
        self.said: list[tuple[int, bool]] = []
        self.spent_s = 0.0
        self.watch = FreezeWatch(
            submit=self.told,
            pids=lambda: self.pids,
            proc=self.proc,
            cgroups=self.cgroups,
            spent_s=lambda: self.spent_s,
        )

    def told(self, event: Event) -> None:
        assert isinstance(event, ClientFrozen)
        self.said.append((event.client, event.frozen))

    def process(self, client: int, state: str, used: int = 5, group: str = "0::/x") -> None:
        self.pids[ClientId(client)] = client
        folder = self.proc / str(client)
        folder.mkdir(parents=True, exist_ok=True)
        between = " ".join(["0"] * 10)
        (folder / "stat").write_text(f"{client} (a) R (b) {state} {between} {used} 7 0 0\n")
        (folder / "cgroup").write_text(f"{group}\n")

    def group(self, name: str, text: str) -> None:
        path = self.cgroups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def looks(self, count: int = 2) -> list[tuple[int, bool]]:
        self.said.clear()
        for _ in range(count):
            self.watch.look()
        return list(self.said)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.promise("scheduler-25")
@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_process_is_frozen(machine: Machine, state: str) -> None:
    """It is told once, and once that it goes on; a name with brackets does not deceive."""
    machine.process(1, "R")
    machine.process(2, "S")
    assert machine.looks() == []
    machine.process(2, state)
    assert machine.looks(4) == [(2, True)]
    machine.process(2, "S")
    assert machine.looks(4) == [(2, False)]


def test_a_traced_process_works_between_its_stops(machine: Machine) -> None:
    """It has used time between two looks that found it stopped."""
    for used in range(6):
        machine.process(1, "t", used=used)
        assert machine.looks(1) == []


@pytest.mark.promise("scheduler-25")
def test_a_frozen_group_is_seen(machine: Machine) -> None:
    """Of control groups of version 2 and of version 1, where the process seems to sleep."""
    machine.process(1, "S", group="0::/docker/abc")
    machine.group("docker/abc/cgroup.events", "populated 1\nfrozen 0\n")
    machine.process(2, "D", group="12:cpu,cpuacct:/x\n7:freezer:/slurm/job_1\n0::/")
    machine.group("freezer/slurm/job_1/freezer.state", "THAWED\n")
    assert machine.looks() == []
    machine.group("docker/abc/cgroup.events", "populated 1\nfrozen 1\n")
    machine.group("freezer/slurm/job_1/freezer.state", "FROZEN\n")
    assert machine.looks() == [(1, True), (2, True)]
    machine.group("docker/abc/cgroup.events", "populated 1\nfrozen 0\n")
    assert machine.looks() == [(1, False)]


def test_what_cannot_be_read_is_not_frozen(machine: Machine, tmp_path: Path) -> None:
    """A process that has ended, one that we may not look at, files of another form."""
    machine.pids[ClientId(1)] = 1
    machine.process(2, "T")
    (machine.proc / "2" / "stat").write_text("nonsense")
    assert machine.looks() == []
    assert time_used_if_stopped(tmp_path, 9) is None
    assert not is_group_frozen(tmp_path, tmp_path, 9)


def test_a_look_is_bounded_and_goes_on_where_it_ended(machine: Machine) -> None:
    """However many processes there are; those that have left are forgotten."""
    for client in range(1, 6):
        machine.process(client, "T")
    seconds = iter(range(10_000))
    machine.watch._spent_s = lambda: float(next(seconds))
    assert machine.looks(5) == []
    assert machine.looks(5) == [(client, True) for client in range(1, 6)]
    machine.pids.clear()
    assert machine.looks() == []
    assert (machine.watch._frozen, machine.watch._seen) == (set(), {})


def test_nobody_is_looked_at_while_nobody_waits(machine: Machine) -> None:
    """But for those who are frozen: they may go on."""
    waits = False

    async def story() -> None:
        nonlocal waits
        watch = machine.watch = FreezeWatch(
            submit=machine.told,
            pids=lambda: machine.pids,
            somebody_waits=lambda: waits,
            proc=machine.proc,
            cgroups=machine.cgroups,
        )
        machine.process(1, "T")
        watch.wake()
        assert watch._timer is None
        waits = True
        watch.wake()
        await until(lambda: machine.said == [(1, True)], "it is told")
        waits = False
        machine.process(1, "S")
        await until(lambda: machine.said == [(1, True), (1, False)], "it goes on")
        await until(lambda: watch._timer is None, "no look is due")

    asyncio.run(story())


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_real_process_that_is_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    """As this machine's kernel tells it."""
    assert time_used_if_stopped(PROC, sleeper.pid) is None
    sleeper.send_signal(signal.SIGSTOP)
    wait_until(lambda: time_used_if_stopped(PROC, sleeper.pid) is not None, "it is stopped")
    sleeper.send_signal(signal.SIGCONT)
    wait_until(lambda: time_used_if_stopped(PROC, sleeper.pid) is None, "it goes on")


WAITER = """
import sys, time
from pathlib import Path
from tests.support.hook_client import ScriptedClient
peer = ScriptedClient(Path(sys.argv[1]))
peer.join(sys.argv[2])
peer.ask()
time.sleep(600)
"""


@pytest.mark.promise("scheduler-25")
def test_a_running_scheduler_sees_it(scheduler: SchedulerUnderTest) -> None:
    """A stopped waiter leaves the queue, the status says so, and it comes back."""
    with scheduler.joined("holder") as holder:
        holder.take_turn()
        tenant = scheduler.tenant("stopped")
        waiter = subprocess.Popen(
            [sys.executable, "-c", WAITER, str(tenant.socket), tenant.token],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        try:
            scheduler.eventually(lambda s: s["devices"][0]["queue"])
            waiter.send_signal(signal.SIGSTOP)
            scheduler.eventually(lambda s: not s["devices"][0]["queue"])
            assert scheduler.status()["tenants"][1]["clients"][0]["frozen"]
            waiter.send_signal(signal.SIGCONT)
            scheduler.eventually(lambda s: s["devices"][0]["queue"])
        finally:
            waiter.kill()
            waiter.wait()
