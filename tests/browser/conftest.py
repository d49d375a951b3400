"""A real browser: the machine's Chromium or npm's; without either, these tests are skipped, and the
promises that they hold fail the run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.chromium import find_chromium
from tests.browser.jupyter import PANEL, PANEL_NAME, JupyterProcess
from tests.browser.panel import PATIENCE_MS
from tests.support.node import NoProgram

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Error, Page

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]
VIEW = {"width": 1000, "height": 560}
PIXELS_PER_POINT = 2
SHUTS_DIALOG = """
new MutationObserver(() => {
  for (const dialog of document.querySelectorAll('.jp-Dialog'))
    if (dialog.textContent.includes('Server Connection Error'))
      dialog.querySelector('.jp-Dialog-footerButtons button')?.click();
}).observe(document, { childList: true, subtree: true });
"""
"""On a busy machine a request may be late, and JupyterLab says over all of the page that it tries
again. A person would shut that, and go on."""


def what_is_missing() -> str | None:
    """What the tests need and this environment lacks, and how to get it; None when all is there."""
    for package in ("playwright", "jupyterlab", "notebook"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed. To run this: pip install {package}"
    if not (PANEL / "package.json").exists():
        return "The panel is not built. To run this: make panel"
    return None


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    try:
        chromium = find_chromium()
    except NoProgram as reason:
        pytest.skip(str(reason))
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.program, args=FLAGS, env=dict(chromium.env)
        )
        yield browser
        browser.close()


def new_context(browser: Browser) -> BrowserContext:
    """A fresh profile."""
    context = browser.new_context(
        viewport=VIEW, device_scale_factor=PIXELS_PER_POINT, locale="en-US"
    )
    context.set_default_timeout(PATIENCE_MS)  # of each of its pages
    context.add_init_script(SHUTS_DIALOG)
    return context


@contextmanager
def watched_page(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A page of a fresh profile, and the errors of the panel's scripts in it until now. Jupyter
    Notebook has one of its own at each start, with and without the panel."""
    context = new_context(browser)
    page = context.new_page()
    errors: list[str] = []

    def note(error: Error) -> None:
        said = error.stack or str(error)
        if PANEL_NAME in said:
            errors.append(said)

    page.on("pageerror", note)
    yield page, errors
    context.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a fresh profile, in which every error of the panel's scripts fails the test."""
    with watched_page(browser) as (page, errors):
        yield page
    assert errors == []


@pytest.fixture(scope="module")
def jupyter_with_stub(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JupyterProcess]:
    """JupyterLab with the stub of the server extension."""
    directory: Path = tmp_path_factory.mktemp("jupyter")
    with JupyterProcess(directory, "tests.browser.stub_extension") as jupyter:
        yield jupyter
