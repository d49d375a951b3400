"""What JupyterLab and Jupyter Notebook show of the GPU outside the panel, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from tests.browser.jupyter import PANEL_NAME, JupyterProcess, write_notebook
from tests.browser.panel import PANEL_ID, STARTED, Panel, await_idle_kernel, keep_picture
from tests.browser.stub import GIB, StubControl, device, kernel, memory, queue, state, tenant

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.full

NOTEBOOK = "glance.ipynb"
OURS = """
window.ourTimers = new Set();
for (const kind of ['Interval', 'Timeout']) {
  const set = window[`set${kind}`].bind(window);
  const clear = window[`clear${kind}`].bind(window);
  window[`set${kind}`] = (work, ...rest) => {
    const isOurs = /@jupyter-gpushare\\/labextension/.test(new Error().stack);
    const id = set((...given) => {
      if (kind === 'Timeout') window.ourTimers.delete(id);
      return typeof work === 'function' ? work(...given) : undefined;
    }, ...rest);
    if (isOurs) window.ourTimers.add(id);
    return id;
  };
  window[`clear${kind}`] = id => {
    window.ourTimers.delete(id);
    clear(id);
  };
}
"""
"""Notes which timers run that our bundle has set."""
CLASSES_OF_TABS = """() => [...document.querySelectorAll('#jp-main-dock-panel .lm-TabBar-tab')]
  .map(tab => [...tab.classList].filter(each => each !== 'jp-mod-dirty').sort().join(' '))
  .join('; ')"""
"""Whether the file is saved comes and goes with Jupyter's own clock."""
LAUNCHER_STAYS = """() => {
  const launcher = document.querySelector('.jp-Launcher');
  const isInFront = launcher?.getClientRects().length > 0;
  if (launcher && !isInFront)
    jupyterapp.shell.activateById(launcher.closest('.jp-MainAreaWidget').id);
  window.looks = isInFront ? (window.looks ?? 0) + 1 : 0;
  return window.looks > 3;
}"""
"""A notebook that has been opened comes to the front once more when it is complete."""
LABELS = [
    "Show the GPU queue",
    "Show the GPU in the Status Bar",
    "Refresh the state of the GPU",
    "Help: is something wrong with the GPU?",
]
RELEASE = "Release the GPU"
ON_MEMORY = [
    "Give back unused GPU memory of this notebook",
    "Free GPU memory of this notebook…",
]
HAS_IT_FOR = re.compile(r"^\s*GPU\s*\d+ (s|min)")
"""What the status bar says of the notebook that has the GPU."""
NOTIFY = "Notify me when this cell gets the GPU"


@pytest.fixture
def stub(jupyter_with_stub: JupyterProcess) -> StubControl:
    write_notebook(jupyter_with_stub.files / NOTEBOOK, "1")
    jupyter_with_stub.use_theme("JupyterLab Light")
    stored = jupyter_with_stub.settings / PANEL_NAME / "plugin.jupyterlab-settings"
    stored.unlink(missing_ok=True)
    control = StubControl(jupyter_with_stub)
    control.set(state(device()))
    return control


def _glance(page: Page) -> Locator:
    return page.locator(".jp-gpushare-Glance")


def _open(page: Page, jupyter: JupyterProcess) -> str:
    """The notebook in JupyterLab; answers the id of its kernel."""
    page.goto(jupyter.page_url(f"lab/tree/{NOTEBOOK}"))
    page.locator("#jupyterlab-splash").wait_for(state="detached")
    page.wait_for_function(STARTED)
    kernel_id = await_idle_kernel(page, NOTEBOOK)
    # It takes the keyboard when it has its kernel, and so would close a palette that is open.
    page.locator(".jp-NotebookPanel .jp-mod-selected").first.click()
    return kernel_id


def _set(stub: StubControl, kernel_id: str, is_now: str, waited_s: float = 5) -> None:
    """The notebook of the tests is in this state, and another one has no part in the GPU."""
    me = tenant(NOTEBOOK, "alice", mine=True)
    other = tenant("theirs.ipynb", "bob", held_s=18)
    wait = {"earliest_s": 20.0, "latest_s": 45.0, "used_s": 0.0, "share": 0.5}
    mine = kernel(NOTEBOOK, is_now, kernel_id=kernel_id, path=NOTEBOOK, tenant_id=me["tenant_id"])
    if is_now == "waits":
        waiting = queue({**other, "waited_s": 9}, {**me, "waited_s": waited_s})
        shown = device(holder=other, queue=waiting)
        mine |= {"position": 2, "wait": wait}
    else:
        shown = device(holder={**me, "held_s": 12} if is_now == "holds" else None)
        mine["memory"] = [memory(bytes_resident=GIB)] if is_now == "holds" else []
    stub.set(state(shown, kernels=[mine, kernel("else.ipynb", "idle")]))


