"""The panel as a person at the browser sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from tests.browser.jupyter import JupyterProcess
from tests.support.paths import BUILD
from tests.support.waits import WAIT_S_MAX

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PANEL_ID = "jp-gpushare-panel"
PATIENCE_MS = int(WAIT_S_MAX * 1000)
"""Of each step in a page. It ends a hang, and says nothing about speed."""
MAIN_AREA = "#jp-main-dock-panel .jp-Launcher, #jp-main-dock-panel .jp-Notebook"
ARTEFACTS = BUILD / "artefacts"
LOW_CONTRASTS = """panel => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => {
    const [r, g, b] = channels(color).slice(0, 3).map(value => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (front, back) => {
    const [r, g, b, alpha = 1] = channels(front);
    const behind = channels(back);
    const mixed = [r, g, b].map((value, i) => value * alpha + behind[i] * (1 - alpha));
    return `rgb(${mixed.join(', ')})`;
  };
  const background = element => {
    const color = getComputedStyle(element).backgroundColor;
    const [, , , alpha = 1] = channels(color);
    if (alpha === 1) return color;
    const back = element.parentElement ? background(element.parentElement) : 'rgb(255, 255, 255)';
    return over(color, back);
  };
  const found = [];
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const back = background(element);
    const [high, low] = [light(over(getComputedStyle(element).color, back)), light(back)].sort(
      (a, b) => b - a
    );
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) found.push(`${walker.currentNode.data}: ${contrast.toFixed(2)}`);
  }
  return found;
}"""
"""Each text that is hard to read against what is behind it, and its contrast."""
FAULTS = """panel => {
  const found = [];
  const edge = panel.getBoundingClientRect();
  if (panel.scrollWidth > panel.clientWidth) found.push('the panel is wider than its place');
  const isText = node => node.nodeType === 3 && node.data.trim();
  const hasText = each => [...each.childNodes].some(isText);
  const leaves = [...panel.querySelectorAll('*')].filter(
    each => hasText(each) && each.checkVisibility() && !each.closest('[role=status], canvas')
  );
  const clipsOf = each => {
    const clips = [];
    for (let at = each; at !== panel; at = at.parentElement)
      if (getComputedStyle(at).overflowX !== 'visible') clips.push(at.getBoundingClientRect());
    return clips;
  };
  const texts = leaves.flatMap(each => {
    const isCut = each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 0;
    if (isCut && getComputedStyle(each).overflowX !== 'visible' && !each.closest('[title]'))
      found.push(`cut, and nothing tells the whole: ${each.textContent}`);
    const range = document.createRange();
    return [...each.childNodes].filter(isText)
      .flatMap(node => (range.selectNodeContents(node), [...range.getClientRects()]))
      .map(({ bottom, left, right, top }) => ({
        bottom: Math.min(bottom, ...clipsOf(each).map(clip => clip.bottom)),
        left: Math.max(left, ...clipsOf(each).map(clip => clip.left)),
        right: Math.min(right, ...clipsOf(each).map(clip => clip.right)),
        top: Math.max(top, ...clipsOf(each).map(clip => clip.top)),
        whose: each,
        words: each.textContent
      }));
  });
  for (const [place, a] of texts.entries()) {
    if (a.left < edge.left - 1 || a.right > edge.right + 1) found.push(`sticks out: ${a.words}`);
    for (const b of texts.slice(place + 1)) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      const isOther = a.whose !== b.whose;
      if (isOther && wide > 2 && high > 4) found.push(`overlap: ${a.words} | ${b.words}`);
    }
  }
  return found;
}"""
"""What a person would see that is wrong: texts that overlap, stick out or are cut."""


IDLE_KERNEL = """path => {
  for (const widget of window.jupyterapp?.shell.widgets('main') ?? []) {
    const kernel = widget.context?.path === path && widget.sessionContext?.session?.kernel;
    if (kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle')
      return kernel.id;
  }
  return null;
}"""

STARTED = "window.jupyterapp && Promise.all([jupyterapp.started, jupyterapp.restored])"

CHOOSE_IN_MENU = """([panel, ...path]) => {
  const menus = [...(window.jupyterapp?.shell.widgets('menu') ?? [])].flatMap(
    each => each.menus ?? []
  );
  let menu = menus.find(each => each.title.label === path[0]);
  for (const label of path.slice(1))
    menu = menu?.items.find(each => each.submenu?.title.label === label)?.submenu;
  const entry = menu?.items.find(each => each.args.id === panel);
  if (!entry?.isVisible || !entry.isEnabled) return null;
  return jupyterapp.commands.execute(entry.command, entry.args).then(() => entry.label);
}"""
"""Answers the entry's label, once the menu has it. A menu that is open on the screen is shut by
every plugin that adds an entry to it, however late that comes."""


def open_lab(page: Page, jupyter: JupyterProcess, path: str = "lab?reset") -> Panel:
    """JupyterLab, with no layout of an earlier test, and the panel open in its left sidebar."""
    page.goto(jupyter.page_url(path))
    page.locator("#jupyterlab-splash").wait_for(state="detached")
    # What opens last in the main area takes the keyboard, so a person would wait for it as well.
    page.locator(MAIN_AREA).first.wait_for()
    return show_panel(page)


def show_panel(page: Page) -> Panel:
    """From JupyterLab's left sidebar. An earlier click would be undone by the layout, which
    JupyterLab restores last."""
    page.wait_for_function(STARTED)
    page.locator(f'.jp-SideBar [data-id="{PANEL_ID}"]').click()
    return Panel(page)


def change_theme(page: Page, theme: str) -> None:
    """As the menu does it; returns once the page has the theme's styles."""
    command = "theme => void jupyterapp.commands.execute('apputils:change-theme', { theme })"
    page.evaluate(command, theme)
    page.locator(f'body[data-jp-theme-name="{theme}"]').wait_for(state="attached")
    page.locator("#jupyterlab-splash").wait_for(state="detached")


def open_notebook(page: Page, jupyter: JupyterProcess, notebook: str) -> Panel:
    """A notebook in Jupyter Notebook, and the panel opened from the View menu beside it."""
    page.goto(jupyter.page_url(f"notebooks/{quote(notebook)}"))
    page.locator(".jp-Notebook").wait_for()
    page.wait_for_function(STARTED)
    menu = [PANEL_ID, "View", "Left Sidebar"]
    label = page.wait_for_function(CHOOSE_IN_MENU, arg=menu).json_value()
    assert "GPU" in label
    return Panel(page)


def await_idle_kernel(page: Page, notebook: str) -> str:
    """The id of the notebook's kernel, once this page is connected to it and it has nothing to do.
    The server cannot be asked: it counts the connections of pages that are gone as well."""
    return str(page.wait_for_function(IDLE_KERNEL, arg=notebook).json_value())


def run_cell(page: Page, number: int, keys: str = "Control+Enter") -> None:
    """Once the keyboard is in the cell; returns when the page has begun to run it."""
    from playwright.sync_api import expect

    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    prompt = cell.locator(".jp-InputPrompt")
    before = prompt.inner_text()
    cell.locator(".jp-InputArea-editor").click()
    cell.locator(".cm-editor.cm-focused").wait_for()
    page.keyboard.press(keys)
    expect(prompt).not_to_have_text(before)


def keep_picture(
    page: Page,
    name: str,
    animations: Literal["allow", "disabled"] = "disabled",
    *,
    full_page: bool = False,
) -> Path:
    """A screenshot of the window or of the whole page, kept in the build folder. A notification
    goes at the end of its animation, so that a picture of one allows them."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    file = ARTEFACTS / f"{name}.png"
    page.screenshot(path=file, animations=animations, full_page=full_page)
    return file


class Panel:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.root: Locator = page.locator(f"#{PANEL_ID}")
        self.root.wait_for(state="visible")

    @property
    def devices(self) -> Locator:
        return self.root.get_by_role("article")

    @property
    def holder(self) -> Locator:
        return self.root.locator(".jp-gpushare-Holder")

    @property
    def queue(self) -> Locator:
        return self.root.get_by_role("list", name="Queue, in order").get_by_role("listitem")

    @property
    def notices(self) -> Locator:
        return self.root.locator(".jp-gpushare-Notice")

    def kernel(self, name: str) -> Locator:
        return self.root.locator(".jp-gpushare-Kernel").filter(has_text=name)

    def release_button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=f"Release the turn of {name}")

    def release(self, name: str) -> None:
        """Its button, pressed by the keyboard: the panel may move under a mouse."""
        with self.page.expect_response("**/gpushare/api/kernels/*/release*") as answer:
            self.release_button(name).press("Enter")
        assert answer.value.status == 204

    def await_queue(self, length: int) -> None:
        from playwright.sync_api import expect

        expect(self.queue).to_have_count(length)

    def unfold_actions(self) -> None:
        """Of each kernel. Not by the keyboard, which the page may give to something else."""
        for actions in self.root.locator("details.jp-gpushare-Actions").all():
            actions.locator("summary").dispatch_event("click")
            actions.and_(self.root.locator("[open]")).wait_for()

    def await_in_view(self, element: Locator) -> None:
        """Until the element has been scrolled to where it can be seen whole."""
        self.page.wait_for_function(
            "([each, panel]) => each.getBoundingClientRect().bottom"
            " <= panel.getBoundingClientRect().bottom",
            arg=[element.element_handle(), self.root.element_handle()],
        )

    def keep_announcements(self) -> None:
        """From now on, what the live region says is kept: the next news may replace it."""
        self.root.get_by_role("status").evaluate(
            "region => { window.announced = []; new MutationObserver("
            "() => window.announced.push(region.textContent)"
            ").observe(region, { childList: true, characterData: true, subtree: true }); }"
        )

    def await_announcement(self, words: str) -> None:
        self.page.wait_for_function(
            "words => window.announced.some(each => each.includes(words))", arg=words
        )

    def keep_picture(self, name: str) -> Path:
        return keep_picture(self.page, name)
