"""Two users of a real JupyterHub, each at a browser of their own, share a simulated GPU."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from jupyter_gpushare.scheduler.runtime_dir import LOCK_FILE
from tests.browser.conftest import new_context
from tests.browser.jupyter import write_notebook
from tests.browser.panel import PANEL_ID, Panel, await_idle_kernel, run_cell, show_panel
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.running_hub import PASSWORD, RunningHub, running_hub, server_env
from tests.support import gpu_cells
from tests.support.sim import SimulatedMachine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # a hub and two servers start first

TRAINS = ["while True:\n    gpu.spin(20)", "%gpushare hold 10m", "%gpushare hold 0"]
EXPLORES = ["gpu.spin(20)\nprint('explored', 'it')"]
SETUP = "from simulated import gpu\n\ngpu.spin(1)"
ONE_LINE = "KeyboardInterrupt: This cell was interrupted while it waited for the GPU."
SETTINGS = ".jupyter/lab/user-settings/@jupyterlab/apputils-extension"


@dataclass
class Desk:
    """One user's browser, with the notebook open and the panel beside it."""

    user: str
    kernel_id: str
    page: Page
    panel: Panel

    def run(self, cell: int) -> None:
        run_cell(self.page, cell)

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def line(self, text: str) -> Locator:
        return self.page.locator(".jp-gpushare-WaitLine").filter(has_text=text)

    def says(self, cell: int, text: str) -> None:
        self.cell(cell).locator(".jp-OutputArea-output").filter(has_text=text).first.wait_for()

    def interrupt(self) -> None:
        self.page.locator('.jp-NotebookPanel [data-jp-item-name="interrupt"]').first.click()