@pytest.mark.promise(
    "panel-3",
    "The status bar says whether the current notebook has the GPU or waits, and opens the panel",
)
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_status_bar(page: Page, stub: StubControl, theme: str) -> None:
    """It says in a few words, and in a sentence to screen readers, what the current notebook has
    of the GPU; a click, or Enter, opens the panel."""
    stub.jupyter.use_theme(f"JupyterLab {theme}")
    kernel_id = _open(page, stub.jupyter)
    _set(stub, kernel_id, "waits")
    item = page.locator("#jp-main-statusbar").get_by_role("button", name="Waiting for the GPU")
    item.filter(has_text="GPU 2nd · ").wait_for()
    assert "2nd of 2" in str(item.get_attribute("aria-label"))
    item.press("Enter")
    panel = Panel(page)
    panel.keep_picture(f"at-a-glance-waits-{theme.lower()}")
    _set(stub, kernel_id, "holds")
    _glance(page).filter(has_text=HAS_IT_FOR).wait_for()
    panel.keep_picture(f"at-a-glance-holds-{theme.lower()}")
    _set(stub, kernel_id, "idle")
    _glance(page).filter(has_text="GPU free").wait_for()
    panel.keep_picture(f"at-a-glance-free-{theme.lower()}")


@pytest.mark.promise(
    "panel-37",
    "The status bar says whether the GPU is free or whose it is, as far as the reader may know "
    "that, and that there is none",
)
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_the_status_bar_without_a_part_in_the_gpu(
    page: Page, stub: StubControl, theme: str
) -> None:
    """For a notebook that does not use it. The panel says why there is no GPU, and what to do."""
    stub.jupyter.use_theme(f"JupyterLab {theme}")
    kernel_id = _open(page, stub.jupyter)
    mine = kernel(NOTEBOOK, "idle", kernel_id=kernel_id, path=NOTEBOOK)
    theirs, hidden = tenant("theirs.ipynb", "bob", held_s=18), tenant("", "another user", held_s=3)
    waiting = queue(*(tenant(name, "eve", waited_s=3) for name in ("a.ipynb", "b.ipynb")))
    for shown, words in (
        (device(holder=theirs), "GPU in use by theirs.ipynb"),
        (device(holder=hidden), "GPU in use"),
        (device(holder=theirs, queue=waiting), "GPU in use, 2 wait"),
    ):
        stub.set(state(shown, kernels=[mine]))
        _glance(page).filter(has_text=re.compile(rf"^{_isolated(words)}$")).wait_for()
    keep_picture(page, f"at-a-glance-in-use-{theme.lower()}")
    why = "The NVIDIA driver does not answer: NVML is not there. Install it."
    stub.set(state(kernels=[mine], no_gpu=why))
    _glance(page).filter(has_text=re.compile("^No GPU$")).click()
    panel = Panel(page)
    panel.root.get_by_text(f"{why} “jupyter gpushare try” in a terminal shows").wait_for()
    panel.keep_picture(f"at-a-glance-no-gpu-{theme.lower()}")


def _isolated(words: str) -> str:
    """A pattern of words in which a name of another script keeps to itself."""
    return re.sub(r" (\S+\.ipynb)", " \u2068\\1\u2069", words)


