"""Kernels of a server: tenants by default, shown in the panel, released from it."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from tornado.httpclient import HTTPClientError

from jupyter_gpushare.protocol.messages import (
    DropReason,
    HoldRequested,
    TurnGranted,
    TurnRecalled,
)
from jupyter_gpushare.scheduler.http.event_stream import PERIOD_S_MIN
from jupyter_gpushare.server.app import make_default
from tests.server.browser import Browser
from tests.support import gpu_cells
from tests.support.hook_client import ScriptedClient
from tests.support.scheduler_process import LOOK_EVERY_S, SchedulerUnderTest
from tests.support.waits import WAIT_S_MAX

PROCESS = ["sh", "-c", "trap '' INT; exec sleep 3600"]
OTHER_LANGUAGE = Path(__file__).with_name("other_language_kernel.py")

Start = Callable[..., Awaitable[str]]


@pytest.fixture
def start(
    fake_library: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: SchedulerUnderTest,
    extension: Any,
    jp_serverapp: Any,
    jp_asyncio_loop: Any,
    jp_fetch: Any,
) -> Iterator[Start]:
    """Starts kernels as a notebook does; they are shut down at the end."""
    monkeypatch.setenv("GPUSHARE_LIBRARY", str(fake_library))

    async def start_kernel(path: str = "work.ipynb", kernel_name: str = "python3") -> str:
        request = {
            "path": path,
            "name": Path(path).name,
            "type": "notebook",
            "kernel": {"name": kernel_name},
        }
        answer = await jp_fetch("api", "sessions", method="POST", body=json.dumps(request))
        return str(json.loads(answer.body)["kernel"]["id"])

    yield start_kernel
    jp_asyncio_loop.run_until_complete(jp_serverapp.kernel_manager.shutdown_all(now=True))


@pytest.fixture
def process(start: Start, jp_data_dir: Path) -> Start:
    """Starts a kernel that is a process and nothing more, for tests that need no cells of it."""
    write_kernelspec(jp_data_dir, "process", argv=PROCESS)

    async def start_process(path: str = "work.ipynb") -> str:
        return await start(path, "process")

    return start_process


def write_kernelspec(jp_data_dir: Path, name: str, **spec: Any) -> None:
    folder = jp_data_dir / "kernels" / name
    folder.mkdir(parents=True)
    spec = {"display_name": name, "language": name, **spec}
    (folder / "kernel.json").write_text(json.dumps(spec))


def process_of(server: Any, kernel_id: str, scheduler: SchedulerUnderTest) -> ScriptedClient:
    """In the place of the hook in the kernel's process: it shows the kernel's own token."""
    pid = server.kernel_manager.get_kernel(kernel_id).provisioner.pid
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (token,) = [e.partition(b"=")[2] for e in environment if e.startswith(b"GPUSHARE_TOKEN=")]
    client = scheduler.connect()
    client.join(token.decode())
    return client


async def release(jp_fetch: Any, kernel_id: str) -> tuple[int, str]:
    """The answer's status and sentence."""
    return await act(jp_fetch, kernel_id, "release")


async def act(
    jp_fetch: Any, kernel_id: str, action: str, body: dict[str, object] | None = None
) -> tuple[int, str]:
    """The answer's status and sentence."""
    path = ("gpushare", "api", "kernels", kernel_id, action)
    data = b"" if body is None else json.dumps(body).encode()
    try:
        return (await jp_fetch(*path, method="POST", body=data)).code, ""
    except HTTPClientError as error:
        assert error.response is not None
        return error.code, json.loads(error.response.body)["message"]


