"""A server of a newer package finds the scheduler of an older one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare import __version__
from jupyter_gpushare.client import SchedulerClient
from tests.server.browser import Browser
from tests.server.server_process import schedulers_of
from tests.server.test_kernels import within
from tests.support.hook_client import ScriptedClient
from tests.support.scheduler_process import SchedulerUnderTest

OLDER = "0.0.9"
STILL = f"The scheduler is still that of an older jupyter-gpushare ({OLDER})"


class OlderScheduler(SchedulerUnderTest):
    """That of a package before ours."""

    program = (str(Path(__file__).with_name("older_scheduler.py")), OLDER)


@pytest.fixture
def older(
    request: pytest.FixtureRequest, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OlderScheduler]:
    """It is there before the server. Whoever serves the directory ends with the test."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield OlderScheduler(runtime, *getattr(request, "param", ["--idle-exit-s=600"]))
    for pid in schedulers_of(runtime):
        os.kill(pid, signal.SIGTERM)


@pytest.fixture
def token(older: OlderScheduler) -> str:
    """Of a kernel that has not used the GPU yet."""
    return older.tenant("idle").token


@pytest.fixture
def work(older: OlderScheduler) -> Iterator[ScriptedClient]:
    """A program that holds the device."""
    with older.joined("work") as client:
        client.take_turn()
        yield client


@pytest.fixture
def jp_server_config(jp_server_config: dict[str, Any]) -> dict[str, Any]:
    jp_server_config["GPUShareExtension"]["start_scheduler"] = True
    return jp_server_config


def version_at(scheduler: SchedulerUnderTest) -> str:
    return str(scheduler.status()["scheduler"]["version"])


async def ends_well(older: OlderScheduler) -> bool:
    await within(lambda: older.process.poll() is not None, "the older one to end")
    return older.process.poll() == 0


@pytest.mark.promise(
    "server-25",
    "A newer package takes the place of an older one's scheduler when that is idle, and says so "
    "until then",
)
async def test_an_idle_older_scheduler_is_replaced(
    older: OlderScheduler,
    token: str,
    browser: Browser,
    runtime: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ends cleanly and ours serves; a kernel that had not used the GPU yet is at home there."""
    assert await ends_well(older)
    await browser.until(lambda s: s["scheduler"] == "up" and not s["message"])
    assert "Traceback" not in caplog.text
    assert version_at(older) == __version__
    assert len(schedulers_of(runtime)) == 1
    with older.connect() as client:
        client.join(token)
        client.take_turn()


@pytest.mark.promise("server-25")
async def test_an_older_scheduler_in_use_serves_until_it_is_not(
    older: OlderScheduler, work: ScriptedClient, browser: Browser
) -> None:
    """The panel says so meanwhile, and nobody's turn ends for it."""
    state = await browser.until(lambda s: s["devices"] and s["message"])
    once = "a newer one takes its place once no kernel has the GPU open"
    assert state["message"] == f"{STILL}; {once}."
    assert state["devices"][0]["holder"]["name"] == "work"
    assert older.process.poll() is None
    work.close()
    assert await ends_well(older)
    await browser.until(lambda s: s["scheduler"] == "up" and not s["message"])
    assert version_at(older) == __version__


@pytest.mark.promise("server-25")
@pytest.mark.parametrize("older", [[]], indirect=True, ids=["to-stay"])
async def test_an_older_scheduler_that_was_started_to_stay_stays(
    older: OlderScheduler, browser: Browser, runtime: Path
) -> None:
    """The panel says what to do about it."""
    state = await browser.until(lambda s: s["message"].startswith(f"{STILL}."))
    assert "Restart it where it was started" in state["message"]
    assert SchedulerClient(runtime / "http.sock").status()["scheduler"]["version"] == OLDER
    assert older.stop() == 0