@pytest.mark.promise(
    "panel-4",
    "While a notebook waits or has the GPU, its tab and the sidebar's icon are marked by a shape",
)
def test_badges(page: Page, stub: StubControl) -> None:
    """The tab of the notebook and the icon of the sidebar have a mark, which differs by its shape,
    also after a reload; afterwards the tab is as it was before."""
    kernel_id = _open(page, stub.jupyter)
    tab = page.locator("#jp-main-dock-panel .lm-TabBar-tab").filter(has_text=NOTEBOOK)
    icon = page.locator(f'.jp-SideBar [data-id="{PANEL_ID}"]')
    tab.wait_for()
    before = page.evaluate(CLASSES_OF_TABS)
    shapes = set()
    for is_now, mark in (("waits", "waiting"), ("holds", "holding")):
        _set(stub, kernel_id, is_now)
        for place in (tab, icon):
            marked = place.and_(page.locator(f".jp-gpushare-mod-{mark}"))
            marked.wait_for()
            shape = "each => getComputedStyle(each, '::after').clipPath"
            shapes.add((mark, marked.locator(".lm-TabBar-tabIcon").evaluate(shape)))
    assert len(shapes) == 2 and len({shape for _, shape in shapes}) == 2
    assert "none" not in {shape for _, shape in shapes}
    page.reload()
    tab.and_(page.locator(".jp-gpushare-mod-holding")).wait_for()
    _set(stub, kernel_id, "idle")
    page.locator(".jp-gpushare-mod-holding").first.wait_for(state="detached")
    page.wait_for_function(f"before => ({CLASSES_OF_TABS})() === before", arg=before)


@pytest.mark.promise("panel-5", "In Jupyter Notebook the panel is one click away")
def test_one_click_in_jupyter_notebook(page: Page, stub: StubControl) -> None:
    """The notebook's toolbar says the same few words; a click opens the panel."""
    page.goto(stub.jupyter.page_url(f"notebooks/{NOTEBOOK}"))
    _set(stub, await_idle_kernel(page, NOTEBOOK), "waits")
    item = page.locator(".jp-NotebookPanel-toolbar .jp-gpushare-Glance")
    item.filter(has_text="GPU 2nd · ").click()
    panel = Panel(page)
    panel.devices.first.wait_for()
    panel.keep_picture("at-a-glance-notebook")


@pytest.mark.promise(
    "panel-6", "While nothing waits and nothing is held, the page runs no timer of ours"
)
def test_no_timer_while_nothing_happens(page: Page, stub: StubControl) -> None:
    """With the panel shut and nothing on the GPU, the bundle has no timer; with a wait it has."""
    page.add_init_script(OURS)
    kernel_id = _open(page, stub.jupyter)
    _set(stub, kernel_id, "waits")
    _glance(page).filter(has_text="GPU ").wait_for()
    page.wait_for_function("window.ourTimers.size > 0")
    _set(stub, kernel_id, "idle")
    _glance(page).filter(has_text="GPU free").wait_for()
    page.wait_for_function("window.ourTimers.size === 0")


@pytest.fixture
def palette_in_sidebar(stub: StubControl) -> Iterator[None]:
    """JupyterLab shuts a palette over the page when a notebook takes the keyboard, which may be at
    any moment. The one in the sidebar stays, and has the same rows."""
    stub.jupyter.change_settings("palette", {"modal": False})
    yield
    stub.jupyter.change_settings("palette", {})


def _typed_in_palette(page: Page, text: str) -> Locator:
    """The palette with this text in its field."""
    _execute(page, "apputils:activate-command-palette")
    palette = page.locator("#command-palette")
    palette.locator("input").fill(text)
    return palette


def _labels_in_palette(page: Page, awaited: str) -> list[str]:
    """What can be chosen of the project's name in the palette, once this label is among it."""
    rows = _typed_in_palette(page, "gpushare").locator(".lm-CommandPalette-item")
    labels = rows.and_(page.locator(":not(.lm-mod-disabled)")).locator(
        ".lm-CommandPalette-itemLabel"
    )
    labels.get_by_text(awaited, exact=True).wait_for()
    return labels.all_inner_texts()


def _execute(page: Page, command: str) -> None:
    page.evaluate("command => jupyterapp.commands.execute(command)", command)


