"""Memory that follows the turn, on a real device that the scheduler takes for a small one."""

from __future__ import annotations

import importlib.util
import os
import statistics
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support import TIMEOUT_S, command, counters, run
from tests.gpu.test_turns import record
from tests.support.memory_tenants import MemoryTenants, swapping_scheduler
from tests.support.paths import ROOT
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.sim import GIB
from tests.support.tenants import Tenants, tenants

DEVICE_BYTES_MAX = 10 * GIB
RESERVE_BYTES = GIB
"""For contexts and modules, which grow while a framework works."""
BALLAST_MIB = 4 << 10
RIVAL_MIB = 6 << 10
"""Both together, and two contexts, are more than that."""
SMALL = {
    "memory_mode": "swap",
    "device_bytes_max": DEVICE_BYTES_MAX,
    "device_reserve_bytes": RESERVE_BYTES,
}
QUANTUM_S = 0.4
FRAMEWORKS = [
    ("torch", "torch_eager"),
    ("torch", "torch_graphs"),
    ("cupy", "cupy_work"),
    ("jax", "jax_work"),
    ("triton", "triton_work"),
    ("numba", "numba_work"),
]
TRAINING_STEPS = 800
TRAINING_QUANTUM_S = 2.0
THROUGHPUT_RATIO_BAR = 0.97


@contextmanager
def memory_rival(scheduler: Tenants, env: dict[str, str]) -> Iterator[None]:
    """It verifies its own memory in every turn, and must be well in the end. It is another user's:
    turns between owners end by the quantum."""
    process = subprocess.Popen(
        command("rival_memory", RIVAL_MIB, TIMEOUT_S),
        env=scheduler.env_of("somebody-else", "rival", env),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield
        assert process.poll() is None, "the rival found memory that was not what it had been"
    finally:
        process.terminate()
        process.wait(timeout=30)


class Parked:
    """The most that each tenant had in host memory at any time, as the scheduler knows it, and how
    often it came to a GiB or more."""

    def __init__(self, scheduler: Tenants | SchedulerUnderTest) -> None:
        self.most: dict[str, int] = {}
        self.times: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._scheduler = scheduler
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            for tenant in self._scheduler.status()["tenants"]:
                devices = [device for client in tenant["clients"] for device in client["devices"]]
                self.note(tenant["name"], sum(device["bytes_parked"] for device in devices))

    def note(self, name: str, parked: int) -> None:
        again = self._last.get(name, 0) < GIB <= parked
        self._last[name] = parked
        self.most[name] = max(parked, self.most.get(name, 0))
        self.times[name] = self.times.get(name, 0) + again

    def __enter__(self) -> Parked:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def run_parked(
    workload: str,
    *arguments: object,
    env: dict[str, str],
    directory: Path,
    quantum_s: float,
) -> tuple[dict[str, Any], Parked, dict[str, Any]]:
    """A workload beside the rival: its report, who was parked, and what the scheduler counted."""
    with (
        tenants(directory, env, quantum_s=quantum_s, settings=SMALL) as scheduler,
        memory_rival(scheduler, env),
        Parked(scheduler) as parked,
    ):
        report = run(command(workload, *arguments), scheduler.env(workload, env))
        return report, parked, counters(scheduler, workload)


@pytest.mark.promise(
    "gpu-13",
    "PyTorch (eager and graphs), CuPy, JAX, Triton and Numba, parked and restored between steps: "
    "results bit-identical",
)
@pytest.mark.parametrize(("module", "workload"), FRAMEWORKS, ids=[name for _, name in FRAMEWORKS])
def test_results_are_bit_identical_with_parks_between_steps(
    module: str, workload: str, tmp_path: Path
) -> None:
    """Parked and restored again and again, a workload computes what it computes alone, and the
    memory that it only holds is what it was."""
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    env = dict(os.environ)
    alone = run(command(workload), env)
    ballasted = {**env, "GPUSHARE_BALLAST_MIB": str(BALLAST_MIB)}
    shared, parked, served = run_parked(
        workload,
        env=ballasted,
        directory=tmp_path / "run",
        quantum_s=QUANTUM_S,
    )
    assert shared["digest"] == alone["digest"]
    assert shared["ballast_intact"] is True
    assert served["turns"] >= 3, "the workload never had to share"
    assert all(parked.most[name] >= GIB for name in ("rival", workload)), parked.most


@pytest.mark.promise(
    "gpu-14",
    "Two processes oversubscribe the device, more than half of what each holds is parked in turn, "
    "every byte verified",
)
def test_two_processes_oversubscribe_the_device(tmp_path: Path) -> None:
    """Two tenants with four fifths of the device each take turns; every byte of each is verified by
    launches in every turn, and nobody is out of memory."""
    device_bytes = 12 * GIB
    size = device_bytes * 4 // 5
    limit = f"--GPUShareScheduler.device_bytes_max={device_bytes}"
    reserve = "--GPUShareScheduler.device_reserve_bytes=0"  # the device has room beside what counts
    env = dict(os.environ)
    with (
        swapping_scheduler(tmp_path / "run", env, limit, reserve) as scheduler,
        MemoryTenants(scheduler, env, tmp_path) as programs,
        Parked(scheduler) as parked,
    ):
        first, second = (programs.start(name) for name in ("first", "second"))
        for seed, tenant in enumerate((first, second), start=1):
            tenant.ok("begin")
            tenant.hold(0, seed, size)
            tenant.hold(1, seed + 10, 4096)
            tenant.ok("end")
        for _ in range(5):
            for tenant in (first, second):
                tenant.verify()
    # A real device has room for both: what shows that memory moved is that it was away.
    assert min(parked.most[tenant.name] for tenant in (first, second)) >= size // 2, parked.most


@pytest.mark.promise(
    "gpu-15",
    "A training loop parked every 2 s: bit-identical, and at least 0.97 of its throughput in its "
    "turns",
)
def test_a_training_loop_that_is_parked_every_two_seconds(tmp_path: Path) -> None:
    """Bit-identical, and as fast in its turns as alone: steps that a hand-over fell into count as
    one step each, without the wait."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    alone = run(command("torch_training", TRAINING_STEPS), env)
    shared, parked, served = run_parked(
        "torch_training",
        TRAINING_STEPS,
        env=env,
        directory=tmp_path / "run",
        quantum_s=TRAINING_QUANTUM_S,
    )
    alone_s, step_s = statistics.mean(alone["step_s"]), shared["step_s"]
    in_turn_s = [s for s in step_s if s < TRAINING_QUANTUM_S / 2]
    ratio = alone_s / statistics.mean(in_turn_s)
    record(
        "training_parked_every_2_s",
        throughput_ratio=ratio,
        steps=len(step_s),
        hand_overs=len(step_s) - len(in_turn_s),
        turns=served["turns"],
        parks=parked.times["torch_training"],
        parked_bytes=parked.most["torch_training"],
    )
    assert shared["digest"] == alone["digest"]
    assert served["turns"] >= 3 and parked.times["torch_training"] >= 2, parked.times
    # What is left out of the throughput is one step for each wait for the turn, and nothing else.
    assert len(step_s) - len(in_turn_s) <= served["turns"]
    assert ratio >= THROUGHPUT_RATIO_BAR
