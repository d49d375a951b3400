"""One view of three schedulers: of a hub whose servers are containers, of a node of Slurm, and of a
node of Kubernetes. All of it is in the namespaces that this process is in; started by unshare.

`python -m tests.cluster.three_platforms FOLDER` prints what it has seen as one JSON object."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.hub.view import TOKENS_FILE, own_name
from jupyter_gpushare.view.fleet import SILENT_S
from tests.browser.chromium import find_chromium
from tests.browser.conftest import FLAGS
from tests.browser.panel import keep_picture
from tests.charts.chart import merged, rendered
from tests.charts.test_page import block_with
from tests.cluster.kubernetes import STORE
from tests.cluster.nvidias_plugin import RESOURCE as GPU
from tests.cluster.pod_images import servers_image
from tests.cluster.podman import GATEWAY as GATEWAY_OF_CONTAINERS
from tests.cluster.podman import Podman
from tests.cluster.real_cluster import LIBRARY_DIR, RUNTIME_DIR, open_to_all, uuid_of
from tests.cluster.real_node import RESOURCE as SEAT
from tests.cluster.real_node import machine_as_before, prepare_directories
from tests.cluster.slurm import SlurmCluster
from tests.cluster.slurm_page import cluster_of_the_page
from tests.cluster.test_docker import (
    LIMIT_HERE,
    LIMIT_IN_THE_PAGE,
    OF_THIS_MACHINE,
    PAGE,
    STEPS,
)
from tests.cluster.whole_cluster import GATEWAY, NAMESPACE, RUNTIME, Cluster, as_pods_reach
from tests.hub.running_hub import PASSWORD, RunningHub, end_leftovers, server_env
from tests.hub.test_real_view import PREFIX
from tests.hub.visitor import Visitor
from tests.packaging.readme import blocks_under, commands_under
from tests.support import gpu_cells
from tests.support.paths import ROOT, SIM_LIBRARIES
from tests.support.ports import free_ports
from tests.support.sim import MIB, SimulatedMachine

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VIEW_PAGE = ROOT / "docs" / "view.md"
OUTSIDE = "A view outside of Kubernetes"
IN_THE_PAGE = "https://hub.example.org/services/gpushare-view/"
SLURM_NODE, SLURM_NAME, KUBERNETES_NAME = "n1", "slurm-n1", "node1"
IMAGE = "gpushare-notebook"
WORDS = 8 << 20
BUSY_S_MAX = 120.0
SILENT_MS_MAX = (SILENT_S + 60) * 1000
LAST = "reconnected"


class Place:
    """What the steps share."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.program = folder / "train.py"
        turns = "while True:\n    " + _indented(gpu_cells.keep_and_check(7, WORDS))
        wait = "\n    gpu.spin(50, 20)\n    import time; time.sleep(0.2)\n"
        self.program.write_text(gpu_cells.setup() + turns + wait)
        (self.report_port, self.view_port) = free_ports(2)
        self.authority, self.key = folder / "ca.crt", folder / "view.key"
        self._make_certificate()
        self.machines = {
            name: SimulatedMachine(folder / name, bytes_per_device=512 * MIB)
            for name in ("docker", "kubernetes")
        }
        for machine in self.machines.values():
            open_to_all(machine)
        self.cluster = Cluster(self.machines["kubernetes"].directory)
        self.podman = Podman(folder)
        self.view_dir = folder / "view"
        self.api_token, self.api_ca = folder / "api-token", folder / "api-ca.crt"
        self.hub = self._hub()
        self.slurm: SlurmCluster

    def _make_certificate(self) -> None:
        """Its own authority, for both addresses at which nodes reach the view."""
        names = f"subjectAltName=IP:{GATEWAY},IP:127.0.0.1"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=view", "-addext", names),
                *("-keyout", str(self.key), "-out", str(self.authority)),
            ],
            check=True,
            capture_output=True,
        )

    def _hub(self) -> RunningHub:
        """By the pages: users' servers are containers, and the hub has the view."""
        env = server_env(self.machines["docker"].env(), self.folder)
        here = OF_THIS_MACHINE.format(
            gateway=GATEWAY_OF_CONTAINERS,
            socket=self.podman.socket,
            machine=self.machines["docker"].directory,
            simulated=SIM_LIBRARIES,
            root=ROOT,
            folder=self.folder,
        )
        (docker,) = blocks_under(STEPS, "python", PAGE)
        with_view, *_ = blocks_under("With a hub", "python", VIEW_PAGE)
        (outside,) = blocks_under(OUTSIDE, "python", VIEW_PAGE)
        at_a_port = [
            f"--report-port={self.report_port}",
            f"--tls-cert={self.authority}",
            f"--tls-key={self.key}",
        ]
        ours = [
            with_view,
            self.as_here(outside),
            f"c.GPUShare.view_args += {at_a_port!r}",
            f"c.GPUShare.view_port = {self.view_port}",
            f"c.GPUShare.view_dir = {str(self.view_dir)!r}",
            docker.replace(LIMIT_IN_THE_PAGE, LIMIT_HERE),
        ]
        return RunningHub(
            self.folder / "hub",
            server_env={},
            scheduler_env={**env, "CUDA_VISIBLE_DEVICES": "0"},
            our_lines="\n".join([here, *ours]),
        )

    def as_here(self, text: str) -> str:
        return (
            text.replace("https://kubernetes.example.org:6443", "https://127.0.0.1:6443")
            .replace("/etc/jupyter-gpushare/api-token", str(self.api_token))
            .replace("/etc/jupyter-gpushare/api-ca.crt", str(self.api_ca))
        )

    def visitor(self, name: str) -> Visitor:
        """Logged in, without a server."""
        found = Visitor(self.hub.url, name, PASSWORD)
        found.log_in()
        return found


