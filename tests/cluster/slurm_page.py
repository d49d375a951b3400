"""docs/slurm.md, followed command by command and line by line: the cluster and the hub that it
describes. For tests, and for the demo that shows both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.cluster.slurm import NODES, PagesFiles, SlurmCluster, check_machine
from tests.cluster.slurm_hub import SlurmHub
from tests.hub.running_hub import end_leftovers
from tests.packaging.readme import blocks_under, commands_under
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "slurm.md"


@contextmanager
def cluster_of_the_page(users: Sequence[str]) -> Iterator[SlurmCluster]:
    """Configured by the page, and by nothing else that concerns us. Raises CannotRun. Everything
    that was started has ended afterwards."""
    check_machine()
    files = PagesFiles(*blocks_under("Slurm", "ini", PAGE))
    # Not below pytest's own folder, which other users may not enter.
    with TemporaryDirectory(prefix="gpushare-slurm-") as name:
        folder = Path(name)
        cluster = SlurmCluster(folder, users, files)
        try:
            for command in commands_under("Slurm", PAGE):
                cluster.follow("", command)
            cluster.start()
            for node in NODES:
                for command in commands_under("Each node with a GPU", PAGE):
                    cluster.follow(node, command)
            yield cluster
        finally:
            cluster.stop()
            end_leftovers(folder)
            cluster.remove_groups()


@contextmanager
def hub_of_the_page(cluster: SlurmCluster, places: Mapping[str, str]) -> Iterator[SlurmHub]:
    """`places` names the nodes of some users; Slurm chooses those of the others."""
    (lines,) = blocks_under("JupyterHub", "python", PAGE)
    hub = SlurmHub(cluster, lines, places)
    try:
        hub.start()
        yield hub
    finally:
        hub.stop()
