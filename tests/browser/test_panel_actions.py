"""What a user does in the panel, in a real browser that the stub feeds, and how little room it
needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.jupyter import JupyterProcess
from tests.browser.panel import PANEL_ID, Panel, open_lab
from tests.browser.stub import GIB, StubControl, busy_state, device, kernel, state, tenant

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.full

NARROW_PX = 200


@pytest.fixture
def stub(jupyter_with_stub: JupyterProcess) -> StubControl:
    control = StubControl(jupyter_with_stub)
    control.set(busy_state())
    return control


@pytest.fixture
def panel(page: Page, stub: StubControl) -> Panel:
    panel = open_lab(page, stub.jupyter)
    panel.devices.first.wait_for()
    return panel


def press(panel: Panel, kernel_name: str, button: str) -> None:
    """With the keyboard, as the button is reached without a mouse too."""
    found = row_of(panel, kernel_name).get_by_role("button", name=button, exact=True)
    found.and_(panel.page.locator("[aria-disabled=false]")).press("Enter")  # the one before is done


def row_of(panel: Panel, kernel_name: str) -> Locator:
    """Of the kernel itself: rows of others may name it, too."""
    actions = panel.page.get_by_label(f"Actions for {kernel_name}")
    return panel.root.locator(".jp-gpushare-Kernel").filter(has=actions)


@pytest.mark.promise(
    "panel-24", "A turn is kept by hand and memory is freed with the keyboard alone"
)
def test_a_turn_is_kept_and_memory_is_freed(panel: Panel, stub: StubControl) -> None:
    """Each length and the end of keeping are one press; freeing memory asks first, and says what
    it does."""
    before = len(stub.acted)
    row = row_of(panel, "train-resnet.ipynb")
    row.locator("summary").press("Enter")
    for button in ("5 min", "End keeping"):
        with panel.page.expect_response(re.compile("/hold")):
            press(panel, "train-resnet.ipynb", button)
    press(panel, "train-resnet.ipynb", "Free its GPU memory…")
    row.get_by_text("61 GiB move from the GPU").wait_for()
    panel.keep_picture("panel-actions")
    assert len(stub.acted) == before + 2
    with panel.page.expect_response(re.compile("/evict")):
        press(panel, "train-resnet.ipynb", "Free it now")
    assert stub.acted[before:] == [
        ["train-resnet", "hold", {"hold_s": 300}],
        ["train-resnet", "hold", {"hold_s": 0}],
        ["train-resnet", "evict", {}],
    ]


@pytest.mark.promise("server-27")
def test_unused_memory_where_it_cannot_be_given_back(panel: Panel, stub: StubControl) -> None:
    """A server that refuses says why, beside the notebook. An older one does not know the action,
    and the panel does not offer it."""
    name, button = "train-resnet.ipynb", "Give back unused GPU memory"
    row = row_of(panel, name)
    row.locator("summary").press("Enter")
    refusal = "This kernel runs R, and keeps no such caches. Free what your program does not need."
    stub.set(busy_state(), refusal=refusal)
    with panel.page.expect_response(re.compile("/trim")):
        press(panel, name, button)
    row.get_by_role("alert").filter(has_text=refusal).wait_for()
    stub.set({**busy_state(), "actions": ["release", "hold", "evict"], "message": "An older one"})
    panel.notices.filter(has_text="An older one").wait_for()
    row.get_by_role("button", name="Free its GPU memory…", exact=True).wait_for()
    assert row.get_by_role("button", name=button).count() == 0


@pytest.mark.promise(
    "panel-25", "A sidebar of 200 pixels and a page at 200 % need no scrolling aside"
)
def test_a_sidebar_of_200_pixels(panel: Panel) -> None:
    """With each kernel's actions open, nothing is wider than the sidebar. A page at 200 % has half
    of the pixels, and the same holds there."""
    panel.unfold_actions()
    panel.page.set_viewport_size({"width": 500, "height": 560})
    width = f"{NARROW_PX}px !important"
    style = f"#{PANEL_ID} {{ min-width: {width}; width: {width}; max-width: {width} }}"
    panel.page.add_style_tag(content=style)
    panel.keep_picture("panel-narrow")
    assert panel.root.evaluate("panel => panel.getBoundingClientRect().width") == NARROW_PX
    assert panel.root.evaluate("panel => panel.scrollWidth <= panel.clientWidth")


@pytest.mark.promise("bad-input-36")
def test_names_from_right_to_left_keep_to_themselves(panel: Panel, stub: StubControl) -> None:
    """Each name stands in an element of its own direction, with HTML in it as text."""
    name = "<b>تدريب.ipynb"
    taken = [tenant(name, "دانة", bytes_resident=GIB)]
    holder = tenant(name, "دانة", held_s=0)
    kernels = [kernel(name, "idle", path=name)]
    whose = {"bytes_used": GIB, "bytes_tenants": GIB, "bytes_foreign": 0}
    stub.set(state(device(holder=holder, tenants=taken, **whose), kernels=kernels))
    panel.holder.get_by_text(name).first.wait_for()
    inside = "panel => [...panel.querySelectorAll('bdi')].map(each => each.textContent)"
    assert panel.root.evaluate(inside).count(name) == 2
    assert f"دانة: {name}" in panel.root.evaluate(inside)
    assert panel.root.locator("b").count() == 0


KNOWN_AT_FIRST = {
    "devices": {"id", "name", "bytes_total", "bytes_used", "lost", "holder", "queue"},
    "holder": {"name", "owner", "mine", "tenant_id", "held_s"},
    "queue": {"position", "name", "owner", "mine", "tenant_id", "waited_s"},
    "kernels": {"kernel_id", "name", "path", "tenant_id", "state", "position", "reason"},
}
"""All that the first server extension told."""


def _older(value: object, place: str = "") -> object:
    """Without what that one did not tell."""
    if isinstance(value, list):
        return [_older(each, place) for each in value]
    if not isinstance(value, dict):
        return value
    first = {"version", "scheduler", "message", "user", "devices", "kernels"}
    known = KNOWN_AT_FIRST.get(place, first)
    return {name: _older(each, name) for name, each in value.items() if name in known}


def _newer(value: object) -> object:
    """With fields and words that nobody knows yet."""
    if isinstance(value, list):
        return [_newer(each) for each in value]
    if not isinstance(value, dict):
        return value
    words = {"state": "dreaming", "mode": "tilted", "runs_as": "royal"}
    told = {name: _newer(words.get(name, each)) for name, each in value.items()}
    return {**told, "colour": {"of": ["something", 7]}}


@pytest.mark.promise("bad-input-17")
def test_a_server_that_tells_less_or_more(panel: Panel, stub: StubControl) -> None:
    """An older server extension: what it does not tell is not offered. A newer one: the words that
    this panel does not know say the least. Either way each row is there, and nothing is a fault."""
    older, newer = _older(busy_state()), _newer(busy_state())
    assert isinstance(older, dict) and isinstance(newer, dict)
    stub.set({**older, "message": "The older one"})
    panel.notices.filter(has_text="The older one").wait_for()
    assert (panel.devices.count(), panel.queue.count()) == (2, 3)
    panel.kernel("train-resnet.ipynb").filter(has_text="Has the GPU").wait_for()
    assert panel.root.locator("summary", has_text="Actions").count() == 0
    newer["actions"] += ["teleport"]
    stub.set({**newer, "message": "The newer one"})
    panel.notices.filter(has_text="The newer one").wait_for()
    assert (panel.devices.count(), panel.queue.count()) == (2, 3)
    row_of(panel, "train-resnet.ipynb").filter(has_text="royal").wait_for()
    assert "teleport" not in panel.root.inner_text()
    assert panel.notices.count() == 1


@pytest.mark.promise(
    "bad-input-18", "Two tabs of one user show the same, and both hear of a change"
)
def test_two_tabs(panel: Panel, stub: StubControl) -> None:
    """What one tab asked for comes into the other one."""
    other = open_lab(panel.page.context.new_page(), stub.jupyter)
    other.devices.first.wait_for()
    panel.release("train-resnet.ipynb")
    stub.set(state(device(), kernels=[kernel("train-resnet.ipynb", "idle")]))
    for each in (panel, other):
        each.kernel("train-resnet.ipynb").filter(has_text="Idle").wait_for()


@pytest.mark.promise(
    "panel-26", "With the colours of high contrast the parts of the bar stay apart"
)
def test_high_contrast(panel: Panel) -> None:
    """The browser replaces colours then, and leaves those of the bar, each beside its word."""
    panel.page.emulate_media(forced_colors="active")
    parts = panel.devices.first.locator(".jp-gpushare-Share")
    looks = parts.evaluate_all(
        "parts => parts.map(each => { const style = getComputedStyle(each);"
        " return style.backgroundColor + style.backgroundImage })"
    )
    assert len(set(looks)) == 4  # mine, others, other programs, kept free
    panel.keep_picture("panel-high-contrast")
