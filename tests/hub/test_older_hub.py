"""JupyterHub 5, with our wheel beside it: what has changed since is in hub/configure.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hub.conftest import HubOnAMachine
from tests.hub.hub_with_view import AS_A_PAGE_ASKS, PREFIX, HubWithView
from tests.hub.hub_with_view import visitor as logged_in
from tests.hub.running_hub import OUR_LINES, VIEW_LINES
from tests.hub.visitor import Visitor
from tests.support import gpu_cells
from tests.support.environments import version_of
from tests.support.older_jupyter import older_python
from tests.support.ports import free_ports

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def python() -> Path:
    return older_python()


@pytest.fixture(scope="module")
def home(start_hub: Callable[..., HubOnAMachine], python: Path) -> HubOnAMachine:
    assert version_of(python, "jupyterhub").startswith("5.")
    (port,) = free_ports(1)
    return start_hub(python=python, our_lines=VIEW_LINES.format(port=port) + OUR_LINES)


@pytest.mark.promise("hub-18", "JupyterHub 5 does too")
def test_two_users_take_turns(home: HubOnAMachine) -> None:
    """Each kernel is a tenant of the user who logged in, both use the GPU, and each user's panel
    knows whose it is."""
    for name in ("alice", "bob"):
        visitor = home.hub.visitor(name)
        kernel = visitor.open_notebook(f"{name}.ipynb")
        kernel.run(gpu_cells.setup()).ok()
        kernel.run(gpu_cells.fill_and_check(7, 10.0)).ok()
        tenant = home.tenant_of(kernel.kernel_id)
        assert tenant is not None, home.hub.log[-4000:]
        assert tenant["owner"] == name
        assert tenant["counters"]["turns"] >= 1
        expected = ("up", name, [tenant["id"]])
        home.hub.wait_until(lambda: told(visitor) == expected, "the panel knows")  # noqa: B023


@pytest.mark.promise("hub-18")
def test_the_view(home: HubOnAMachine) -> None:
    """Its OAuth lets users in, its page's requests need the XSRF token, and who is an administrator
    is known by the cookie as by a token."""
    view = HubWithView(home)
    view.await_answers()
    route = f"{PREFIX}api/v1/summary"
    for name, is_admin in (("alice", False), ("root", True)):
        person = logged_in(home, name)
        assert person.visit(PREFIX).history
        caller = {"name": name, "is_admin": is_admin}
        assert person.visit(route).json()["caller"] == caller
        assert person.visit(route, AS_A_PAGE_ASKS).status_code == 403
        shown = {**AS_A_PAGE_ASKS, "X-XSRFToken": person.xsrf(PREFIX)}
        assert person.visit(route, shown).json()["caller"] == caller
        answer = view.script("api/v1/summary", person.new_token())
        assert answer.json()["caller"] == caller


def told(visitor: Visitor) -> tuple[str, str, list[str]]:
    """Of the scheduler, the user and the tenants, as the panel reads it."""
    state = visitor.request("GET", "gpushare/api/state").json()
    return state["scheduler"], state["user"], [each["tenant_id"] for each in state["kernels"]]


@pytest.mark.promise("hub-18")
def test_a_token_is_its_owners_alone(home: HubOnAMachine) -> None:
    """Alice's token registers nobody for bob, and what it may see names nobody else."""
    alice = home.hub.visitor("alice")
    token = alice.open_notebook("token.ipynb").run(
        "import os; print(os.environ['JUPYTERHUB_API_TOKEN'])"
    )
    body = {"name": "a", "kind": "run", "user": "bob"}
    status, answer = home.hub.ask("POST", "/tenants", body, token=token.ok().text.strip())
    assert (status, "for another user" in answer["message"]) == (403, True)
    status, answer = home.hub.ask("GET", "/status", token=token.text.strip())
    assert status == 200
    assert {tenant["owner"] for tenant in answer["tenants"]} <= {"alice", "another user"}