@pytest.mark.promise(
    "server-11",
    "Every kernel that a notebook starts is a tenant without configuration, unless somebody has "
    "chosen another provisioner",
)
async def test_a_kernel_is_a_tenant(
    start: Start, browser: Browser, scheduler: SchedulerUnderTest
) -> None:
    """Without any configuration a kernel that a notebook starts is registered, and listed."""
    kernel_id = await start("folder <b>&/übung 1.ipynb")
    state = await browser.until(lambda s: s["kernels"] and s["kernels"][0]["path"])
    (kernel,) = state["kernels"]
    assert (kernel["kernel_id"], kernel["state"]) == (kernel_id, "idle")
    assert (kernel["name"], kernel["path"]) == ("übung 1.ipynb", "folder <b>&/übung 1.ipynb")
    (tenant,) = scheduler.status()["tenants"]
    assert (tenant["id"], tenant["kernel_id"]) == (kernel["tenant_id"], kernel_id)


@pytest.mark.promise("server-14")
async def test_a_turn_is_released_from_the_panel(
    process: Start,
    browser: Browser,
    jp_serverapp: Any,
    jp_fetch: Any,
    scheduler: SchedulerUnderTest,
) -> None:
    """Who waits gets the device, and the browser sees it change hands."""
    kernel_id = await process()
    scheduler.client.change_settings({"quantum_s": 600})  # the other one has had less
    with process_of(jp_serverapp, kernel_id, scheduler) as mine, scheduler.joined("other") as other:
        turn = mine.take_turn()
        other.ask()
        shown = await browser.until(lambda s: s["devices"] and s["devices"][0]["queue"])
        assert shown["devices"][0]["holder"]["mine"] is True
        assert shown["kernels"][0]["state"] == "holds"
        assert await release(jp_fetch, kernel_id) == (204, "")
        assert mine.expect(TurnRecalled).cause.startswith("released by ")
        mine.drop(turn.turn_id, DropReason.RECALL)
        other.expect(TurnGranted)
        await browser.until(lambda s: s["devices"][0]["holder"]["name"] == "other")
        assert await release(jp_fetch, kernel_id) == (
            409,
            "This kernel does not hold the GPU. There is nothing to release.",
        )


@pytest.mark.promise("server-12", "The panel keeps a turn by hand, ends that, and frees GPU memory")
async def test_a_turn_is_kept_and_evicted_from_the_panel(
    process: Start,
    browser: Browser,
    jp_serverapp: Any,
    jp_fetch: Any,
    scheduler: SchedulerUnderTest,
) -> None:
    """The state says for how long it is kept; a time of 0 ends it; an evicted kernel is asked for
    its turn. A time that is none is refused in the scheduler's own sentence."""
    kernel_id = await process()
    with process_of(jp_serverapp, kernel_id, scheduler) as mine:
        mine.take_turn()
        await browser.until(lambda s: s["kernels"][0]["state"] == "holds")
        assert await act(jp_fetch, kernel_id, "hold", {"hold_s": 60}) == (204, "")
        held = await browser.until(lambda s: s["kernels"][0]["hold_left_s"] > 0)
        assert {"release", "hold", "evict"} <= {*held["actions"]}
        assert held["hold_max_s"] == 600.0
        assert await act(jp_fetch, kernel_id, "hold", {"hold_s": 0}) == (204, "")
        await browser.until(lambda s: s["kernels"][0]["hold_left_s"] == 0)
        assert (await act(jp_fetch, kernel_id, "hold", {"hold_s": -1}))[0] == 400
        assert await act(jp_fetch, kernel_id, "evict") == (204, "")
        assert mine.expect(TurnRecalled).cause.startswith("evicted by ")


