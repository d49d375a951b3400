"""Interrupts on a real device: of PyTorch cells that wait for it, and handlers that jump."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu.support import counters
from tests.hook.runtime.process import Programs
from tests.kernel.conftest import SharedGpu
from tests.support.kernels import Kernel
from tests.support.machine import Machine
from tests.support.memory_tenants import cuda_headers
from tests.support.scheduler_process import running_scheduler
from tests.support.tenants import tenants
from tests.support.waits import wait_until

ONE_LINE = ["KeyboardInterrupt: This cell was interrupted while it waited for the GPU."]
SETUP = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()).cuda()
batch = torch.randn(64, 256, device="cuda")
loss = model(batch).square().mean()
loss.backward(retain_graph=True)
kept = torch.arange(1 << 20, device="cuda")
torch.cuda.synchronize()
"""
LONG = "while True:\n    model(batch)\n    torch.cuda.synchronize()"
CELLS = {
    "forward": "model(batch).sum().item()",
    "backward": "loss.backward(retain_graph=True)\ntorch.cuda.synchronize()",
    "allocation": "more = torch.empty(1 << 30, dtype=torch.uint8, device='cuda')\nmore.fill_(1)",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGpu]:
    pytest.importorskip("torch")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    directory = tmp_path_factory.mktemp("interrupts") / "run"
    with running_scheduler(directory, "--quantum=600", env=env, check=False) as scheduler:
        gpu = SharedGpu(Machine(device="GPU", env=env, sim=None), scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


@pytest.fixture(scope="module")
def kernels(shared: SharedGpu) -> tuple[Kernel, Kernel]:
    """Who holds the device, and who waits for it."""
    both = [shared.kernel(name, set_up=False) for name in ("holder.ipynb", "waiter.ipynb")]
    for kernel in both:
        kernel.run(SETUP, timeout_s=120).ok()
    return both[0], both[1]


@pytest.mark.parametrize("mode", ["signal", "message"])
@pytest.mark.parametrize("work", CELLS)
def test_an_interrupted_wait_shows_one_line(
    shared: SharedGpu, kernels: tuple[Kernel, Kernel], work: str, mode: str
) -> None:
    """Nothing of PyTorch stands in the notebook; nobody waits any longer; the memory is all there,
    and the same cell works afterwards."""
    holder, waiter = kernels
    spec = waiter.manager.kernel_spec
    assert spec is not None and waiter.tenant_id is not None
    spec.interrupt_mode = mode
    long = holder.submit(LONG)
    shared.await_holder("holder.ipynb")
    waiting = waiter.submit(CELLS[work])
    shared.await_waiter("waiter.ipynb")
    waiter.interrupt()
    if mode == "message":  # of which the server tells the scheduler
        shared.scheduler.client.interrupt_tenant(waiter.tenant_id)
    reply = waiter.wait(waiting, timeout_s=20)
    assert (reply.ename, reply.printed.errors) == ("KeyboardInterrupt", ONE_LINE)
    waiter.control(
        "kernel_info_request"
    )  # the message before it has been read: no signal is to come
    wait_until(lambda: shared.waiters() == [], "the place in the queue is free")
    assert not holder.done(long)
    holder.interrupt()
    assert holder.wait(long).ename == "KeyboardInterrupt"
    waiter.run(CELLS[work]).ok()
    assert waiter.run("int(kept.sum())").ok().text == str((1 << 20) * ((1 << 20) - 1) // 2)
    waiter.run("more = None\ntorch.cuda.empty_cache()").ok()


@pytest.mark.promise("hook-13")
def test_captures_that_jumps_have_left_let_the_turn_go(tmp_path: Path) -> None:
    """A handler jumps out of begins and ends wherever the hook lets go of a lock. The driver has
    no capture then, and the neighbour its turns."""
    program = Programs(cuda_headers(), tmp_path).built("leaves_captures")

    def started(word: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [program, word],
            env=scheduler.env(word, os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with (
        tenants(tmp_path / "run", os.environ, quantum_s=0.3) as scheduler,
        started("jumps") as leaves,
    ):
        assert leaves.stdout and int(leaves.stdout.readline().removeprefix("left ")) >= 4
        turns = counters(scheduler, "jumps")["turns"]
        with started("launches") as neighbour:
            wait_until(
                lambda: counters(scheduler, "jumps")["turns"] >= turns + 3,
                "both have had turns",
            )
            assert counters(scheduler, "launches")["turns"] >= 2
            assert neighbour.communicate("") and neighbour.returncode == 0
        assert leaves.communicate("") and leaves.returncode == 0