def _indented(text: str) -> str:
    return text.rstrip().replace("\n", "\n    ")


def seen_by(place: Place, browser: Browser) -> Iterator[tuple[str, Any]]:
    """What happens, step by step."""
    kubernetes(place)
    place.stack.enter_context(place.podman.service())
    place.podman("tag", servers_image(), IMAGE)
    place.hub.start()
    alice = docker(place)
    slurm(place)
    pod_of_bob(place)
    yield from an_administrator(place, browser)
    yield from a_user(place, browser)
    alice.stop()


def kubernetes(place: Place) -> None:
    """The node with seats, and a scheduler that reports by its projected token."""
    cluster = place.cluster
    cluster.begin()
    uuid = uuid_of(place.machines["kubernetes"])
    cluster.start("nvidias-plugin", sys.executable, "-m", "tests.cluster.nvidias_plugin", uuid, "4")
    authority = {"ca.crt": place.authority.read_text()}
    cluster.apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": RUNTIME},
                "handler": RUNTIME,
            },
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "view-authority", "namespace": NAMESPACE},
                "data": authority,
            },
        ]
    )
    url = f"https://{GATEWAY}:{place.report_port}/"
    (block,) = blocks_under(OUTSIDE, "yaml", VIEW_PAGE)
    of_the_page = yaml.safe_load(block)
    assert of_the_page["view"]["url"] == IN_THE_PAGE
    here = {
        "hub": {"apiUrl": as_pods_reach(place.hub.api_url)},
        "view": {"url": url, "caConfigMap": "view-authority"},
    }
    cluster.apply(rendered(merged(merged(block_with("seats"), of_the_page), here)))

    def token_is_there() -> bool:
        data = cluster.get("secret", "gpushare-view").get("data", {})
        return "token" in data and "ca.crt" in data

    cluster.wait_until(token_is_there, "the account of the view has its token")
    env = {**os.environ, "PATH": f"{STORE}:{os.environ['PATH']}"}
    env["KUBECONFIG"] = str(cluster.kubeconfig)
    for command in commands_under(OUTSIDE, VIEW_PAGE):
        subprocess.run(["sh", "-c", f"umask 077; {place.as_here(command)}"], env=env, check=True)
    cluster.wait_until(lambda: cluster.allocatable(SEAT), "the node has seats")


