"""How the panel looks whatever a page does to it, in a real browser that the stub feeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.jupyter import JupyterProcess
from tests.browser.panel import FAULTS, LOW_CONTRASTS, PANEL_ID, Panel, open_lab
from tests.browser.stub import GIB, StubControl, busy_state, kernel, memory
from tests.browser.test_accessibility import serious_findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.full

TRANSPARENT = "rgba(0, 0, 0, 0)"
WAITS = [(95.0, 300.0), (34.0, 128.0), (8.0, 61.0), (0.0, 31.0), (0.0, 0.4)]
"""From a wait of minutes to one of a moment."""


@pytest.fixture
def stub(jupyter_with_stub: JupyterProcess) -> Iterator[StubControl]:
    jupyter_with_stub.use_theme("JupyterLab Light")
    control = StubControl(jupyter_with_stub)
    control.set(busy_state())
    yield control
    jupyter_with_stub.use_theme("JupyterLab Light")


def _counted(round_: int) -> dict[str, Any]:
    """The busy machine a while later: every figure is another one, and nothing else is."""
    told = busy_state()
    earliest_s, latest_s = WAITS[round_]
    wait = {"earliest_s": earliest_s, "latest_s": latest_s, "used_s": 0.0, "share": 0.5}
    first = told["devices"][0]
    first["holder"] |= {"held_s": 10.0**round_, "hold_left_s": 0, "turn_left_s": 29.0 - 7 * round_}
    first["bytes_used"] += round_ * GIB
    first["tenants"][3]["bytes_resident"] -= 9 * round_ * GIB
    for waiter in first["queue"]:
        waiter |= {"wait": wait, "waited_s": 10.0 ** (4 - round_)}
    told["kernels"][0]["hold_left_s"] = 1000.0 - 200 * round_
    told["kernels"][1]["wait"] = wait
    told["kernels"][1]["memory"][0]["bytes_parked"] = (12 - 2 * round_) * GIB
    told["message"] = f"Round {round_}"
    return told


@pytest.mark.promise("panel-14", "No row of the panel moves while its figures count")
@pytest.mark.parametrize("width_px", [200, 240])
def test_rows_stay_where_they_are(page: Page, stub: StubControl, width_px: int) -> None:
    """From minutes to a moment, and from little memory to much, each row and each button stays
    where it is under a mouse, in a narrow sidebar and in a wide one."""
    panel = open_lab(page, stub.jupyter)
    width = f"{width_px}px !important"
    page.add_style_tag(content=f"#{PANEL_ID} {{ min-width: {width}; max-width: {width} }}")
    seen = []
    for round_ in range(len(WAITS)):
        stub.set(_counted(round_))
        panel.notices.filter(has_text=f"Round {round_}").wait_for()
        seen.append(_places(panel))
    assert all(places == seen[0] for places in seen), seen
    panel.keep_picture(f"steady-{width_px}")


def _places(panel: Panel) -> list[list[float]]:
    """Top and height of all that can be pressed or read on its own."""
    found: list[list[float]] = panel.root.evaluate(
        """panel => [...panel.querySelectorAll('button, summary, li, article > p, h2, h3')]
          .map(each => each.getBoundingClientRect())
          .map(({ top, height }) => [Math.round(top), Math.round(height)])"""
    )
    return found


def _everything() -> dict[str, Any]:
    """The busy machine, with all that can go wrong on it."""
    told = busy_state()
    told["message"] = "A newer jupyter-gpushare waits until no cell runs."
    told["kernels"] += [
        kernel(
            "broken.ipynb",
            "failed",
            runs_as="batch",
            memory=[memory(bytes_resident=GIB)],
            trim={"number": 3, "stage": "failed", "message": "It was interrupted. Ask again."},
        ),
        kernel("plain.ipynb", "unshared", tenant_id=None),
    ]
    told["devices"][0]["queue"][0] |= {"why": "Its memory has to move first.", "runs_as": "batch"}
    told["devices"][1] |= {"mode": "drained", "bytes_foreign": 9 * GIB, "simulated": True}
    return told


def _opened(page: Page, stub: StubControl, width_px: int) -> Panel:
    """With each kernel's actions unfolded, in a sidebar of this width."""
    stub.set(_everything())
    panel = open_lab(page, stub.jupyter)
    panel.devices.first.wait_for()
    width = f"{width_px}px !important"
    page.add_style_tag(content=f"#{PANEL_ID} {{ min-width: {width}; max-width: {width} }}")
    panel.unfold_actions()
    return panel


