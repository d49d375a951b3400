"""A real JupyterHub: proxy, hub, scheduler and view as its services; users who log in over
HTTP, and nodes that report through the proxy."""

from __future__ import annotations

import json
import re

import pytest
import websocket

from jupyter_gpushare.client import RequestRefused, SchedulerClient
from jupyter_gpushare.client.paths import HTTP_SOCKET
from jupyter_gpushare.hub.view import own_name
from tests.hub.conftest import ODD, HubOnAMachine
from tests.hub.hub_with_view import AS_A_PAGE_ASKS, PREFIX, WITHOUT_CORS, HubWithView, visitor
from tests.hub.visitor import HubKernel, Visitor
from tests.reports.rows import a_device, a_tenant
from tests.support import gpu_cells
from tests.support.observed import ObservedKernels
from tests.support.other_user import as_other_user, as_root_only
from tests.support.timeline import overlaps


@pytest.fixture(scope="module")
def alice(home: HubOnAMachine) -> Visitor:
    return home.hub.visitor("alice")


@pytest.fixture(scope="module")
def zoe(home: HubOnAMachine) -> Visitor:
    return home.hub.visitor(ODD)


@pytest.fixture(scope="module")
def hers(alice: Visitor) -> HubKernel:
    """Alice's notebook."""
    return alice.open_notebook("alices secret.ipynb")


@pytest.fixture(scope="module")
def zoes(zoe: Visitor) -> HubKernel:
    """Zoë's notebook."""
    return zoe.open_notebook("zoes secret.ipynb")


@pytest.fixture(scope="module")
def alices_token(hers: HubKernel) -> str:
    """The token of alice's server, as any code in her notebook may read it."""
    return hers.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").ok().text.strip()


@pytest.mark.promise("hub-19", "Owners are what the hub says, also where users share an account")
@pytest.mark.promise(
    "bad-input-36",
    "A user name with spaces, unicode and HTML: it is text everywhere, and takes turns",
)
def test_owners_are_what_the_hub_says(
    home: HubOnAMachine, hers: HubKernel, zoes: HubKernel
) -> None:
    """Both run under one account, and yet each kernel is a tenant of the user who logged in."""
    uids = {kernel.run("import os; print(os.getuid())").text for kernel in (hers, zoes)}
    assert len(uids) == 1
    for kernel, owner in ((hers, "alice"), (zoes, ODD)):
        tenant = home.tenant_of(kernel.kernel_id)
        assert tenant is not None, home.hub.log[-4000:]
        assert (tenant["owner"], tenant["name"]) == (owner, kernel.name)


@pytest.mark.promise("hub-11")
@pytest.mark.promise("hub-20", "Users of a hub take turns and never overlap")
@pytest.mark.promise("bad-input-36")
def test_users_take_turns(home: HubOnAMachine, hers: HubKernel, zoes: HubKernel) -> None:
    """Overlapping cells of two users never have the device at once, and both are served."""
    observed = ObservedKernels(home.machine, [hers, zoes])
    observed.set_up()
    assert overlaps(observed.play_until_served(gpu_cells.fill_and_check(3, 10.0, 6), 3)) == 0


@pytest.mark.promise("bad-input-37", "A hub token that registers for somebody else: 403")
def test_alices_token_does_not_register_for_another(home: HubOnAMachine, alices_token: str) -> None:
    """Whom she names makes no difference: 403 for another user, and hers is hers."""
    body = {"name": "x", "kind": "kernel"}
    status, answer = home.hub.ask("POST", "/tenants", {**body, "user": "bob"}, token=alices_token)
    assert (status, "another user" in answer["message"]) == (403, True)
    status, answer = home.hub.ask("POST", "/tenants", body, token=alices_token)
    assert status == 201
    tenants = home.hub.scheduler.status()["tenants"]
    (owner,) = [t["owner"] for t in tenants if t["id"] == answer["tenant_id"]]
    assert owner == "alice"
    home.hub.ask("DELETE", f"/tenants/{answer['tenant_id']}", token=alices_token)


