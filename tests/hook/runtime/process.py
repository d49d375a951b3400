"""C programs under the hook: building, starting, and talking to them line by line."""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import time
from pathlib import Path

from tests.hook.conftest import newer, one_at_a_time
from tests.support.paths import BUILTINS_PTX, SIM_LIBRARIES
from tests.support.stacks import stacks_of
from tests.support.waits import WAIT_S_MAX

HERE = Path(__file__).parent
ANSWER_S_MAX = WAIT_S_MAX


class Programs:
    """Builds programs/NAME.c against the driver's headers, linked to libcuda.so.1."""

    def __init__(self, headers: Path, output: Path) -> None:
        self._headers = headers
        self._output = output

    def built(self, name: str, *flags: str, suffix: str = "") -> Path:
        source, program = HERE / "programs" / f"{name}.c", self._output / f"{name}{suffix}"
        self._output.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(f"runtime-{name}{suffix}"):
            if not newer(program, source, HERE / "programs" / "gpu.h", BUILTINS_PTX):
                options = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
                options += ["-isystem", str(self._headers), *flags]
                options += [f'-DBUILTINS_PTX="{BUILTINS_PTX}"']
                libraries = [f"-L{SIM_LIBRARIES}", "-l:libcuda.so.1", "-ldl"]
                command = ["cc", *options, "-o", str(program), str(source), *libraries]
                subprocess.run(command, check=True)
        return program


class GpuProcess:
    """A started program. It reads commands and answers in lines."""

    def __init__(
        self, command: list[str], env: dict[str, str], log: Path, *, as_uid: int | None = None
    ) -> None:
        self.log = log
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=as_uid,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._unread = b""
        os.set_blocking(self._process.stdout.fileno(), False)
        os.set_blocking(self._process.stderr.fileno(), False)
        self._errors = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def expect(self, line: str, *, within_s: float = ANSWER_S_MAX) -> str:
        """The next line that starts so; lines before it are passed over."""
        until_s = time.monotonic() + within_s
        while True:
            head, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                if head.startswith(line.encode()):
                    return head.decode()
                continue
            is_long = within_s >= ANSWER_S_MAX
            if not self._read(until_s, f"no {line!r}", is_long=is_long):
                raise AssertionError(f"ended before {line!r}; stderr: {self.errors()}")

    def told(self, command: str, answer: int = 0) -> None:
        """The shell's thread does it, and answers so."""
        self.say(command)
        assert self.expect(" ".join(command.split()[:2])).split()[-1] == str(answer), command

    def has_said(self, awaited: set[str]) -> bool:
        """Whether a line with each of these beginnings has come, now or before; it takes out those
        that have, and all the lines."""
        try:
            while awaited:
                line = self.expect("", within_s=0.01)
                awaited -= {beginning for beginning in awaited if line.startswith(beginning)}
        except TimeoutError:
            pass
        return not awaited

    def is_silent(self, *, for_s: float) -> bool:
        """True when no line comes in this time."""
        try:
            self.expect("", within_s=for_s)
        except TimeoutError:
            return True
        return False

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, *, within_s: float = ANSWER_S_MAX) -> int:
        """Its exit status, after the end of its output."""
        until_s = time.monotonic() + within_s
        while self._read(until_s, "it has not ended"):
            pass
        return self._process.wait(max(0.1, until_s - time.monotonic()))

    def end_input(self) -> None:
        """No more commands: it is to end by itself."""
        assert self._process.stdin
        self._process.stdin.close()

    def finish(self) -> int:
        """Ends the input, and waits."""
        self.end_input()
        return self.wait()

    def errors(self) -> str:
        """What it has written to stderr so far."""
        assert self._process.stderr
        self._errors += self._process.stderr.read() or b""
        return self._errors.decode(errors="replace")

    def expect_error(self, text: str, *, within_s: float = ANSWER_S_MAX) -> None:
        """Waits until this is in what it has written to stderr: what it says there and what it
        answers come in no order."""
        assert self._process.stderr
        until_s = time.monotonic() + within_s
        while text not in self.errors():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(f"no {text!r} in {self.errors()!r}")
            select.select([self._process.stderr], [], [], left_s)

    def log_lines(self, word: str) -> list[str]:
        """Lines of the hook's debug log with this word after the level."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line for line in text.splitlines() if f": {word}" in line]

    def end(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(ANSWER_S_MAX)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream and not stream.closed:
                stream.close()

    def _read(self, until_s: float, in_vain: str, *, is_long: bool = True) -> bool:
        assert self._process.stdout and self._process.stderr
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, until_s - time.monotonic())):
                stands = stacks_of(self.pid) if is_long else ""
                raise TimeoutError(f"{in_vain}; stderr: {self.errors()}\n{stands}")
        data = os.read(self._process.stdout.fileno(), 65536)
        self._unread += data
        return bool(data)