@pytest.fixture(scope="module", params=["Light", "Dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def hub(theme: str) -> Iterator[RunningHub]:
    """Its users' kernels see one simulated device, and turns last until they are given back."""
    try:
        proxy_command()
    except NoProxy as reason:
        pytest.skip(str(reason))
    with TemporaryDirectory(prefix="gpushare-hub-") as name:
        folder = Path(name)
        env = server_env(SimulatedMachine(folder / "machine").env(), folder)
        with running_hub(
            folder, server_env=env, scheduler_env={**env, "CUDA_VISIBLE_DEVICES": "0"}
        ) as hub:
            hub.scheduler.change_settings({"quantum_s": 3600, "idle_ms": 3_600_000})
            yield hub


@pytest.fixture(scope="module")
def desks(browser: Browser, hub: RunningHub, theme: str) -> Iterator[tuple[Desk, Desk]]:
    """Ann trains, bob explores."""
    both = [
        open_desk(browser, hub, user, theme, cells)
        for user, cells in (("ann", TRAINS), ("bob", EXPLORES))
    ]
    yield both[0], both[1]
    for desk in both:
        desk.page.context.close()


def open_desk(browser: Browser, hub: RunningHub, user: str, theme: str, cells: list[str]) -> Desk:
    """Logs in through the hub's form, as a person does."""
    home = hub.folder / "homes" / user
    home.mkdir(parents=True, exist_ok=True)
    (home / "simulated.py").write_text(gpu_cells.setup())
    write_notebook(home / f"{user}s.ipynb", SETUP, *cells)
    for name, values in (
        ("themes", {"theme": f"JupyterLab {theme}"}),
        ("notification", {"fetchNews": "false", "checkForUpdates": False}),
    ):
        file = home / SETTINGS / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    hub.visitor(user)  # its server runs when this returns
    page = new_context(browser).new_page()
    page.goto(f"{hub.url}/hub/login?next=/user/{user}/lab/tree/{user}s.ipynb")
    page.locator("#username_input").fill(user)
    page.locator("#password_input").fill(PASSWORD)
    page.locator("#login_submit").click()
    page.locator("#jupyterlab-splash").wait_for(state="detached")
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for()
    panel = show_panel(page)
    desk = Desk(user, await_idle_kernel(page, f"{user}s.ipynb"), page, panel)
    desk.run(0)
    desk.cell(0).locator(".jp-InputPrompt").filter(has_text="[1]").wait_for()
    return desk


@pytest.mark.promise(
    "panel-12",
    "Two users of a real hub, each in a browser: the one who waits sees the line, interrupts the "
    "wait, is served after a release from the other's panel, sees a hold, and acts on nobody else",
)
@pytest.mark.promise(
    "bad-input-15",
    "An action on somebody else's notebook is refused with 403 and a sentence that the panel shows",
)
def test_two_users_share_the_gpu(hub: RunningHub, desks: tuple[Desk, Desk], theme: str) -> None:
    """What each of them reads on the way, without the other's name."""
    ann, bob = desks
    ann.run(1)
    ann.panel.holder.filter(has_text="anns.ipynb").wait_for()

    bob.run(1)
    bob.line("Waiting for the GPU: 1st of 1").filter(has_text="Another user").wait_for()
    assert "ann" not in bob.panel.root.inner_text()
    bob.panel.keep_picture(f"hub-waiting-{theme.lower()}")

    bob.interrupt()
    bob.says(1, ONE_LINE)
    assert "Traceback" not in bob.cell(1).inner_text()
    bob.page.locator(".jp-gpushare-WaitLine").wait_for(state="detached")

    bob.run(1)
    bob.line("Waiting for the GPU").wait_for()
    ann.panel.queue.first.wait_for()
    ann.panel.release("anns.ipynb")
    bob.says(1, "explored it")
    ann.panel.holder.filter(has_text="anns.ipynb").wait_for()  # and her cell goes on
    ann.interrupt()
    ann.says(1, "KeyboardInterrupt")

    ann.run(2)
    ann.says(2, "keep the GPU")
    ann.run(0)  # the hold begins with her next turn
    bob.panel.devices.filter(has_text="reserved by its user").wait_for()
    bob.run(1)
    bob.line("Waiting for the GPU").wait_for()
    ann.panel.keep_picture(f"hub-hold-{theme.lower()}")
    ann.run(3)
    bob.says(1, "explored it")
    status, message = asked_to_release(bob, ann.kernel_id)
    assert status == 404 and "has no kernel" in message
    act_on_anns_notebook(hub, bob, ann.kernel_id, f"hub-denied-{theme.lower()}")


def act_on_anns_notebook(hub: RunningHub, bob: Desk, kernel_id: str, picture: str) -> None:
    """Bob's page is made to offer what no page offers: a button on her notebook, which his server
    and the hub's scheduler are then asked to release. The panel shows the refusal."""
    (hers,) = [t for t in hub.scheduler.status()["tenants"] if t["kernel_id"] == kernel_id]

    def offer(route: Route) -> None:
        answer = route.fetch()
        state = answer.json()
        row = {**state["kernels"][0], "kernel_id": hers["id"], "path": "hers.ipynb"}
        state["kernels"].append({**row, "state": "holds"})
        route.fulfill(response=answer, json=state)

    bob.page.route("**/gpushare/api/state*", offer)
    for _ in range(2):  # it asks when it is shown again
        bob.page.locator(f'.jp-SideBar [data-id="{PANEL_ID}"]').click()
    with bob.page.expect_response("**/release*") as answer:
        bob.panel.release_button("hers.ipynb").press("Enter")
    assert answer.value.status == 403
    row = bob.panel.root.locator(".jp-gpushare-Kernel").filter(has_text="hers.ipynb")
    row.get_by_role("alert").filter(has_text="Act on your own").wait_for()
    bob.page.get_by_text("another user's").wait_for()
    bob.panel.keep_picture(picture)
    bob.page.unroute_all(behavior="wait")  # the row goes with the next answer


def asked_to_release(desk: Desk, kernel_id: str) -> tuple[int, str]:
    """What a page is answered that asks its own server for somebody else's kernel."""
    path = f"/user/{desk.user}/gpushare/api/kernels/{kernel_id}/release"
    ask = """async path => {
        const token = document.cookie.match(/(?:^|; )_xsrf=([^;]*)/)[1];
        const headers = {'X-XSRFToken': token};
        const answer = await fetch(path, {method: 'POST', headers});
        return [answer.status, (await answer.json()).message];
    }"""
    status, message = desk.page.evaluate(ask, path)
    return int(status), str(message)


@contextmanager
def killed_scheduler(hub: RunningHub) -> Iterator[int]:
    """No other one can take its place in here: on a slow machine it would come before anybody has
    seen that the first is gone."""
    pid = hub.scheduler_pid()
    assert pid is not None
    with (hub.runtime_dir / LOCK_FILE).open("r+b") as lock:
        os.kill(pid, signal.SIGKILL)
        fcntl.flock(lock, fcntl.LOCK_EX)  # once the process has ended
        yield pid


@pytest.mark.promise(
    "panel-13",
    "A scheduler that is killed and comes back while the panel is open is told, and then used",
)
def test_a_scheduler_that_comes_back(hub: RunningHub, desks: tuple[Desk, Desk]) -> None:
    """The panel says so meanwhile; afterwards the next cell is served."""
    _, bob = desks
    with killed_scheduler(hub) as pid:
        bob.panel.notices.first.wait_for()
    hub.wait_until(lambda: hub.scheduler_pid() not in (None, pid), "it is back")
    bob.panel.notices.first.wait_for(state="detached")
    bob.panel.devices.first.wait_for()
    bob.run(0)
    bob.run(1)
    bob.says(1, "explored it")
