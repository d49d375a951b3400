"""What axe-core, the accessibility checker, finds in the panel: of what is serious, nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.jupyter import JupyterProcess
from tests.browser.panel import PANEL_ID, open_lab
from tests.browser.stub import StubControl, busy_state, state

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.full

SERIOUS = {"serious", "critical"}
DOWN = state(
    scheduler="down",
    message="No scheduler answers. “jupyter gpushare doctor” in a terminal tells why.",
    devices=[],
)
STATES = {"busy": busy_state(), "down": DOWN}


@pytest.mark.promise("panel-2", "axe-core has no serious finding in the panel, in light and dark")
@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_serious(
    page: Page, jupyter_with_stub: JupyterProcess, theme: str
) -> None:
    """With devices, queues and kernels, the timeline open; and without a scheduler."""
    control = StubControl(jupyter_with_stub)
    control.set(STATES["busy"])
    jupyter_with_stub.use_theme(theme)
    panel = open_lab(page, jupyter_with_stub)
    panel.devices.first.wait_for()
    panel.root.locator("summary").first.click()
    for name, value in STATES.items():
        control.set(value)
        if name == "down":
            panel.notices.first.wait_for()
        assert serious_findings(page) == [], f"{theme}, {name}"
    panel.root.evaluate("panel => panel.insertAdjacentHTML('beforeend', '<img src=\"data:,\">')")
    (fault,) = serious_findings(page)
    assert "image-alt" in fault  # the checker looks here


def serious_findings(page: Page) -> list[str]:
    """A rule each, with what breaks it."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, context=f"#{PANEL_ID}").response["violations"]
    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes']]}"
        for each in found
        if each["impact"] in SERIOUS
    ]
