"""Hubs of other kinds, and hubs that come and go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from jupyter_gpushare.client.paths import HTTP_SOCKET
from jupyter_gpushare.hub.view import SERVICE, TOKENS_FILE, own_name
from jupyter_gpushare.reports.node_tokens import new_token
from tests.hub.conftest import HubOnAMachine
from tests.hub.hub_with_view import PREFIX, HubWithView, visitor
from tests.hub.running_hub import EMPTY_ENVIRONMENT, OUR_LINES, VIEW_LINES
from tests.hub.spawners import uid_of
from tests.support import gpu_cells
from tests.support.other_user import as_root_only
from tests.support.paths import ROOT
from tests.support.ports import free_ports
from tests.support.waits import WAIT_S_MAX

ACCOUNTS = "tests.hub.spawners.AccountsSpawner"


@pytest.mark.promise("hub-15", "It works with spawners that start from an empty environment")
@pytest.mark.full
def test_a_spawner_with_an_empty_environment(start_hub: Callable[..., HubOnAMachine]) -> None:
    """A server that gets nothing of the hub's environment finds the scheduler all the same."""
    home = start_hub(spawner=EMPTY_ENVIRONMENT)
    kernel = home.hub.visitor("alice").open_notebook("a.ipynb")
    tenant = home.tenant_of(kernel.kernel_id)
    assert tenant is not None and tenant["owner"] == "alice", home.hub.log[-4000:]
    kernel.run(gpu_cells.setup()).ok()
    kernel.run(gpu_cells.fill_and_check(7, 10.0)).ok()
    home.hub.stop()


@pytest.mark.full
@as_root_only
def test_an_account_for_each_user(start_hub: Callable[..., HubOnAMachine]) -> None:
    """Where users have accounts of their own, their kernels share the device with the scheduler of
    another account, and see as much of each other as anywhere."""
    home = start_hub(spawner=ACCOUNTS)
    assert home.machine.sim
    folder = home.machine.sim.directory
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)
    kernels = {
        name: home.hub.visitor(name).open_notebook(f"{name}s secret.ipynb")
        for name in ("alice", "bob")
    }
    for name, kernel in kernels.items():
        assert kernel.run("import os; print(os.getuid())").ok().text == f"{uid_of(name)}\n"
        kernel.run(gpu_cells.setup()).ok()
        tenant = home.tenant_of(kernel.kernel_id)
        assert tenant is not None and tenant["owner"] == name, home.hub.log[-4000:]
    kernels["bob"].run(f"{gpu_cells.spin(1)}\n%gpushare hold 5m\n").ok()
    shown = kernels["alice"].run("%gpushare").ok().text
    assert "has it  another user" in shown and "bobs" not in shown
    kernels["bob"].run("%gpushare hold 0").ok()
    kernels["alice"].run(gpu_cells.fill_and_check(7, 10.0)).ok()
    home.hub.stop()


@pytest.mark.promise(
    "bad-input-35",
    "A hub that restarts: servers and kernels live on and are the same users'",
)
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.full
def test_a_hub_that_restarts(start_hub: Callable[..., HubOnAMachine], killed: bool) -> None:
    """The server and its kernel live on, and are the same user's at the next hub's scheduler; the
    kernel works, and its server can start and end others."""
    home = start_hub(servers_outlive_it=True)
    alice = home.hub.visitor("alice")
    kernel = alice.open_notebook("a.ipynb")
    kernel.run(gpu_cells.setup()).ok()
    before = home.tenant_of(kernel.kernel_id)
    scheduler_before = home.hub.scheduler_pid()
    if killed:
        home.hub.kill()
    else:
        home.hub.stop()
    home.hub.start()
    home.hub.wait_until(
        lambda: home.hub.scheduler_pid() not in (None, scheduler_before),
        "the new hub has a scheduler of its own",
    )
    home.hub.wait_until(lambda: bool(home.tenants_of("alice")), "the kernel is back")
    (tenant,) = home.tenants_of("alice")
    assert before is not None and tenant["id"] == before["id"]
    again = home.hub.visitor("alice")
    other = again.open_notebook("b.ipynb")
    other.run(gpu_cells.setup()).ok()
    other.run(gpu_cells.fill_and_check(7, 10.0)).ok()
    assert len(home.tenants_of("alice")) == 2
    other.stop()
    assert len(home.tenants_of("alice")) == 1
    home.hub.stop()


