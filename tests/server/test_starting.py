"""The scheduler that a server starts: exactly one, which outlives the server and ends when idle."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_gpushare.client import HTTP_SOCKET, SchedulerClient
from jupyter_gpushare.server import starter
from jupyter_gpushare.server.app import GPUShareExtension
from jupyter_gpushare.server.starter import start_scheduler
from tests.server.server_process import JupyterServer, schedulers_of
from tests.support.other_user import OTHER_UID, as_root_only
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.waits import WAIT_S_MAX, wait_until

SERVERS = 5


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory whose scheduler, whoever started it, ends with the test."""
    directory = tmp_path / "run"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(starter, "START_S_MAX", WAIT_S_MAX)
    yield directory
    for pid in schedulers_of(directory):
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def servers(runtime: Path, tmp_path: Path) -> Iterator[list[JupyterServer]]:
    """Where a test puts the servers that it starts."""
    started: list[JupyterServer] = []
    yield started
    for server in started:
        server.kill()


def await_schedulers(directory: Path, count: int) -> list[int]:
    """Until so many serve the directory: those that find it served end at once."""

    def found() -> list[list[int]]:
        pids = schedulers_of(directory)
        return [pids] if len(pids) == count else []

    return wait_until(found, f"{count} schedulers to serve {directory}")[0]


@pytest.mark.promise(
    "server-20",
    "The scheduler is found or started, exactly one, also when ten servers start at once",
)
@pytest.mark.promise("bad-input-68", "Ten servers starting at once: one scheduler")
@pytest.mark.full
def test_ten_servers_at_once_start_one_scheduler(
    runtime: Path, tmp_path: Path, servers: list[JupyterServer]
) -> None:
    """All ten find the same one, whichever of them was the first."""
    env = {"GPUSHARE_RUNTIME_DIR": str(runtime)}
    for number in range(SERVERS):
        servers.append(JupyterServer(tmp_path / f"server{number}", env))
    for server in servers:
        server.await_scheduler()
        assert "Traceback" not in server.log
    await_schedulers(runtime, 1)


@pytest.mark.promise("server-21", "A killed scheduler is replaced, and its stale socket too")
@pytest.mark.promise("bad-input-69")
@pytest.mark.promise(
    "server-22",
    "A started scheduler survives its server and the Ctrl-C there, and ends when nobody uses it",
)
def test_a_scheduler_outlives_its_server(
    runtime: Path, tmp_path: Path, servers: list[JupyterServer]
) -> None:
    """A Ctrl-C at the server's terminal ends the server alone; the next one finds the scheduler. It
    starts another one where that is killed, without being asked by anybody."""
    env = {"GPUSHARE_RUNTIME_DIR": str(runtime)}
    first = JupyterServer(tmp_path / "first", env)
    servers.append(first)
    first.await_scheduler()
    (pid,) = await_schedulers(runtime, 1)
    assert os.getsid(pid) == pid
    first.interrupt()
    first.process.wait(WAIT_S_MAX)
    second = JupyterServer(tmp_path / "second", env)
    servers.append(second)
    second.await_scheduler()
    assert schedulers_of(runtime) == [pid]
    os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: schedulers_of(runtime) not in ([], [pid]) and second.state()["scheduler"] == "up",
        "the second server to have another scheduler",
    )


@pytest.mark.promise("server-20")
@pytest.mark.promise("bad-input-68")
def test_many_starters_at_once_start_one(runtime: Path) -> None:
    """Each is told that there is one, or is about to be; no start is an error."""
    with ThreadPoolExecutor(SERVERS) as pool:
        problems = list(pool.map(lambda _: start_scheduler(runtime), range(SERVERS)))
    assert problems == [None] * SERVERS
    await_schedulers(runtime, 1)


@pytest.mark.promise("server-22")
def test_a_started_scheduler_ends_when_nobody_uses_it(runtime: Path) -> None:
    """After its idle time, with a word in its log."""
    assert start_scheduler(runtime, idle_exit_s=0.3) is None
    await_schedulers(runtime, 0)
    assert "ending: " in (runtime / "scheduler.log").read_text()


@pytest.mark.parametrize(
    ("environment", "starts"),
    [
        ({}, True),
        ({"GPUSHARE_RUNTIME_DIR": "/somewhere"}, True),
        ({"JUPYTERHUB_API_TOKEN": "x"}, True),
        ({"GPUSHARE_RUNTIME_DIR": "/somewhere", "JUPYTERHUB_API_TOKEN": "x"}, False),
        ({"GPUSHARE_DISABLE": "1"}, False),
    ],
)
def test_who_starts_a_scheduler(
    environment: dict[str, str], starts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server does, but for one whose hub sees to it and one that shares nothing."""
    for name in ("GPUSHARE_RUNTIME_DIR", "JUPYTERHUB_API_TOKEN", "GPUSHARE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert GPUShareExtension().start_scheduler is starts


@as_root_only
def test_a_directory_of_another_account_has_its_own_scheduler(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node of Slurm, where systemd starts it: a user's own server starts none beside it."""
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    monkeypatch.setenv("GPUSHARE_RUNTIME_DIR", str(runtime))
    assert GPUShareExtension().start_scheduler
    runtime.mkdir()
    assert GPUShareExtension().start_scheduler
    os.chown(runtime, OTHER_UID, OTHER_UID)
    assert not GPUShareExtension().start_scheduler


@pytest.mark.promise("server-21")
@pytest.mark.promise("bad-input-69", "A stale socket of a killed scheduler: no obstacle")
def test_a_stale_socket_is_no_obstacle(runtime: Path) -> None:
    """What a killed scheduler left behind is replaced."""
    SchedulerUnderTest(runtime).kill()
    assert (runtime / HTTP_SOCKET).exists()
    assert start_scheduler(runtime) is None
    assert SchedulerClient(runtime / HTTP_SOCKET).status()["tenants"] == []


@pytest.mark.promise("server-17")
def test_a_server_with_many_descriptors_starts_one(runtime: Path) -> None:
    """With more than 1024 of them open, as in a server with many kernels."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert start_scheduler(runtime) is None
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await_schedulers(runtime, 1)


@pytest.mark.promise("server-17")
def test_a_machine_without_room_for_a_file(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised; what is wrong is told, and what to do."""
    monkeypatch.setattr(tempfile, "tempdir", str(runtime / "none"))
    problem = start_scheduler(runtime)
    assert problem is not None
    assert problem.startswith("The scheduler cannot be started: ") and ". Mend that" in problem


def test_what_keeps_a_scheduler_from_starting_is_told(runtime: Path) -> None:
    """One sentence on what is wrong and one on what to do, as the scheduler itself says it."""
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o755)
    problem = start_scheduler(runtime)
    assert problem == f"Others may enter {runtime} (mode 0755). Run `chmod 700 {runtime}`."
