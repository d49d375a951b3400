"""Users of a real JupyterHub share the devices of a real Slurm while you watch: two nodes on this
machine, each with a scheduler and a simulated GPU, and a job for each user's server. The notebooks
hold more memory than the devices have, and the scheduler of a node is restarted in the middle.
`demo-cluster-report.json` and `demo-cluster-timeline.png` say what happened. As root."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

from tests.cluster.slurm import NODES
from tests.demo.cluster.options import ClusterOptions, read_options
from tests.demo.cluster.performance import draw_nodes, judge, play, play_without_turns
from tests.demo.cluster.report import summary
from tests.demo.cluster.restart import Restart
from tests.demo.cluster.stage import check, set_up
from tests.demo.cluster.table import TableView
from tests.demo.performance import run_to_the_end, tell, write_report

REPORT, PICTURE = "demo-cluster-report.json", "demo-cluster-timeline.png"


def run(options: ClusterOptions) -> int:
    """All that was started has ended when this returns."""
    began_s = time.monotonic()
    check()
    view = TableView(NODES, sys.stdout)
    with ExitStack() as stack:
        cluster, stages = set_up(stack, options.users, view)
        restart = Restart(cluster, stages[0], view)
        acts = play(stages, options, view, restart)
        controls = play_without_turns(stages, options, view)
        report = judge(stages, acts, controls, restart, view, began_s=began_s)
        view.headline("Servers, hub and Slurm end.")
    for failure in [error for act in [*acts, *controls] for error in act.failures]:
        print(f"A cell failed: {failure}", file=sys.stderr)
    draw_nodes(stages, acts, restart, options.folder / PICTURE)
    write_report(report, options.folder / REPORT)
    return tell(summary(report), report, options.folder, report=REPORT, picture=PICTURE)


def main(argv: list[str] | None = None) -> int:
    options = read_options(argv, __doc__)
    return run_to_the_end(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
