"""A JupyterHub whose servers are pods of a Cluster (KubeSpawner). It runs beside the cluster."""

from __future__ import annotations

import json
from pathlib import Path

from tests.charts.test_page import block_with
from tests.cluster.pod_images import servers_image
from tests.cluster.whole_cluster import GATEWAY, NAMESPACE, Cluster
from tests.hub.running_hub import PASSWORD, RunningHub
from tests.hub.visitor import Visitor

LIMIT_IN_THE_PAGE, LIMIT_HERE = "48G", "1536M"
SHARED = {"profile": "shared-gpu"}
"""What a user chooses in the form, by KubeSpawner's own short name."""
UNSEATED = "carol"
_OF_THIS_TEST = """
own = c.JupyterHub.hub_bind_url
c.JupyterHub.hub_bind_url = own.replace("127.0.0.1", "0.0.0.0")
c.JupyterHub.hub_connect_ip = "127.0.0.1"
c.Spawner.hub_connect_url = own.replace("127.0.0.1", "{gateway}")
c.Spawner.cmd = ["jupyterhub-singleuser"]
c.Spawner.args = []
c.Spawner.environment = {{}}
c.KubeSpawner.namespace = "{namespace}"
c.KubeSpawner.image = "{image}"
c.KubeSpawner.storage_pvc_ensure = False
c.KubeSpawner.delete_grace_period = 1


def add_gpu_and_no_seat(spawner, pod):
    if spawner.user.name == "{unseated}":
        pod.spec.containers[0].resources.limits["nvidia.com/gpu"] = "1"
    return pod


c.KubeSpawner.modify_pod_hook = add_gpu_and_no_seat
c.KubeSpawner.profile_list = {profiles!r}
"""


class KubernetesHub(RunningHub):
    """Configured by the page's values, as Zero to JupyterHub hands them on."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        given = block_with("singleuser")
        (lines,) = given["hub"]["extraConfig"].values()
        of_this_test = _OF_THIS_TEST.format(
            gateway=GATEWAY,
            namespace=NAMESPACE,
            image=servers_image(),
            unseated=UNSEATED,
            profiles=_with_less_memory(given["singleuser"]["profileList"]),
        )
        self._kubeconfig = cluster.kubeconfig
        super().__init__(
            folder,
            server_env={},
            scheduler_env={},
            spawner="kubespawner.KubeSpawner",
            our_lines=of_this_test + lines,
        )
        self._shares = False  # there is no scheduler of its own to wait for
        self._config["GPUShare"] = {}

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "KUBECONFIG": str(self._kubeconfig)}

    def administrator(self) -> Visitor:
        """Who is logged in, and has no server."""
        visitor = Visitor(self.url, "root", PASSWORD)
        visitor.log_in()
        return visitor

    def server_of(self, name: str, options: object = None) -> Visitor:
        """A person's browser, logged in and with a running server."""
        visitor = Visitor(self.url, name, PASSWORD)
        visitor.log_in()
        visitor.start_server(options)
        return visitor


def _with_less_memory(profiles: list[object]) -> list[object]:
    """No node of a test has what the page gives to a notebook."""
    text = json.dumps(profiles)
    assert LIMIT_IN_THE_PAGE in text
    return list(json.loads(text.replace(LIMIT_IN_THE_PAGE, LIMIT_HERE)))
