"""Children of a process that has the hook."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.protocol.messages import Hello, TurnRequested
from tests.hook.runtime.process import GpuProcess
from tests.support.fake_scheduler import ClientGone, FakeScheduler

Start = Callable[..., GpuProcess]


@pytest.mark.promise("hook-18", "It is fork-safe")
@pytest.mark.promise("bad-input-42")
def test_a_forked_child_keeps_no_connection(start: Start, scheduler: FakeScheduler) -> None:
    """When the parent is killed the scheduler sees the end at once, though a child lives on."""
    program = start("forks", "sleeps")
    client = scheduler.accept()
    client.welcome()
    client.grant_request()
    program.expect("launched")
    child = int(program.expect("child ").split()[1])
    program.signal(signal.SIGKILL)
    client.wait_closed()
    assert Path(f"/proc/{child}").exists()
    os.kill(child, signal.SIGKILL)


@pytest.mark.promise("hook-18")
def test_a_child_that_never_uses_cuda_does_nothing(start: Start, scheduler: FakeScheduler) -> None:
    """No thread, no connection; it ends by itself and its parent goes on."""
    program = start("forks", "ends")
    client = scheduler.accept()
    client.welcome()
    client.grant_request()
    program.expect("launched")
    assert program.expect("tasks ") == "tasks 1"
    program.expect("child ended 0")
    assert scheduler.accepts_none(for_s=0.2)
    program.say("launch")
    program.expect("launched")
    assert program.finish() == 0


@pytest.mark.promise("hook-18")
def test_a_child_that_uses_cuda_afresh_is_a_client_of_its_own(
    start: Start, scheduler: FakeScheduler
) -> None:
    """Forked before CUDA was opened: parent and child each have a connection, one token."""
    program = start("forks", "opens")
    first, second = scheduler.accept(), scheduler.accept()
    hellos = [first.welcome(), second.welcome()]
    assert hellos[0].token == hellos[1].token
    assert hellos[0].pid != hellos[1].pid
    for client in (first, second):
        client.grant_request()
    program.expect("child launched")
    program.expect("child ended 0")
    assert program.finish() == 0


@pytest.mark.promise("hook-18")
def test_forks_while_threads_launch_and_the_turn_is_recalled(
    start: Start, scheduler: FakeScheduler
) -> None:
    """Locks are sane in every child: a hundred forks in the middle of everything, none hangs."""
    program = start("forks", "many")
    client = scheduler.accept()
    client.welcome(window_ms=1)
    ended = False
    while not ended:
        try:
            client.expect(TurnRequested)
            client.grant()
            client.recall_and_drop()
        except ClientGone:
            ended = True
    program.expect("all ended 0")
    assert program.wait() == 0
    assert client.count(Hello) == 1


@pytest.mark.promise("hook-18")
def test_a_program_started_by_the_parent_inherits_no_descriptor(
    start: Start, scheduler: FakeScheduler
) -> None:
    """exec closes the hook's descriptors."""
    program = start("forks", "executes")
    client = scheduler.accept()
    client.welcome()
    client.grant_request()
    program.expect("launched")
    program.expect("sockets 0")
    assert program.finish() == 0


def test_a_signal_that_comes_while_a_process_forks_is_the_parents(
    start: Callable[..., GpuProcess], scheduler: FakeScheduler
) -> None:
    """The hook puts it off while it holds its locks. The child was sent none, and gets none."""
    program = start("forks_in_signal")
    client = scheduler.accept()
    client.welcome()
    assert {program.expect("") for _ in range(2)} == {"parent 1", "child 0"}
    assert program.finish() == 0