def docker(place: Place) -> Any:
    """A notebook of alice's in a container, which works."""
    kernel = place.hub.visitor("alice").open_notebook("alices.ipynb")
    kernel.run(gpu_cells.setup()).ok()
    kernel.run(gpu_cells.keep_and_check(9, WORDS)).ok()
    kernel.submit(gpu_cells.spin_until_interrupted(50))
    return kernel


def slurm(place: Place) -> None:
    """A node whose scheduler reports as the unit's comment says, and a job of carol's."""
    place.slurm = slurm = place.stack.enter_context(cluster_of_the_page(["carol"]))
    make, _, _ = commands_under("Nodes of a cluster", VIEW_PAGE)[0].partition(" --tokens")
    words = make.replace("node1", SLURM_NAME).split()
    tokens = ["--tokens", str(place.view_dir / TOKENS_FILE)]
    program = [sys.executable, "-m", "jupyter_gpushare.cli.main", *words[2:], *tokens]
    token = subprocess.run(program, check=True, capture_output=True, text=True).stdout
    of_node, here = slurm.views.of(SLURM_NODE), slurm.views.here
    (of_node / "view-token").write_text(token)
    (of_node / "view-token").chmod(0o600)
    (of_node / "view-ca.crt").write_text(place.authority.read_text())
    unit = of_node / "jupyter-gpushare.service"
    text = unit.read_text()
    (line,) = re.findall(r"^#   (ExecStart=/.*)$", text, re.M)
    line = line.replace(IN_THE_PAGE, f"https://127.0.0.1:{place.report_port}/")
    line = line.replace("/etc/jupyter-gpushare/view-token", str(here / "view-token"))
    line += f" --report-ca={here / 'view-ca.crt'}"
    unit.write_text(re.sub(r"^ExecStart=.*$", lambda _: line, text, flags=re.M))
    slurm.end(f"scheduler-{SLURM_NODE}")
    slurm.start_scheduler(SLURM_NODE)
    run = f"{slurm.folder}/opt/bin/jupyter-gpushare run -- {sys.executable} {place.program}"
    # The simulated device is files that all accounts share.
    job = ["--gres=shard:1", f"--nodelist={SLURM_NODE}", "--mem=600", "sh", "-c", f"umask 0; {run}"]
    slurm.start_job("carol", job)
    slurm.wait_until(lambda: slurm.tenants(SLURM_NODE), "carol's job is a tenant")


def pod_of_bob(place: Place) -> None:
    """With a seat, a share of a GPU and a token of the hub."""
    cluster = place.cluster
    token = place.visitor("bob").new_token()
    command = ["jupyter-gpushare", "run", "--", "python3", str(place.program)]
    container = {
        "name": "train",
        "image": servers_image(),
        "command": command,
        "env": [{"name": "JUPYTERHUB_API_TOKEN", "value": token}],
        "resources": {"limits": {SEAT: "1", GPU: "1", "memory": "600Mi"}},
        "volumeMounts": [{"name": "program", "mountPath": str(place.program)}],
    }
    program = {"name": "program", "hostPath": {"path": str(place.program)}}
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [program],
    }
    cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "bobs", "namespace": NAMESPACE},
                "spec": spec,
            }
        ]
    )
    admin = place.visitor("root").new_token()
    scheduler = SchedulerClient(RUNTIME_DIR / "tenants" / "http.sock", hub_token=admin)
    try:
        cluster.wait_until(lambda: scheduler.status()["tenants"], "bob's program is a tenant")
    except AssertionError as error:
        said = cluster.kubectl("describe", "pod", "bobs", fails=True)
        logs = cluster.kubectl("logs", "bobs", fails=True)
        raise AssertionError(f"{error}\n{said}\n{logs}") from error


