"""The demo on a cluster from curtain to curtain: play, judge, draw."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.slurm import DEVICE_BYTES
from tests.demo.cluster.options import ClusterOptions
from tests.demo.cluster.people import CELL_S_MAX, LOOK_EVERY_S, WORDS, Person, at_work
from tests.demo.cluster.report import ClusterReport, NodePlayed, make_cluster_report
from tests.demo.cluster.restart import Restart
from tests.demo.cluster.stage import NodeStage, show
from tests.demo.cluster.table import TableView
from tests.demo.picture import Part, draw_parts
from tests.demo.scenes import Act
from tests.support import gpu_cells
from tests.support.sim import MIB

CONTROL_CELLS = 2


def play(
    stages: Sequence[NodeStage], options: ClusterOptions, view: TableView, restart: Restart
) -> list[Act]:
    """What people do on each node; the scheduler of one is restarted in the middle."""
    people = [
        Person(stage, number, options) for stage in stages for number in range(len(stage.users))
    ]
    view.headline(
        f"The notebooks open the GPU. Each holds {4 * WORDS // MIB} MiB of a device's "
        f"{DEVICE_BYTES // MIB}."
    )
    for stage in stages:
        stage.observed.set_up()
        stage.run_everywhere(gpu_cells.until_memory_follows(True))
    for person in people:
        person.prepare()
    view.headline(f"Each user thinks, and runs {options.cells} cells.")
    for stage in stages:
        stage.observed.begin()

    def look_on(part: float) -> None:
        restart.look_on(part)
        show(stages, view)

    at_work(people, look_on)
    restart.finish()
    show(stages, view)
    for stage in stages:
        stage.look_for_the_lost()
    return [_act_of(stage, "People at work", options.cells) for stage in stages]


def play_without_turns(
    stages: Sequence[NodeStage], options: ClusterOptions, view: TableView
) -> list[Act]:
    """The control: cells of all at once, and nothing that keeps them apart. Turns are on again
    afterwards."""
    view.headline(f"Control run without turns: {CONTROL_CELLS} cells in each notebook, at once.")
    code = gpu_cells.fill_and_check(5, options.launch_ms, options.launches)
    sent = []
    for stage in stages:
        stage.run_everywhere(gpu_cells.let_go())
        stage.scheduler.change_settings({"turns": "off"})
        stage.observed.begin()
        for number in stage.present() * CONTROL_CELLS:
            sent.append((stage, number, stage.observed.submit(number, code)))
    for stage, number, cell in sent:
        until_s = time.monotonic() + CELL_S_MAX
        while not stage.observed.kernels[number].done(cell) and time.monotonic() < until_s:
            show(stages, view)
            time.sleep(LOOK_EVERY_S)
        stage.observed.collect(number, cell)
    for stage in stages:
        stage.scheduler.change_settings({"turns": "on"})
    return [_act_of(stage, "Without turns", CONTROL_CELLS) for stage in stages]


def _act_of(stage: NodeStage, title: str, cells: int) -> Act:
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
    began_s: float,
) -> ClusterReport:
    """While the schedulers still answer."""
    played = [
        NodePlayed(
            name=stage.name,
            users=stage.users,
            act=act,
            control=control,
            most_parked=view.seen[stage.name].most_parked,
            turns_told=view.seen[stage.name].turns,
            owners=stage.owners(),
            lost=sorted(stage.lost),
        )
        for stage, act, control in zip(stages, acts, controls, strict=True)
    ]
    return make_cluster_report(
        played,
        device=stages[0].observed.machine.device,
        judged_by=stages[0].observed.judged_by,
        device_bytes=DEVICE_BYTES,
        bytes_each=4 * WORDS,
        restarts=len(restart.away_ns),
        tenants_lost=restart.tenants_lost(),
        seconds=time.monotonic() - began_s,
    )


def draw_nodes(
    stages: Sequence[NodeStage], acts: Sequence[Act], restart: Restart, path: Path
) -> None:
    """One below the other, by one clock."""
    origin_ns = min(cell.began_ns for act in acts for cell in act.cells)
    parts = [
        Part(
            f"Node {stage.name}",
            stage.users,
            act.cells,
            act.works,
            restart.away_ns if stage.name == restart.node else (),
        )
        for stage, act in zip(stages, acts, strict=True)
    ]
    title = f"Notebooks on two Slurm nodes ({stages[0].observed.machine.device})"
    draw_parts(parts, [origin_ns] * len(parts), path, title, level=True)
