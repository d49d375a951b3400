"""Python programs in processes of their own, forked from one that has imported what they need and
has done nothing else: they start in milliseconds, not in half a second.

`python -m tests.support.nursery DESCRIPTOR MODULE...` is the process that forks. It reads an order
a message from the socket DESCRIPTOR (JSON, and the descriptors that the program gets), and answers
with the process id, and with its exit status when it has ended."""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.stacks import stacks_of
from tests.support.waits import WAIT_S_MAX

MESSAGE_BYTES_MAX = 1 << 18
DESCRIPTORS_MAX = 16
ANSWER_S_MAX = WAIT_S_MAX
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""A fork takes no threads along."""
ABOVE_ALL = 500
"""No descriptor of a program has a number as high as this."""


@dataclass(frozen=True)
class Order:
    """What a program is: `function` (module:name) of `arguments`, after `imports`."""

    function: str
    arguments: Sequence[str] = ()
    imports: Sequence[str] = ()
    """By the process that forks, so once for all programs that name them."""


class ForkedProcess:
    """As much of subprocess.Popen as tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, status: int) -> None:
        """For the nursery alone."""
        self.returncode = status
        self._over.set()


class Nursery:
    """This process's end. The other one is started when the first program is, and ends with this
    process; where it was killed, a new one is. What counts in an environment when a process starts
    is that of `env`, or of this process when the other one is started."""

    def __init__(self, *modules: str, env: Mapping[str, str] | None = None) -> None:
        self._modules, self._env = modules, env
        self._lock = threading.Lock()
        self._link: _Link | None = None

    def start(
        self,
        order: Order,
        *,
        env: Mapping[str, str],
        cwd: str | Path = ROOT,
        descriptors: Mapping[int, int],
    ) -> ForkedProcess:
        """`descriptors`: by their numbers in the program, those of this process that it gets. It
        has no others; standard streams that are not named are /dev/null."""
        message = {**vars(order), "env": dict(env), "cwd": str(cwd), "numbers": [*descriptors]}
        with self._lock:
            if self._link is None or self._link.is_over:
                self._link = _Link(self._modules, self._env or os.environ)
            return self._link.start(json.dumps(message).encode(), [*descriptors.values()])

    def run(
        self, order: Order, *, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """The program's output and exit status; TimeoutExpired says where its threads were."""
        command = [order.function, *order.arguments]
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            streams = {1: output.fileno(), 2: errors.fileno()}
            process = self.start(order, env=env, descriptors=streams)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                stacks = stacks_of(process.pid)
                process.kill()
                raise subprocess.TimeoutExpired(command, timeout, stacks) from None
            for each in (output, errors):
                each.seek(0)
            return subprocess.CompletedProcess(command, status, output.read(), errors.read())


class _Link:
    """To one process that forks."""

    def __init__(self, modules: Sequence[str], env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES_MAX)
        self._started: queue.SimpleQueue[ForkedProcess | None] = queue.SimpleQueue()
        with theirs:
            number = str(theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.nursery", number, *modules],
                env={**env, **ONE_THREAD},
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def start(self, order: bytes, descriptors: list[int]) -> ForkedProcess:
        assert len(order) <= MESSAGE_BYTES_MAX
        socket.send_fds(self._socket, [order], descriptors)
        process = self._started.get(timeout=ANSWER_S_MAX)
        assert process, "the process that forks has ended; its errors are above"
        return process

    def _listen(self) -> None:
        running: dict[int, ForkedProcess] = {}
        while text := self._socket.recv(MESSAGE_BYTES_MAX):
            said = json.loads(text)
            if "status" in said:
                running.pop(said["pid"]).ended(said["status"])
            else:
                process = running[said["pid"]] = ForkedProcess(said["pid"])
                self._started.put(process)
        self._started.put(None)
        for process in running.values():
            process.ended(-signal.SIGKILL)  # nobody knows


# ---- the process that forks ------------------------------------------------------------------


def serve(sock: socket.socket) -> None:
    """Until the other end is closed. In a program's process it ends with the program."""
    wakes, woken = socket.socketpair()
    for each in (wakes, woken):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: it is for the tests
    signal.set_wakeup_fd(woken.fileno())
    while True:
        ready, _, _ = select.select([sock, wakes], [], [])
        if wakes in ready:
            wakes.recv(4096)
            _tell_of_ends(sock)
        if sock not in ready:
            continue
        text, descriptors, _, _ = socket.recv_fds(sock, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX)
        if not text:
            return
        order = json.loads(text)
        if any(module not in sys.modules for module in order["imports"]):
            import_for_all(order["imports"])
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for each in (sock, wakes, woken):
                each.close()
            become(order, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        sock.send(json.dumps({"pid": pid}).encode())


def import_for_all(modules: Sequence[str]) -> None:
    """No program's garbage collector looks at what is here now, not even at its end."""
    for module in modules:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _tell_of_ends(sock: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        sock.send(json.dumps({"pid": pid, "status": code}).encode())


def become(order: dict[str, Any], descriptors: list[int]) -> None:
    """This process is the program from now on, and ends with it."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, ABOVE_ALL) for each in descriptors]
    for each in descriptors:
        os.close(each)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2} - set(order["numbers"]):
        os.dup2(nothing, number)
    for each, number in zip(high, order["numbers"], strict=True):
        os.dup2(each, number)
        os.close(each)
    if nothing not in order["numbers"]:
        os.close(nothing)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    module, name = order["function"].split(":")
    sys.argv = [module, *order["arguments"]]
    sys.exit(getattr(importlib.import_module(module), name)())


def main() -> None:
    sock = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(sock.fileno(), False)
    import_for_all(sys.argv[2:])
    serve(sock)


if __name__ == "__main__":
    main()