@pytest.mark.promise(
    "panel-7", 'Typing "gpushare" into the command palette finds every action, also by keyboard'
)
@pytest.mark.usefixtures("palette_in_sidebar")
def test_the_palette(page: Page, stub: StubControl) -> None:
    """What a person can do is in the palette. It acts on the notebook in front, and what does not
    apply to that cannot be chosen."""
    kernel_id = _open(page, stub.jupyter)
    _set(stub, kernel_id, "waits")
    _glance(page).filter(has_text="2nd").wait_for()
    found = _labels_in_palette(page, awaited=NOTIFY)
    assert not {*LABELS, NOTIFY} - {*found} and RELEASE not in found
    _set(stub, kernel_id, "holds")
    _glance(page).filter(has_text=HAS_IT_FOR).wait_for()
    found = _labels_in_palette(page, awaited=RELEASE)
    assert not {*LABELS, RELEASE, *ON_MEMORY} - {*found} and NOTIFY not in found

    palette = _typed_in_palette(page, RELEASE.lower())
    active = palette.locator(".lm-CommandPalette-item.lm-mod-active")
    active.filter(has_text=RELEASE).wait_for()
    with page.expect_response(re.compile("/release")):
        palette.locator("input").press("Enter")
    assert stub.released[-1] == kernel_id
    palette = _typed_in_palette(page, "gpushare")
    palette.locator(".lm-CommandPalette-item").filter(has_text="Help").click()
    dialog = page.locator(".jp-Dialog")
    dialog.filter(has_text="jupyter gpushare doctor").wait_for()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


@pytest.mark.promise("panel-8", "What is shown can be switched off, which counts at once and stays")
def test_the_status_item_is_switched_off(page: Page, stub: StubControl) -> None:
    """The command takes the item out of the status bar, also after a reload, and brings it back."""
    kernel_id = _open(page, stub.jupyter)
    _set(stub, kernel_id, "idle")
    _glance(page).wait_for()
    with page.expect_response(
        lambda answer: (
            answer.request.method == "PUT" and f"{PANEL_NAME}:plugin" in unquote(answer.url)
        )
    ):
        _execute(page, "gpushare:toggle-status-item")
    _glance(page).wait_for(state="detached")
    page.reload()
    page.wait_for_function(STARTED)
    _set(stub, kernel_id, "holds")
    page.locator(".jp-gpushare-mod-holding").first.wait_for()
    _glance(page).wait_for(state="detached")
    _execute(page, "gpushare:toggle-status-item")
    _glance(page).wait_for()


@pytest.mark.promise(
    "panel-9", "The sidebar of what runs lists my notebooks on the GPU, and releases them"
)
def test_the_running_sidebar(page: Page, stub: StubControl) -> None:
    """The section says who has the GPU and who waits. Its button releases, and says so."""
    kernel_id = _open(page, stub.jupyter)
    _set(stub, kernel_id, "waits")
    page.locator('.jp-SideBar [data-id="jp-running-sessions"]').click()
    item = page.locator(".jp-RunningSessions-item").filter(has_text="2nd in the queue")
    item.filter(has_text=NOTEBOOK).wait_for()
    assert item.get_by_title("Release the GPU").count() == 0
    _set(stub, kernel_id, "holds")
    item = page.locator(".jp-RunningSessions-item").filter(has_text="has it")
    item.filter(has_text=NOTEBOOK).wait_for()
    item.hover()
    keep_picture(page, "running-sidebar")
    with page.expect_response(re.compile("/release")):
        item.get_by_title("Release the GPU").click()
    assert stub.released[-1] == kernel_id


@pytest.mark.promise(
    "panel-10", "Whoever asked is told once that a notebook has the GPU, if it is not in view"
)
def test_told_that_it_is_their_turn(page: Page, stub: StubControl) -> None:
    """Of two waits the one that was asked for gives a notification, whose button shows the
    notebook. A short wait that nobody asked for gives none."""
    kernel_id = _open(page, stub.jupyter)
    _set(stub, kernel_id, "waits", waited_s=140)
    _glance(page).filter(has_text="2nd").wait_for()
    _execute(page, "gpushare:notify-when-served")
    page.locator("#jp-main-dock-panel .lm-TabBar-addButton").click()
    page.wait_for_function(LAUNCHER_STAYS, polling=300)
    _set(stub, kernel_id, "holds")
    toast = page.locator(".Toastify__toast").filter(has_text="has the GPU after")
    toast.filter(has_text="of waiting").hover()
    keep_picture(page, "told-of-the-turn", animations="allow")
    toast.get_by_role("button", name="Show the notebook").click()
    page.locator(".jp-NotebookPanel").wait_for(state="visible")
    page.locator(".jp-Launcher").wait_for(state="hidden")
    toast.wait_for(state="detached")
    page.locator("#jp-main-dock-panel .lm-TabBar-tab").filter(has_text="Launcher").click()
    for is_now, shown in (("waits", "waiting"), ("holds", "holding")):
        _set(stub, kernel_id, is_now)
        page.locator(f".jp-gpushare-mod-{shown}").first.wait_for()
    assert toast.count() == 0
