"""Interrupts of a server's kernels reach the scheduler, however they are made."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.protocol.messages import RequestWithdrawn, TurnRequested, WaitCancelled
from tests.kernel.test_interrupts import LONG, ONE_LINE, c_program
from tests.server.test_kernels import (
    PROCESS,
    Start,
    process_of,
    start,
    within,
    write_kernelspec,
)
from tests.support import gpu_cells
from tests.support.hook_client import ScriptedClient
from tests.support.paths import HOOK_LIBRARY
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import SimulatedMachine
from tests.support.waits import WAIT_S_MAX

__all__ = ["c_program", "start"]

ARGV = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
MODES = ["message", "signal"]

Interrupt = Callable[[str], Awaitable[Any]]


@pytest.fixture
def ways(jp_serverapp: Any, jp_fetch: Any) -> dict[str, Interrupt]:
    """How a kernel of the server is interrupted."""
    kernels = jp_serverapp.kernel_manager
    return {
        "REST": lambda kernel_id: jp_fetch(
            "api", "kernels", kernel_id, "interrupt", method="POST", body=b""
        ),
        "the server's kernel manager": lambda kernel_id: kernels.interrupt_kernel(kernel_id),
        "the kernel's own manager": lambda kernel_id: kernels.get_kernel(
            kernel_id
        ).interrupt_kernel(),
    }


def cancellations(client: ScriptedClient) -> int:
    client.heard(WaitCancelled)
    return sum(isinstance(message, WaitCancelled) for message in client.received)


@pytest.mark.promise(
    "server-10",
    "Every interrupt of a kernel reaches the scheduler once, also where its kernelspec says that a "
    "message interrupts it",
)
@pytest.mark.parametrize("mode", MODES)
async def test_every_interrupt_cancels_what_waits(
    mode: str,
    start: Start,
    ways: dict[str, Interrupt],
    jp_serverapp: Any,
    jp_data_dir: Path,
    scheduler: SchedulerUnderTest,
) -> None:
    """Each way cancels the wait once; the place in the queue is free, and can be taken anew."""
    write_kernelspec(jp_data_dir, mode, argv=PROCESS, interrupt_mode=mode)
    kernel_id = await start("waits.ipynb", mode)
    with scheduler.joined("other") as other:
        other.take_turn()
        with process_of(jp_serverapp, kernel_id, scheduler) as mine:
            for number, (way, interrupt) in enumerate(ways.items(), 1):
                mine.send(TurnRequested(request_id=number, cause="cuLaunchKernel"))
                scheduler.eventually(lambda s: s["devices"][0]["queue"])
                await interrupt(kernel_id)
                await within(lambda: cancellations(mine) >= number, way)  # noqa: B023
                mine.send(RequestWithdrawn(request_id=number))
                scheduler.eventually(lambda s: not s["devices"][0]["queue"])
                assert cancellations(mine) == number, way


async def test_an_interrupt_of_an_unshared_kernel_is_told_to_nobody(
    start: Start,
    ways: dict[str, Interrupt],
    jp_serverapp: Any,
    jp_data_dir: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kernel of another provisioner is interrupted as ever."""
    named = {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}
    write_kernelspec(jp_data_dir, "own", argv=PROCESS, metadata=named, interrupt_mode="message")
    kernel_id = await start("work.ipynb", "own")
    for interrupt in ways.values():
        await interrupt(kernel_id)
    assert kernel_id in jp_serverapp.kernel_manager
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.full
@pytest.mark.promise("jupyter-15")
async def test_a_message_ends_a_wait_that_holds_the_lock(
    start: Start,
    ways: dict[str, Interrupt],
    c_program: str,
    sim: SimulatedMachine,
    jp_serverapp: Any,
    jp_data_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: SchedulerUnderTest,
) -> None:
    """The kernel cannot hear the message: the thread that reads it needs the interpreter's lock."""
    scheduler.client.change_settings({"idle_ms": 3_600_000, "quantum_s": 3600})
    for name, value in {**sim.env(), "GPUSHARE_LIBRARY": str(HOOK_LIBRARY)}.items():
        monkeypatch.setenv(name, value)
    write_kernelspec(jp_data_dir, "message", argv=ARGV, interrupt_mode="message")
    ids = [await start(name, "message") for name in ("holds.ipynb", "waits.ipynb")]
    clients = []
    for kernel_id in ids:
        client = jp_serverapp.kernel_manager.get_kernel(kernel_id).client()
        client.start_channels()
        await client.wait_for_ready(timeout=WAIT_S_MAX)
        await client.execute_interactive(gpu_cells.setup(), timeout=WAIT_S_MAX)
        clients.append(client)
    holder, waiter = clients
    await waiter.execute_interactive(c_program, timeout=WAIT_S_MAX)
    holder.execute(LONG)
    await within(lambda: scheduler.status()["devices"][0]["holders"], "a holder")
    waiter.execute("launch(spin, 1000, 1)")
    await within(lambda: scheduler.status()["devices"][0]["queue"], "a queue")
    await ways["REST"](ids[1])
    reply = (await waiter.get_shell_msg(timeout=WAIT_S_MAX))["content"]
    assert (reply["ename"], reply["traceback"]) == ("KeyboardInterrupt", ONE_LINE)
    await within(lambda: not scheduler.status()["devices"][0]["queue"], "an empty queue")
    await ways["REST"](ids[0])
    await holder.get_shell_msg(timeout=WAIT_S_MAX)
    for client in clients:
        client.stop_channels()
