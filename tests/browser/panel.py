"""The panel as a person at the browser sees it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from tests.browser.jupyter import JupyterProcess
from tests.support.paths import BUILD

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PANEL_ID = "jp-gpushare-panel"
MAIN_AREA = "#jp-main-dock-panel .jp-Launcher, #jp-main-dock-panel .jp-Notebook"
ARTEFACTS = BUILD / "artefacts"


def open_lab(page: Page, jupyter: JupyterProcess, path: str = "lab?reset") -> Panel:
    """JupyterLab, with no layout of an earlier test, and the panel open in its left sidebar."""
    page.goto(jupyter.page_url(path))
    page.locator("#jupyterlab-splash").wait_for(state="detached", timeout=60_000)
    # What opens last in the main area takes the keyboard, so a person would wait for it as well.
    page.locator(MAIN_AREA).first.wait_for()
    page.locator(f'.jp-SideBar [data-id="{PANEL_ID}"]').click()
    return Panel(page)


def open_notebook(page: Page, jupyter: JupyterProcess, notebook: str) -> Panel:
    """A notebook in Jupyter Notebook, and the panel opened from the View menu beside it."""
    page.goto(jupyter.page_url(f"notebooks/{quote(notebook)}"))
    page.locator(".jp-Notebook").wait_for()
    # Each plugin that adds an entry to an open menu closes it.
    page.wait_for_function(
        "window.jupyterapp && Promise.all([jupyterapp.started, jupyterapp.restored])"
    )
    page.get_by_role("menuitem", name="View", exact=True).click()
    page.locator(".lm-Menu-item", has_text="Left Sidebar").hover()
    page.locator(".lm-Menu-item", has_text="GPU").click()
    return Panel(page)


def keep_picture(
    page: Page, name: str, animations: Literal["allow", "disabled"] = "disabled"
) -> Path:
    """A screenshot of the whole page, kept in the build folder. A notification goes at the end of
    its animation, so that a picture of one allows them."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    file = ARTEFACTS / f"{name}.png"
    page.screenshot(path=file, animations=animations)
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

    def keep_picture(self, name: str) -> Path:
        return keep_picture(self.page, name)
