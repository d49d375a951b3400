"""The panel in a real browser, fed by the stub: every state that a user can meet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import watched_page
from tests.browser.jupyter import JupyterProcess, write_notebook
from tests.browser.panel import (
    LOW_CONTRASTS,
    PANEL_ID,
    Panel,
    change_theme,
    open_lab,
    open_notebook,
)
from tests.browser.stub import (
    GIB,
    StubControl,
    busy_state,
    device,
    kernel,
    memory,
    queue,
    state,
    tenant,
)
from tests.support.waits import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, WebSocket, WebSocketRoute

ANSWERS_PUSHED = 30
LOOK_EVERY_MS = 200
POLL_MS_MAX = 2500
"""Longer than the panel waits between two questions while its stream is down."""


@pytest.fixture
def stub(jupyter_with_stub: JupyterProcess) -> StubControl:
    control = StubControl(jupyter_with_stub)
    control.set(busy_state())
    return control


@pytest.fixture(scope="module")
def opened(
    browser: Browser, jupyter_with_stub: JupyterProcess
) -> Iterator[tuple[Panel, list[str]]]:
    """One page for all tests that leave it as they found it, with its errors. The panel's event
    stream is up: what is emitted from now on arrives."""
    heard: dict[WebSocket, bool] = {}

    def follow(stream: WebSocket) -> None:
        if "api/events/subscribe" in stream.url:
            heard[stream] = False
            stream.on("framereceived", lambda _: heard.update({stream: True}))

    stub = StubControl(jupyter_with_stub)
    stub.set(busy_state())
    with watched_page(browser) as (page, errors):
        page.on("websocket", follow)
        panel = open_lab(page, stub.jupyter)
        panel.devices.first.wait_for()
        _wait_until_pushed(panel, stub, heard)
        yield panel, errors


@pytest.fixture
def panel(opened: tuple[Panel, list[str]], stub: StubControl) -> Iterator[Panel]:
    """The panel with the busy state, and with nothing of the test before."""
    from playwright.sync_api import expect

    panel, errors = opened
    stub.set(state(message="Nothing is here.", devices=[]))
    panel.notices.filter(has_text="Nothing is here.").wait_for()
    stub.set(busy_state())
    expect(panel.notices).to_have_count(0)
    yield panel
    assert errors == []


def _wait_until_pushed(panel: Panel, stub: StubControl, heard: dict[WebSocket, bool]) -> None:
    """Emits until the page has heard it on each of its event streams, one of which is the panel's:
    then the browser asks because it is told, and soon at no other time."""
    from playwright.sync_api import expect

    def is_heard() -> bool:
        stub.set({**busy_state(), "message": "Is anybody there?"})
        panel.page.wait_for_timeout(LOOK_EVERY_MS)
        streams = [has for stream, has in heard.items() if not stream.is_closed()]
        return any(streams) and all(streams)

    wait_until(is_heard, "the event stream")
    stub.set(busy_state())
    expect(panel.notices).to_have_count(0)
    _wait_until_quiet(panel, stub)


def _wait_until_quiet(panel: Panel, stub: StubControl) -> None:
    """A change may be shown by the answer to an earlier question: its own is then still to come."""

    def is_quiet() -> bool:
        asked = stub.asked
        panel.page.wait_for_timeout(POLL_MS_MAX)
        return stub.asked == asked

    wait_until(is_quiet, "the browser to ask no more")


def _texts(panel: Panel) -> list[str]:
    return panel.queue.all_inner_texts()


def _text_of(panel: Panel, kernel_name: str) -> str:
    return panel.kernel(kernel_name).inner_text()


@pytest.mark.promise(
    "panel-18",
    "Each device is shown with its memory, its holder and its queue in order; my notebooks with "
    "their state and class",
)
def test_devices_holders_and_queues_are_shown_in_order(panel: Panel) -> None:
    """Each device shows its memory, its holder and who waits, first comer first."""
    assert panel.devices.count() == 2
    assert "train-resnet.ipynb" in panel.holder.first.inner_text()
    names = [text.split("\n")[1] for text in _texts(panel)]
    assert names == ["protein folding, second try.ipynb", "explore.ipynb", "another user"]
    meter = panel.root.get_by_role("meter", name="Memory in use").first
    assert meter.get_attribute("aria-valuetext") == "125 GiB of 140 GiB"
    assert "Number 2 in the queue" in panel.kernel("explore.ipynb").inner_text()


@pytest.mark.promise("panel-18")
def test_whose_the_memory_is_and_what_is_parked(panel: Panel) -> None:
    """The bar and its words tell mine from others'; each kernel tells what it has where."""
    shares = panel.devices.first.get_by_role("list", name="Whose the memory is")
    assert shares.get_by_role("listitem").all_inner_texts() == [
        "mine 71 GiB",
        "bob: folding.ipynb 40 GiB",
        "others 11 GiB",
        "other programs 3.0 GiB",
    ]
    assert "Kept free 2.8 GiB" in str(shares.get_attribute("title"))
    bar = panel.devices.first.get_by_role("meter", name="Memory in use")
    whole = bar.bounding_box()
    parts = [part.bounding_box() for part in bar.locator(".jp-gpushare-Share").all()]
    assert whole is not None and all(part is not None for part in parts)
    shown = [round(part["width"] / whole["width"], 2) for part in parts if part]
    assert shown == [0.44, 0.06, 0.01, 0.29, 0.08, 0.02, 0.02]
    told = _text_of(panel, "explore.ipynb").replace("\u00a0", " ")
    assert "8.0 GiB on the GPU · 12 GiB in host memory · limit 40 GiB" in told
    assert "GPU-5c1a90f3: 2.0 GiB on the GPU" in _text_of(panel, "two devices.ipynb")