def an_administrator(place: Place, browser: Browser) -> Iterator[tuple[str, Any]]:
    """Sees all three, opens each, and sees one go and come."""
    from playwright.sync_api import expect

    page = opened(browser, place, "root")
    for name in (own_name(), SLURM_NAME, KUBERNETES_NAME):
        expect(row(page, name)).to_be_visible()
    owners = {own_name(): "alice", SLURM_NAME: "carol", KUBERNETES_NAME: "bob"}
    for name, owner in owners.items():
        expect(row(page, name)).to_contain_text(owner)
    yield "rows", {name: row(page, name).inner_text() for name in owners}
    answer = page.evaluate(_NODES)
    yield "platforms", {each["name"]: each["platform"] for each in answer["nodes"]}
    yield "states", {each["name"]: each["state"] for each in answer["nodes"]}
    shown = {}
    for name, owner in owners.items():  # one is open at a time
        row(page, name).get_by_role("button", name=name, exact=True).click()
        expect(row(page, name).get_by_role("article")).to_contain_text(f"{owner}: ")
        shown[name] = row(page, name).inner_text()
    yield "opened", shown
    yield "picture", str(keep_picture(page, "view-of-three", full_page=True))
    place.slurm.end(f"scheduler-{SLURM_NODE}", signal.SIGKILL)
    expect(row(page, SLURM_NAME)).to_contain_text("silent for", timeout=SILENT_MS_MAX)
    yield "silent", row(page, SLURM_NAME).inner_text()
    yield "picture_of_silence", str(keep_picture(page, "view-of-three-silent", full_page=True))
    place.slurm.start_scheduler(SLURM_NODE)
    expect(row(page, SLURM_NAME)).not_to_contain_text("silent for", timeout=SILENT_MS_MAX)
    expect(row(page, SLURM_NAME)).to_contain_text("carol: ")
    yield LAST, row(page, SLURM_NAME).inner_text()
    page.context.close()


_NODES = """async () => {
  const name = /_xsrf=([^;]+)/.exec(document.cookie);
  const headers = name ? {"X-XSRFToken": name[1]} : {};
  return (await fetch("api/v1/nodes", {headers})).json();
}"""


def a_user(place: Place, browser: Browser) -> Iterator[tuple[str, Any]]:
    """Alice sees the nodes, and of notebooks hers."""
    from playwright.sync_api import expect

    page = opened(browser, place, "alice")
    expect(page.locator("#mine-table")).to_contain_text("alices.ipynb")
    expect(row(page, SLURM_NAME)).to_be_visible()
    yield "alices", page.locator("#mine-table").inner_text()
    yield "strangers_in_her_page", [n for n in ("bob", "carol") if n in page.content()]
    yield "her_picture", str(keep_picture(page, "view-of-three-user", full_page=True))
    page.context.close()


def opened(browser: Browser, place: Place, name: str) -> Page:
    """The page, by the hub's login."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, locale="en-US")
    context.set_default_timeout(BUSY_S_MAX * 1000)
    page = context.new_page()
    page.goto(f"{place.hub.url}{PREFIX}")
    page.locator("#username_input").fill(name)
    page.locator("#password_input").fill(PASSWORD)
    page.locator("#login_submit").click()
    page.wait_for_url(f"{place.hub.url}{PREFIX}")
    return page


def row(page: Page, name: str) -> Any:
    return page.locator("#table > table > tbody").filter(
        has=page.get_by_role("button", name=name, exact=True)
    )


def main(folder: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    prepare_directories(RUNTIME_DIR, LIBRARY_DIR, Path("/run/containerd"))
    expect.set_options(timeout=BUSY_S_MAX * 1000)
    chromium = find_chromium()
    seen: dict[str, Any] = {}
    with machine_as_before(), ExitStack() as stack, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.program, args=FLAGS, env=dict(chromium.env)
        )
        place = Place(folder, stack)
        try:
            seen.update(seen_by(place, browser))
        finally:
            if LAST not in seen:
                print(json.dumps(seen, indent=1), file=sys.stderr)
                print(place.cluster.described(), place.hub.log[-9000:], file=sys.stderr)
            browser.close()
            place.hub.stop()
            end_leftovers(folder / "hub")
            place.cluster.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
