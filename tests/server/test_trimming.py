"""What becomes of the request for a kernel's unused GPU memory: with real kernels of a server."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.server import trimming
from jupyter_gpushare.server.trimming import ANSWER, REQUEST, failed, outcome
from tests.server.browser import Browser
from tests.server.test_kernels import PROCESS, Start, act, process_of, start, write_kernelspec
from tests.support import gpu_cells
from tests.support.scheduler_process import SchedulerUnderTest
from tests.support.waits import WAIT_S_MAX

__all__ = ["start"]

TRIMS = """
import gpushare_bootstrap
class Told:
    def _repr_mimebundle_(self, **_):
        return {{"application/json": {told}, "text/plain": ""}}
def trim_now():
    {first}
    return Told()
gpushare_bootstrap.trim_now = trim_now
"""
"""A cell with which the kernel answers so: it has no GPU here."""
IGNORE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""A restart begins with an interrupt, after which the kernel could still do what it is asked."""


async def connected(server: Any, kernel_id: str) -> Any:
    client = server.kernel_manager.get_kernel(kernel_id).client()
    client.start_channels()
    await client.wait_for_ready(timeout=WAIT_S_MAX)
    return client


async def run(client: Any, code: str) -> None:
    await client.execute_interactive(code, timeout=WAIT_S_MAX)


def answers(told: object, first: str = "pass") -> str:
    return TRIMS.format(told=told, first=first)


def trim_of(state: Any) -> Any:
    return state["kernels"][0]["trim"]


