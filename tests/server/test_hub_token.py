"""What a hub's token of an administrator is used for, where a server has one besides its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.server.scheduler_client import LinkState
from tests.kernel.stub_scheduler import StubScheduler

OWN, ADMINISTRATORS = "token own", "token administrators"


@pytest.fixture
def asked(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubScheduler]:
    """A scheduler that remembers with which tokens it was asked, in a hub's server."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "own")
    with StubScheduler(runtime) as scheduler:
        yield scheduler


@pytest.fixture
def jp_server_config(asked: StubScheduler, jp_server_config: dict[str, Any]) -> dict[str, Any]:
    jp_server_config["GPUShareExtension"]["hub_token"] = "administrators"
    return jp_server_config


@pytest.mark.promise(
    "server-9",
    "A server reads with the hub token that it was given for that, and does everything else with "
    "its own",
)
async def test_an_administrators_token_only_reads(extension: Any, asked: StubScheduler) -> None:
    """Whoever may use the server cannot act on everybody's notebooks with it, nor keep a turn
    beyond the share of its user, as an administrator may."""
    relay = extension.relay
    relay._link = Up()
    await relay.timeline()
    for act in (relay.release, relay.evict):
        await act("somebody's")
    await relay.hold("somebody's", 5.0)
    paths = [path for _, path, _ in asked.requests]
    by_path = dict(zip(paths, asked.authorizations, strict=True))
    tenant = "/api/v1/tenants/somebody%27s"
    assert by_path["/api/v1/timeline"] == ADMINISTRATORS
    assert {by_path[f"{tenant}/{verb}"] for verb in ("release", "evict", "hold")} == {OWN}
    assert by_path.get("/api/v1/events", ADMINISTRATORS) == ADMINISTRATORS


class Up:
    """A link to a scheduler that is there."""

    state = LinkState(scheduler="up", status={"tenants": [], "devices": []})