@pytest.mark.full
@pytest.mark.promise("panel-18")
@pytest.mark.promise(
    "panel-19",
    "A turn that is kept by hand counts down, and a waiting user reads until when",
)
def test_a_turn_that_is_kept_by_hand(panel: Panel, stub: StubControl) -> None:
    """Its holder's row counts down, and who waits reads until when; then it is over."""
    left = re.compile(r"you keep it for \d min more")  # of ten minutes
    panel.devices.first.filter(has_text=left).wait_for()
    panel.root.locator(".jp-gpushare-Kernel.jp-mod-holds").filter(has_text=left).wait_for()
    waits = _text_of(panel, "explore.ipynb")
    assert re.search(r"Its user has reserved the GPU until \d?\d:\d\d", waits)
    kept = tenant("a.ipynb", "bob", held_s=0, hold_left_s=2)
    stub.set(state(device(holder=kept)))
    panel.devices.filter(has_text="reserved by its user for 0 s more").wait_for()
    stub.set(state(device(holder={**kept, "hold_left_s": 0})))
    panel.root.get_by_text("reserved by its user").wait_for(state="detached")


@pytest.mark.promise(
    "panel-20",
    "A change is pushed into the page at once; nothing is polled while the stream is up",
)
def test_a_change_is_pushed(panel: Panel, stub: StubControl) -> None:
    """What the server tells of comes into the page, for one question each."""
    _wait_until_quiet(panel, stub)
    asked = stub.asked
    for round_ in range(ANSWERS_PUSHED):
        name = f"round-{round_}.ipynb"
        stub.set(state(device(holder=tenant(name, "bob", held_s=0))))
        panel.holder.filter(has_text=name).wait_for()
    assert stub.asked <= asked + ANSWERS_PUSHED


@pytest.mark.full
@pytest.mark.promise("panel-20")
def test_the_queue_moves(panel: Panel, stub: StubControl) -> None:
    """When a turn goes on to the next, the queue gets shorter and the holder is another."""
    first, second = tenant("a.ipynb", "bob", waited_s=1), tenant("b.ipynb", "carol", waited_s=1)
    stub.set(state(device(queue=queue(first, second))))
    panel.queue.nth(1).wait_for()
    stub.set(state(device(holder={**first, "held_s": 0}, queue=queue(second))))
    panel.holder.filter(has_text="a.ipynb").wait_for()
    assert [text.split("\n")[1] for text in _texts(panel)] == ["b.ipynb"]


