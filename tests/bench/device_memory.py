"""The device's used bytes over time, as NVML has them: what an onlooker sees of parks and restores.

As a program (`python -m tests.bench.device_memory PERIOD_S`) it writes a line for each change, with
its time and the used bytes, until its standard input ends. It is a process of its own, because who
asks must see the machine's NVML and not be under the hook."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pynvml

from tests.support.paths import ROOT


@dataclass(frozen=True, slots=True)
class Sample:
    at_ns: int
    bytes_used: int


class UsedBytes:
    """What the program that writes to `path` has seen so far."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def samples(self) -> list[Sample]:
        lines = self._path.read_text().splitlines()
        return [Sample(*map(int, line.split())) for line in lines if len(line.split()) == 2]

    def at(self, at_ns: int) -> int:
        """The used bytes at a time: those of the last change before it."""
        return [s.bytes_used for s in self.samples() if s.at_ns <= at_ns][-1]

    def lowest(self, from_ns: int, to_ns: int) -> Sample:
        """The first moment at which least was used."""
        within = [s for s in self.samples() if from_ns <= s.at_ns <= to_ns]
        return min([Sample(from_ns, self.at(from_ns)), *within], key=lambda s: s.bytes_used)


@contextmanager
def watched(path: Path, env: Mapping[str, str], *, period_s: float) -> Iterator[UsedBytes]:
    """Device 0, for as long as the block lasts."""
    with path.open("w") as file:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.device_memory", str(period_s)],
            env=dict(env),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=file,
        )
    try:
        while not path.read_text().endswith("\n"):  # it has begun to look
            if program.poll() is not None:
                raise RuntimeError("NVML does not answer. Is the driver installed?")
            time.sleep(0.01)
        yield UsedBytes(path)
    finally:
        program.communicate()


def watch(period_s: float) -> None:
    """Until standard input ends."""
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = -1
    while not select.select([sys.stdin], [], [], period_s)[0]:
        used = int(pynvml.nvmlDeviceGetMemoryInfo(device).used)
        if used != before:
            print(time.monotonic_ns(), used, flush=True)
        before = used


if __name__ == "__main__":
    watch(float(sys.argv[1]))
