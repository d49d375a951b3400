"""A server of a newer package finds the scheduler of an older one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_gpushare import __version__
from jupyter_gpushare.client import SchedulerClient
from tests.server.server_process import JupyterServer, schedulers_of
from tests.support.scheduler_process import END_S_MAX, SchedulerUnderTest

OLDER = "0.0.9"
STILL = f"The scheduler is still that of an older jupyter-gpushare ({OLDER})"
SERVERS = 2


class OlderScheduler(SchedulerUnderTest):
    """That of a package before ours."""

    program = (str(Path(__file__).with_name("older_scheduler.py")), OLDER)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """A runtime directory whose scheduler, whoever started it, ends with the test."""
    directory = tmp_path / "run"
    yield directory
    for pid in schedulers_of(directory):
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def start_server(runtime: Path, tmp_path: Path) -> Iterator[Callable[[], JupyterServer]]:
    started: list[JupyterServer] = []

    def start() -> JupyterServer:
        env = {"GPUSHARE_RUNTIME_DIR": str(runtime)}
        started.append(JupyterServer(tmp_path / f"server{len(started)}", env))
        return started[-1]

    yield start
    for server in started:
        server.kill()


def version_at(scheduler: SchedulerUnderTest) -> str:
    return str(scheduler.status()["scheduler"]["version"])


@pytest.mark.promise(
    "server",
    "A newer package takes the place of an older one's scheduler when that is idle, and says so "
    "until then",
)
def test_an_idle_older_scheduler_is_replaced(
    runtime: Path, start_server: Callable[[], JupyterServer]
) -> None:
    """It ends cleanly and ours serves; a kernel that had not used the GPU yet is at home there."""
    older = OlderScheduler(runtime, "--idle-exit-s=600")
    assert version_at(older) == OLDER
    token = older.tenant("idle").token
    servers = [start_server() for _ in range(SERVERS)]
    assert older.process.wait(END_S_MAX * SERVERS) == 0
    for server in servers:
        server.await_state(lambda s: s["scheduler"] == "up" and not s["message"])
        assert "Traceback" not in server.log
    assert version_at(older) == __version__
    assert len(schedulers_of(runtime)) == 1
    with older.connect() as client:
        client.join(token)
        client.take_turn()


@pytest.mark.promise("A newer package takes the place...")
def test_an_older_scheduler_in_use_serves_until_it_is_not(
    runtime: Path, start_server: Callable[[], JupyterServer]
) -> None:
    """The panel says so meanwhile, and nobody's turn ends for it."""
    older = OlderScheduler(runtime, "--idle-exit-s=600")
    with older.joined("work") as work:
        work.take_turn()
        server = start_server()
        state = server.await_state(lambda s: s["devices"] and s["message"])
        once = "a newer one takes its place once no kernel has the GPU open"
        assert state["message"] == f"{STILL}; {once}."
        assert state["devices"][0]["holder"]["name"] == "work"
        assert older.process.poll() is None
    assert older.process.wait(END_S_MAX) == 0
    server.await_state(lambda s: s["scheduler"] == "up" and not s["message"])
    assert version_at(older) == __version__


@pytest.mark.promise("A newer package takes the place...")
def test_an_older_scheduler_that_was_started_to_stay_stays(
    runtime: Path, start_server: Callable[[], JupyterServer]
) -> None:
    """The panel says what to do about it."""
    older = OlderScheduler(runtime)
    state = start_server().await_state(lambda s: s["message"].startswith(STILL))
    assert "Restart it where it was started" in state["message"]
    assert SchedulerClient(runtime / "http.sock").status()["scheduler"]["version"] == OLDER
    assert older.stop() == 0
