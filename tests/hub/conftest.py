"""Hubs for tests: one for those who only visit it, fresh ones for those who treat it badly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.running_hub import OUR_LINES, VIEW_LINES, RunningHub, running_hub, server_env
from tests.support.machine import Machine
from tests.support.ports import free_ports
from tests.support.sim import SimulatedMachine

ODD = "zoë <img src=x onerror=alert(1)> o'neil"
"""A user name with a space, an accent, HTML and a quote."""
JOURNAL = "journal.jsonl"
HOME_LINES = f"""
c.JupyterHub.load_groups = {{"staff": {{"users": ["alice"]}}}}
c.GPUShare.settings = {{"journal_names": "names"}}


def need(spawner):
    return {{{ODD!r}: "1GiB"}}.get(spawner.user.name, "")


c.Spawner.environment["GPUSHARE_NEED"] = need
"""


@pytest.fixture(scope="session")
def with_proxy() -> None:
    """Whoever needs a hub needs its proxy."""
    try:
        proxy_command()
    except NoProxy as reason:
        pytest.skip(str(reason))


class HubOnAMachine:
    """A hub whose users' kernels see one simulated device."""

    def __init__(self, hub: RunningHub, machine: Machine) -> None:
        self.hub = hub
        self.machine = machine

    def tenant_of(self, kernel_id: str) -> dict[str, Any] | None:
        """As the scheduler's own account sees it."""
        tenants = self.hub.scheduler.status()["tenants"]
        return next((t for t in tenants if t["kernel_id"] == kernel_id), None)

    def groups_of(self, tenant_id: str) -> list[str]:
        """Of its owner, as the core was told when the tenant was registered."""
        journal = self.hub.folder / JOURNAL
        events = [json.loads(line).get("event") for line in journal.read_text().splitlines()]
        said = [each for each in events if each and each.get("tenant") == tenant_id]
        (groups,) = [each["groups"] for each in said if each["type"] == "TenantRegistered"]
        assert isinstance(groups, list)
        return groups

    def tenants_of(self, owner: str) -> list[dict[str, Any]]:
        return [t for t in self.hub.scheduler.status()["tenants"] if t["owner"] == owner]


@pytest.fixture(scope="module")
def start_hub(with_proxy: None) -> Iterator[Callable[..., HubOnAMachine]]:
    """Starts hubs, and stops them with all that they started."""
    with ExitStack() as stack:

        def start(*, journal: bool = False, **options: Any) -> HubOnAMachine:
            # Not below pytest's own folder: each run of pytest closes that to other users again.
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="gpushare-hub-")))
            sim = SimulatedMachine(folder / "machine")
            machine = Machine(device="simulated GPU", env=sim.env(), sim=sim)
            env = server_env(machine.env, folder)
            if journal:
                options["scheduler_args"] = (f"--journal={folder / JOURNAL}",)
            hub = stack.enter_context(
                running_hub(
                    folder,
                    server_env=env,
                    scheduler_env={**env, "CUDA_VISIBLE_DEVICES": "0"},
                    **options,
                )
            )
            return HubOnAMachine(hub, machine)

        yield start


@pytest.fixture(scope="module")
def home(start_hub: Callable[..., HubOnAMachine]) -> HubOnAMachine:
    """A hub for tests that leave it as they found it, with the view of all nodes. Alice is in a
    group there, zoë has chosen a profile that says a need, and the scheduler writes a journal with
    names."""
    (port,) = free_ports(1)
    lines = HOME_LINES + VIEW_LINES.format(port=port) + OUR_LINES
    return start_hub(our_lines=lines, journal=True)