@pytest.mark.promise("hub-31")
def test_groups_are_the_hubs(home: HubOnAMachine, hers: HubKernel, zoes: HubKernel) -> None:
    """Zoë's notebook registers anew with whatever it likes; only alice is in the group."""
    body = {"name": "x", "kind": "kernel", "groups": ["staff"]}
    token = zoes.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").ok().text.strip()
    status, answer = home.hub.ask("POST", "/tenants", body, token=token)
    assert status == 201
    assert home.groups_of(answer["tenant_id"]) == []
    for kernel, groups in ((hers, ["staff"]), (zoes, [])):
        tenant = home.tenant_of(kernel.kernel_id)
        assert tenant is not None
        assert home.groups_of(tenant["id"]) == groups
    home.hub.ask("DELETE", f"/tenants/{answer['tenant_id']}", token=token)


@pytest.mark.promise("hub-21", "A user acts on no other user's kernel")
def test_alices_token_does_not_act_on_others(
    home: HubOnAMachine, alices_token: str, zoes: HubKernel
) -> None:
    """Neither the end, nor an interrupt, nor a release of somebody else's kernel is hers to ask."""
    tenant = home.tenant_of(zoes.kernel_id)
    assert tenant is not None
    for method, what in (("DELETE", ""), ("POST", "/interrupt"), ("POST", "/release")):
        status, _ = home.hub.ask(method, f"/tenants/{tenant['id']}{what}", token=alices_token)
        assert status == 403
    status, _ = home.hub.ask("PATCH", "/settings", {"quantum_s": 1}, token=alices_token)
    assert status == 403
    path = f"gpushare/api/kernels/{tenant['id']}/release"
    answer = home.hub.visitor("alice").request("POST", path)  # as a page of hers would ask
    assert (answer.status_code, "another user's" in answer.json()["message"]) == (403, True)
    assert home.tenant_of(zoes.kernel_id) is not None


@pytest.mark.promise(
    "hub-22",
    "The raw JSON for another user's name has it nowhere, asked for with one's own token, and the "
    "magic shows as little",
)
def test_others_are_anonymous(
    home: HubOnAMachine, alices_token: str, hers: HubKernel, zoes: HubKernel
) -> None:
    """The raw status that alice's token fetches has no name, pid or id of another user in it."""
    status, answer = home.hub.ask("GET", "/status", token=alices_token)
    raw = json.dumps(answer, ensure_ascii=False)
    assert status == 200
    assert "alices secret" in raw
    zoes_tenant = home.tenant_of(zoes.kernel_id)
    assert zoes_tenant is not None
    for secret in (ODD, "zoë", "zoes secret", zoes.kernel_id, zoes_tenant["id"]):
        assert secret not in raw
    # Other numbers may have the same digits in them.
    assert not re.search(rf"(?<![\w.]){zoes.pid}(?![\w.])", raw)
    assert sum(t["owner"] == "another user" for t in answer["tenants"]) == 1


@pytest.mark.promise("hub-22")
def test_the_magic_shows_what_its_user_may_see(hers: HubKernel, zoes: HubKernel) -> None:
    """`%gpushare` in alice's notebook tells that somebody has the device, and not who: under one
    account, which is the scheduler's too."""
    zoes.run(gpu_cells.setup()).ok()
    zoes.run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    try:
        shown = hers.run("%gpushare").ok().text
        own = zoes.run("%gpushare").ok().text
    finally:
        zoes.run("%gpushare hold 0")
    assert "has it  another user" in shown and "zoes secret" not in shown
    assert "zoes secret.ipynb (this kernel)" in own


@pytest.mark.promise("bad-input-38")
def test_a_foreign_token(home: HubOnAMachine, alice: Visitor) -> None:
    """A token of alice's that was made for something else is refused, with what to do."""
    token = alice.new_token("read:users:name!user")
    status, answer = home.hub.ask("GET", "/status", token=token)
    assert (status, "made for something else" in answer["message"]) == (403, True)


@pytest.mark.promise("bad-input-38", "A revoked or foreign hub token: 403, with what to do")
def test_a_revoked_token(home: HubOnAMachine, alice: Visitor) -> None:
    """A token that alice has taken back is worth nothing."""
    token = alice.new_token()
    alice.revoke_last_token()
    status, answer = home.hub.ask("GET", "/status", token=token)
    assert (status, "does not know this token" in answer["message"]) == (403, True)