@pytest.mark.promise(
    "hub-16", "Once sharing is backed out, new kernels are plain, and older servers go on"
)
@pytest.mark.full
def test_backing_out(start_hub: Callable[..., HubOnAMachine]) -> None:
    """With `enabled` off, a server that was started before still lets its user in, although its
    token has scopes of ours; new kernels start without sharing, and there is no scheduler."""
    home = start_hub(servers_outlive_it=True)
    home.hub.visitor("alice")
    home.hub.stop()
    home.hub.back_out()
    home.hub.start()
    kernel = home.hub.visitor("alice").open_notebook("a.ipynb")
    kernel.run(gpu_cells.setup()).ok()
    kernel.run(gpu_cells.fill_and_check(7, 10.0)).ok()
    assert "does not share the GPU" in kernel.run("%gpushare").ok().text
    later = home.hub.visitor("bob").open_notebook("b.ipynb")
    off = "Your administrator has switched GPU sharing off"
    assert later.run("%gpushare").ok().text.startswith(f"{off}: %gpushare does nothing")
    assert not (home.hub.runtime_dir / HTTP_SOCKET).exists()
    home.hub.stop()


@pytest.mark.full
@pytest.mark.promise("hub-17", "A view that the hub does not start lets its users in too")
def test_a_view_that_runs_elsewhere(start_hub: Callable[..., HubOnAMachine]) -> None:
    """With the variables that docs/view.md lists, as the chart sets them."""
    (port,) = free_ports(1)
    token = "ab" * 32
    service = {"name": SERVICE, "url": f"http://127.0.0.1:{port}", "api_token": token}
    lines = f"c.GPUShare.view = True\nc.JupyterHub.services = [{service!r}]\n"
    home = start_hub(our_lines=lines + OUR_LINES)
    hub = HubWithView(home)
    tokens = home.hub.folder / "tokens"
    node_token = new_token(tokens, "node-a")
    page = (ROOT / "docs" / "view.md").read_text()
    values = dict(re.findall(r"^\| `(JUPYTERHUB_\w+)` \| `?([^`|,]*)", page, re.M))
    values |= {
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_SERVICE_URL": service["url"],
        "JUPYTERHUB_API_URL": home.hub.api_url,
        "JUPYTERHUB_API_TOKEN": token,
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTERHUB_")}
    view = subprocess.Popen(
        [sys.executable, "-m", "jupyter_gpushare.cli.main", "view", f"--tokens={tokens}"],
        env={**kept, **values},
    )
    try:
        hub.await_answers()
        hub.node(node_token).close()
        alice = visitor(home, "alice")
        assert alice.visit(PREFIX).history
        caller = {"name": "alice", "is_admin": False}
        assert alice.visit(f"{PREFIX}api/v1/summary").json()["caller"] == caller
        assert hub.tenants(visitor(home, "root").new_token()) == set()
    finally:
        view.terminate()
        assert view.wait(WAIT_S_MAX) == 0


@pytest.mark.full
@pytest.mark.promise(
    "view-12", "The hub restarts, and the view and its nodes find each other again"
)
def test_a_hub_with_a_view_restarts(start_hub: Callable[..., HubOnAMachine]) -> None:
    """Tokens are the same, and the scheduler that the new hub starts takes the old one's place."""
    (port,) = free_ports(1)
    hub = HubWithView(start_hub(our_lines=VIEW_LINES.format(port=port) + OUR_LINES))
    hub.await_answers()
    token_file = (hub.view_dir / TOKENS_FILE).read_text()
    token = visitor(hub.home, "root").new_token()
    hub.home.hub.stop()
    hub.home.hub.start()

    def is_back() -> bool:
        answer = hub.script("api/v1/nodes", token)
        names = [each["name"] for each in answer.json()["nodes"]] if answer.ok else []
        return own_name() in names

    hub.home.hub.wait_until(is_back, "the scheduler reports again")
    assert (hub.view_dir / TOKENS_FILE).read_text() == token_file
    hub.home.hub.stop()
