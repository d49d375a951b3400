"""docs/docker.md, done: its commands and lines are read from it, and followed on podman. Users of
a hub share a simulated GPU from containers of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from jupyter_gpushare.client.paths import TENANTS_DIR
from tests.cluster.images import base_image
from tests.cluster.look_around import LOOK_AROUND
from tests.cluster.podman import GATEWAY, CannotRun, Podman, check_machine
from tests.cluster.work import BUSY_S_MAX, DEVICE_BYTES, KEPT_WORDS, check, submit_work
from tests.hub.proxy import NoProxy, proxy_command
from tests.hub.running_hub import RunningHub, end_leftovers, server_env
from tests.hub.visitor import HubKernel, Visitor
from tests.packaging.environments import Environment, run
from tests.packaging.readme import blocks_under, commands_under
from tests.scheduler.test_tenants_dir import ADMIN_VERBS
from tests.support import gpu_cells
from tests.support.paths import ROOT, SIM_LIBRARIES
from tests.support.sim import MIB, SimulatedMachine

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

PAGE, STEPS = ROOT / "docs" / "docker.md", "Set it up"
LIMIT_IN_THE_PAGE, LIMIT_HERE = '"64G"', '"1536M"'
# Where this machine's Docker is podman, its GPU is simulated, and its folders are the test's.
OF_THIS_MACHINE = """
own = c.JupyterHub.hub_bind_url
c.JupyterHub.hub_bind_url = own.replace("127.0.0.1", "0.0.0.0")
c.JupyterHub.hub_connect_ip = "127.0.0.1"
c.DockerSpawner.hub_connect_url = own.replace("127.0.0.1", "{gateway}")
c.Spawner.cmd = ["jupyterhub-singleuser"]
c.Spawner.args = []
c.Spawner.environment = {{
    "LD_LIBRARY_PATH": "/opt/simulated",
    "GPUSHARE_SIM_DIR": "/opt/machine",
    "CUDA_VISIBLE_DEVICES": "0",
}}
c.DockerSpawner.client_kwargs = {{"base_url": "unix://{socket}"}}
c.DockerSpawner.pull_policy = "never"
c.DockerSpawner.network_name = "podman"
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.remove = True
c.DockerSpawner.notebook_dir = "/home/user"
c.DockerSpawner.volumes = {{
    "{machine}": "/opt/machine",
    "{simulated}": {{"bind": "/opt/simulated", "mode": "ro"}},
    "{root}/hook/sim": {{"bind": "{root}/hook/sim", "mode": "ro"}},
}}
c.DockerSpawner.extra_host_config = {{
    "ulimits": [
        {{"Name": "nofile", "Soft": 4096, "Hard": 4096}},
        {{"Name": "nproc", "Soft": 8192, "Hard": 8192}},
    ]
}}
c.GPUShare.library_dir = "{folder}/library"
"""
DOCKER = """#!/bin/sh
if [ "$1" = build ]; then
  shift
  set -- build --network=none --build-arg "BASE={base}" "$@"
