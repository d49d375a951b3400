"""A user gives back GPU memory that frameworks keep unused: real kernels, a real browser."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.jupyter import PANEL_NAME, JupyterProcess, write_notebook
from tests.browser.panel import Panel, await_idle_kernel, open_lab, run_cell
from tests.browser.test_two_notebooks import (
    jupyter,
    scheduler,
    served_device,
    sim,
    versions,
)
from tests.kernel.test_caches import FRAMEWORK, WORKS
from tests.support.scheduler_process import SchedulerUnderTest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

__all__ = ["jupyter", "scheduler", "sim", "versions"]

NOTEBOOK = "caches.ipynb"
BUTTON = "Give back unused GPU memory"
GIVEN = "256 MiB of unused GPU memory given back."
CELLS = [
    f"from simulated import gpu\n{FRAMEWORK}\n{WORKS}",
    f"{WORKS}\nprint('works', 'again')",
    "from pathlib import Path\n\nwhile not Path('enough').exists():\n    gpu.spin(20)",
    "import os\n\nwhile not Path('no more').exists():\n    gpu.spin(20)\nos.kill(os.getpid(), 9)",
]
"""Each of the first two leaves 256 MiB in a framework's cache and 128 MiB in use. The others run
until they are told, and the last one kills its kernel then."""


@pytest.fixture
def memory_mode() -> str:
    """As most users have it."""
    return "swap"


@pytest.fixture
def panel(page: Page, jupyter: JupyterProcess) -> Panel:
    """Beside a notebook whose framework keeps memory unused, and in which a wait, however short,
    shows its line."""
    write_notebook(jupyter.files / NOTEBOOK, *CELLS)
    stored = jupyter.settings / PANEL_NAME / "plugin.jupyterlab-settings"
    stored.parent.mkdir(parents=True)
    stored.write_text(json.dumps({"waitLineAfterMs": 0}))
    panel = open_lab(page, jupyter, f"lab/tree/{NOTEBOOK}")
    await_idle_kernel(page, NOTEBOOK)
    run_cell(page, 0)
    panel.kernel(NOTEBOOK).filter(has_text="384 MiB on the GPU").wait_for()
    await_idle_kernel(page, NOTEBOOK)
    return panel


def _button(panel: Panel) -> Locator:
    return panel.kernel(NOTEBOOK).get_by_role("button", name=BUTTON, exact=True)


def _ask(panel: Panel) -> None:
    """With the keyboard alone. A row that went away with its kernel comes back with its actions
    shut, one that stayed has them open."""
    actions = panel.kernel(NOTEBOOK).locator("details")
    if not actions.evaluate("each => each.open"):
        actions.locator("summary").press("Enter")
    _button(panel).and_(panel.page.locator("[aria-disabled=false]")).press("Enter")


def _said(panel: Panel, words: str) -> Locator:
    return panel.kernel(NOTEBOOK).locator(".jp-gpushare-Trim").filter(has_text=words)


@pytest.mark.full
@pytest.mark.promise(
    "panel-33",
    "A user gives back GPU memory that frameworks keep unused, from the panel with the keyboard or "
    "from the palette, and is told how much it was",
)
def test_unused_memory_is_given_back(page: Page, panel: Panel, jupyter: JupyterProcess) -> None:
    """By an idle kernel at once, and what is in use stays. A second time there is nothing. While a
    cell runs, it comes after the cell. Nothing of it is in the notebook."""
    panel.keep_announcements()
    _ask(panel)
    _said(panel, GIVEN).wait_for()
    panel.await_announcement(GIVEN)
    panel.kernel(NOTEBOOK).filter(has_text="128 MiB on the GPU").wait_for()
    panel.await_in_view(_said(panel, GIVEN))
    panel.keep_picture("unused-memory")
    _button(panel).press("Enter")
    _said(panel, "Nothing to give back").wait_for()
    run_cell(page, 2)
    panel.kernel(NOTEBOOK).filter(has_text="Has the GPU").wait_for()
    _button(panel).press("Enter")
    _said(panel, "is given back after the cell that runs").wait_for()
    _button(panel).and_(page.locator("[aria-disabled=true]")).wait_for()
    (jupyter.files / "enough").touch()
    _said(panel, "Nothing to give back").wait_for()
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
    assert prompts.all_inner_texts()[:3] == ["[1]:", "[ ]:", "[2]:"]


@pytest.mark.full
@pytest.mark.promise("panel-33")
@pytest.mark.promise("jupyter-42")
def test_it_waits_for_the_turn_and_is_no_cell(
    page: Page, panel: Panel, scheduler: SchedulerUnderTest
) -> None:
    """From the palette, while another has the GPU: the row says what it waits for, and neither a
    cell nor the notebook has a line. A notification says what came of it."""
    with scheduler.joined("somebody", device=served_device(scheduler)) as somebody:
        turn = somebody.take_turn()
        page.evaluate("void jupyterapp.commands.execute('gpushare:trim-memory')")
        _said(panel, "given back as soon as it has the GPU").wait_for()
        panel.kernel(NOTEBOOK).filter(has_text="Number 1 in the queue").wait_for()
        panel.keep_picture("unused-memory-waits")
        assert page.locator(".jp-gpushare-WaitLine").count() == 0
        somebody.drop(turn.turn_id)
        toast = page.locator(".Toastify__toast").filter(has_text=GIVEN)
        toast.filter(has_text=NOTEBOOK).wait_for()
        panel.kernel(NOTEBOOK).filter(has_text="128 MiB on the GPU").wait_for()
        turn = somebody.take_turn()
        run_cell(page, 1)
        line = page.locator(".jp-CodeCell").nth(1).locator(".jp-gpushare-WaitLine")
        line.filter(has_text="Waiting for the GPU").wait_for()
        somebody.drop(turn.turn_id)
    page.get_by_text("works again", exact=True).wait_for()


@pytest.mark.full
@pytest.mark.promise("bad-input-70")
def test_a_kernel_that_dies_before_it_answers(
    page: Page, panel: Panel, jupyter: JupyterProcess
) -> None:
    """The row says so, and the kernel that takes its place is asked anew."""
    run_cell(page, 2)
    (jupyter.files / "enough").touch()
    await_idle_kernel(page, NOTEBOOK)
    run_cell(page, 3)
    panel.kernel(NOTEBOOK).filter(has_text="Has the GPU").wait_for()
    _ask(panel)
    _said(panel, "after the cell that runs").wait_for()
    (jupyter.files / "no more").touch()
    _said(panel, "The kernel has ended meanwhile, and all of its GPU memory is free.").wait_for()
    dialog = page.locator(".jp-Dialog").filter(has_text=re.compile("restart", re.IGNORECASE))
    dialog.get_by_role("button", name="Ok").click()
    dialog.wait_for(state="detached")
    run_cell(page, 0)
    panel.kernel(NOTEBOOK).filter(has_text="384 MiB on the GPU").wait_for()
    _ask(panel)
    _said(panel, GIVEN).wait_for()
