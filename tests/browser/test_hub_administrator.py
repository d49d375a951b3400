"""An administrator of a real JupyterHub reads everything in the panel, with their own token."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import new_context
from tests.browser.panel import Panel, show_panel
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.running_hub import PASSWORD, RunningHub, running_hub, server_env
from tests.hub.visitor import Visitor
from tests.support import gpu_cells
from tests.support.sim import SimulatedMachine

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.full

ADMINISTRATOR = "root"
CONFIG = ".jupyter/jupyter_gpushare_config.py"


def token_of(hub: RunningHub) -> str:
    """From the hub's token page, before the server is started that shall use it."""
    person = Visitor(hub.url, ADMINISTRATOR, PASSWORD)
    person.log_in()
    return person.new_token()


@pytest.mark.promise(
    "panel-11",
    "On a hub, an administrator's panel shows whose notebooks have the GPU and wait, when each "
    "starts and why, with a token that no notebook has",
)
def test_an_administrator_reads_everything(browser: Browser) -> None:
    """The hub tells users nothing of each other; ann has the GPU, bob waits."""
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
            hub.scheduler.change_settings({"quantum_s": 600, "idle_ms": 600_000})
            ann, bob = (
                hub.visitor(user).open_notebook(f"{user}s.ipynb") for user in ("ann", "bob")
            )
            for kernel in (ann, bob):
                kernel.run(gpu_cells.setup()).ok()
            ann.submit(gpu_cells.spin_until_interrupted(20))
            hub.wait_until(lambda: holders(hub) == ["anns.ipynb"], "ann has the GPU")
            bob.submit(gpu_cells.spin(20))
            panel = opened_panel(browser, hub)
            panel.holder.filter(has_text="anns.ipynb").filter(has_text="ann").wait_for()
            place = panel.queue.filter(has_text="bobs.ipynb")
            place.locator(".jp-gpushare-Expected").first.wait_for()
            panel.keep_picture("hub-administrator")
            assert panel.root.get_by_text("another user").count() == 0
            ann.interrupt()
            panel.root.page.context.close()


def holders(hub: RunningHub) -> list[str]:
    """The notebooks that have the device."""
    (device,) = hub.scheduler.status()["devices"]
    return [str(holder["name"]) for holder in device["holders"]]


def opened_panel(browser: Browser, hub: RunningHub) -> Panel:
    """The administrator's, who has written the token into a file of their own."""
    config = hub.folder / "homes" / ADMINISTRATOR / CONFIG
    config.parent.mkdir(parents=True)
    config.write_text(f"c.GPUShareExtension.hub_token = {token_of(hub)!r}\n")
    config.chmod(0o600)
    hub.visitor(ADMINISTRATOR)  # its server runs when this returns
    page = new_context(browser).new_page()
    page.goto(f"{hub.url}/hub/login?next=/user/{ADMINISTRATOR}/lab")
    page.locator("#username_input").fill(ADMINISTRATOR)
    page.locator("#password_input").fill(PASSWORD)
    page.locator("#login_submit").click()
    page.locator("#jupyterlab-splash").wait_for(state="detached")
    return show_panel(page)