fi
exec podman "$@"
"""


@dataclass
class Place:
    """A hub whose users' servers are containers."""

    hub: RunningHub
    podman: Podman
    sim: SimulatedMachine

    def tenants(self) -> dict[str, dict[str, Any]]:
        """By owner."""
        return {each["owner"]: each for each in self.hub.scheduler.status()["tenants"]}

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        until_s = time.monotonic() + BUSY_S_MAX
        while not holds():
            assert time.monotonic() < until_s, f"not in time: {what}\n{self.hub.log[-4000:]}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not below pytest's own, which containers' users may not enter."""
    with TemporaryDirectory(prefix="gpushare-hub-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        end_leftovers(Path(name))


@pytest.fixture(scope="module")
def podman(folder: Path) -> Iterator[Podman]:
    """It fails where something is missing that the machine could have."""
    try:
        check_machine()
        proxy_command()
        podman = Podman(folder)
        with podman.service():
            yield podman
    except (CannotRun, NoProxy) as reason:
        pytest.fail(str(reason))


@pytest.fixture(scope="module")
def environment(
    folder: Path, podman: Podman, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """Where the hub runs, once the page's commands are done: it has this package, and there is an
    image that has it too."""
    clone = tmp_path_factory.mktemp("fresh") / "clone"
    run(["git", "clone", "--quiet", ROOT, clone], cwd=clone.parent)
    environment = Environment(folder / "venv", sys.executable)
    environment.install("jupyterhub>=5.2", "dockerspawner>=13", "pip")
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER.format(base=base_image(podman)))
    docker.chmod(0o755)
    (dockerfile,) = blocks_under(STEPS, "dockerfile", PAGE)
    (clone / "image").mkdir()
    (clone / "image" / "Dockerfile").write_text(dockerfile)
    env = environment.env() | {"GPUSHARE_BUILD_PANEL": "no"}
    env |= {name: podman.env[name] for name in podman.env if name.startswith("CONTAINERS_")}
    env["PATH"] = f"{docker.parent}:{env['PATH']}"
    for command in commands_under(STEPS, PAGE):
        run(["sh", "-c", command], cwd=clone, env=env)
    return environment


@pytest.fixture(scope="module")
def place(folder: Path, podman: Podman, environment: Environment) -> Iterator[Place]:
    sim = SimulatedMachine(folder / "machine", bytes_per_device=DEVICE_BYTES)
    _open_to_all(sim)
    env = server_env(sim.env(), folder)
    del env["GPUSHARE_LIBRARY"]  # the installed one is meant
    (lines,) = blocks_under(STEPS, "python", PAGE)
    assert LIMIT_IN_THE_PAGE in lines
    here = OF_THIS_MACHINE.format(
        gateway=GATEWAY,
        socket=podman.socket,
        machine=sim.directory,
        simulated=SIM_LIBRARIES,
        root=ROOT,
        folder=folder,
    )
    hub = RunningHub(
        folder,
        server_env={},
        scheduler_env={**env, "CUDA_VISIBLE_DEVICES": "0"},
        python=environment.python,
        our_lines=here + lines.replace(LIMIT_IN_THE_PAGE, LIMIT_HERE),
    )
    try:
        yield Place(hub.start(), podman, sim)
    finally:
        hub.stop()


def _open_to_all(sim: SimulatedMachine) -> None:
    """It comes to life outside of all containers, as a device that everybody may use."""
    program = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0"
    run([sys.executable, "-c", program], cwd=sim.directory, env=sim.env())
    for path in (sim.directory, *sim.directory.rglob("*")):
        path.chmod(0o777)


@pytest.fixture(scope="module")
def users(place: Place) -> dict[str, Visitor]:
    return {name: place.hub.visitor(name) for name in ("alice", "bob")}


@pytest.fixture
def kernels(users: dict[str, Visitor], place: Place) -> Iterator[dict[str, HubKernel]]:
    """One of each user's, with CUDA open."""
    found = {name: user.open_notebook(f"{name}s.ipynb") for name, user in users.items()}
    for kernel in found.values():
        kernel.run(gpu_cells.setup()).ok()
    yield found
    for kernel in found.values():
        kernel.stop()
    place.wait_until(lambda: not place.tenants(), "no tenant is left")


def client_of(place: Place, owner: str) -> dict[str, Any]:
    (client,) = place.tenants()[owner]["clients"]
    return dict(client)


def is_another(place: Place, owner: str, before: str) -> bool:
    """Whether the owner has a tenant, and not the one from before."""
    return place.tenants().get(owner, {"id": before})["id"] != before


def holds(place: Place, owner: str) -> bool:
    (device,) = place.hub.scheduler.status()["devices"]
    return place.tenants()[owner]["id"] in [each["tenant"] for each in device["holders"]]


def keeps(kernel: HubKernel) -> bool:
    """Whether what it wants to keep has room now."""
    kernel.run(gpu_cells.let_go()).ok()
    return kernel.run(gpu_cells.keep_and_check(7, KEPT_WORDS)).status == "ok"


@pytest.mark.promise(
    "hub-2",
    "Users in containers (DockerSpawner) take turns and never overlap, owned by whom the hub says, "
    "and what they park stays within their containers' limits",
)
def test_two_users_share_a_device(place: Place, kernels: dict[str, HubKernel]) -> None:
    """As the device's own journal tells, and the control groups of the containers."""
    before = len(place.sim.journal())
    check(submit_work(kernels, rounds=4))
    owners = {owner: each["name"] for owner, each in place.tenants().items()}
    assert owners == {"alice": "alices.ipynb", "bob": "bobs.ipynb"}
    assert place.sim.computing_overlaps() == []
    worked = {each.pid for each in place.sim.journal()[before:] if each.kind.name == "LAUNCH"}
    assert len(worked) == 2
    memory = [row for each in place.tenants().values() for row in each["memory"]]
    assert sum(row["bytes_parked"] for row in memory) > 0
    for name in kernels:
        group = place.podman.group(f"jupyter-{name}")
        limit = int((group / "memory.limit_in_bytes").read_text())
        assert limit == 1536 * MIB
        assert int((group / "memory.max_usage_in_bytes").read_text()) < limit
        assert "oom_kill 0" in (group / "memory.oom_control").read_text()


@pytest.mark.promise("hub-2")
def test_what_a_user_sees(place: Place, kernels: dict[str, HubKernel]) -> None:
    """The page's two lines, in a notebook; the hook is the hub's own, and the number that the
    scheduler has for the process is the machine's."""
    (looks,) = blocks_under(STEPS, "ipython", PAGE)
    shown, doctor = (kernels["alice"].run(look).ok().text for look in looks.splitlines())
    assert "This kernel" in shown
    assert "PROBLEM" not in doctor
    assert "/usr/lib/jupyter-gpushare/libgpushare.so can be preloaded" in doctor
    assert "for parked GPU memory" in doctor or "which parked GPU memory may take" in doctor
    client = client_of(place, "alice")
    first = place.podman.inspect("jupyter-alice")["State"]["Pid"]
    assert client["pid"] != kernels["alice"].pid
    assert (
        Path(f"/proc/{client['pid']}/ns/pid").readlink() == Path(f"/proc/{first}/ns/pid").readlink()
    )


@pytest.mark.promise(
    "bad-input-23",
    "A container whose memory limit is too small for parking: nobody is killed, who waits reads "
    "why, its doctor says how much it needs, and with more all go on",
)
def test_a_limit_that_is_too_small(place: Place, kernels: dict[str, HubKernel]) -> None:
    """Bob's memory stays on the device, and alice has no room there until the limit is raised; what
    she asks for until then is out of memory in the end, as the documents say."""
    kernels["bob"].run(gpu_cells.keep_and_check(8, KEPT_WORDS)).ok()
    group = place.podman.group("jupyter-bob")
    limit = group / "memory.limit_in_bytes"
    enough = limit.read_text()
    limit.write_text(str(int((group / "memory.usage_in_bytes").read_text()) + 128 * MIB))
    waits = kernels["alice"].submit(gpu_cells.keep_and_check(7, KEPT_WORDS))
    place.wait_until(lambda: place.tenants()["alice"]["blocked_reason"], "alice reads why")
    assert "host" in place.tenants()["alice"]["blocked_reason"]
    doctor = kernels["bob"].run("%gpushare doctor").ok().text
    assert "their GPU memory cannot be parked there" in doctor
    assert "For what it has now, it needs 1 GiB." in doctor or "it needs 2 GiB." in doctor
    first = kernels["alice"].wait(waits, BUSY_S_MAX)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in first.evalue
    limit.write_text(enough)
    place.wait_until(lambda: keeps(kernels["alice"]), "alice has room, once bob's hook has looked")
    kernels["bob"].run(gpu_cells.keep_and_check(8, KEPT_WORDS)).ok()
    assert "oom_kill 0" in (group / "memory.oom_control").read_text()


@pytest.mark.promise("hub-32")
def test_root_of_a_container(place: Place, users: dict[str, Visitor]) -> None:
    """With all our mounts, it finds two sockets and no key, and administers nothing."""
    python = ("/opt/jupyter/bin/python3", "-c", LOOK_AROUND, json.dumps(ADMIN_VERBS))
    said = place.podman("exec", "--user=0", "jupyter-alice", *python)
    assert json.loads(said) == [0, [True, True], [401] * len(ADMIN_VERBS)]
    assert (place.hub.runtime_dir / TENANTS_DIR / "http.sock").exists()
    assert (place.hub.runtime_dir / "token.key").exists()


@pytest.mark.promise(
    "hub-3", "A scheduler that is killed and started again loses no kernel of a container"
)
def test_the_scheduler_restarts(place: Place, kernels: dict[str, HubKernel]) -> None:
    """Killed while all of them work; the hub starts another one. Each goes on with what it has, and
    is its user's as before."""
    check(submit_work(kernels))
    before = {owner: each["id"] for owner, each in place.tenants().items()}
    pids = {name: kernel.pid for name, kernel in kernels.items()}
    cells = submit_work(kernels, rounds=6)
    place.wait_until(lambda: place.hub.scheduler.status()["devices"][0]["holders"], "one works")
    first = place.hub.scheduler_pid()
    assert first
    os.kill(first, signal.SIGKILL)
    place.wait_until(lambda: place.hub.scheduler_pid() not in (None, first), "another scheduler")
    check(cells)
    assert {owner: each["id"] for owner, each in place.tenants().items()} == before
    assert {name: kernel.pid for name, kernel in kernels.items()} == pids
    assert place.sim.computing_overlaps() == []


@pytest.mark.promise(
    "bad-input-24",
    "A paused container that holds the turn: the others read why they wait, nobody is ended, and "
    "all go on when it does",
)
def test_a_paused_container_that_holds_the_turn(
    place: Place, kernels: dict[str, HubKernel]
) -> None:
    """It is shown as frozen, and as overdue in the end, which only warns."""
    place.hub.scheduler.change_settings({"quantum_s": "0.2s", "overdue_s": "0.5s"})
    check(submit_work(kernels))
    paused = kernels["alice"].submit(gpu_cells.spin(50, 60))
    place.wait_until(lambda: holds(place, "alice"), "alice has it")
    place.podman("pause", "jupyter-alice")
    try:
        waits = kernels["bob"].submit(gpu_cells.keep_and_check(8, KEPT_WORDS))
        place.wait_until(lambda: client_of(place, "alice")["frozen"], "it is seen to be frozen")
        place.wait_until(lambda: place.tenants()["bob"]["blocked_reason"], "bob reads why")
        assert "stopped from outside" in place.tenants()["bob"]["blocked_reason"]
        place.wait_until(lambda: client_of(place, "alice")["overdue"], "it is overdue")
    finally:
        place.podman("unpause", "jupyter-alice")
    check([(kernels["alice"], paused), (kernels["bob"], waits)])
    check(submit_work(kernels))
    assert place.sim.computing_overlaps() == []


@pytest.mark.promise("bad-input-54")
def test_a_paused_container_and_the_policy_kill(
    place: Place, kernels: dict[str, HubKernel], users: dict[str, Visitor]
) -> None:
    """The process that holds the turn ends, by the time its container goes on; the server in that
    container lives, and so does everything outside. The other user goes on."""
    check(submit_work(kernels))
    client, before = client_of(place, "alice"), place.tenants()["alice"]["id"]
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        kernels["alice"].submit(gpu_cells.spin(50, 200))
        place.wait_until(lambda: holds(place, "alice"), "alice has it")
        place.podman("pause", "jupyter-alice")
        try:
            # Only now: on a busy machine, who parks its memory may take longer than this, too.
            settings = {"quantum_s": "0.2s", "overdue_s": "0.5s", "overdue_policy": "kill"}
            place.hub.scheduler.change_settings(settings)
            waits = kernels["bob"].submit(gpu_cells.keep_and_check(8, KEPT_WORDS))
            place.wait_until(lambda: "is killed" in place.hub.log, "the policy applies")
            place.hub.scheduler.change_settings({"overdue_policy": "warn"})
        finally:
            place.podman("unpause", "jupyter-alice")
        check([(kernels["bob"], waits)])
        place.wait_until(lambda: not Path(f"/proc/{client['pid']}").exists(), "it has ended")
        assert stranger.poll() is None
        stranger.kill()
    assert users["alice"].request("GET", "api/status").ok
    place.wait_until(lambda: is_another(place, "alice", before), "Jupyter starts the kernel again")
    # Until it is there: what is shut down while it starts lives on.
    kernels["alice"].run("pass").ok()
