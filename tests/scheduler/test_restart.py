"""A scheduler that dies and comes back: its clients keep what they have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpushare.core.commands import GrantTurn
from jupyter_gpushare.core.events import RecoveryComplete
from jupyter_gpushare.core.records import NAMES_ALL_S
from jupyter_gpushare.protocol.messages import QueuePosition, TurnGranted, TurnRequested
from jupyter_gpushare.scheduler.identity.recovery import Recovery, expected_clients, sees_everybody
from jupyter_gpushare.scheduler.identity.tokens import TenantRecord, TokenSigner
from jupyter_gpushare.scheduler.journal import read_journal
from tests.support.paths import ROOT
from tests.support.scheduler_process import (
    END_S_MAX,
    SchedulerDidNotStart,
    SchedulerUnderTest,
    running_scheduler,
)
from tests.support.sim import SimulatedMachine

GRACE = "--GPUShareScheduler.reconnect_grace_s=0.5"
LONG_GRACE = "--GPUShareScheduler.reconnect_grace_s=600"
"""Where the recovery is to be seen, however slow the machine is."""


@pytest.mark.promise("scheduler-89")
def test_nobody_is_granted_before_the_grace_is_over(runtime: Path, tmp_path: Path) -> None:
    """A waiter that comes back first waits for a holder that might still come."""
    with running_scheduler(runtime, GRACE) as first:
        token = first.tenant("waiter").token
        first.kill()
    path = tmp_path / "second.journal"
    with (
        running_scheduler(runtime, GRACE, f"--journal={path}") as second,
        second.connect() as waiter,
    ):
        waiter.join(token)
        waiter.take_turn()
        assert second.status()["scheduler"]["recovering"] is False
    entries = read_journal(path).entries
    over_s = next(each.at_s for each in entries if isinstance(each.event, RecoveryComplete))
    (granted_s,) = (
        each.at_s
        for each in entries
        if any(command["type"] == GrantTurn.__name__ for command in each.commands)
    )
    assert granted_s - over_s > 0.9 * NAMES_ALL_S


def test_a_clean_end_with_clients_recovers_too(runtime: Path) -> None:
    """A scheduler that is stopped for an upgrade leaves holders behind just as a killed one."""
    with running_scheduler(runtime, LONG_GRACE) as first:
        client = first.joined()
        client.take_turn()
        assert first.stop() == 0
    with running_scheduler(runtime, LONG_GRACE) as second:
        assert second.status()["scheduler"]["recovering"] is True
    client.close()


def test_a_clean_end_without_clients_needs_no_recovery(runtime: Path) -> None:
    """Where nobody was left behind, the next scheduler grants at once."""
    with running_scheduler(runtime) as first:
        first.tenant()
        assert first.stop() == 0
    with running_scheduler(runtime) as second:
        assert second.status()["scheduler"]["recovering"] is False


def test_a_start_that_fails_does_not_forget_who_was_left(runtime: Path) -> None:
    """Between a crash and the next good start there may be bad ones; clients still may hold."""
    with running_scheduler(runtime) as first:
        first.kill()
    for flag in ("--devices=GPU-none", f"--journal={runtime}/missing/journal"):
        with pytest.raises(SchedulerDidNotStart):
            SchedulerUnderTest(runtime, flag)
    with running_scheduler(runtime, LONG_GRACE) as second:
        assert second.status()["scheduler"]["recovering"] is True


def test_a_tenant_that_a_predecessor_registered_can_be_removed(runtime: Path) -> None:
    """A kernel that ends after a restart takes its token with it, though nobody knew of it."""
    with running_scheduler(runtime) as first:
        tenant = first.tenant()
        first.kill()
    with running_scheduler(runtime) as second:
        second.client.remove_tenant(tenant.tenant_id)
        with second.connect() as peer:
            peer.hello(tenant.token)
            assert "shut down or restarted" in peer.expect_refused().message


CLIENT = """
import ctypes, os, sys, time
from pathlib import Path
from jupyter_gpushare.protocol.messages import DeviceOpened, Hello, MemoryQueried, Welcome
from tests.support.hook_client import DEVICE, GIB, ScriptedClient
ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[2])
path, token = Path(sys.argv[1]), os.environ["GPUSHARE_TOKEN"]
client = ScriptedClient(path)
client.join(token)
turn = client.take_turn()
print("holds", flush=True)
if sys.stdin.readline() == "ask\\n":  # as the hook does for NVML
    hello = Hello(
        token=token, pid=os.getpid(), process_name="asks", hook_version="0",
        held_turn_id=0, waiting=0,
    )
    client = ScriptedClient(path)
    client.send(hello, MemoryQueried(device=DEVICE))
    client.expect(Welcome)
    print("has asked", flush=True)
    sys.stdin.readline()
