"""The page of all nodes in a real browser, with a fleet that the test fills."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from jupyter_gpushare.view.caller import Viewer
from jupyter_gpushare.view.fleet import SILENT_S, Fleet
from tests.browser.panel import FAULTS, PATIENCE_MS, keep_picture
from tests.view.busy import fill
from tests.view.fleets import device, node_row, place, reports, tenant
from tests.view.standin import Standin

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

ADMIN = Viewer("root", True)
ALICE = Viewer("alice", False)
Open = Callable[..., "Page"]
SERIOUS = {"serious", "critical"}


@pytest.fixture
def view() -> Iterator[Standin]:
    with Standin() as standin:
        yield standin


@pytest.fixture
def opened(browser: Browser, view: Standin) -> Iterator[Open]:
    """Opens the page; whatever a script or the content policy complains of fails the test."""
    contexts = []
    complaints: list[str] = []

    def open_page(query: str = "", width: int = 1200, theme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if theme == "dark" else "light",
            device_scale_factor=2,
            locale="en-US",
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda each: complaints.append(each.text))
        page.goto(view.url + query)
        return page

    yield open_page
    for context in contexts:
        context.close()
    expected = ("Failed to load resource", "net::ERR_")  # while the service is gone
    assert [each for each in complaints if not any(word in each for word in expected)] == []


def row(page: Page, name: str) -> Locator:
    return page.locator("#table > table > tbody").filter(
        has=page.get_by_role("button", name=name, exact=True)
    )


def names(page: Page) -> list[str]:
    found: list[str] = page.locator("#table .opens").all_inner_texts()
    return found


def await_names(page: Page, *expected: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#table .opens")).to_have_text(list(expected))


def shows(locator: Locator, text: str) -> None:
    from playwright.sync_api import expect

    expect(locator).to_contain_text(text)


# ---- administrators -----------------------------------------------------------------------------


@pytest.mark.promise(
    "view-2",
    "The page of all nodes shows an administrator what needs a look first, finds who has a GPU by "
    "name, and follows what changes",
)
def test_an_administrator_finds_who_has_a_gpu(view: Standin, opened: Open) -> None:
    """By the address or by typing; the address says what is shown."""
    view.do(fill)
    page = opened("?find=DIFFUSION")
    assert names(page) == ["gpu-03"]
    shows(row(page, "gpu-03"), "alice: diffusion.ipynb")
    page.get_by_label("Search").fill("erin")
    shows(page.locator("#count"), "1 node ·")
    await_names(page, "gpu-01")
    assert page.url.endswith("?find=erin")
    page.get_by_label("Search").fill("nobody-of-this-name")
    shows(page.locator("#table"), "Nothing fits what you look for.")
    page.get_by_label("Search").fill("")
    shows(page.locator("#count"), "6 nodes · 4 nodes need a look")
    assert names(page)[:2] == ["gpu-11", "gpu-01"]
    page.get_by_role("combobox", name="Sort by", exact=True).select_option("name")
    await_names(page, "gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-10", "gpu-11")
    page.get_by_role("combobox", name="Show", exact=True).select_option("free")
    shows(page.locator("#count"), "4 nodes")
    await_names(page, "gpu-02", "gpu-03", "gpu-04", "gpu-10")


@pytest.mark.promise("view-2")
def test_what_changes_is_followed(view: Standin, opened: Open) -> None:
    """A new holder, a new node and a node that has turned silent, without the page being loaded."""
    view.do(fill)
    page = opened("?sort=name")
    shows(row(page, "gpu-11"), "silent for ")

    def turn(fleet: Fleet, now_s: float) -> None:
        book = {"x": tenant("zoe", "new.ipynb", state="holding")}
        reports(fleet, "gpu-04", {"d0": device(holders=(place("x"),))}, book, now_s=now_s)
        reports(fleet, "gpu-12", {"d0": device()}, {}, now_s=now_s)

    view.do(turn)
    shows(row(page, "gpu-04"), "zoe: new.ipynb")
    shows(row(page, "gpu-12"), "1 of 1 free")
    shows(page.locator("#totals"), "7")

    def long_ago(fleet: Fleet, now_s: float) -> None:
        fleet.nodes["gpu-12"].heard_s -= SILENT_S

    view.do(long_ago)
    shows(row(page, "gpu-12"), "silent for")


@pytest.mark.promise("view-2")
def test_a_node_is_opened_by_the_keyboard(view: Standin, opened: Open) -> None:
    """Its devices, who has them, the queue in order and its notebooks; the keyboard stays where it
    is while rows move."""
    from playwright.sync_api import expect

    view.do(fill)
    page = opened("?find=gpu-0&sort=free")
    button = row(page, "gpu-03").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    first = row(page, "gpu-03").get_by_role("article").first
    shows(first, "alice: diffusion.ipynb for ")
    queue = first.get_by_role("list", name="Queue, in order").get_by_role("listitem")
    assert [each.partition(" for ")[0] for each in queue.all_inner_texts()] == [
        "bob: finetune-llama.ipynb",
        "carol: plots.ipynb",
    ]
    shows(row(page, "gpu-03"), "does not give it back")
    shows(row(page, "gpu-03").get_by_role("table"), "number 2 in line, waiting")

    def more_room(fleet: Fleet, now_s: float) -> None:
        devices = {f"d{n}": device() for n in range(9)}
        reports(fleet, "gpu-03", devices, {}, now_s=now_s)

    before = names(page).index("gpu-03")
    view.do(more_room)
    shows(row(page, "gpu-03"), "9 of 9 free")
    assert names(page).index("gpu-03") != before
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "false")
    assert "open=" not in page.url


def test_the_notebooks_of_all_nodes(view: Standin, opened: Open) -> None:
    """As one table, searched like the nodes."""
    view.do(fill)
    page = opened()
    page.get_by_role("button", name="Notebooks").click()
    shows(page.locator("#count"), "6 notebooks")
    page.get_by_label("Search").fill("alice")
    shows(page.locator("#count"), "2 notebooks")
    table = page.get_by_role("region", name="Notebooks").get_by_role("table")
    heads = table.get_by_role("columnheader").all_inner_texts()
    assert heads == ["Notebook", "User", "Node", "State", "GPU memory", "So far"]
    (first, second) = table.locator("tbody tr").all()
    shows(first, "has the GPU for ")
    cells = [first.get_by_role("rowheader"), *first.get_by_role("cell").all()]
    assert [each.inner_text() for each in cells[:3]] == ["diffusion.ipynb", "alice", "gpu-03"]
    assert cells[4].inner_text() == "31 GiB"
    shows(second, "computes nothing")
    assert "show=tenants" in page.url


@pytest.mark.promise("view-3", "The page shows a thousand nodes a hundred at a time")
def test_a_thousand_nodes(view: Standin, opened: Open) -> None:
    """Page by page; what is on other pages is found by name."""

    def many(fleet: Fleet, now_s: float) -> None:
        for number in range(1000):
            book = {"t": tenant(f"user-{number}", f"book-{number}.ipynb", state="holding")}
            devices = {f"d{n}": device() for n in range(7)}
            devices["d7"] = device(holders=(place("t"),))
            reports(fleet, f"node-{number}", devices, book, now_s=now_s)

    view.do(many)
    page = opened("?sort=name")
    shows(page.locator("#range"), "1\N{EN DASH}100 of 1,000")
    assert names(page) == [f"node-{n}" for n in range(100)]
    page.get_by_role("button", name="Next").click()
    shows(page.locator("#range"), "101\N{EN DASH}200 of 1,000")
    row(page, "node-199").wait_for()
    assert len(names(page)) == 100
    page.get_by_label("Search").fill("book-777")
    row(page, "node-777").wait_for()
    await_names(page, "node-777")


# ---- users --------------------------------------------------------------------------------------


@pytest.mark.promise(
    "view-4",
    "The page shows users their notebooks on all nodes, and nobody else's, and where a GPU is free",
)
def test_a_user_sees_own_notebooks(view: Standin, opened: Open) -> None:
    """The page as it came, and as it stands, has no other name in it."""
    view.do(fill)
    view.caller = ALICE
    page = opened("?open=gpu-03")
    mine = page.get_by_role("region", name="Your notebooks")
    shows(mine, "diffusion.ipynb")
    shows(mine, "has the GPU for ")
    shows(page.locator("#advice"), "gpu-04 has 2 free GPUs")
    shows(row(page, "gpu-03"), "another user for ")
    came = page.request.get(view.url + "?open=gpu-03").text()
    for text in (page.content(), came):
        assert "diffusion.ipynb" in text
        assert not re.search("bob|carol|dave|erin|finetune|kubelet", text)


# ---- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.promise(
    "view-5",
    "The page says that its connection is lost and how old it is, and comes back by itself",
)
def test_a_lost_connection_is_told(view: Standin, opened: Open) -> None:
    """The service goes, comes back, and then knows another state."""
    view.do(fill)
    page = opened()
    status = page.locator("#connection")
    shows(status, "live")
    view.stop()
    shows(status, "Connection lost at ")
    view.start()
    view.do(lambda fleet, now_s: reports(fleet, "gpu-20", {"d": device()}, {}, now_s=now_s))
    shows(status, "live")
    row(page, "gpu-20").wait_for()


def test_a_login_that_has_ended_is_told(view: Standin, opened: Open) -> None:
    """It does not come back by itself: the page says what to do."""
    page = opened()
    shows(page.locator("#connection"), "live")
    view.caller = None
    view.stop()
    view.start()
    shows(page.locator("#connection"), "Your login has ended. Load the page again.")


def test_no_node_has_reported_yet(view: Standin, opened: Open) -> None:
    """An administrator is told what to do, a user whom to ask."""
    page = opened()
    table = page.locator("#table")
    shows(table, "No node has reported yet.")
    shows(table, f"--report-to {view.url}api/v1/reports")
    assert "jupyter gpushare view token NODE" in table.inner_text()
    view.caller = ALICE
    shows(opened().locator("#table"), "Ask an administrator")


@pytest.mark.promise(
    "view-6", "Whatever nodes call things, the page shows it as text and runs none of it"
)
def test_names_are_texts(view: Standin, opened: Open) -> None:
    """Also in the answer that comes within the page."""
    evil = '</script><script>document.title = "run"</script><img src=x onerror=alert(1)>'

    def evil_names(fleet: Fleet, now_s: float) -> None:
        book = {evil: tenant(evil, evil, why=evil)}
        devices = {evil: device(name=evil, holders=(place(evil),), mode=evil)}
        told = node_row(version=evil, platform=evil, problems=(evil,))
        reports(fleet, "n<b>1</b>", devices, book, now_s=now_s, row=told)

    view.do(evil_names)
    page = opened("?open=n<b>1</b>")
    shows(row(page, "n<b>1</b>"), f"{evil}: {evil}")
    row(page, "n<b>1</b>").get_by_role("article").wait_for()
    assert page.locator("img").count() == 0 and page.title() == "GPUs of all nodes"


# ---- how it looks -------------------------------------------------------------------------------


def serious_findings(page: Page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes']]}"
        for each in Axe().run(page).response["violations"]
        if each["impact"] in SERIOUS
    ]


@pytest.mark.full
@pytest.mark.promise(
    "view-7",
    "axe-core has no serious finding in the page of all nodes, in light and dark, and nothing "
    "is cut on narrow screens",
)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 700, 320])
def test_the_page_can_be_read(view: Standin, opened: Open, theme: str, width: int) -> None:
    """As an administrator and as a user, with a node opened; and while there is none."""
    empty = opened(width=width, theme=theme)
    empty.locator(".empty").wait_for()
    assert serious_findings(empty) == [] and faults(empty) == []
    view.do(fill)
    for caller in (ADMIN, ALICE):
        view.caller = caller
        page = opened("?open=gpu-03", width=width, theme=theme)
        row(page, "gpu-03").get_by_role("article").first.wait_for()
        shows(page.locator("#connection"), "live")
        who = "admin" if caller.is_admin else "user"
        keep_picture(page, f"view-{who}-{theme}-{width}", full_page=True)
        assert serious_findings(page) == [] and faults(page) == []
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img>')")
    assert "image-alt" in serious_findings(page)[0]  # the checker looks here


def faults(page: Page) -> list[str]:
    """Texts that overlap, stick out or are cut; what is for screen readers alone goes before."""
    page.evaluate("document.querySelectorAll('.unseen').forEach(each => each.remove())")
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    found: list[str] = page.locator("main").evaluate(FAULTS)
    return [*found, *(["the page is wider than the window"] if page.evaluate(wide) else [])]
