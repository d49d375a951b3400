"""`run`: the parent of a command, as if it were not there."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support.hook_client import ScriptedClient
from tests.support.paths import ROOT
from tests.support.scheduler_process import (
    SchedulerUnderTest,
    command_line,
    environment,
    nursery,
)
from tests.support.waits import WAIT_S_MAX

PYTHON = sys.executable
# The handler of a signal that comes just before a blocking read would run only when that read ends.
# So the program waits for the byte that each signal writes as well.
REPORT_SIGNAL = """
import os, select, signal, sys
def caught(number, frame):
    print(signal.Signals(number).name, flush=True)
come, written = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(written)
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, name), caught)
print("ready", flush=True)
while True:
    ready, _, _ = select.select([0, come], [], [])
    if come in ready:
        os.read(come, 512)
    if 0 in ready and not os.read(0, 512):
        break
sys.exit(7)
"""


@pytest.fixture
def env(scheduler: SchedulerUnderTest, fake_library: Path) -> dict[str, str]:
    return environment(
        {
            "GPUSHARE_RUNTIME_DIR": str(scheduler.directory),
            "GPUSHARE_LIBRARY": str(fake_library),
            "PYTHONPATH": str(ROOT),
        }
    )


@pytest.fixture
def run(env: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`jupyter gpushare run -- COMMAND` to its end."""

    def perform(*command: str, **extra: str) -> subprocess.CompletedProcess[str]:
        given = {**env, **extra}
        order = command_line(["run", "--", *command])
        return nursery({}).run(order, env=given, timeout=WAIT_S_MAX)

    return perform


