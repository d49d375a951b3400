"""A scheduler that has nothing to do does nothing, and ends if it was asked to."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpushare.client import SchedulerUnavailable
from jupyter_gpushare.protocol.fields import Message
from jupyter_gpushare.protocol.messages import TurnGranted
from tests.support.scheduler_process import END_S_MAX, SchedulerUnderTest, running_scheduler

KERNELS = 20
QUIET_S = 2.5
SWITCHES_MAX = 1
"""A periodic task, even one a second, would wake it more often in `QUIET_S` than this."""
IDLE_EXITS_S = (2, 8, 32)
LOOKS_MAX = 10
"""On a busy machine the first one finds what is left to do from before. A periodic task would wake
it during each."""


def context_switches(pid: int) -> int:
    """How often the threads of a process have gone to sleep: each time it was woken before."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


@pytest.mark.promise("scheduler", "With nothing to do it does nothing")
@pytest.mark.promise("speed", "An idle scheduler is not even woken by twenty idle kernels")
def test_idle_kernels_cost_nothing(scheduler: SchedulerUnderTest) -> None:
    """With twenty idle kernels, one of which holds the turn, the scheduler is not even woken."""
    kernels = [scheduler.joined(f"notebook {number}") for number in range(KERNELS)]
    kernels[0].take_turn()
    # After the answer to this the scheduler has said to all of them what there was to say.
    scheduler.status()
    for kernel in kernels:
        kernel.heard(Message)
    for _ in range(LOOKS_MAX):
        before = context_switches(scheduler.process.pid)
        # Nothing shall happen: the wait ends early only if the scheduler says something.
        assert not select.select([kernel.socket for kernel in kernels], [], [], QUIET_S)[0]
        switches = context_switches(scheduler.process.pid) - before
        if switches <= SWITCHES_MAX:
            break
    assert switches <= SWITCHES_MAX
    for kernel in kernels:
        kernel.close()


@pytest.mark.promise("scheduler", "It ends after idle time if it was asked to")
def test_it_ends_after_idle_time(runtime: Path) -> None:
    """With --idle-exit-s and no tenant it ends by itself, cleanly."""
    with running_scheduler(runtime, "--idle-exit-s=0.2") as scheduler:
        assert scheduler.process.wait(END_S_MAX) == 0
    assert "no tenants for 0.2 s" in scheduler.log
    assert not (runtime / "http.sock").exists()


def in_time(runtime: Path) -> Callable[[Callable[[SchedulerUnderTest, float], None]], None]:
    """Tells a story of a scheduler that soon ends by itself, and of a time that is longer. On a
    busy machine it may have ended before anybody came to it: then it is given more time."""

    def tell(story: Callable[[SchedulerUnderTest, float], None]) -> None:
        for idle_exit_s in IDLE_EXITS_S:
            with running_scheduler(runtime, f"--idle-exit-s={idle_exit_s}") as scheduler:
                try:
                    story(scheduler, 1.5 * idle_exit_s)
                except SchedulerUnavailable:
                    continue
                return
        raise AssertionError("it always ended too soon")

    return tell


def test_who_follows_its_events_keeps_it_from_ending(runtime: Path) -> None:
    """A Jupyter server without kernels still uses it; when the last one has gone, it ends."""

    @in_time(runtime)
    def story(scheduler: SchedulerUnderTest, longer_s: float) -> None:
        with scheduler.client.follow() as stream:
            next(iter(stream))
            with pytest.raises(subprocess.TimeoutExpired):
                scheduler.process.wait(longer_s)
        assert scheduler.process.wait(END_S_MAX) == 0


@pytest.mark.promise("It ends after idle time if...")
def test_a_tenant_keeps_it_from_ending(runtime: Path) -> None:
    """While there is a tenant it stays, whatever that one does; afterwards it ends."""

    @in_time(runtime)
    def story(scheduler: SchedulerUnderTest, longer_s: float) -> None:
        tenant = scheduler.tenant()
        with scheduler.connect() as client:
            client.join(tenant.token)
            assert not client.has_within(TurnGranted, within_s=longer_s)
            assert scheduler.process.poll() is None
        scheduler.client.remove_tenant(tenant.tenant_id)
        assert scheduler.process.wait(END_S_MAX) == 0
