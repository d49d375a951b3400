"""Fixtures for tests with kernels."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.environment import without_gpushare
from tests.kernel.stub_scheduler import StubScheduler
from tests.support.kernels import Kernel


@dataclass
class Recording:
    """The stand-in for the hook and the file in which it writes down what it is told."""

    library: Path
    path: Path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def of(self, pid: int) -> list[str]:
        """What this process told, in order."""
        return [line.split()[0] for line in self.lines() if line.split()[1] == str(pid)]

    def cancel(self) -> None:
        self.path.with_name(self.path.name + ".cancel").touch()


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
    return {
        **without_gpushare(os.environ),
        "GPUSHARE_RUNTIME_DIR": str(stub.directory),
        "GPUSHARE_LIBRARY": str(recording.library),
        "RECORDING": str(recording.path),
    }


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