client = ScriptedClient(path)
hello = Hello(
    token=token, pid=os.getpid(), process_name="back", hook_version="0",
    held_turn_id=turn.turn_id, waiting=0,
)
client.send(hello)
print("has said so", flush=True)
client.expect(Welcome)
time.sleep(0.3)  # a busy process
client.send(DeviceOpened(device=DEVICE, name="Scripted GPU", bytes_total=8 * GIB))
print("is back", flush=True)
sys.stdin.readline()
client.drop(turn.turn_id)
sys.stdin.readline()
"""


@pytest.mark.promise(
    "scheduler-89",
    "A restarted scheduler learns from its clients who holds what, and grants when they are back "
    "or the grace is over",
)
def test_recovery_ends_when_all_expected_clients_are_back(
    runtime: Path, sim: SimulatedMachine, fake_library: Path
) -> None:
    """The processes that /proc shows to be ours are waited for, and then nobody waits longer. Who
    asks something on a connection of its own is not back by that. The holder has its turn again:
    the other one has it when that is dropped."""
    holder, waiter_token = _left_behind(runtime, sim, fake_library)
    assert holder.stdin and holder.stdout
    with running_scheduler(runtime, LONG_GRACE) as second, second.connect() as waiter:
        assert f"processes [{holder.pid}]" in second.log
        waiter.join(waiter_token)
        waiter.send(TurnRequested(request_id=1, cause="cuLaunchKernel"))
        waiter.expect(QueuePosition)
        holder.stdin.write("ask\n")
        assert holder.stdout.readline() == "has asked\n"
        time.sleep(2 * NAMES_ALL_S)  # so long would who holds a turn be heard
        assert second.status()["scheduler"]["recovering"]
        holder.stdin.write("come back\n")
        assert [holder.stdout.readline() for _ in range(2)] == ["has said so\n", "is back\n"]
        status = second.eventually(lambda s: not s["scheduler"]["recovering"])
        assert [each["name"] for each in status["devices"][0]["holders"]] == ["holder"]
        assert [each["name"] for each in status["devices"][0]["queue"]] == ["waiter"]
        holder.stdin.write("drop\n")
        waiter.expect(TurnGranted)
        holder.stdin.close()
        holder.wait(END_S_MAX)
        holder.stdout.close()


@pytest.mark.full
def test_a_holder_that_came_while_the_scheduler_stood_still_keeps_its_turn(
    runtime: Path, sim: SimulatedMachine, fake_library: Path
) -> None:
    """The new scheduler is stopped, as a container is, until its grace is over."""
    holder, waiter_token = _left_behind(runtime, sim, fake_library)
    assert holder.stdin and holder.stdout
    grace = "--GPUShareScheduler.reconnect_grace_s=3"
    with running_scheduler(runtime, grace) as second, second.connect() as waiter:
        waiter.join(waiter_token)
        waiter.send(TurnRequested(request_id=1, cause="cuLaunchKernel"))
        waiter.expect(QueuePosition)
        second.process.send_signal(signal.SIGSTOP)
        holder.stdin.write("come back\n")
        assert holder.stdout.readline() == "has said so\n"
        time.sleep(3.5)
        second.process.send_signal(signal.SIGCONT)
        status = second.eventually(lambda s: not s["scheduler"]["recovering"])
        assert [each["name"] for each in status["devices"][0]["holders"]] == ["holder"]
        holder.stdin.close()
        holder.wait(END_S_MAX)
        holder.stdout.close()


def _left_behind(
    runtime: Path, sim: SimulatedMachine, fake_library: Path
) -> tuple[subprocess.Popen[str], str]:
    """A process that holds a turn of a scheduler that was killed, and the token of a notebook that
    will wait for the device."""
    with running_scheduler(runtime) as first:
        waiter_token, holder_token = first.tenant("waiter").token, first.tenant("holder").token
        holder = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(runtime / "hook.sock"), str(fake_library)],
            env={**sim.env(), "GPUSHARE_TOKEN": holder_token, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert holder.stdout
        assert holder.stdout.readline() == "holds\n"
        first.kill()
    return holder, waiter_token


def a_process(proc: Path, pid: int, *, token: str, maps: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "environ").write_bytes(f"HOME=/root\0GPUSHARE_TOKEN={token}\0".encode())
    (folder / "maps").write_text(maps)


@pytest.mark.parametrize(
    ("key", "maps", "expected"),
    [
        (b"k", "libgpushare.so\nlibcuda.so.1\n", {7}),
        (b"k", "libgpushare.so\n", set()),
        (b"other", "libgpushare.so\nlibcuda.so.1\n", set()),
    ],
)
def test_who_is_expected_back(tmp_path: Path, key: bytes, maps: str, expected: set[int]) -> None:
    """Processes with a token of ours that use CUDA; neither others' nor those that never did."""
    token = TokenSigner(key).issue(TenantRecord("1-0", 1, "notebook", "kernel"))
    a_process(tmp_path, 7, token=token, maps=maps)
    (tmp_path / "8").mkdir()
    (tmp_path / "uptime").write_text("1")
    assert expected_clients(TokenSigner(b"k"), proc=tmp_path) == expected


def test_the_last_expected_client_ends_the_recovery() -> None:
    """Strangers do not count, and nobody counts twice."""
    recovery = Recovery({1, 2})
    assert [recovery.client_back(pid) for pid in (3, 1, 1, 2, 2)] == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_a_scheduler_for_one_user_sees_all_of_its_clients() -> None:
    """One for all users sees them only as root in the machine's own pid namespace."""
    assert sees_everybody(serves_all=False)
    if os.getuid() != 0:
        assert not sees_everybody(serves_all=True)
