"""Where the demo on a cluster is played: Slurm, a hub, and a notebook of each user on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import websocket

from jupyter_gpushare.client import ClientError, SchedulerClient
from tests.cluster.slurm import NODES, CannotRun, SlurmCluster, check_machine, packages
from tests.cluster.slurm_hub import SlurmHub
from tests.cluster.slurm_page import cluster_of_the_page, hub_of_the_page
from tests.demo.cluster.table import TableView
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.visitor import HubKernel
from tests.support.observed import ObservedKernels

AT_A_TIME = 3
"""Servers that start."""
ALIVE_S_MAX = 60.0
LOST = (OSError, websocket.WebSocketException)
"""What a notebook meets whose kernel is gone; no answer in time is an OSError, too."""


def check() -> None:
    """Raises CannotRun."""
    check_machine()
    packages()
    try:
        proxy_command()
    except NoProxy as problem:
        raise CannotRun(f"{problem}.") from problem


@dataclass
class NodeStage:
    """The notebooks of a node, one of each of its users."""

    name: str
    users: tuple[str, ...]
    observed: ObservedKernels
    scheduler: SchedulerClient
    lost: set[str] = field(default_factory=set)
    """Users whose kernel does not answer any more."""

    def status(self) -> dict[str, Any] | None:
        """None while no scheduler answers."""
        try:
            return self.scheduler.status()
        except ClientError:
            return None

    def tenants(self) -> dict[str, str]:
        """Whose each tenant is."""
        return {each["id"]: each["owner"] for each in self.scheduler.status()["tenants"]}

    def present(self) -> list[int]:
        """The numbers of those whose kernel answers."""
        return [number for number, user in enumerate(self.users) if user not in self.lost]

    def lose(self, number: int) -> None:
        self.lost.add(self.users[number])
        self.observed.give_up(number)

    def look_for_the_lost(self) -> None:
        """A kernel is lost if it does not answer, and if another one has taken its place."""
        for number in self.present():
            kernel = self.observed.kernels[number]
            try:
                said = kernel.run("import os; print(os.getpid(), 'kept' in globals())", ALIVE_S_MAX)
            except LOST:
                self.lose(number)
                continue
            if said.text.split() != [str(kernel.pid), "True"]:
                self.lose(number)

    def run_everywhere(self, code: str) -> None:
        """A cell in each notebook, one after the other, which must end well."""
        for number in self.present():
            self.observed.kernels[number].run(code).ok()

    def owners(self) -> dict[str, str]:
        """Whom the scheduler takes each user's notebook for."""
        tenants = self.scheduler.status()["tenants"]
        owners = {tenant["name"]: tenant["owner"] for tenant in tenants}
        return {user: owners.get(f"{user}.ipynb", "nobody") for user in self.users}


def places_of(users: Sequence[str]) -> dict[str, str]:
    """The nodes in turn."""
    return {user: NODES[number % len(NODES)] for number, user in enumerate(users)}


def set_up(
    stack: ExitStack, users: Sequence[str], view: TableView
) -> tuple[SlurmCluster, list[NodeStage]]:
    """All of it ends with the stack."""
    view.headline("Slurm starts, with two nodes, and a scheduler and a simulated GPU on each.")
    cluster = stack.enter_context(cluster_of_the_page(users))
    view.headline("JupyterHub starts. It has its servers run as Slurm's jobs.")
    places = places_of(users)
    hub = stack.enter_context(hub_of_the_page(cluster, places))
    view.headline(f"{', '.join(users)} log in at {hub.url} and open notebooks.")
    kernels = open_notebooks(hub, users)
    return cluster, [_stage_of(cluster, node, places, kernels) for node in NODES]


def open_notebooks(hub: SlurmHub, users: Sequence[str]) -> dict[str, HubKernel]:
    pool = ThreadPoolExecutor(AT_A_TIME)
    try:
        return dict(zip(users, pool.map(hub.open_notebook, users), strict=True))
    finally:  # who is interrupted waits for no server: it ends with the hub
        pool.shutdown(wait=False, cancel_futures=True)


def _stage_of(
    cluster: SlurmCluster, node: str, places: Mapping[str, str], kernels: Mapping[str, HubKernel]
) -> NodeStage:
    users = tuple(user for user in kernels if places[user] == node)
    observed = ObservedKernels(cluster.machine(node), [kernels[user] for user in users])
    return NodeStage(node, users, observed, cluster.scheduler(node))


def show(stages: Sequence[NodeStage], view: TableView) -> None:
    view.show({stage.name: stage.status() for stage in stages})
