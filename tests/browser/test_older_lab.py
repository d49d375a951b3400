"""The oldest JupyterLab and Jupyter Notebook that we promise to work with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.jupyter import JupyterProcess, write_notebook
from tests.browser.panel import Panel, open_lab, open_notebook
from tests.browser.stub import StubControl, busy_state, device, kernel, state, tenant
from tests.support.environments import version_of
from tests.support.older_jupyter import older_python

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
NAME = '<img src=x onerror="document.title=1"> Zoë 山田'


@pytest.fixture(scope="module")
def stub(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubControl]:
    """JupyterLab 4.2 and Jupyter Notebook 7.2 with the stub of the server extension."""
    python = older_python()
    assert version_of(python, "jupyterlab").startswith("4.2.")
    assert version_of(python, "notebook").startswith("7.2.")
    folder = tmp_path_factory.mktemp("older")
    with JupyterProcess(folder, "tests.browser.stub_extension", python=python) as jupyter:
        yield StubControl(jupyter)


def shows_and_releases(panel: Panel, stub: StubControl) -> None:
    """What a person does with the panel, from the first look to a release."""
    panel.devices.first.wait_for()
    panel.await_queue(3)
    left = re.compile(r"you keep it for \d min more")
    panel.devices.first.filter(has_text=left).wait_for()
    panel.kernel("explore.ipynb").filter(has_text="12 GiB in host memory").wait_for()
    before = len(stub.released)
    panel.release("train-resnet.ipynb")
    assert stub.released[before:] == ["train-resnet"]
    stub.set(state(device(holder=tenant(NAME, "bob", held_s=0)), kernels=[kernel("x", "idle")]))
    panel.holder.get_by_text(NAME).wait_for()
    panel.release_button("train-resnet.ipynb").wait_for(state="detached")
    assert panel.root.locator("img").count() == 0


@pytest.mark.promise("panel-17", "It works in JupyterLab 4.2 and Jupyter Notebook 7.2")
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_jupyterlab(page: Page, stub: StubControl, theme: str) -> None:
    """The panel is in the left sidebar, hears of changes and releases turns."""
    stub.set(busy_state())
    stub.jupyter.use_theme(f"JupyterLab {theme}")
    panel = open_lab(page, stub.jupyter)
    panel.devices.first.wait_for()
    panel.keep_picture(f"panel-older-{theme.lower()}")
    shows_and_releases(panel, stub)


@pytest.mark.promise("panel-17")
def test_jupyter_notebook(page: Page, stub: StubControl) -> None:
    """It opens from the View menu, beside a notebook."""
    stub.set(busy_state())
    write_notebook(stub.jupyter.files / "a notebook.ipynb", "")
    panel = open_notebook(page, stub.jupyter, "a notebook.ipynb")
    panel.devices.first.wait_for()
    panel.keep_picture("panel-older-notebook")
    shows_and_releases(panel, stub)