def _keep_whole_picture(panel: Panel, name: str) -> None:
    panel.page.set_viewport_size({"width": 1000, "height": 2000})
    panel.keep_picture(name)


@pytest.mark.promise(
    "panel-15",
    "In light, dark and both high-contrast themes no text overlaps, sticks out, is cut or is hard "
    "to read, at 200 pixels too",
)
@pytest.mark.parametrize("width_px", [200, 250])
@pytest.mark.parametrize("theme", ["Light", "Dark", "Light High Contrast", "Dark High Contrast"])
def test_each_theme_can_be_read(page: Page, stub: StubControl, theme: str, width_px: int) -> None:
    """With all that the panel can say at once; axe-core finds nothing serious either."""
    stub.jupyter.use_theme(f"JupyterLab {theme}")
    panel = _opened(page, stub, width_px)
    _keep_whole_picture(panel, f"looks-{theme.lower().replace(' ', '-')}-{width_px}")
    assert panel.root.evaluate(FAULTS) == []
    assert panel.root.evaluate(LOW_CONTRASTS) == []
    assert serious_findings(page) == []


@pytest.mark.promise("panel-26")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_the_system(page: Page, stub: StubControl, scheme: Any) -> None:
    """Where the system chooses the colours, each text and each part of the bar can be seen still,
    and so can the sign in the status bar."""
    page.emulate_media(forced_colors="active", color_scheme=scheme)
    panel = _opened(page, stub, 250)
    _keep_whole_picture(panel, f"looks-forced-{scheme}")
    assert panel.root.evaluate(FAULTS) == []
    back = panel.root.evaluate("panel => getComputedStyle(panel).backgroundColor")
    for part in panel.devices.first.locator(".jp-gpushare-Share").all():
        color, picture = part.evaluate(
            "each => { const look = getComputedStyle(each);"
            " return [look.backgroundColor, look.backgroundImage] }"
        )
        assert color not in (back, TRANSPARENT) or "gradient" in picture
    dot = panel.kernel("thesis plots.ipynb").locator(".jp-gpushare-Badge")
    assert dot.evaluate("each => getComputedStyle(each, '::before').borderTopColor") != back
    sign = page.locator("#jp-main-statusbar .jp-gpushare-Sign")
    assert sign.evaluate("each => getComputedStyle(each).backgroundColor") != back


@pytest.mark.promise("panel-16", "In an interface from right to left the panel is its own mirror")
def test_from_right_to_left(page: Page, stub: StubControl) -> None:
    """Places, names, the bar and what is moved in begin at the right, and nothing is cut."""
    panel = _opened(page, stub, 250)
    panel.root.evaluate("panel => { panel.dir = 'rtl' }")
    _keep_whole_picture(panel, "looks-rtl")
    assert panel.root.evaluate(FAULTS) == []
    device = panel.devices.first
    shares = device.locator(".jp-gpushare-Share")
    order = [shares.first, shares.last]
    assert _left(order[0]) > _left(order[1])
    row = panel.holder.first
    assert _left(row.locator(".jp-gpushare-Position")) > _left(row.locator(".jp-gpushare-Elapsed"))
    held = device.locator(".jp-gpushare-Hold").first
    assert _right(held) < _right(row)
    border = "each => getComputedStyle(each).borderRightWidth"
    assert panel.notices.first.evaluate(border) == "3px"


def _left(element: Locator) -> float:
    box = element.bounding_box()
    assert box is not None
    return box["x"]


def _right(element: Locator) -> float:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"]


@pytest.mark.promise("panel-25")
def test_a_page_at_200_percent(page: Page, stub: StubControl) -> None:
    """The page has half of its pixels then. What does not fit is reached by scrolling down, and
    with the keyboard alone."""
    panel = _opened(page, stub, 250)
    page.set_viewport_size({"width": 500, "height": 280})
    panel.keep_picture("looks-200-percent")
    assert panel.root.evaluate(FAULTS) == []
    last = panel.kernel("broken.ipynb").locator("summary")
    panel.root.locator("summary").first.focus()
    last.focus()
    panel.await_in_view(last)
