"""Tenants of several processes and on several devices, judged by the device's journal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import SharedGpu
from tests.support import gpu_cells
from tests.support.machine import Machine
from tests.support.paths import BUILTINS_PTX
from tests.support.scheduler_process import running_scheduler
from tests.support.sim import SimulatedMachine, load_journal_reader
from tests.support.waits import WAIT_S_MAX, in_vain

LAUNCHER = """
import subprocess, sys
workers = [subprocess.Popen([sys.executable, "-c", sys.argv[1]]) for _ in range(2)]
sys.exit(max(worker.wait() for worker in workers))
"""
"""A parent of two workers, as torchrun is; it does not use the device itself."""
MEET = """
import os, pathlib, time
pathlib.Path({folder!r}, f"{{os.getpid()}}.worker").touch()
while len(list(pathlib.Path({folder!r}).glob("*.worker"))) < 2:
    time.sleep(0.01)
"""
"""A worker goes on when both of them are there."""


def work_of(shared: SharedGpu) -> list[tuple[int, int, int, int]]:
    """Process, device, start and end of all work on the devices."""
    assert shared.machine.sim is not None
    kinds = load_journal_reader().DEVICE_WORK
    records = [record for record in shared.machine.sim.journal() if record.kind in kinds]
    return [(r.pid, r.device, r.started_ns, r.ended_ns) for r in records]


def seen_together(work: list[tuple[int, int, int, int]], kernel: int) -> bool:
    """Two others were on the device at once, and the kernel between their work."""
    ours = [w for w in work if w[0] == kernel]
    theirs = [w for w in work if w[0] != kernel]
    return any(overlap(a, b) for a in theirs for b in theirs if a[0] != b[0]) and any(
        min(t[2] for t in theirs) < w[2] < max(t[3] for t in theirs) for w in ours
    )


def overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[1] == other[1] and one[2] < other[3] and other[2] < one[3]


@pytest.mark.promise("scheduler-48", "Processes of one tenant share its turn")
@pytest.mark.promise("scheduler-49")
@pytest.mark.promise(
    "cli-33",
    "`jupyter gpushare run` works for programs that start several processes, as torchrun does",
)
def test_workers_of_a_launcher_share_a_turn(shared: SharedGpu, tmp_path: Path) -> None:
    """`run -- LAUNCHER`: its workers are on the device at the same time, since they are one tenant,
    and never together with the kernel, which computes meanwhile. They work until that was seen."""
    shared.scheduler.client.change_settings({"quantum_s": 0.1})
    kernel = shared.kernel("kernel.ipynb")
    enough = tmp_path / "enough"
    code = gpu_cells.setup() + MEET.format(folder=str(tmp_path))
    code += f"while not os.path.exists({str(enough)!r}):\n    {gpu_cells.spin(10, 8)}\n"
    command = [sys.executable, "-m", "jupyter_gpushare.cli.main", "run", "--"]
    command += [sys.executable, "-c", LAUNCHER, code]
    with subprocess.Popen(command, env=shared.kernel_env) as run:
        while run.poll() is None:
            kernel.run(gpu_cells.spin(10, 2)).ok()
            if seen_together(work_of(shared), kernel.pid):
                enough.touch()
    assert run.returncode == 0
    work = work_of(shared)
    ours = [w for w in work if w[0] == kernel.pid]
    theirs = [w for w in work if w[0] != kernel.pid]
    assert len({w[0] for w in theirs}) == 2
    assert not any(overlap(one, other) for one in ours for other in theirs)


@pytest.fixture
def two_devices(tmp_path: Path) -> Iterator[SharedGpu]:
    sim = SimulatedMachine(tmp_path / "machine", devices=2)
    machine = Machine(device="two simulated GPUs", env=sim.env(), sim=sim)
    env = {**machine.env, "CUDA_VISIBLE_DEVICES": "0,1"}
    with running_scheduler(tmp_path / "run", env=env) as scheduler:
        gpu = SharedGpu(machine, scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


BOTH = """
second = Gpu(open({ptx!r}, 'rb').read(), 1)
def on_both(milliseconds, count):
    for _ in range(count):
        for one in (gpu, second):
            checked(cu.cuCtxSetCurrent(one.context))
            one.launch_timed(int(milliseconds * 1e6))
    for one in (gpu, second):
        checked(cu.cuCtxSetCurrent(one.context))
        one.synchronize()
"""


@pytest.mark.promise("simulated-49", "Work on two devices runs side by side")
@pytest.mark.promise("hook-10", "Several contexts and devices in one process are served")
@pytest.mark.promise("scheduler-45")
def test_a_tenant_on_two_devices_has_both_or_none(two_devices: SharedGpu) -> None:
    """A kernel on both devices waits while another one has either of them, a kernel on the one
    device never keeps the other one's user waiting, and no two are on a device at once."""
    shared = two_devices
    shared.scheduler.client.change_settings({"quantum_s": 0.1})
    kernels = [shared.kernel(name, set_up=False) for name in ("zero", "one", "both")]
    for kernel, ordinal in zip(kernels, (0, 1, 0), strict=True):
        kernel.run(gpu_cells.setup(ordinal)).ok()
    zero, one, both = kernels
    both.run(BOTH.format(ptx=str(BUILTINS_PTX))).ok()
    was_seen = False
    until_s = time.monotonic() + WAIT_S_MAX
    while not was_seen:
        assert time.monotonic() < until_s, in_vain("different devices are used at the same time")
        cells = [
            (kernel, kernel.submit(code))
            for _ in range(3)
            for kernel, code in (
                (zero, gpu_cells.spin(10, 20)),
                (one, gpu_cells.spin(10, 20)),
                (both, "on_both(10, 10)"),
            )
        ]
        for kernel, cell in cells:
            kernel.wait(cell).ok()
        work = work_of(shared)
        pairs = ((a, b) for a in work for b in work if a[0] == zero.pid and b[0] == one.pid)
        was_seen = any(a[2] < b[3] and b[2] < a[3] for a, b in pairs)
    assert not any(overlap(a, b) for a in work for b in work if a[0] != b[0])
    devices = {kernel.name: {w[1] for w in work if w[0] == kernel.pid} for kernel in kernels}
    assert devices == {"zero": {0}, "one": {1}, "both": {0, 1}}
