"""Users of a hub share a simulated GPU from pods of a whole Kubernetes, in namespaces of its own;
started by unshare.

`python -m tests.cluster.real_cluster FOLDER` prints what it has seen as one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_gpushare.client import SchedulerClient
from tests.charts.chart import merged, rendered
from tests.charts.test_page import block_with
from tests.cluster.kubernetes_hub import SHARED, UNSEATED, KubernetesHub
from tests.cluster.look_around import LOOK_AROUND
from tests.cluster.nvidias_plugin import RESOURCE as GPU
from tests.cluster.pod_images import node_image
from tests.cluster.real_node import RESOURCE as SEAT
from tests.cluster.real_node import machine_as_before, prepare_directories
from tests.cluster.whole_cluster import NAMESPACE, RUNTIME, Cluster, as_pods_reach
from tests.cluster.work import DEVICE_BYTES, check, submit_work
from tests.hub.running_hub import end_leftovers
from tests.hub.visitor import HubKernel, Visitor
from tests.scheduler.test_tenants_dir import ADMIN_VERBS
from tests.support import gpu_cells
from tests.support.sim import SimulatedMachine

ELSEWHERE = "labs"
LAST = "restarts_of_pods_at_the_end"
USERS = ("alice", "bob")
RUNTIME_DIR, LIBRARY_DIR = Path("/run/jupyter-gpushare"), Path("/var/lib/jupyter-gpushare")
_UUID = (
    "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(0)))"
)
_OURS = "import os; print(sorted(n for n in os.environ if n.startswith('GPUSHARE_')))"
IN_SCHEDULER = ("exec", "ds/gpushare", "--container=scheduler", "--", "jupyter-gpushare")
DOCTOR = (*IN_SCHEDULER, "doctor")


class Story:
    """What the steps share."""

    def __init__(self, folder: Path, cluster: Cluster, sim: SimulatedMachine) -> None:
        self.cluster = cluster
        self.sim = sim
        self.hub = KubernetesHub(folder / "hub", cluster)
        self.given: dict[str, Any] = {}
        """Values of the chart."""
        self.token = ""
        """Of an administrator of the hub."""
        self.users: dict[str, Visitor] = {}
        self.kernels: dict[str, HubKernel] = {}

    @property
    def scheduler(self) -> SchedulerClient:
        """The node's, as the hub's administrator sees it. Without `hostPID` it cannot tell root of
        the node from root of a container, so no account counts there."""
        return SchedulerClient(RUNTIME_DIR / "tenants" / "http.sock", hub_token=self.token)

    def tenants(self) -> dict[str, dict[str, Any]]:
        """By owner."""
        return {each["owner"]: each for each in self.scheduler.status()["tenants"]}

    def open_kernel(self, name: str) -> HubKernel:
        """Its number is no other's: the device's journal tells processes by that, and each pod
        counts its own."""
        taken = {each.pid for each in self.kernels.values()}
        while True:
            kernel = self.users[name].open_notebook(f"{name}s.ipynb")
            if kernel.pid not in taken:
                break
            kernel.stop()
        kernel.run(gpu_cells.setup()).ok()
        self.kernels[name] = kernel
        return kernel

    def works(self) -> bool:
        return bool(self.scheduler.status()["devices"][0]["holders"])

    def overlaps(self) -> int:
        return len(self.sim.computing_overlaps())


def seen_by(story: Story) -> Iterator[tuple[str, Any]]:
    """What happens, step by step."""
    yield from a_node_with_seats(story)
    yield from two_users(story)
    yield from restarts(story)
    yield from a_pod_without_a_seat(story)
    yield from root_of_a_strange_pod(story)
    yield from removed_and_installed(story)


def a_node_with_seats(story: Story) -> Iterator[tuple[str, Any]]:
    """NVIDIA's part, the hub, and the chart with the page's values."""
    cluster = story.cluster
    replicas = block_with("sharing")["sharing"]["timeSlicing"]["resources"][0]["replicas"]
    plugin = (sys.executable, "-m", "tests.cluster.nvidias_plugin", uuid_of(story.sim))
    cluster.start("nvidias-plugin", *plugin, str(replicas))
    cluster.apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": RUNTIME},
                "handler": RUNTIME,
            },
            block_with("kind"),
        ]
    )
    story.hub.start()
    story.token = story.hub.administrator().new_token()
    given = merged(block_with("seats"), {"hub": {"apiUrl": as_pods_reach(story.hub.api_url)}})
    story.given = given
    cluster.apply(rendered(given))
    cluster.wait_until(lambda: story.scheduler.status()["devices"], "our scheduler has a device")
    cluster.wait_until(lambda: cluster.allocatable(SEAT), "the node has seats")
    yield "allocatable", {name: cluster.allocatable(name) for name in (SEAT, GPU)}
    yield "asked", {SEAT: given["seats"], GPU: replicas}
    yield "visibility", story.scheduler.status()["settings"]["visibility"]
    yield "doctor", cluster.kubectl(*DOCTOR)


def two_users(story: Story) -> Iterator[tuple[str, Any]]:
    """They start servers with a GPU, and work."""
    for name in USERS:
        story.users[name] = story.hub.server_of(name, SHARED)
        story.open_kernel(name)
    before = len(story.sim.journal())
    check(submit_work(story.kernels, rounds=4))
    yield "owners", {owner: each["name"] for owner, each in story.tenants().items()}
    yield "overlaps", story.overlaps()
    worked = {each.pid for each in story.sim.journal()[before:] if each.kind.name == "LAUNCH"}
    yield "worked", len(worked)
    rows = [row for each in story.tenants().values() for row in each["memory"]]
    yield "bytes_parked", sum(row["bytes_parked"] for row in rows)
    yield "memory", {name: _memory(story.cluster, name) for name in USERS}
    pods = {name: story.cluster.pod(f"jupyter-{name}")["spec"] for name in USERS}
    yield "limits", [each["containers"][0]["resources"]["limits"] for each in pods.values()]
    yield "their_volumes", [each.get("volumes", []) for each in pods.values()]
    yield "shown", story.kernels["alice"].run("%gpushare").ok().text
    yield "users_doctor", story.kernels["alice"].run("%gpushare doctor").ok().text
    quota = story.cluster.get("resourcequota", "seats")["status"]["used"]
    yield "quota", quota[f"requests.{SEAT}"]


def uuid_of(sim: SimulatedMachine) -> str:
    """Of its GPU, as CUDA shows it."""
    command = [sys.executable, "-c", _UUID]
    told = subprocess.run(command, env=sim.env(), capture_output=True, text=True, check=True)
    return told.stdout.strip()


def _memory(cluster: Cluster, user: str) -> dict[str, Any]:
    group = cluster.memory(f"jupyter-{user}", "notebook")
    return {
        "limit": int((group / "memory.limit_in_bytes").read_text()),
        "most": int((group / "memory.max_usage_in_bytes").read_text()),
        "told": (group / "memory.oom_control").read_text(),
    }


def restarts(story: Story) -> Iterator[tuple[str, Any]]:
    """Our scheduler is killed while both work, then the plugin; then an upgrade of the chart
    replaces the pod with both. Each time both go on with what they have kept."""
    cluster = story.cluster
    check(submit_work(story.kernels))
    yield "tenants_before", {owner: each["id"] for owner, each in story.tenants().items()}

    def upgrade() -> None:
        """To one that sees the processes of the node."""
        first = cluster.our_pod()["metadata"]["name"]
        story.given = merged(story.given, {"hostPID": True})
        cluster.apply(rendered(story.given))
        cluster.wait_until(lambda: cluster.our_pod()["metadata"]["name"] != first, "another pod")
        cluster.kubectl("rollout", "status", "ds/gpushare")

    for restart in (lambda: cluster.kill("scheduler"), lambda: cluster.kill("plugin"), upgrade):
        cells = submit_work(story.kernels, rounds=6)
        cluster.wait_until(story.works, "one works")
        restart()
        check(cells)
        cluster.wait_until(lambda: cluster.allocatable(SEAT), "the node has seats again")
    yield "tenants_after", {owner: each["id"] for owner, each in story.tenants().items()}
    pids = {n: int(k.run("import os; os.getpid()").ok().text) for n, k in story.kernels.items()}
    yield "same_kernels", pids == {name: kernel.pid for name, kernel in story.kernels.items()}
    pods = [cluster.container(cluster.pod(f"jupyter-{name}"), "notebook") for name in USERS]
    yield "restarts_of_pods", [each["restartCount"] for each in pods]
    yield "overlaps_after_restarts", story.overlaps()
    yield "doctor_after_upgrade", cluster.kubectl(*DOCTOR)
    yield (
        "seen_by_root_of_the_node",
        len(SchedulerClient(RUNTIME_DIR / "http.sock").status()["tenants"]),
    )
    story.users["dave"] = story.hub.server_of("dave", SHARED)
    story.open_kernel("dave").run(gpu_cells.spin(1)).ok()
    yield "a_third_user", sorted(story.tenants())
    story.kernels.pop("dave").stop()


def a_pod_without_a_seat(story: Story) -> Iterator[tuple[str, Any]]:
    """Carol's has a GPU, by code of the administrator's that has forgotten the seat. Nobody makes
    room for her: there is some because bob has let his memory go."""
    story.cluster.wait_until(lambda: sorted(story.tenants()) == [*USERS], "dave's kernel has ended")
    story.kernels["bob"].run(gpu_cells.let_go()).ok()
    story.users[UNSEATED] = story.hub.server_of(UNSEATED)
    kernel = story.open_kernel(UNSEATED)
    yield "unseated_has", kernel.run(_OURS).ok().text.strip()
    yield "unseated_runs", kernel.run(gpu_cells.keep_and_check(9, 1 << 20)).ok().status
    yield "tenants_beside_it", sorted(story.tenants())
    yield "doctor_of_its_node", story.cluster.kubectl(*DOCTOR, fails=True)
    story.kernels.pop(UNSEATED).stop()


def root_of_a_strange_pod(story: Story) -> Iterator[tuple[str, Any]]:
    """Of another namespace, with the tenants' directory and no seat."""
    cluster = story.cluster
    there = {"name": "there", "mountPath": str(RUNTIME_DIR)}
    requests = json.dumps([*ADMIN_VERBS, ("POST", "/tenants", {"name": "x", "kind": "kernel"})])
    container = {
        "name": "root",
        "image": node_image(),
        "command": ["python3", "-c", LOOK_AROUND, requests],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [there],
    }
    tenants = {"name": "there", "hostPath": {"path": str(RUNTIME_DIR / "tenants")}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [tenants]}
    cluster.kubectl("create", "namespace", ELSEWHERE)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": spec}
    of_it = f"--namespace={ELSEWHERE}"
    account = ("get", "serviceaccount", "default", of_it)
    cluster.wait_until(lambda: cluster.kubectl(*account), "the namespace has its account")
    cluster.kubectl("apply", of_it, "--filename=-", given=pod)
    ended = ("get", "pod", "root", of_it, "--output=jsonpath={.status.phase}")
    cluster.wait_until(lambda: cluster.kubectl(*ended) == "Succeeded", "root has looked around")
    yield "strange_root", json.loads(cluster.kubectl("logs", "root", of_it).splitlines()[-1])


