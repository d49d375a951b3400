"""Conformance cases in processes of their own, each forked from one that has imported what they
need and has never called the driver: `python -m tests.driver.alone`.

It reads a case a line, as JSON (module, name, environment, a file for what it says), and answers
with the case's process id, then with its exit status."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ALONE_TIMEOUT_S = 90


class Nursery:
    """The end of it in the process of the tests. It is started when the first case needs it, and
    ends with this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    def run(self, module: str, name: str) -> None:
        """Fails with what the case said, unless its process ends well."""
        with tempfile.NamedTemporaryFile("r") as said:
            order = {"module": module, "name": name, "said": said.name, "env": dict(os.environ)}
            pid = self._ask(json.dumps(order))
            status = self._answer()
            if status is None:
                os.kill(int(pid), signal.SIGKILL)
                self._answer()
                raise AssertionError(f"not done after {ALONE_TIMEOUT_S} s")
            assert status == "0", f"exit status {status}\n{said.read()}"

    def _ask(self, order: str) -> str:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-m", "tests.driver.alone"]
            env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a fork takes no threads along
            self._process = subprocess.Popen(
                command,
                cwd=self._root,
                env=env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._process.stdin
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        pid = self._answer()
        assert pid, "The process that starts cases has ended or hangs. Its errors are above."
        return pid

    def _answer(self) -> str | None:
        """A line; None when none comes in time."""
        assert self._process and self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], ALONE_TIMEOUT_S)
        return self._process.stdout.readline().strip() if ready else None


def fork_case(order: dict[str, Any]) -> None:
    """Answers for a case; in the case's own process, raises SystemExit when it is over."""
    from tests.driver.harness import run_alone

    os.environ.update(order["env"])
    case = getattr(importlib.import_module(order["module"]), order["name"]).case
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        return
    with Path(order["said"]).open("w") as said:
        for descriptor in (1, 2):
            os.dup2(said.fileno(), descriptor)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    run_alone(case)
    sys.exit(0)


def main() -> None:
    while order := sys.stdin.readline():
        fork_case(json.loads(order))


if __name__ == "__main__":
    main()
