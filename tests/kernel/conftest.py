"""Fixtures for tests with kernels."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.kernel.environment import without_gpushare
from tests.kernel.stub_scheduler import StubScheduler
from tests.support import gpu_cells
from tests.support.kernels import Kernel, kernel_env
from tests.support.machine import Machine
from tests.support.observed import ObservedKernels
from tests.support.scheduler_process import SchedulerUnderTest, running_scheduler
from tests.support.sim import SimulatedMachine
from tests.support.waits import wait_until


@dataclass
class Recording:
    """The stand-in for the hook and the file in which it writes down what it is told."""

    library: Path
    path: Path
    before: int = 0
    """So many lines are of earlier tests."""

    def lines(self) -> list[str]:
        return self._all()[self.before :]

    def of(self, pid: int) -> list[str]:
        """What this process told, in order."""
        return [line.split()[0] for line in self.lines() if line.split()[1] == str(pid)]

    def cancel(self) -> None:
        self.path.with_name(self.path.name + ".cancel").touch()

    def begin(self) -> None:
        """Forget what was told until now."""
        self.before = len(self._all())

    def _all(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


@pytest.fixture(scope="session")
def recording_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """recording_hook.c, built once a run."""
    library = tmp_path_factory.mktemp("recording") / "librecording.so"
    source = Path(__file__).with_name("recording_hook.c")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", library, source], check=True)
    return library


@pytest.fixture
def recording(recording_library: Path, tmp_path: Path) -> Recording:
    return Recording(recording_library, tmp_path / "recording")


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[StubScheduler]:
    """A scheduler that only registers tenants."""
    with StubScheduler(tmp_path / "run") as scheduler:
        yield scheduler


@pytest.fixture
def stub_env(stub: StubScheduler, recording: Recording) -> dict[str, str]:
    """What leads a kernel to the stub scheduler and the stand-in for the hook."""
    return env_of(stub, recording)


def env_of(stub: StubScheduler, recording: Recording) -> dict[str, str]:
    inherited = without_gpushare(os.environ)
    for name in ("PYTHONPATH", "PYTEST_CURRENT_TEST"):  # whoever runs the tests may have these
        inherited.pop(name, None)
    return {
        **inherited,
        "GPUSHARE_RUNTIME_DIR": str(stub.directory),
        "GPUSHARE_LIBRARY": str(recording.library),
        "RECORDING": str(recording.path),
    }


FORGET = """
%reset -f
import sys
for name in ("last_type", "last_value", "last_traceback", "last_exc"):
    vars(sys).pop(name, None)
del sys, name
"""
"""What a test leaves in a kernel's namespace, and the error that it has shown."""


class RecordedKernel:
    """One kernel for the tests of a file, with the stand-in for the hook. A test that fails may
    leave it in any state: the next one gets another kernel."""

    def __init__(self, folder: Path, library: Path, stub: StubScheduler) -> None:
        self.recording = Recording(library, folder / "recording")
        self._env = env_of(stub, self.recording)
        self._kernel: Kernel | None = None

    def fresh(self) -> Kernel:
        if self._kernel is None:
            self._kernel = Kernel(self._env).start()
        self._kernel.run(FORGET, silent=True).ok()
        self.recording.begin()
        return self._kernel

    def stop(self) -> None:
        if self._kernel is not None:
            self._kernel.stop()
        self._kernel = None


@pytest.fixture(scope="module")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, recording_library: Path
) -> Iterator[RecordedKernel]:
    folder = tmp_path_factory.mktemp("recorded")
    with StubScheduler(folder / "run") as stub:
        kernel = RecordedKernel(folder, recording_library, stub)
        yield kernel
        kernel.stop()


PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """For fixtures that what went wrong in a test is to be seen by."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def kernel(recorded: RecordedKernel, request: pytest.FixtureRequest) -> Iterator[Kernel]:
    """The kernel of the file, in which nothing has happened yet as far as its namespace tells."""
    yield recorded.fresh()
    if not request.node.stash.get(PASSED, False):
        recorded.stop()


@pytest.fixture
def heard(kernel: Kernel, recorded: RecordedKernel) -> Recording:
    """What that kernel tells the hook in this test."""
    return recorded.recording


class SharedGpu:
    """A simulated device, a scheduler, and kernels that share the one by way of the other."""

    def __init__(self, machine: Machine, scheduler: SchedulerUnderTest) -> None:
        self.machine = machine
        self.scheduler = scheduler
        self.kernel_env = kernel_env(machine.env, scheduler.directory)
        self.started: list[Kernel] = []

    def kernel(self, name: str, *, set_up: bool = True, **options: Any) -> Kernel:
        """A kernel that has opened the device."""
        extra_env = options.pop("env", {})
        kernel = Kernel({**self.kernel_env, **extra_env}, name=name)
        self.started.append(kernel)
        kernel.start(**options)
        if set_up:
            kernel.run(gpu_cells.setup()).ok()
        return kernel

    def observed(self, *kernels: Kernel) -> ObservedKernels:
        """The same kernels with the device's word about them; it begins now."""
        observed = ObservedKernels(self.machine, kernels)
        observed.begin()
        return observed

    def tenant(self, name: str) -> dict[str, Any] | None:
        """What the scheduler tells of a kernel; None when it knows none of that name."""
        tenants = self.scheduler.status()["tenants"]
        return next((t for t in tenants if t["name"] == name), None)

    def holders(self) -> list[str]:
        return [h["name"] for d in self.scheduler.status()["devices"] for h in d["holders"]]

    def waiters(self) -> list[str]:
        return [w["name"] for d in self.scheduler.status()["devices"] for w in d["queue"]]

    def await_holder(self, name: str) -> None:
        wait_until(lambda: name in self.holders(), f"{name} holds the device")

    def await_waiter(self, name: str) -> None:
        wait_until(lambda: name in self.waiters(), f"{name} waits for the device")


def await_printed(kernel: Kernel, cell: str, text: str = "") -> None:
    """Until a cell that goes on has printed this, or anything."""
    wait_until(
        lambda: text in (printed := kernel.text_of(cell)) and printed,
        f"the cell to print {text or 'something'}",
    )


@contextmanager
def shared_gpu(sim: SimulatedMachine, folder: Path) -> Iterator[SharedGpu]:
    """A scheduler for the simulated device; the kernels that were started are stopped at the
    end."""
    machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
    env = {**machine.env, "CUDA_VISIBLE_DEVICES": "0"}
    with running_scheduler(folder / "run", env=env) as scheduler:
        gpu = SharedGpu(machine, scheduler)
        yield gpu
        for kernel in gpu.started:
            kernel.stop()


@pytest.fixture
def shared(sim: SimulatedMachine, tmp_path: Path) -> Iterator[SharedGpu]:
    """For one test."""
    with shared_gpu(sim, tmp_path) as gpu:
        yield gpu


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGpu]:
    """For all tests of a file, whose kernels go on from one to the next."""
    folder = tmp_path_factory.mktemp("lasting")
    with shared_gpu(SimulatedMachine(folder / "machine"), folder) as gpu:
        yield gpu


@pytest.fixture
def settings_as_new(lasting: SharedGpu) -> Iterator[SharedGpu]:
    """The same, with the settings that the scheduler began with."""
    before = lasting.scheduler.status()["settings"]
    yield lasting
    lasting.scheduler.client.change_settings(before)


@pytest.fixture
def start_kernel() -> Iterator[Callable[..., Kernel]]:
    """Starts kernels and stops them again, whatever happens to the test."""
    kernels: list[Kernel] = []

    def start(
        env: dict[str, str], *, name: str = "", argv: list[str] | None = None, **options: object
    ) -> Kernel:
        kernels.append(Kernel(env, name=name, argv=argv))
        return kernels[-1].start(**options)

    yield start
    for kernel in kernels:
        kernel.stop()