@pytest.mark.promise(
    "panel-21", "A turn is released with the keyboard too, and a refusal tells why"
)
def test_a_turn_is_released_with_the_keyboard(panel: Panel, stub: StubControl) -> None:
    """Tab leads to the button, Enter releases, and the keyboard stays in the kernel's row."""
    from playwright.sync_api import expect

    before = len(stub.released)
    name = panel.page.get_by_role("button", name="train-resnet.ipynb", exact=True)
    name.focus()
    expect(name).to_be_focused()
    panel.page.keyboard.press("Tab")
    expect(panel.release_button("train-resnet.ipynb")).to_be_focused()
    with panel.page.expect_response(re.compile("/release")) as response:
        panel.page.keyboard.press("Enter")
    assert response.value.status == 204
    assert stub.released[before:] == ["train-resnet"]
    stub.set(state(device(), kernels=[kernel("train-resnet.ipynb", "idle")]))
    panel.release_button("train-resnet.ipynb").wait_for(state="detached")
    panel.page.locator(":focus").filter(has_text=re.compile(r"^\s*train-resnet\.ipynb")).wait_for()


@pytest.mark.full
@pytest.mark.promise("panel-21")
def test_a_refused_release_tells_why(panel: Panel, stub: StubControl) -> None:
    """The server's sentence stands beside the kernel that it is about."""
    refusal = "This kernel does not have the GPU. Nothing needs to be released."
    stub.set(busy_state(), refusal=refusal)
    panel.release_button("train-resnet.ipynb").press("Enter")
    alert = panel.kernel("train-resnet.ipynb").get_by_role("alert").filter(has_text=refusal)
    alert.wait_for()
    panel.keep_picture("panel-refused")
    panel.await_in_view(alert)  # it is scrolled there


@pytest.mark.full
@pytest.mark.promise("panel-20")
def test_it_polls_only_while_the_stream_is_down(page: Page, stub: StubControl) -> None:
    """With the event stream cut, changes still arrive, because the browser asks for them."""

    def cut(stream: WebSocketRoute) -> None:
        stream.close()

    page.route_web_socket(re.compile("api/events/subscribe"), cut)
    panel = open_lab(page, stub.jupyter)
    panel.devices.first.wait_for()
    asked = stub.asked
    stub.set(state(device(name="Asked for")), emit=False)
    panel.devices.filter(has_text="Asked for").wait_for()
    assert stub.asked > asked


@pytest.mark.full
@pytest.mark.promise(
    "bad-input-16",
    "A connection lost in the middle of an update: what was known stays, with a sentence, and the "
    "panel is up to date again once the server answers",
)
def test_a_connection_that_is_lost_in_the_middle(page: Page, stub: StubControl) -> None:
    """The stream breaks and half an answer comes; then nothing; then the server is back."""
    streams: list[WebSocketRoute] = []

    def follow(stream: WebSocketRoute) -> None:
        streams.append(stream)
        stream.connect_to_server()

    page.route_web_socket(re.compile("api/events/subscribe"), follow)
    panel = open_lab(page, stub.jupyter)
    panel.devices.first.wait_for()
    half = json.dumps(busy_state())[:900]
    page.route("**/gpushare/api/state*", lambda route: route.fulfill(body=half))
    stub.set(state(device(holder=tenant("later.ipynb", "bob", held_s=0))))
    for stream in streams:
        stream.close()
    panel.notices.filter(has_text="does not answer").wait_for()
    assert "train-resnet.ipynb" in panel.holder.first.inner_text()
    panel.keep_picture("connection-lost")
    page.route("**/gpushare/api/state*", lambda route: route.abort())  # counts before the other
    panel.root.get_by_role("button", name="Try again").click()
    panel.notices.filter(has_text="does not answer").wait_for()
    page.unroute("**/gpushare/api/state*")
    panel.holder.filter(has_text="later.ipynb").wait_for()
    panel.notices.wait_for(state="detached")


