"""`jupyter gpushare try` as it opens in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.jupyter import PANEL, PANEL_NAME
from tests.browser.panel import Panel, await_idle_kernel, change_theme, keep_picture
from tests.support.trial_process import Trial, running_trial

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page

VIEW = {"width": 1400, "height": 800}
"""Of a laptop."""


@pytest.fixture
def trial(page: Page, tmp_path: Path) -> Iterator[Trial]:
    """In an environment that has the panel. At the end the user's home is as empty as before."""
    share, home = tmp_path / "share", tmp_path / "home"
    home.mkdir()
    shutil.copytree(PANEL, share / "labextensions" / PANEL_NAME)
    env = {"HOME": str(home), "JUPYTER_PATH": str(share)}
    tells = "--LabApp.expose_app_in_browser=True"  # when it is there
    with running_trial(tmp_path, env, tells) as trial:
        trial.ask("api/status")
        yield trial
    assert list(home.iterdir()) == []


@pytest.mark.full
@pytest.mark.promise("cli-39")
@pytest.mark.promise(
    "cli-41", "`try` opens with both notebooks side by side and the panel, in either theme"
)
def test_both_notebooks_and_the_panel_are_side_by_side(page: Page, trial: Trial) -> None:
    """From the first moment on. The cells run as the notebooks say, and nothing covers them. At the
    end the training is paused on purpose, and says so below its cell."""
    page.set_viewport_size(VIEW)
    page.goto(trial.page_url)
    panel = Panel(page)
    train, explore = _notebook(page, "train.ipynb"), _notebook(page, "explore.ipynb")
    places = [_box(panel.root), _box(train), _box(explore)]
    for left, right in pairwise(places):
        assert left["x"] + left["width"] <= right["x"]
    assert all(place["width"] > VIEW["width"] / 6 for place in places)

    for cell in range(2):
        _run(train, cell)
    trial.await_training()
    for cell in range(_cells(explore).count()):
        _run(explore, cell)
    paused = _cells(train).nth(1).locator(".jp-gpushare-WaitLine").filter(has_text="Paused after")
    paused.wait_for()
    panel.holder.filter(has_text="explore.ipynb").wait_for()
    keep_picture(page, "trial-light")
    change_theme(page, "JupyterLab Dark")
    keep_picture(page, "trial-dark")
    assert page.locator(".jp-Dialog, .Toastify__toast").count() == 0


def _notebook(page: Page, name: str) -> Locator:
    """Once its kernel is there."""
    await_idle_kernel(page, name)
    number = 0 if name == "train.ipynb" else 1
    notebook = page.locator("#jp-main-dock-panel .jp-NotebookPanel").nth(number)
    notebook.wait_for(state="visible")
    return notebook


def _cells(notebook: Locator) -> Locator:
    return notebook.locator(".jp-CodeCell")


def _run(notebook: Locator, number: int) -> None:
    """Returns once the cell prints, or shows something."""
    cell = _cells(notebook).nth(number)
    cell.locator(".jp-InputArea-editor").click()
    cell.locator(".cm-editor.cm-focused").wait_for()
    notebook.page.keyboard.press("Control+Enter")
    cell.locator(".jp-OutputArea-output").first.wait_for()


def _box(element: Locator) -> FloatRect:
    box = element.bounding_box()
    assert box is not None
    return box
