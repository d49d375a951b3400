"""A simulated machine whose processes live in pid namespaces of their own, as in containers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.driver.test_simulated_nvml import ask
from tests.support.paths import ROOT, SIM_DRIVER
from tests.support.sim import MIB, SimulatedMachine
from tests.support.waits import WAIT_S_MAX, wait_until

pytestmark = pytest.mark.skipif(not SIM_DRIVER.exists(), reason="run `make build` first")

BOTH_LEAVE = 1024 * MIB
"""Of 2 GiB, when each of two has 512 MiB. Their contexts take some of it."""
IN_A_NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
HOLDER = """
import os, sys
from tests.driver.harness import *
ok(cuda.cuInit(0))
gpu = Gpu()
gpu.allocate(512 << 20)
print(os.getpid(), flush=True)
for line in sys.stdin:
    gpu.launch("spin", 1_000_000, grid=(1, 1, 1), block=(1, 1, 1))
    ok(cuda.cuCtxSynchronize())
    print(int(ok(cuda.cuMemGetInfo())[0]), flush=True)
"""
WHO = """
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
    print(each.pid, each.usedGpuMemory)
"""


@pytest.fixture
def machine(tmp_path: Path) -> SimulatedMachine:
    """It has come to life here, outside of all namespaces."""
    machine = SimulatedMachine(tmp_path / "machine", bytes_per_device=2048 * MIB)
    assert ask(machine, "print(pynvml.nvmlDeviceGetCount())") == "1"
    return machine


@pytest.fixture
def holders(machine: SimulatedMachine) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes of one number, each in a namespace of its own."""
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            holder = stack.enter_context(
                subprocess.Popen(
                    [*IN_A_NAMESPACE, sys.executable, "-c", HOLDER],
                    env=machine.env({"GPUSHARE_DRIVER": "named"}),
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(holder.kill)
            assert holder.stdout
            assert holder.stdout.readline() == "1\n"
            found.append(holder)
        yield found
        for holder in found:
            assert holder.stdin
            holder.stdin.close()


def inside(holder: subprocess.Popen[str]) -> int:
    """The number that the namespace's first process has here."""
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
    (pid,) = children
    return int(pid)


def await_free(holder: subprocess.Popen[str], holds: Callable[[int], bool]) -> int:
    """It works, and tells how many bytes are free, until that holds. Under gpushare, too, where
    what another process of its tenant has is taken off a moment later."""

    def found() -> list[int]:
        assert holder.stdin and holder.stdout
        holder.stdin.write("\n")
        holder.stdin.flush()
        free = int(holder.stdout.readline())
        return [free] if holds(free) else []

    return wait_until(found, "so much free memory")[0]


@pytest.mark.promise(
    "simulated-22", "Processes of several pid namespaces share a machine, as containers do"
)
def test_they_share_a_machine(
    machine: SimulatedMachine, holders: list[subprocess.Popen[str]]
) -> None:
    """Neither takes the other for dead, or for itself; both have memory at once, the journal tells
    their work apart, and NVML says the numbers that they have here."""
    for holder in holders:
        await_free(holder, lambda free: free <= BOTH_LEAVE)
    worked = {record.pid for record in machine.journal() if record.kind.name == "LAUNCH"}
    assert len(worked) == 2 and min(worked) > 1 << 22
    told = dict(line.split() for line in ask(machine, WHO).splitlines())
    assert set(told) == {str(inside(holder)) for holder in holders}
    assert min(int(used) for used in told.values()) >= 512 * MIB


@pytest.mark.promise("simulated-22")
def test_one_that_is_killed(
    machine: SimulatedMachine, holders: list[subprocess.Popen[str]]
) -> None:
    """What it had is free again, as its own namespace or another one may see."""
    first, second = holders
    before = await_free(second, lambda free: free <= BOTH_LEAVE)
    os.kill(inside(first), signal.SIGKILL)
    first.wait(WAIT_S_MAX)
    assert len(ask(machine, WHO).splitlines()) == 1
    await_free(second, lambda free: free - before >= 512 * MIB)
