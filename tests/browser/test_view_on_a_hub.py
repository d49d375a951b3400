"""The page of all nodes on a real JupyterHub, through its login and its proxy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jupyter_gpushare.reports.format import Place
from tests.browser.panel import PATIENCE_MS
from tests.hub.conftest import HubOnAMachine, start_hub, with_proxy
from tests.hub.hub_with_view import PREFIX, HubWithView, told
from tests.hub.running_hub import OUR_LINES, PASSWORD, VIEW_LINES
from tests.reports.rows import a_device, a_report, a_tenant
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.full
__all__ = ["start_hub", "with_proxy"]  # fixtures


@pytest.mark.promise(
    "view-1",
    "On a hub the page follows what nodes report, with its reader's own login, through the proxy",
)
def test_a_user_follows_the_nodes(
    browser: Browser, start_hub: Callable[..., HubOnAMachine]
) -> None:
    """Alice logs in at the hub, is led back to what she asked for, and sees her notebook get the
    GPU: the page's own requests are taken with its XSRF token."""
    from playwright.sync_api import expect

    (port,) = free_ports(1)
    hub = HubWithView(start_hub(our_lines=VIEW_LINES.format(port=port) + OUR_LINES))
    hub.home.hub.wait_until(
        lambda: hub.script("api/v1/nodes", None).status_code == 403, "the view answers"
    )
    rows = {"t": a_tenant(), "u": a_tenant(owner="bob", name="bobs secret.ipynb")}
    sock = hub.reports("node-a", devices={"d": a_device()}, tenants=rows)
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    log_in(page, hub, f"{PREFIX}?find=train")
    expect(page).to_have_url(f"{hub.url}?find=train")
    expect(page.locator("#who")).to_have_text("alice")
    expect(page.locator("#connection")).to_have_text("live")
    mine = page.locator("#mine-table")
    expect(mine).to_contain_text("train.ipynb")
    expect(mine).not_to_contain_text("has the GPU")
    held = a_device(holders=(Place(tenant="t", for_s=1.0), Place(tenant="u", for_s=1.0)))
    told(sock, a_report(1, devices={"d": held}))
    expect(mine).to_contain_text("has the GPU for")
    expect(page.locator("#table")).to_contain_text("another user")
    assert "bob" not in page.content()
    sock.close()
    context.close()


def log_in(page: Page, hub: HubWithView, path: str) -> None:
    page.goto(f"{hub.home.hub.url}{path}")
    page.locator("#username_input").fill("alice")
    page.locator("#password_input").fill(PASSWORD)
    page.locator("#login_submit").click()
