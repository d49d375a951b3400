"""The timeline in the panel, in a real browser, with an afternoon on a shared machine."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.jupyter import PANEL, JupyterProcess
from tests.browser.panel import ARTEFACTS, Panel, open_lab
from tests.browser.stub import GIB, StubControl, busy_state, device_id

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = pytest.mark.full

BUNDLE_KB_MAX = 250
POLL_MS = 5000
"""Between two questions of a timeline that is looked at."""
WINDOW_S, SAMPLE_S = 900, 2
TURNS = [(0, 250, 1.0), (1, 70, 1.0), (2, 120, 1.0), (1, 200, 0.5), (0, 80, 1.0), (2, 60, 1.0)]
"""Who had it, for how long, and for what part of that time; the last one has it still."""
IDLE_S = 40
"""Nobody had it after the first turn."""


def afternoon() -> dict[str, Any]:
    """Of the first device: turns of three users, somebody who waits, and what NVML measured."""
    turns: list[dict[str, Any]] = []
    at_s = -float(sum(length for _, length, _ in TURNS) + IDLE_S)
    for tenant, length, part in TURNS:
        turns.append({"tenant": tenant, "begin_s": at_s, "end_s": at_s + length, "part": part})
        at_s += length + (0 if len(turns) > 1 else IDLE_S)
    turns[-1]["end_s"] = None
    waits = [(-700, 1), (-560, 2), (-440, 0), (-170, 1), (-60, 3)]
    samples = [
        {
            "begin_s": at_s,
            "utilization": 70 + 25 * math.sin(at_s / 19) if abs(at_s + 560) > IDLE_S else 0,
            "bytes_used": int((60 + 30 * math.sin(at_s / 200)) * GIB),
        }
        for at_s in range(-820, 0, SAMPLE_S)
    ]
    tenants = [
        {"id": "t", "name": "train-resnet.ipynb", "owner": "alice", "own": True},
        {"id": "other-2", "name": "protein folding, second try.ipynb", "owner": "bob"},
        {"id": "other-3", "name": "another user", "owner": "another user"},
    ]
    return {
        "version": 1,
        "window_s": WINDOW_S,
        "grain_s": 1,
        "sample_s": SAMPLE_S,
        "tenants": tenants,
        "devices": [
            {
                "id": device_id(0),
                "turns": turns,
                "waits": [{"begin_s": at_s, "waiting": count} for at_s, count in waits],
                "samples": samples,
            }
        ],
    }


class Asked:
    """How often the page has asked for the timeline, and what it was answered."""

    def __init__(self) -> None:
        self.times = 0

    def answer(self, route: Route) -> None:
        self.times += 1
        route.fulfill(content_type="application/json", body=json.dumps(afternoon()))


@pytest.fixture
def asked(page: Page) -> Asked:
    asked = Asked()
    page.route("**/gpushare/api/timeline*", asked.answer)
    return asked


@pytest.fixture
def stub(jupyter_with_stub: JupyterProcess) -> Iterator[StubControl]:
    control = StubControl(jupyter_with_stub)
    control.set(busy_state())
    yield control
    jupyter_with_stub.use_theme("JupyterLab Light")


def opened(panel: Panel) -> Locator:
    """The first device's timeline, once its lines are drawn."""
    timeline = panel.devices.first.locator("details.jp-gpushare-Timeline")
    timeline.locator("summary").click()
    timeline.locator("canvas").wait_for()
    return timeline


@pytest.mark.promise(
    "panel-27",
    "The panel shows a timeline of the last 15 minutes: who had the device, its utilisation and "
    "its memory",
)
@pytest.mark.parametrize("theme", ["Light", "Dark", "Dark High Contrast"])
def test_a_timeline_is_drawn_once_it_is_opened(
    page: Page, stub: StubControl, asked: Asked, theme: str
) -> None:
    """Turns, waits and lines, with a sentence that says the same; until then nothing is asked and
    nothing of it is loaded. Nothing overflows, and it is open when the page is loaded again."""
    from playwright.sync_api import expect

    stub.jupyter.use_theme(f"JupyterLab {theme}")
    loaded: list[str] = []
    panel = open_lab(page, stub.jupyter)
    panel.devices.first.wait_for()
    page.on("request", lambda request: loaded.append(request.url))
    assert asked.times == 0
    timeline = opened(panel)
    assert any("labextension/static" in url for url in loaded)  # uPlot, just now
    mine = timeline.locator(".jp-gpushare-TurnBar.jp-mod-mine")
    expect(mine).to_have_count(2)
    expect(timeline.locator(".jp-gpushare-TurnBar")).to_have_count(len(TURNS))
    assert "train-resnet.ipynb" in mine.first.inner_text()
    sentence = timeline.locator(".jp-gpushare-TimelineSummary").inner_text()
    assert sentence.startswith("In the last 15 min you had this GPU for 5 min, and others for 5")
    assert "At most 3 waited at once." in sentence and "% busy on average." in sentence
    page.wait_for_function(f"({INK})() > 100")
    root = panel.root.evaluate("node => [node.scrollWidth, node.clientWidth]")
    assert root[0] <= root[1]
    page.set_viewport_size({"width": 1000, "height": 760})
    name = f"timeline-{theme.lower().replace(' ', '-')}"
    panel.keep_picture(name)
    panel.devices.first.screenshot(path=ARTEFACTS / f"{name}-alone.png")
    open_lab(page, stub.jupyter).devices.first.locator("canvas").wait_for()
    timeline.locator("summary").click()
    timeline.locator("canvas").wait_for(state="detached")


INK = """() => {
  const canvas = document.querySelector('.jp-gpushare-Plot canvas');
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let inked = 0;
  for (let at = 3; at < data.length; at += 4) inked += data[at] > 0;
  return inked;
}"""
"""How many pixels of the lines are drawn."""


def test_nothing_is_asked_while_nobody_looks(page: Page, stub: StubControl, asked: Asked) -> None:
    """It goes on to be asked for while it is on the screen, and not once the sidebar is closed."""
    panel = open_lab(page, stub.jupyter)
    timeline = opened(panel)
    with page.expect_response("**/gpushare/api/timeline*"):
        pass
    page.locator('.jp-SideBar [data-id="jp-gpushare-panel"]').click()
    timeline.wait_for(state="hidden")
    after = asked.times
    page.wait_for_timeout(POLL_MS + 1000)
    assert asked.times <= after + 1  # one may have been on its way


@pytest.mark.promise("panel-28", "The panel's code is 250 kB at most, uPlot included")
def test_the_bundle_is_small() -> None:
    """All that a page could load of ours, minified."""
    if not (PANEL / "package.json").exists():
        pytest.skip("The panel is not built. To run this: make panel")
    scripts = list((PANEL / "static").glob("*.js"))
    assert scripts
    assert sum(script.stat().st_size for script in scripts) <= BUNDLE_KB_MAX * 1000