@pytest.mark.promise(
    "bad-input-17",
    "An old labextension with a new server extension, the reverse, or none at all: one sentence",
)
@pytest.mark.parametrize("version", [0, 2])
def test_another_version_is_one_sentence(panel: Panel, stub: StubControl, version: int) -> None:
    """A state of an older or a newer version is not shown; one sentence says so, until a right
    one comes."""
    stub.set({**busy_state(), "version": version})
    panel.notices.filter(has_text=f"version 1 here, {version} there").wait_for()
    assert panel.notices.count() == 1
    assert panel.devices.count() == 0
    stub.set(busy_state())
    panel.devices.first.wait_for()


@pytest.mark.full
@pytest.mark.promise("bad-input-17")
def test_a_server_without_the_extension_is_one_sentence(page: Page, tmp_path: Path) -> None:
    """Where the panel is installed and the server extension is off, it says that sharing is off."""
    with JupyterProcess(tmp_path / "jupyter", None) as jupyter:
        panel = open_lab(page, jupyter)
        panel.notices.filter(has_text="switched off on this Jupyter server").wait_for()
        assert panel.devices.count() == 0


@pytest.mark.promise("bad-input-36")
def test_names_are_text(panel: Panel, stub: StubControl) -> None:
    """A name with HTML, spaces and other scripts is shown as it is, and nothing of it is run."""
    name = '<img src=x onerror="document.title=1"> Zoë 山田 O\'Brien'
    stub.set(state(device(holder=tenant(name, name, held_s=0))))
    panel.holder.get_by_text(name).first.wait_for()
    assert panel.root.locator("img").count() == 0


@pytest.mark.full
@pytest.mark.promise("panel-22")
def test_a_narrow_sidebar_overflows_nowhere(panel: Panel, stub: StubControl) -> None:
    """Whatever is long gives way: nothing is wider than the sidebar."""
    long = "a-very-long-name-without-a-space-" * 4
    holder = tenant(f"{long}.ipynb", long, held_s=100_000)
    waiting = queue(tenant(f"{long}.ipynb", long, mine=True, waited_s=100_000))
    taken = [
        memory(number, bytes_resident=GIB, bytes_parked=GIB, cap_bytes=GIB) for number in (0, 1)
    ]
    kernels = [kernel(f"{long}.ipynb", "holds", reason=long, memory=taken, hold_left_s=9)]
    stub.set(state(device(name=long, holder=holder, queue=waiting), kernels=kernels, message=long))
    panel.devices.filter(has_text=long).wait_for()
    assert panel.root.evaluate("panel => panel.scrollWidth <= panel.clientWidth")


@pytest.mark.full
@pytest.mark.promise(
    "panel-22",
    "It can be read in the light and the dark theme, however narrow the sidebar",
)
def test_sharing_that_is_switched_off(panel: Panel, stub: StubControl) -> None:
    """One grey bar, and nothing else."""
    message = "Your administrator has switched GPU sharing off."
    stub.set(state(scheduler="off", message=message, kernels=[kernel("a.ipynb", "unshared")]))
    panel.root.locator(".jp-gpushare-Notice.jp-mod-off").filter(has_text=message).wait_for()
    assert panel.devices.count() == 0 and panel.root.locator(".jp-gpushare-Kernel").count() == 0


def test_both_themes_can_be_read(panel: Panel) -> None:
    """Every text has a contrast of 4.5 to 1 against what is behind it, in both themes."""
    for theme in ("Dark", "Light"):
        change_theme(panel.page, f"JupyterLab {theme}")
        panel.keep_picture(f"panel-stub-{theme.lower()}")
        assert panel.root.evaluate(LOW_CONTRASTS) == [], theme


@pytest.mark.full
@pytest.mark.promise("panel-23", "It works in Jupyter Notebook 7")
def test_it_works_in_jupyter_notebook(page: Page, stub: StubControl) -> None:
    """Jupyter Notebook 7 has the panel in its left sidebar too."""
    write_notebook(stub.jupyter.files / "a notebook.ipynb", "")
    panel = open_notebook(page, stub.jupyter, "a notebook.ipynb")
    panel.devices.first.wait_for()
    panel.keep_picture("panel-stub-notebook")
    assert page.locator(f"#{PANEL_ID}").count() == 1