def test_a_token_of_her_own_making(home: HubOnAMachine, alice: Visitor) -> None:
    """One that has her rights speaks for her, as at a terminal outside the hub's machines."""
    token = alice.new_token()
    status, answer = home.hub.ask("GET", "/status", token=token)
    assert status == 200 and "alice" in {t["owner"] for t in answer["tenants"]}


@as_root_only
def test_another_account_without_a_token(home: HubOnAMachine) -> None:
    """A stranger on the machine is nobody, and is told what to send."""

    def look() -> str:
        path = home.hub.runtime_dir / HTTP_SOCKET
        try:
            return str(SchedulerClient(path, uids=frozenset({0}), hub_token="").status())
        except RequestRefused as refused:
            return f"{refused.status}: {refused}"

    assert as_other_user(look).startswith("401: This scheduler belongs to a JupyterHub")


@pytest.mark.promise("hub-19")
def test_a_kernel_that_is_restarted(home: HubOnAMachine, alice: Visitor) -> None:
    """It is a new tenant of the same user; the old one is gone; so is the new one at its end."""
    kernel = alice.open_notebook("restarted.ipynb")
    before = home.tenant_of(kernel.kernel_id)
    kernel.restart()
    after = home.tenant_of(kernel.kernel_id)
    assert before and after and before["id"] != after["id"]
    assert after["owner"] == "alice"
    kernel.stop()
    assert home.tenant_of(kernel.kernel_id) is None


@pytest.mark.promise("jupyter-33")
def test_a_profile_says_what_its_kernels_need(
    home: HubOnAMachine, hers: HubKernel, zoes: HubKernel
) -> None:
    """What the spawner puts into the server's environment counts for its kernels, and for nobody
    else's."""
    tenant, alices = home.tenant_of(zoes.kernel_id), home.tenant_of(hers.kernel_id)
    assert tenant and alices
    assert tenant["placement"] == "Placed on GPU 0: needs 1 GiB."
    seen = zoes.run("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").ok().text.strip()
    (device,) = home.hub.scheduler.status()["devices"]
    assert seen.removeprefix("GPU-").replace("-", "") == device["id"]
    assert alices["placement"] is None


@pytest.mark.promise("hub-23", "The panel of a hub's user knows them and their kernels")
def test_the_panel_knows_its_user(home: HubOnAMachine, alice: Visitor, hers: HubKernel) -> None:
    """The server's own API tells alice's browser about her kernel, under her name."""
    home.hub.wait_until(
        lambda: any(k["tenant_id"] for k in _state(alice)["kernels"]), "the kernel is known"
    )
    state = _state(alice)
    assert (state["user"], state["scheduler"]) == ("alice", "up")


def _state(visitor: Visitor) -> dict[str, list[dict[str, str]]]:
    answer = visitor.request("GET", "gpushare/api/state")
    assert answer.status_code == 200, answer.text
    found: dict[str, list[dict[str, str]]] = answer.json()
    return found


# ---- the view of all nodes ------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub(home: HubOnAMachine) -> HubWithView:
    found = HubWithView(home)
    found.await_answers()
    return found


@pytest.fixture(scope="module")
def reader(hub: HubWithView) -> Visitor:
    """Alice, with another browser and no server there."""
    return visitor(hub.home, "alice")


@pytest.mark.promise(
    "hub-24", "The view lets a hub's users in by OAuth, and each sees what is theirs"
)
def test_a_user_logs_in(hub: HubWithView, reader: Visitor) -> None:
    """Whoever opens the page is led through the hub and back to it, with what was asked for."""
    page = reader.visit(f"{PREFIX}?find=x")
    assert page.url.startswith(f"{hub.url}?find=x")
    assert page.history and "oauth2/authorize" in " ".join(each.url for each in page.history)
    summary = reader.visit(f"{PREFIX}api/v1/summary").json()
    assert summary["caller"] == {"name": "alice", "is_admin": False}
    assert reader.visit(f"{PREFIX}?find=x").history == []


