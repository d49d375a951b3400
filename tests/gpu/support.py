"""Runs workloads on the real device, alone or as tenants of a scheduler beside a rival."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.paths import ROOT
from tests.support.tenants import Tenants

TIMEOUT_S = 240
PROGRAM_S_MAX = 900


def command(workload: str, *arguments: object) -> list[str]:
    """The command line of a workload module."""
    return [sys.executable, "-m", f"tests.gpu.workloads.{workload}", *map(str, arguments)]


def run(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Run a workload to its end; its report."""
    result = subprocess.run(
        argv, env=dict(env), cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert result.returncode == 0, result.stderr[-4000:]
    report: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return report


class Program:
    """A workload that is told what to do, a line at a time, and answers each with a report."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            argv, env=dict(env), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._watch = threading.Timer(PROGRAM_S_MAX, self._process.kill)
        self._watch.start()

    def await_ready(self) -> None:
        assert self._line() == "ready\n"

    def say(self, word: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def report(self) -> dict[str, Any]:
        """The answer to the oldest line that has none."""
        found: dict[str, Any] = json.loads(self._line())
        return found

    def ask(self, word: object) -> dict[str, Any]:
        self.say(word)
        return self.report()

    def finish(self) -> dict[str, Any]:
        """Nothing more to do; what it has to say at its end."""
        assert self._process.stdin
        self._process.stdin.close()
        found = self.report()
        assert self._process.wait(TIMEOUT_S) == 0
        return found

    def end(self) -> None:
        self._watch.cancel()
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, f"the program has ended, or did not answer within {PROGRAM_S_MAX} s"
        return line


@contextmanager
def program(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Program]:
    """Ends with the block, however far it is."""
    started = Program(argv, env)
    try:
        yield started
    finally:
        started.end()


class Rival:
    """A process that never stops asking for the device."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process


@contextmanager
def rival(
    scheduler: Tenants, *, launch_ms: float, env: Mapping[str, str] | None = None
) -> Iterator[Rival]:
    """A training loop in a tenant of its own, for as long as the block lasts."""
    process = subprocess.Popen(
        command("rival_loop", launch_ms, TIMEOUT_S),
        env=scheduler.env("rival", env if env is not None else dict(os.environ)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout and process.stdout.readline() == "ready\n"
        yield Rival(process)
        assert process.poll() is None, "the rival died"
    finally:
        process.terminate()
        process.wait(timeout=30)


def counters(scheduler: Tenants, name: str) -> dict[str, Any]:
    """What the scheduler has counted for the tenant of this name."""
    tenants = [t for t in scheduler.status()["tenants"] if t["name"] == name]
    assert tenants, f"the scheduler knows no tenant named {name}"
    found: dict[str, Any] = tenants[0]["counters"]
    return found