def removed_and_installed(story: Story) -> Iterator[tuple[str, Any]]:
    """As the page says. Whose memory is on the device goes on, the other one waits for the next
    scheduler."""
    cluster = story.cluster
    check(submit_work(story.kernels))
    cluster.kubectl(*IN_SCHEDULER, "set", "fallback", "run")
    objects = {"apiVersion": "v1", "kind": "List", "items": rendered(story.given)}
    cluster.kubectl("delete", "--filename=-", given=objects)
    cells = submit_work(story.kernels)
    cluster.wait_until(lambda: any(_is_done(each) for each in cells), "one has worked without us")
    yield "done_without_it", [_is_done(each) for each in cells]
    cluster.apply(rendered(story.given))
    check(cells)
    check(submit_work(story.kernels))
    yield "tenants_at_the_end", {owner: each["id"] for owner, each in story.tenants().items()}
    pods = [cluster.container(cluster.pod(f"jupyter-{name}"), "notebook") for name in USERS]
    yield LAST, [each["restartCount"] for each in pods]


def _is_done(cell: tuple[HubKernel, str]) -> bool:
    kernel, number = cell
    return kernel.done(number)


def open_to_all(sim: SimulatedMachine) -> None:
    """It comes to life outside of all pods, as a device that everybody may use."""
    program = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0"
    subprocess.run([sys.executable, "-c", program], cwd=sim.directory, env=sim.env(), check=True)
    for path in (sim.directory, *sim.directory.rglob("*")):
        path.chmod(0o777)


def main(folder: Path) -> None:
    prepare_directories(RUNTIME_DIR, LIBRARY_DIR, Path("/run/containerd"))
    sim = SimulatedMachine(folder / "machine", bytes_per_device=DEVICE_BYTES)
    open_to_all(sim)
    cluster = Cluster(sim.directory)
    story = Story(folder, cluster, sim)
    seen: dict[str, Any] = {}
    with machine_as_before():
        try:
            cluster.begin()
            seen.update(seen_by(story))
        finally:
            if LAST not in seen:
                print(json.dumps(seen, indent=1), file=sys.stderr)
                print(cluster.described(), story.hub.log[-6000:], file=sys.stderr)
            story.hub.stop()
            end_leftovers(folder)
            cluster.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
