"""A scheduler that has nothing to do does nothing, and ends if it was asked to."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jupyter_gpushare.client import HOOK_SOCKET, HTTP_SOCKET, SchedulerClient
from jupyter_gpushare.core.configuration.layers import Layers
from jupyter_gpushare.protocol.fields import Message
from jupyter_gpushare.scheduler.devices.visible import EVERYTHING
from jupyter_gpushare.scheduler.process import ProcessOptions, SchedulerProcess
from jupyter_gpushare.scheduler.runtime_dir import RuntimeDir
from jupyter_gpushare.scheduler.service.live_settings import LiveSettings
from tests.support.hook_client import ScriptedClient
from tests.support.scheduler_process import END_S_MAX, SchedulerUnderTest, running_scheduler
from tests.support.waits import WAIT_S_MAX, until

KERNELS = 20
QUIET_S = 2.5
SWITCHES_MAX = 1
"""A periodic task, even one a second, would wake it more often in `QUIET_S` than this."""
LOOKS_MAX = 100
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


@pytest.mark.promise("scheduler-78", "With nothing to do it does nothing")
@pytest.mark.promise("speed-15", "An idle scheduler is not even woken by twenty idle kernels")
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


@pytest.mark.promise("scheduler-79", "It ends after idle time if it was asked to")
def test_it_ends_after_idle_time(runtime: Path) -> None:
    """With --idle-exit-s and no tenant it ends by itself, cleanly."""
    with running_scheduler(runtime, "--idle-exit-s=0.2") as scheduler:
        assert scheduler.process.wait(END_S_MAX) == 0
    assert "no tenants for 0.2 s" in scheduler.log
    assert not (runtime / "http.sock").exists()


Story = Callable[[SchedulerProcess, SchedulerClient], Awaitable[None]]


def play(runtime: Path, story: Story) -> None:
    """A story of a scheduler in this process that would end by itself after an hour."""

    async def played() -> None:
        options = ProcessOptions(
            settings=LiveSettings(Layers()),
            choose_devices=lambda listed: EVERYTHING,
            idle_exit_s=3600.0,
        )
        directory = RuntimeDir(runtime, open_to_all=False, version="test")
        process, ready = SchedulerProcess(directory, options), asyncio.Event()
        running = asyncio.ensure_future(process.run(ready.set))
        await ready.wait()
        try:
            assert process._idle_timer is not None
            await story(process, SchedulerClient(runtime / HTTP_SOCKET))
        finally:
            process.end("the test is over")
            await running

    asyncio.run(asyncio.wait_for(played(), WAIT_S_MAX))


def test_who_follows_its_events_keeps_it_from_ending(runtime: Path) -> None:
    """A Jupyter server without kernels still uses it; when the last one has gone, its time runs."""

    async def story(process: SchedulerProcess, client: SchedulerClient) -> None:
        with await asyncio.to_thread(client.follow) as stream:
            await asyncio.to_thread(next, iter(stream))
            assert process._idle_timer is None
        await until(lambda: process._idle_timer, "nobody follows any more")

    play(runtime, story)


@pytest.mark.promise("scheduler-79")
def test_a_tenant_keeps_it_from_ending(runtime: Path) -> None:
    """While there is a tenant it stays, whatever that one does; afterwards its time runs anew."""

    async def story(process: SchedulerProcess, client: SchedulerClient) -> None:
        first = process._idle_timer
        tenant = await asyncio.to_thread(client.register_tenant, "notebook", "run")
        assert process._idle_timer is None
        hook = await asyncio.to_thread(ScriptedClient, runtime / HOOK_SOCKET)
        with hook:
            await asyncio.to_thread(hook.join, tenant.token)
        await asyncio.to_thread(client.status)
        assert process._idle_timer is None
        await asyncio.to_thread(client.remove_tenant, tenant.tenant_id)
        again = process._idle_timer
        assert first is not None and again is not None and again.when() > first.when()

    play(runtime, story)
