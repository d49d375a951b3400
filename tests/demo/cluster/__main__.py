"""Users of a real JupyterHub share the devices of a real Slurm while you watch: two nodes on this
machine, each with a scheduler and a simulated GPU, and a job for each user's server. The notebooks
hold more memory than the devices have, and the scheduler of a node is restarted in the middle.
`demo-cluster-report.json` and `demo-cluster-timeline.png` say what happened. As root."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.cluster.slurm import DEVICE_BYTES, NODES, CannotRun, SlurmCluster, check_machine
from tests.cluster.slurm_page import cluster_of_the_page, hub_of_the_page
from tests.demo.cluster.options import ClusterOptions, read_options
from tests.demo.cluster.people import WORDS, NodeStage, Person, at_work
from tests.demo.cluster.report import ClusterReport, NodePlayed, make_cluster_report
from tests.demo.cluster.restart import Restart
from tests.demo.cluster.table import TableView
from tests.demo.performance import run_to_the_end, tell, write_report
from tests.demo.picture import Part, draw_parts
from tests.demo.scenes import Act
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.visitor import HubKernel
from tests.support import gpu_cells
from tests.support.observed import ObservedKernels
from tests.support.sim import MIB

REPORT, PICTURE = "demo-cluster-report.json", "demo-cluster-timeline.png"
AT_A_TIME = 3
"""Servers that start."""
CONTROL_CELLS = 2


def check() -> None:
    """Raises CannotRun."""
    check_machine()
    try:
        proxy_command()
    except NoProxy as problem:
        raise CannotRun(f"{problem}.") from problem


def places_of(users: Sequence[str]) -> dict[str, str]:
    """The nodes in turn."""
    return {user: NODES[number % len(NODES)] for number, user in enumerate(users)}


def set_up(
    stack: ExitStack, options: ClusterOptions, view: TableView
) -> tuple[SlurmCluster, list[NodeStage]]:
    """All of it ends with the stack."""
    view.headline("Slurm starts, with two nodes, and a scheduler and a simulated GPU on each.")
    cluster = stack.enter_context(cluster_of_the_page(options.users))
    view.headline("JupyterHub starts. It has its servers run as Slurm's jobs.")
    places = places_of(options.users)
    hub = stack.enter_context(hub_of_the_page(cluster, places))
    view.headline(f"{', '.join(options.users)} log in at {hub.url} and open notebooks.")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        opened = pool.map(hub.open_notebook, options.users)
        kernels = dict(zip(options.users, opened, strict=True))
    return cluster, [stage_of(cluster, node, places, kernels) for node in NODES]


def stage_of(
    cluster: SlurmCluster, node: str, places: Mapping[str, str], kernels: Mapping[str, HubKernel]
) -> NodeStage:
    users = tuple(user for user in kernels if places[user] == node)
    observed = ObservedKernels(cluster.machine(node), [kernels[user] for user in users])
    return NodeStage(node, users, observed, cluster.scheduler(node))


def show(stages: Sequence[NodeStage], view: TableView) -> None:
    view.show({stage.name: stage.status() for stage in stages})


def play(
    stages: Sequence[NodeStage], options: ClusterOptions, view: TableView, restart: Restart
) -> list[Act]:
    """What people do; the scheduler of a node is restarted in the middle."""
    view.headline("The notebooks open the GPU.")
    for stage in stages:
        stage.observed.set_up()
        stage.run_everywhere(gpu_cells.until_memory_follows(True))
        stage.observed.begin()
    view.headline(
        f"Each holds {4 * WORDS // MIB} MiB of a device's {DEVICE_BYTES // MIB}, thinks, and runs "
        f"{options.cells} cells."
    )
    people = [
        Person(stage, number, options) for stage in stages for number in range(len(stage.users))
    ]

    def look_on(part: float) -> None:
        restart.look_on(part)
        show(stages, view)

    at_work(people, look_on)
    restart.finish()
    show(stages, view)
    for stage in stages:
        stage.look_for_the_lost()
    return [act_of(stage, "people at work", options.cells) for stage in stages]


def play_without_turns(
    stages: Sequence[NodeStage], options: ClusterOptions, view: TableView
) -> list[Act]:
    """The control: cells of all at once, and nothing that keeps them apart."""
    view.headline(f"Control run without turns: {CONTROL_CELLS} cells in each notebook, at once.")
    code = gpu_cells.fill_and_check(5, options.launch_ms, options.launches)
    acts = []
    for stage in stages:
        stage.run_everywhere(gpu_cells.let_go())
        stage.scheduler.change_settings({"turns": "off"})
        stage.observed.begin()
        there = [n for n, user in enumerate(stage.users) if user not in stage.lost]
        sent = [(n, stage.observed.submit(n, code)) for _ in range(CONTROL_CELLS) for n in there]
        for number, cell in sent:
            stage.observed.collect(number, cell)
        stage.scheduler.change_settings({"turns": "on"})
        acts.append(act_of(stage, "without turns", CONTROL_CELLS))
    return acts


def act_of(stage: NodeStage, title: str, cells: int) -> Act:
    observed = stage.observed
    return Act(
        title,
        observed.cells,
        observed.works(computing_only=True),
        sent=cells * len(stage.users),
        failures=[f"{reply.ename}: {reply.evalue}" for reply in observed.failed],
        bytes_parked=observed.bytes_parked(0),
    )


def judge(
    stages: Sequence[NodeStage],
    acts: Sequence[Act],
    controls: Sequence[Act],
    restart: Restart,
    view: TableView,
    *,
    seconds: float,
) -> ClusterReport:
    played = [
        NodePlayed(
            name=stage.name,
            users=stage.users,
            act=act,
            control=control,
            most_parked=view.seen[stage.name].most_parked,
            turns_told=view.seen[stage.name].turns,
            owners=owners_of(stage),
            lost=sorted(stage.lost),
        )
        for stage, act, control in zip(stages, acts, controls, strict=True)
    ]
    return make_cluster_report(
        played,
        device=stages[0].observed.machine.device,
        judged_by="the journals of the simulated devices",
        device_bytes=DEVICE_BYTES,
        bytes_each=4 * WORDS,
        restarts=len(restart.away_ns),
        tenants_lost=restart.tenants_lost(),
        seconds=seconds,
    )


def owners_of(stage: NodeStage) -> dict[str, str]:
    tenants = stage.scheduler.status()["tenants"]
    owners = {tenant["name"]: tenant["owner"] for tenant in tenants}
    return {user: owners.get(f"{user}.ipynb", "nobody") for user in stage.users}


def parts_of(
    stages: Sequence[NodeStage], acts: Sequence[Act], restart: Restart, node: str
) -> list[Part]:
    """Of the picture."""
    return [
        Part(
            f"Node {stage.name}",
            stage.users,
            act.cells,
            act.works,
            restart.away_ns if stage.name == node else (),
        )
        for stage, act in zip(stages, acts, strict=True)
    ]


def summary(report: ClusterReport) -> dict[str, str]:
    """What is told at the end, by name."""
    turns = {user: n for node in report.nodes.values() for user, n in node.turns.items()}
    parked = ", ".join(
        f"{name} {node.bytes_parked // MIB} MiB, at most {node.bytes_parked_at_most // MIB} at once"
        for name, node in report.nodes.items()
    )
    return {
        "device of each node": f"{report.device}, {report.device_bytes // MIB} MiB",
        "judged by": report.judged_by,
        "users": ", ".join(report.owners),
        "cells": f"{report.cells}, of which {report.cells_failed} failed",
        "overlaps with turns": str(report.overlaps),
        "overlaps without turns": f"{report.overlaps_without_turns} at least on each node",
        "cells waited": f"{report.cell_wait_s_p50} s in the median, {report.cell_wait_s_p95} s "
        f"at p95",
        "turns": ", ".join(f"{user} {count}" for user, count in turns.items()),
        "memory in all": "more than the devices have" if report.oversubscribed else "fits",
        "checksums": "right" if report.checksums_ok else "WRONG",
        "parked": parked,
        "out of memory": str(report.oom),
        "scheduler restarts": str(report.scheduler_restarts),
        "kernels lost": f"{report.kernels_lost} of {report.kernels}",
        "in all": f"{report.seconds} s",
    }


def run(options: ClusterOptions) -> int:
    """All that was started has ended when this returns."""
    began_s = time.monotonic()
    check()
    view = TableView(NODES, sys.stdout)
    with ExitStack() as stack:
        cluster, stages = set_up(stack, options, view)
        restart = Restart(cluster, stages[0], view)
        acts = play(stages, options, view, restart)
        controls = play_without_turns(stages, options, view)
        seconds = time.monotonic() - began_s
        report = judge(stages, acts, controls, restart, view, seconds=seconds)
        view.headline("Servers, hub and Slurm end.")
    for failure in [error for act in [*acts, *controls] for error in act.failures]:
        print(f"A cell failed: {failure}", file=sys.stderr)
    origin_ns = min(cell.began_ns for act in acts for cell in act.cells)
    draw_parts(
        parts_of(stages, acts, restart, stages[0].name),
        [origin_ns] * len(stages),
        options.folder / PICTURE,
        f"Notebooks on two Slurm nodes ({report.device})",
        level=True,
    )
    write_report(report, options.folder / REPORT)
    return tell(summary(report), report, options.folder, report=REPORT, picture=PICTURE)


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv, __doc__)
    return run_to_the_end(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
