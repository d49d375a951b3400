"""How the panel looks whatever a page does to it, in a real browser that the stub feeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.jupyter import JupyterProcess
from tests.browser.panel import PANEL_ID, Panel, open_lab
from tests.browser.stub import GIB, StubControl, busy_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

pytestmark = pytest.mark.full

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


@pytest.mark.promise("panel", "No row of the panel moves while its figures count")
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
