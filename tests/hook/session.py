"""Python in a child process under the hook, and what the fake runtime was told meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

MIB = 1 << 20


class Session:
    """Python under the hook: runs lines after `from memory_session import *`, or those of another
    module."""

    def __init__(
        self, environment: dict[str, str], trace: Path, words: str = "memory_session"
    ) -> None:
        self.environment = environment
        self.trace = trace
        self.words = words
        self.stderr = ""

    def run(self, *lines: str, **more: str) -> list[str]:
        """What the lines print; `told` has what the runtime was told meanwhile."""
        self.trace.unlink(missing_ok=True)
        code = "\n".join([f"from tests.hook.{self.words} import *", *lines])
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**self.environment, **more},
        )
        assert done.returncode == 0, done.stderr
        self.stderr = done.stderr
        return done.stdout.splitlines()

    def told(self, *subjects: str) -> list[str]:
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        return [line for line in lines if line.split()[0] in subjects]

    def memory(self) -> list[tuple[int, int]]:
        """Allocated and fixed, in MiB, each time that it changed."""
        fields = [line.split() for line in self.told("memory")]
        return [(int(allocated) // MIB, int(fixed) // MIB) for _, _, allocated, fixed in fields]
