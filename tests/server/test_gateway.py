"""A server whose kernels another machine runs, behind a gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.gateway.gateway_client import GatewayClient
from tornado.httpclient import HTTPClientError

from jupyter_gpushare.server.gateway import why_elsewhere
from tests.server.browser import Browser
from tests.server.server_process import TOKEN, JupyterServer
from tests.support.ports import free_port


@pytest.fixture
def gateway(tmp_path: Path, runtime: Path) -> Iterator[str]:
    """The address of a Jupyter server, which answers what a gateway does. It shares no GPU."""
    port = free_port()
    server = JupyterServer(tmp_path / "gateway", {"GPUSHARE_DISABLE": "1"}, port=port)
    server.await_port(port)
    GatewayClient.clear_instance()  # it is one for the process, and so for all servers of its tests
    yield f"http://127.0.0.1:{port}"
    GatewayClient.clear_instance()
    server.stop()


@pytest.fixture
def jp_server_config(jp_server_config: dict[str, Any], gateway: str) -> dict[str, Any]:
    return {**jp_server_config, "GatewayClient": {"url": gateway, "auth_token": TOKEN}}


@pytest.mark.promise("server-8", "A kernel behind a gateway says that it runs elsewhere")
async def test_a_kernel_behind_a_gateway_runs_elsewhere(
    gateway: str, extension: Any, browser: Browser, jp_serverapp: Any, jp_fetch: Any
) -> None:
    """Its reason names the gateway and what to do there, and a release is refused with it. Neither
    is a scheduler looked for here, nor is its absence told."""
    kernel = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook"}
    request = json.dumps({**kernel, "kernel": {"name": "python3"}})
    await jp_fetch("api", "sessions", method="POST", body=request)
    state = await browser.until(lambda s: s["kernels"] and s["kernels"][0]["path"])
    (shown,) = state["kernels"]
    assert (shown["name"], shown["state"]) == ("a.ipynb", "unshared")
    assert shown["reason"].startswith(f"This kernel runs behind the gateway {gateway}, ")
    assert state["scheduler"] == "down"
    assert state["message"].startswith(f"Kernels run behind the gateway {gateway}, ")
    path = ("gpushare", "api", "kernels", shown["kernel_id"], "release")
    with pytest.raises(HTTPClientError) as refusal:
        await jp_fetch(*path, method="POST", body=b"")
    assert refusal.value.response is not None
    assert refusal.value.code == 409
    assert json.loads(refusal.value.response.body)["message"] == shown["reason"]
    await jp_serverapp.kernel_manager.shutdown_all()


async def test_a_password_of_the_gateway_is_not_shown(jp_serverapp: Any) -> None:
    """It may stand in the address, which everybody who sees the panel would read."""
    GatewayClient.instance().url = "https://user:secret@far:8888/path"
    assert " https://far:8888, " in why_elsewhere(jp_serverapp.kernel_manager)
