"""A JupyterHub whose servers are jobs of a SlurmCluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.slurm import SlurmCluster
from tests.hub.running_hub import RunningHub, server_env
from tests.hub.visitor import HubKernel

_OF_THIS_TEST = """
c.SlurmSpawner.exec_prefix = (
    "umask 0; "  # the simulated device is files that all accounts share
    "uid=$(id -u {{username}}); setpriv --reuid=$uid --regid=$uid --clear-groups "
    "env SLURM_CONF={slurm_conf}"
)
c.SlurmSpawner.batchspawner_singleuser_cmd = "{opt}/bin/batchspawner-singleuser"
c.SlurmSpawner.poll_interval = 2


def choose_node(spawner):
    if node := {places}.get(spawner.user.name):
        spawner.req_options = f"--nodelist={{node}}"


c.Spawner.pre_spawn_hook = choose_node
"""


class SlurmHub(RunningHub):
    """The hub of a cluster, configured by the lines of the page. `places` says on which nodes the
    servers of some users are to run."""

    def __init__(self, cluster: SlurmCluster, lines: str, places: Mapping[str, str]) -> None:
        self._cluster = cluster
        folder = cluster.folder / "hub"
        folder.mkdir()
        device = {**cluster.device_env(), "PYTHONPATH": cluster.python_path}
        of_this_test = _OF_THIS_TEST.format(
            slurm_conf=cluster.env["SLURM_CONF"],
            opt=cluster.folder / "opt",
            places=dict(places),
        )
        env = {**server_env(cluster.machines["n1"].env(), cluster.folder), **device}
        super().__init__(
            folder,
            server_env=env,
            scheduler_env={},
            our_lines=of_this_test + cluster.as_here(lines),
            servers_outlive_it=True,
        )
        self._shares = False  # there is no scheduler here to wait for
        # Batchspawner runs it in its own Python, so it is no shell's script.
        self._config["Spawner"]["cmd"] = [
            str(Path(sys.executable).with_name("jupyterhub-singleuser"))
        ]
        self._config["GPUShare"] = {"runtime_dir": str(cluster.runtime_dir)}

    def _command(self, config: Path) -> list[str]:
        return self._cluster.views.command("", super()._command(config))

    def _environment(self) -> dict[str, str]:
        return {
            **super()._environment(),
            **self._cluster.env,
            "PATH": super()._environment()["PATH"],
            "PYTHONPATH": self._cluster.python_path,
        }

    def open_notebook(self, user: str) -> HubKernel:
        """The user logs in, and has a server and a notebook."""
        try:
            return self.visitor(user).open_notebook(f"{user}.ipynb")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log[-6000:]}\n{self.job_logs()}") from error

    def job_logs(self) -> str:
        """What the servers have written, for a test that fails."""
        files = sorted((self._cluster.folder / "homes").rglob("jupyterhub_slurmspawner_*.log"))
        return "\n".join(f"== {f}\n{f.read_text(errors='replace')[-3000:]}" for f in files)