@pytest.mark.promise(
    "hub-25", "A page of another user's server cannot ask the view with its visitor's cookie"
)
def test_what_a_page_has_to_send(hub: HubWithView, reader: Visitor) -> None:
    """All users' servers are of one origin: a request that a script makes needs the XSRF token,
    which only the view's own page can read."""
    reader.visit(PREFIX)
    route = f"{PREFIX}api/v1/summary"
    assert reader.visit(route, AS_A_PAGE_ASKS).status_code == 403
    token = reader.xsrf(PREFIX)
    with_header = {**AS_A_PAGE_ASKS, "X-XSRFToken": token}
    assert reader.visit(route, with_header).status_code == 200
    assert reader.visit(f"{route}?_xsrf={token}", AS_A_PAGE_ASKS).status_code == 200
    assert reader.visit(route, {**with_header, "X-XSRFToken": "x"}).status_code == 403
    for page in (PREFIX, f"{PREFIX}login"):  # neither the page, nor in circles
        refused = reader.visit(page, AS_A_PAGE_ASKS)
        assert (refused.status_code, refused.history) == (403, [])
    for path in (route, f"{PREFIX}api/v1/events", PREFIX):
        assert reader.visit(path, WITHOUT_CORS).status_code == 403, path
    assert reader.visit(f"{route}?_xsrf={token}", WITHOUT_CORS).status_code == 403


@pytest.mark.promise("hub-24")
def test_who_sees_what(hub: HubWithView, reader: Visitor) -> None:
    """An administrator all, a user their own, by browser and by token; a token that was made for
    something else nothing."""
    rows = {"t": a_tenant(), "u": a_tenant(owner="bob", name="bobs secret.ipynb")}
    sock = hub.reports("node-a", devices={"d": a_device()}, tenants=rows)
    root = visitor(hub.home, "root")
    root.visit(PREFIX)
    assert root.visit(f"{PREFIX}api/v1/summary").json()["caller"]["is_admin"]
    assert "bobs secret" in root.visit(f"{PREFIX}api/v1/nodes/node-a").text
    seen = reader.visit(f"{PREFIX}api/v1/nodes/node-a")
    assert "train.ipynb" in seen.text and "bob" not in seen.text
    bobs = ("node-a", "bobs secret.ipynb")
    assert ("node-a", "train.ipynb") in hub.tenants(reader.new_token())
    assert bobs not in hub.tenants(reader.new_token())
    assert {("node-a", "train.ipynb"), bobs} <= hub.tenants(root.new_token())
    refused = hub.script("api/v1/tenants", reader.new_token("read:users:name!user"))
    assert (refused.status_code, "something else" in refused.json()["message"]) == (403, True)
    sock.close()


@pytest.mark.promise("hub-24")
def test_nobody(hub: HubWithView) -> None:
    """Without a token a script is refused and a browser is led to the hub; an invented one is
    nobody's."""
    assert hub.script("api/v1/nodes", None).status_code == 403
    assert hub.script("api/v1/nodes", "invented").status_code == 403
    page = hub.script("", None)
    assert (page.status_code, page.headers["Location"]) == (302, f"{PREFIX}login")


@pytest.mark.promise("bad-input-77")
def test_a_wrong_node_token_through_the_proxy(hub: HubWithView) -> None:
    """The proxy passes the answer on. A user's hub token is no node's."""
    for token in ("guessed", visitor(hub.home, "bob").new_token()):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            hub.node(token)
        assert refused.value.status_code == 401


@pytest.mark.promise("hub-26")
def test_the_hubs_own_scheduler_reports(hub: HubWithView) -> None:
    """Its device is there, under the machine's name."""
    token = visitor(hub.home, "root").new_token()
    route = f"api/v1/nodes/{own_name()}"

    def is_there() -> bool:
        answer = hub.script(route, token)
        return answer.status_code == 200 and len(answer.json()["devices"]) == 1

    hub.home.hub.wait_until(is_there, "the scheduler has reported")
    found = hub.script(route, token).json()
    (device,) = hub.home.hub.scheduler.status()["devices"]
    assert list(found["devices"]) == [device["id"]]
    assert (found["state"], found["owners"], found["platform"]) == ("live", "hub", "machine")