@contextmanager
def started(env: dict[str, str], *command: str) -> Iterator[subprocess.Popen[str]]:
    """The same, while it runs."""
    process = subprocess.Popen(
        [PYTHON, "-m", "jupyter_gpushare.cli.main", "run", "--", *command],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()


@pytest.mark.promise("cli-16")
def test_the_exit_status_is_the_commands(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """A number, a signal, a missing command, one that cannot be executed: as shells have it."""
    statuses = {
        ("true",): 0,
        ("sh", "-c", "exit 42"): 42,
        ("sh", "-c", "kill -TERM $$"): 128 + signal.SIGTERM,
        ("sh", "-c", "kill -SEGV $$"): 128 + signal.SIGSEGV,
        ("no-such-command-here",): 127,
        ("/etc/passwd",): 126,
    }
    assert {command: run(*command).returncode for command in statuses} == statuses


def test_a_command_that_cannot_start_is_explained(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The message says which command, and what to check."""
    assert "There is no command 'no-such-command-here'. Check" in run("no-such-command-here").stderr


@pytest.mark.promise(
    "cli-16",
    "`jupyter gpushare run` makes its command a tenant, and returns its exit status",
)
def test_the_command_is_a_tenant_while_it_runs(
    scheduler: SchedulerUnderTest, env: dict[str, str]
) -> None:
    """It is in the status under its name, its token is good, and it is gone at the end."""
    code = "import os, sys; print(os.environ['GPUSHARE_TOKEN'], flush=True); sys.stdin.read()"
    with started(env, PYTHON, "-c", code) as process:
        assert process.stdout and process.stdin
        token = process.stdout.readline().strip()
        (tenant,) = scheduler.status()["tenants"]
        assert tenant["kind"] == "run"
        assert tenant["name"].startswith(Path(PYTHON).name)
        with scheduler.connect() as client:
            client.join(token)
        process.stdin.close()
        assert process.wait(WAIT_S_MAX) == 0
    assert scheduler.status()["tenants"] == []


@pytest.mark.promise("cli-16")
def test_the_environment_of_the_command(
    run: Callable[..., subprocess.CompletedProcess[str]],
    fake_library: Path,
    scheduler: SchedulerUnderTest,
) -> None:
    """The hook is preloaded behind what was preloaded before; the socket is the scheduler's."""
    own = fake_library.with_name("libown.so")
    own.write_bytes(fake_library.read_bytes())
    done = run("sh", "-c", "echo $LD_PRELOAD; echo $GPUSHARE_SOCKET", LD_PRELOAD=str(own))
    assert done.stdout.splitlines() == [
        f"{own}:{fake_library}",
        str(scheduler.directory / "hook.sock"),
    ]


@pytest.mark.promise("cli-33")
def test_children_of_the_command_belong_to_it(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Workers that a launcher starts, as torchrun does, inherit the same tenant."""
    launcher = (
        "import subprocess, sys;"
        "code = 'import os; print(os.environ[\"GPUSHARE_TOKEN\"])';"
        "[subprocess.run([sys.executable, '-c', code], check=True) for _ in range(2)]"
    )
    first, second = run(PYTHON, "-c", launcher).stdout.split()
    assert first == second


def test_within_a_tenant_it_stays_in_it(
    run: Callable[..., subprocess.CompletedProcess[str]], scheduler: SchedulerUnderTest
) -> None:
    """In a kernel, or in another `run`, no second tenant competes with the first."""
    done = run(
        "sh", "-c", "echo $GPUSHARE_TOKEN", GPUSHARE_TOKEN="outer", GPUSHARE_SOCKET="/nowhere"
    )
    assert done.stdout == "outer\n"
    assert scheduler.status()["tenants"] == []


@pytest.mark.promise("bad-input-46")
def test_without_the_library_it_runs_unshared(
    run: Callable[..., subprocess.CompletedProcess[str]], scheduler: SchedulerUnderTest
) -> None:
    """A missing library is named on stderr, and the command runs without a hook."""
    done = run("sh", "-c", "echo ${LD_PRELOAD-none} ${GPUSHARE_TOKEN-none}", GPUSHARE_LIBRARY="/no")
    assert (done.returncode, done.stdout) == (0, "none none\n")
    assert "/no does not exist" in done.stderr
    assert "runs without sharing" in done.stderr


@pytest.mark.promise("cli-24")
@pytest.mark.promise(
    "bad-input-22",
    "Scheduler not there when a command starts: said, with what to do",
)
def test_without_a_scheduler_it_runs_only_if_asked(gpushare: Command, fake_library: Path) -> None:
    """By default the command is not started; with --if-available it is, and that is said."""
    library = {"GPUSHARE_LIBRARY": str(fake_library)}
    refused = gpushare("run", "--", "echo", "started", env=library)
    assert (refused.returncode, refused.stdout) == (69, "")
    assert "--if-available" in refused.stderr
    done = gpushare("run", "--if-available", "--", "echo", "started", env=library)
    assert (done.returncode, done.stdout) == (0, "started\n")
    assert "runs without sharing" in done.stderr


def test_the_kill_switch_needs_no_scheduler(gpushare: Command) -> None:
    """With GPUSHARE_DISABLE=1 the command runs as if this package were not there."""
    done = gpushare("run", "--", "echo", "started", env={"GPUSHARE_DISABLE": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_a_command_is_needed(gpushare: Command) -> None:
    """`run` alone says what is missing."""
    done = gpushare("run", "--")
    assert done.returncode == 2
    assert "no command to run" in done.stderr


@pytest.mark.promise("cli-17", "`jupyter gpushare run` forwards signals, Ctrl-C and Ctrl-Z")
@pytest.mark.parametrize(
    "name",
    [
        "SIGINT",
        "SIGTERM",
        *(
            pytest.param(f"SIG{name}", marks=pytest.mark.full)
            for name in ("HUP", "QUIT", "USR1", "USR2")
        ),
    ],
)
def test_signals_are_passed_on(env: dict[str, str], name: str) -> None:
    """A signal that is sent to `run` alone reaches the command once, which then goes on."""
    with started(env, PYTHON, "-c", REPORT_SIGNAL, name) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "ready\n"
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"{name}\n"
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait(WAIT_S_MAX) == 7


@pytest.mark.promise("cli-17")
def test_a_signal_that_ends_the_command_ends_run(env: dict[str, str]) -> None:
    """SIGTERM to `run` ends a command that does not handle it; the status says so."""
    with started(env, PYTHON, "-c", REPORT_SIGNAL, "SIGUSR1") as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S_MAX) == 128 + signal.SIGTERM


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, env: dict[str, str], *argv: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, env)
        self._text = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def read_until(self, text: str) -> None:
        """Read on until this is there; it counts as read then."""
        while text not in self._text:
            ready, _, _ = select.select([self.fd], [], [], WAIT_S_MAX)
            assert ready, f"waited in vain for {text!r} after {self._text!r}"
            self._text += os.read(self.fd, 4096).decode()
        self._text = self._text.partition(text)[2]

    def read_all(self) -> str:
        with contextlib.suppress(OSError):  # how a terminal says that nobody has it open
            while data := os.read(self.fd, 4096):
                self._text += data.decode()
        return self._text

    def exit_status(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


RUN = (PYTHON, "-m", "jupyter_gpushare.cli.main", "run", "--", PYTHON, "-c", REPORT_SIGNAL)


@pytest.mark.promise("cli-17")
def test_ctrl_c_reaches_the_command_once(env: dict[str, str]) -> None:
    """The terminal sends it to both processes; the command must not get it from us as well."""
    terminal = Terminal(env, *RUN, "SIGINT")
    terminal.read_until("ready")
    terminal.type("\x03")
    terminal.read_until("SIGINT")
    terminal.type("\x04")
    assert "SIGINT" not in terminal.read_all()
    assert terminal.exit_status() == 7


@pytest.mark.promise("cli-17")
def test_ctrl_z_stops_both_and_fg_continues_both(env: dict[str, str]) -> None:
    """A shell with job control sees a stopped job, and its `fg` wakes the command."""
    shell = 'set -m; "$@"; echo "stopped with $?"; fg >/dev/null; echo "ended with $?"'
    terminal = Terminal(env, "bash", "-c", shell, "bash", *RUN, "SIGCONT")
    terminal.read_until("ready")
    terminal.type("\x1a")
    terminal.read_until(f"stopped with {128 + signal.SIGSTOP}")
    terminal.read_until("SIGCONT")
    terminal.type("\x04")
    assert "ended with 7" in terminal.read_all()
    assert terminal.exit_status() == 0


def test_processes_left_behind_keep_their_place(
    scheduler: SchedulerUnderTest, env: dict[str, str], tmp_path: Path
) -> None:
    """A process that outlives the command goes on sharing; with its end the tenant is forgotten."""
    code = "import os, sys; print(os.environ['GPUSHARE_TOKEN'], flush=True); sys.stdin.read()"
    with started(env, PYTHON, "-c", code) as process:
        assert process.stdout and process.stdin and process.stderr
        left_behind = ScriptedClient(scheduler.directory / "hook.sock")
        left_behind.join(process.stdout.readline().strip())
        process.stdin.close()
        assert process.wait(WAIT_S_MAX) == 0
        assert "1 of the command's processes still use the GPU" in process.stderr.read()
    left_behind.take_turn()
    left_behind.close()
    scheduler.eventually(lambda s: not s["tenants"])


@pytest.mark.promise("cli-16")
def test_output_of_the_command_is_untouched(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Nothing but the command writes to stdout or stderr when all is well."""
    done = run("sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == ("out\n", "err\n")


NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "a",
            "metadata": {},
            "outputs": [],
            "source": "import os; print('token', os.environ['GPUSHARE_TOKEN'][:4], '.')",
        }
    ],
    "metadata": {"kernelspec": {"display_name": "p", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.mark.full
@pytest.mark.promise("cli-35")
def test_nbconvert_and_its_kernel_are_one_tenant(
    run: Callable[..., subprocess.CompletedProcess[str]],
    scheduler: SchedulerUnderTest,
    tmp_path: Path,
) -> None:
    """A notebook that nbconvert executes under `run` belongs to it, and the tenant ends with it."""
    (tmp_path / "n.ipynb").write_text(json.dumps(NOTEBOOK))
    nbconvert = [PYTHON, "-m", "nbconvert", "--to=notebook", "--execute", "--stdout"]
    done = run(*nbconvert, str(tmp_path / "n.ipynb"))
    assert done.returncode == 0, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert "".join(cell["outputs"][0]["text"]).startswith("token ")
    assert scheduler.status()["tenants"] == []