@pytest.mark.promise(
    "server-13", "A kernel that ends while something is asked for it gives a sentence"
)
async def test_a_kernel_that_has_just_ended(
    process: Start, extension: Any, jp_fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler knows its tenant no more: the answer says so, and asks for nothing."""
    kernel_id = await process()
    tenant_id = extension.relay._kernels.tenant_id(kernel_id)
    await extension.relay._client.remove_tenant(tenant_id)
    answer = await act(jp_fetch, kernel_id, "evict")
    assert answer == (404, "This kernel has just ended. Nothing is left to do.")


@pytest.mark.promise(
    "server-14",
    "Browsers hear of each change at once, and release turns",
)
@pytest.mark.promise("panel-20")
async def test_the_browser_hears_of_changes_soon(
    browser: Browser, scheduler: SchedulerUnderTest
) -> None:
    """Until a turn that is taken stands in the browser, no more passes than the pause between two
    events and a few times what one look at the scheduler takes: the middle one of nine times."""
    loop = asyncio.get_running_loop()
    times_s, looks_s = [], []
    with scheduler.joined("work") as work:
        await browser.until(lambda s: s["devices"])
        for _ in range(9):
            began_s = loop.time()
            scheduler.status()
            looked_s = loop.time()
            turn = work.take_turn()
            await browser.until(lambda s: s["devices"][0]["holder"])
            times_s.append(loop.time() - looked_s)
            looks_s.append(looked_s - began_s)
            work.drop(turn.turn_id)
            await browser.until(lambda s: not s["devices"][0]["holder"])
    assert sorted(times_s)[4] < 2 * PERIOD_S_MIN + 20 * sorted(looks_s)[4], (times_s, looks_s)


async def test_a_kernel_that_waits_is_shown_with_its_place(
    process: Start, browser: Browser, jp_serverapp: Any, scheduler: SchedulerUnderTest
) -> None:
    """Position and reason; the queue's entry is marked as mine."""
    kernel_id = await process()
    with scheduler.joined("other") as other:
        other.take_turn()
        with process_of(jp_serverapp, kernel_id, scheduler) as mine:
            mine.ask()
            state = await browser.until(lambda s: s["kernels"][0]["state"] == "waits")
            assert state["kernels"][0]["position"] == 1
            reason = "other, of the same user, has the GPU until it has had more of it of late."
            assert state["kernels"][0]["reason"] == f"Waiting for other. {reason}"
            assert [waiter["mine"] for waiter in state["devices"][0]["queue"]] == [True]


@pytest.mark.promise(
    "server-15",
    "A turn that is kept by hand is told with the time that is left, and again when that is "
    "prolonged",
)
async def test_a_turn_that_is_kept_by_hand_is_told(
    process: Start, browser: Browser, jp_serverapp: Any, scheduler: SchedulerUnderTest
) -> None:
    """Holder and kernel tell for how much longer; once more time is asked for, that is told too."""
    kernel_id = await process()
    with process_of(jp_serverapp, kernel_id, scheduler) as mine:
        mine.take_turn()
        for hold_s in (300, 600):
            mine.send(HoldRequested(hold_ms=1000 * hold_s))
            state = await browser.until(lambda s: s["kernels"][0]["hold_left_s"] > hold_s - 250)  # noqa: B023
            assert hold_s - 250 < state["devices"][0]["holder"]["hold_left_s"] <= hold_s
        mine.send(HoldRequested(hold_ms=0))
        await browser.until(lambda s: s["kernels"][0]["hold_left_s"] == 0)


@pytest.mark.promise("server-11")
@pytest.mark.promise(
    "bad-input-66",
    "A kernelspec that names a provisioner keeps it, and the panel says what that means",
)
async def test_a_kernel_of_another_provisioner_says_why_it_is_not_shared(
    start: Start, browser: Browser, jp_fetch: Any, jp_data_dir: Path
) -> None:
    """A kernelspec that names a provisioner keeps it, and the panel tells the user."""
    named = {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}
    write_kernelspec(jp_data_dir, "own", argv=PROCESS, metadata=named)
    kernel_id = await start("work.ipynb", "own")
    state = await browser.until(lambda s: s["kernels"])
    assert state["kernels"][0]["state"] == "unshared"
    assert "started by LocalProvisioner" in state["kernels"][0]["reason"]
    assert (await release(jp_fetch, kernel_id))[0] == 409


@pytest.mark.promise("server-16", "Cells of other languages give their turn back when they end")
async def test_cells_of_other_languages_give_their_turn_back(
    start: Start,
    jp_serverapp: Any,
    jp_data_dir: Path,
    tmp_path: Path,
    scheduler: SchedulerUnderTest,
) -> None:
    """The server sees the cell end, and who waits need not wait for the quantum."""
    scheduler.client.change_settings({"quantum_s": 3600})
    argv = [sys.executable, str(OTHER_LANGUAGE), "{connection_file}"]
    write_kernelspec(jp_data_dir, "other", argv=argv)
    kernel_id = await start("other.ipynb", "other")
    client = jp_serverapp.kernel_manager.get_kernel(kernel_id).client()
    client.start_channels()
    await client.wait_for_ready(timeout=WAIT_S_MAX)
    with process_of(jp_serverapp, kernel_id, scheduler) as mine, scheduler.joined("other") as other:
        done = tmp_path / "done"
        cell = client.execute(str(done))
        while (message := await client.get_iopub_msg(timeout=WAIT_S_MAX))["parent_header"].get(
            "msg_id"
        ) != cell or message["msg_type"] != "execute_input":
            pass
        mine.take_turn()
        other.ask()
        scheduler.eventually(lambda s: s["devices"][0]["queue"])
        assert not mine.heard(TurnRecalled)
        done.touch()
        await client.get_shell_msg(timeout=WAIT_S_MAX)
        recall = await within(
            lambda: mine.heard(TurnRecalled, within_s=0.01) and mine.received, "a recall"
        )
        (cause,) = [m.cause for m in recall if isinstance(m, TurnRecalled)]
        assert cause == "others wait, and the cell has ended"
    client.stop_channels()


@pytest.mark.promise("server-23")
async def test_the_cells_of_a_kernel_that_waits_are_told(
    start: Start,
    browser: Browser,
    jp_serverapp: Any,
    scheduler: SchedulerUnderTest,
    tmp_path: Path,
) -> None:
    """Of several cells in the kernel's queue, the one that it executes, and then the next one."""
    kernel_id = await start()
    client = jp_serverapp.kernel_manager.get_kernel(kernel_id).client()
    client.start_channels()
    await client.wait_for_ready(timeout=WAIT_S_MAX)
    with scheduler.joined("other") as other:
        other.take_turn()
        with process_of(jp_serverapp, kernel_id, scheduler) as mine:
            mine.ask()
            seen = [tmp_path / f"seen-{number}" for number in range(2)]
            for cell, file in [(client.execute(gpu_cells.wait_for(file)), file) for file in seen]:
                await browser.until(lambda s: s["kernels"][0]["cells"] == [cell])  # noqa: B023
                file.touch()
            await browser.until(lambda s: s["kernels"][0]["cells"] == [])
    client.stop_channels()


async def within(holds: Callable[[], Any], what: str) -> Any:
    """Ask again and again, and let the server work meanwhile."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + WAIT_S_MAX
    while not (found := holds()):
        assert loop.time() < until_s, f"waited in vain for {what}"
        await asyncio.sleep(LOOK_EVERY_S)
    return found


@pytest.mark.promise(
    "jupyter-50",
    "The default provisioner is set by the server alone, and no kernel inherits the variable that "
    "sets it",
)
@pytest.mark.promise("server-11")
@pytest.mark.parametrize(
    ("configured", "in_the_end", "warned"),
    [
        ("local-provisioner", "gpushare-provisioner", False),
        ("gpushare-provisioner", "gpushare-provisioner", False),
        ("slurm-provisioner", "slurm-provisioner", True),
    ],
)
def test_the_default_provisioner(
    configured: str, in_the_end: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours takes the place of Jupyter's own; another choice is left alone, with a warning."""
    factory = KernelProvisionerFactory.instance()
    factory.default_provisioner_name = configured
    make_default(factory, logging.getLogger("test"))
    assert factory.default_provisioner_name == in_the_end
    assert ("do not share the GPU" in caplog.text) == warned