@pytest.mark.promise(
    "server-26",
    "A kernel gives unused GPU memory back after the cell that runs, every page is told what came "
    "of it, and no page takes the request for a cell",
)
async def test_it_comes_after_the_cell_that_runs(
    start: Start,
    browser: Browser,
    jp_serverapp: Any,
    jp_fetch: Any,
    scheduler: SchedulerUnderTest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queued, at work, done with so many bytes. Whoever asks twice asks once. While the kernel
    waits because of it, it executes no cell. After some minutes nobody wants to know."""
    kernel_id = await start()
    client = await connected(jp_serverapp, kernel_id)
    seen, go = tmp_path / "seen", tmp_path / "go"
    goes = f"exec({gpu_cells.wait_for(go)!r})"
    await run(client, answers({"bytes": 5 << 30}, goes))
    with scheduler.joined("other") as other, process_of(jp_serverapp, kernel_id, scheduler) as mine:
        other.take_turn()
        mine.ask()
        cell = client.execute(gpu_cells.wait_for(seen))
        await browser.until(lambda s: s["kernels"][0]["cells"] == [cell])
        for _ in range(2):
            assert await act(jp_fetch, kernel_id, "trim") == (204, "")
        queued = await browser.until(trim_of)
        assert "trim" in queued["actions"]
        assert trim_of(queued) == {"number": 1, "stage": "queued", "bytes": 0, "message": ""}
        seen.touch()
        at_work = await browser.until(lambda s: trim_of(s)["stage"] == "runs")
        assert (at_work["kernels"][0]["state"], at_work["kernels"][0]["cells"]) == ("waits", [])
        go.touch()
        done = await browser.until(lambda s: trim_of(s)["stage"] == "done")
        assert trim_of(done) == {"number": 1, "stage": "done", "bytes": 5 << 30, "message": ""}
        assert await act(jp_fetch, kernel_id, "trim") == (204, "")
        await browser.until(lambda s: trim_of(s)["number"] == 2 and trim_of(s)["stage"] == "done")
    monkeypatch.setattr(trimming, "TOLD_S", 0.0)
    assert await act(jp_fetch, kernel_id, "trim") == (204, "")
    await browser.until(lambda s: trim_of(s) is None)
    client.stop_channels()


@pytest.mark.promise("bad-input-70")
async def test_a_cell_that_fails_does_not_take_it_away(
    start: Start, browser: Browser, jp_serverapp: Any, jp_fetch: Any, tmp_path: Path
) -> None:
    """The kernel throws away what is queued behind such a cell: it is asked again. One that was
    started before an upgrade knows no such request."""
    kernel_id = await start()
    client = await connected(jp_serverapp, kernel_id)
    seen = tmp_path / "seen"
    await run(client, answers({"bytes": 7}))
    client.execute(f"{gpu_cells.wait_for(seen)}\n1 / 0")
    assert await act(jp_fetch, kernel_id, "trim") == (204, "")
    await browser.until(lambda s: s["kernels"] and trim_of(s))
    seen.touch()
    done = await browser.until(lambda s: trim_of(s)["stage"] not in ("queued", "runs"))
    assert (trim_of(done)["stage"], trim_of(done)["bytes"]) == ("done", 7)
    await run(client, "import gpushare_bootstrap\ndel gpushare_bootstrap.trim_now")
    assert await act(jp_fetch, kernel_id, "trim") == (204, "")
    told = await browser.until(lambda s: trim_of(s) and trim_of(s)["stage"] == "failed")
    assert trim_of(told)["message"] == trimming._OLDER
    client.stop_channels()


@pytest.mark.promise(
    "bad-input-70",
    "A kernel that dies, restarts or cannot answer while it is asked for its unused GPU memory: "
    "the panel says so, and it can be asked again",
)
@pytest.mark.parametrize(
    "how",
    [
        "dies",
        pytest.param("dies for good", marks=pytest.mark.full),
        pytest.param("is restarted", marks=pytest.mark.full),
    ],
)
async def test_a_kernel_that_ends_meanwhile(
    start: Start,
    browser: Browser,
    jp_serverapp: Any,
    jp_fetch: Any,
    tmp_path: Path,
    how: str,
) -> None:
    """By itself, or by its user's hand. The next process is asked and answers; where there is none,
    the next question says so too."""
    kernel_id = await start()
    manager = jp_serverapp.kernel_manager.get_kernel(kernel_id)
    client = await connected(jp_serverapp, kernel_id)
    client.execute(IGNORE_INTERRUPTS + gpu_cells.wait_for(tmp_path / "never"))
    assert await act(jp_fetch, kernel_id, "trim") == (204, "")
    await browser.until(lambda s: s["kernels"] and trim_of(s))
    client.stop_channels()
    if how == "dies for good":
        manager.stop_restarter()
    if how.startswith("dies"):
        os.kill(manager.provisioner.pid, signal.SIGKILL)
    else:
        await jp_fetch("api", "kernels", kernel_id, "restart", method="POST", body=b"")
    told = await browser.until(lambda s: s["kernels"] and trim_of(s)["stage"] == "failed")
    assert trim_of(told)["message"].startswith("The kernel has ended meanwhile")
    if how == "dies for good":
        assert await act(jp_fetch, kernel_id, "trim") == (204, "")
        await browser.until(lambda s: trim_of(s)["number"] == 2 and trim_of(s)["message"])
        return
    client = await connected(jp_serverapp, kernel_id)
    await run(client, answers({"bytes": 3}))
    assert await act(jp_fetch, kernel_id, "trim") == (204, "")
    await browser.until(lambda s: trim_of(s)["bytes"] == 3)
    client.stop_channels()


@pytest.mark.promise(
    "server-27",
    "A kernel of another language, of another start, without sharing, or of nobody here is not "
    "asked for its unused GPU memory, in a sentence",
)
async def test_who_is_not_asked(
    start: Start, browser: Browser, jp_fetch: Any, jp_data_dir: Path
) -> None:
    """The answer comes at once, and nothing is sent to the kernel."""
    named = {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}
    write_kernelspec(jp_data_dir, "r", argv=PROCESS, language="R")
    write_kernelspec(jp_data_dir, "wrapped", argv=PROCESS, language="python")
    write_kernelspec(jp_data_dir, "own", argv=PROCESS, metadata=named)
    for spec, sentence in (
        ("r", "This kernel runs R, and only PyTorch and CuPy in Python"),
        ("wrapped", "its kernelspec does not start ipykernel itself."),
        ("own", "started by LocalProvisioner"),
    ):
        status, message = await act(jp_fetch, await start(f"{spec}.ipynb", spec), "trim")
        assert status == 409 and sentence in message
    state = await browser.until(lambda s: len(s["kernels"]) == 3)
    assert [each["trim"] for each in state["kernels"]] == [None] * 3


def answered(**answer: object) -> dict[str, Any]:
    return {"status": "ok", "user_expressions": {ANSWER: {"status": "ok", **answer}}}


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        pytest.param({"status": "error", "ename": "Boom"}, "Boom", id="error"),
        pytest.param({"status": "ok", "user_expressions": {}}, "no answer", id="no-expressions"),
        pytest.param(answered(status="error", ename="KeyError"), "older", id="no-bootstrap"),
        pytest.param(answered(status="error", ename="OSError"), "OSError", id="another-error"),
        pytest.param(
            answered(status="error", ename="KeyboardInterrupt"), "interrupted", id="interrupted"
        ),
        pytest.param(answered(data={"text/plain": "7"}), "another form", id="another-form"),
        pytest.param(answered(data={"application/json": [7]}), "another form", id="a-list"),
        pytest.param(
            answered(data={"application/json": {"message": "It waits."}}), "It waits.", id="words"
        ),
    ],
)
def test_an_answer_without_bytes(reply: dict[str, Any], told: str) -> None:
    """A kernel may answer anything: what is told is a sentence."""
    assert outcome(reply) == failed(outcome(reply)["message"])
    assert told in outcome(reply)["message"]


def test_the_request_shows_nothing_and_stops_nothing() -> None:
    """No output, no number, no entry in the history; cells behind it run whatever it answers."""
    assert REQUEST["code"] == "" and REQUEST["silent"] and not REQUEST["store_history"]
    assert not REQUEST["allow_stdin"] and not REQUEST["stop_on_error"]
    json.dumps(REQUEST)
