"""A real Slurm of two nodes with a real JupyterHub in front: users share a node's device as jobs.

docs/slurm.md is followed command by command and line by line."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.client import RequestRefused
from tests.cluster.server import ServerOfAUser
from tests.cluster.slurm import DEVICE_BYTES, NODES, SlurmCluster
from tests.cluster.slurm_hub import SlurmHub
from tests.cluster.slurm_page import PAGE, cluster_of_the_page, hub_of_the_page
from tests.hub.visitor import HubKernel
from tests.packaging.readme import blocks_under, commands_under
from tests.support import gpu_cells
from tests.support.observed import ObservedKernels
from tests.support.other_user import as_other_user
from tests.support.timeline import overlaps

USERS = ("alice", "bob", "carol")
WORDS = DEVICE_BYTES * 8 // 10 // 4096 * 1024
"""Of four bytes: four fifths of the device."""
OF_THE_JOB = """
from jupyter_gpushare.cli.checkup.cgroups import tightest_limit
limit = tightest_limit()
lines = (line.split() for line in open(limit.path + "/memory.stat"))
stat = {name: int(value) for name, value in lines}
names = ("total_rss", "total_shmem") if "total_rss" in stat else ("anon", "shmem")
print([limit.bytes_max, sum(stat[name] for name in names)])
"""
"""The limit of the job that the notebook is in, and how much counts there that is no file: the
simulated device's own memory is files."""
SERVER_JOB = "spawner-jupyterhub"
"""As batchspawner names the job of a server."""
SCRIPT_JOB = "job.sh"

pytestmark = [
    pytest.mark.full,
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with cluster_of_the_page(USERS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def hub(cluster: SlurmCluster) -> Iterator[SlurmHub]:
    with hub_of_the_page(cluster, {"carol": "n2"}) as hub:
        yield hub


@pytest.fixture(scope="module")
def notebooks(hub: SlurmHub) -> dict[str, HubKernel]:
    """A notebook of each user: two on the first node, one on the other."""
    return {name: hub.open_notebook(name) for name in USERS}


@pytest.fixture(scope="module")
def observed(cluster: SlurmCluster, notebooks: dict[str, HubKernel]) -> ObservedKernels:
    """Alice's and bob's notebooks, by the journal of their node's device."""
    observed = ObservedKernels(cluster.machine("n1"), [notebooks["alice"], notebooks["bob"]])
    observed.set_up()
    return observed


def node_of(kernel: HubKernel) -> str:
    return kernel.run("import os; print(os.environ['SLURMD_NODENAME'])").ok().text.strip()


@pytest.mark.promise(
    "hub-4", "In a Slurm job with a whole GPU nothing is shared, and the user is told"
)
def test_a_whole_gpu_stays_outside(cluster: SlurmCluster) -> None:
    """Programs run plain there, nobody is a tenant, and what is shown says why."""
    program = cluster.folder / "opt" / "bin" / "jupyter-gpushare"
    told = f"echo $GPUSHARE_DISABLE token=$GPUSHARE_TOKEN; {program} doctor"
    said = cluster.run(
        ["srun", "--gres=gpu:1", "--mem=400", program, "run", "--", "sh", "-c", told],
        user="bob",
        env=cluster.device_env(),
    )
    plain, first, *_ = said.stdout.splitlines()
    assert plain == "1 token=", said
    assert "This Slurm job has whole GPUs, which it shares with nobody." in first
    assert [cluster.tenants(node) for node in NODES] == [[], []]


@pytest.mark.promise(
    "hub-5", "Servers that are jobs of Slurm share the device of their node, by uid"
)
@pytest.mark.promise(
    "packaging-2",
    "With the capabilities of the unit alone, the scheduler serves every account as its owner",
)
def test_owners_are_the_accounts(cluster: SlurmCluster, notebooks: dict[str, HubKernel]) -> None:
    """Each notebook is a tenant of its user's account at the scheduler of its own node."""
    nodes = {name: node_of(kernel) for name, kernel in notebooks.items()}
    assert nodes == {"alice": "n1", "bob": "n1", "carol": "n2"}
    for name, kernel in notebooks.items():
        uid = cluster.views.accounts[name].uid
        said = kernel.run("print(os.getuid(), os.environ['SLURM_SHARDS_ON_NODE'])").ok().text
        assert said == f"{uid} 1\n"
    told = {node: {(t["owner"], t["name"]) for t in cluster.tenants(node)} for node in NODES}
    assert told == {
        "n1": {("alice", "alice.ipynb"), ("bob", "bob.ipynb")},
        "n2": {("carol", "carol.ipynb")},
    }


@pytest.mark.promise("hub-21")
def test_a_user_acts_on_no_other_users_kernel(
    cluster: SlurmCluster, notebooks: dict[str, HubKernel]
) -> None:
    """Bob's account sees that there is somebody, and may not take their turn from them."""
    (alices,) = (t["id"] for t in cluster.tenants("n1") if t["owner"] == "alice")

    def try_it() -> str:
        client = cluster.scheduler("n1")
        seen = json.dumps(client.status())
        try:
            client.release_tenant(alices)
        except RequestRefused as refused:
            return f"{refused.status} {'bob' in seen} {'alice' in seen}"
        return "released"

    assert as_other_user(try_it, uid=cluster.views.accounts["bob"].uid) == "403 True False"


@pytest.mark.promise("hub-5")
def test_turns_are_exclusive(cluster: SlurmCluster, observed: ObservedKernels) -> None:
    """Overlapping cells of two jobs never have the device at once, and both are served."""
    assert overlaps(observed.play_until_served(gpu_cells.fill_and_check(3, 10.0, 6), 3)) == 0
    assert cluster.machines["n1"].overlaps() == []


@pytest.mark.promise(
    "hub-6", "Memory of jobs of Slurm is parked for each other's turns, byte for byte"
)
def test_memory_is_parked(cluster: SlurmCluster, observed: ObservedKernels) -> None:
    """Each holds four fifths of the device, and finds each byte again after the other's turn."""
    observed.begin()
    limit, before = json.loads(observed.kernels[0].run(OF_THE_JOB).ok().text)
    for _ in range(2):
        for number in range(2):
            cell = observed.submit(number, gpu_cells.keep_and_check(number + 1, WORDS))
            observed.collect(number, cell).ok()
    assert observed.bytes_parked(0) >= DEVICE_BYTES // 2
    assert cluster.machines["n1"].computing_overlaps() == []
    _, after = json.loads(observed.kernels[0].run(OF_THE_JOB).ok().text)
    assert limit == 4 << 30, "what the hub's mem_limit asks of Slurm"
    assert after - before >= DEVICE_BYTES // 2, "alice's parked memory counts to her job"


@pytest.mark.promise(
    "cli-32",
    "A script that `jupyter gpushare run` starts in a job of Slurm takes turns with notebooks",
)
def test_a_script_shares_as_notebooks_do(cluster: SlurmCluster, observed: ObservedKernels) -> None:
    """The job of the page: a tenant of its own, of the class that it asks for, in turns."""
    (script,) = blocks_under("Scripts", "bash", PAGE)
    home = cluster.views.accounts["bob"].home
    go_on = home / "go-on"
    program = [gpu_cells.setup(), gpu_cells.fill_and_check(5, 5.0, 4), gpu_cells.wait_for(go_on)]
    (home / "train.py").write_text("\n".join([*program, gpu_cells.fill_and_check(6, 5.0, 4)]))
    (home / SCRIPT_JOB).write_text(cluster.as_here(script).replace("python3", sys.executable))
    env = {**cluster.device_env()}
    cluster.run(["sbatch", "--nodelist=n1", "--output=out", SCRIPT_JOB], user="bob", env=env)

    def tenant() -> list[dict[str, Any]]:
        return [t for t in cluster.tenants("n1") if t["kind"] == "run" and t["clients"]]

    cluster.wait_until(tenant, "the script has opened the device")
    (found,) = tenant()
    assert (found["owner"], found["runs_as"]) == ("bob", "batch")
    assert found["name"].endswith("train.py")
    observed.play(gpu_cells.fill_and_check(4, 5.0, 4), 2)
    go_on.touch()
    cluster.wait_until(lambda: not tenant(), "the script has ended")
    cluster.wait_until(lambda: not _jobs(cluster, "bob", SCRIPT_JOB), "the job has ended")
    assert (home / "out").read_text() == ""
    assert cluster.machines["n1"].computing_overlaps() == []


def _jobs(cluster: SlurmCluster, user: str, name: str = SERVER_JOB) -> list[str]:
    """By their names: a slurmctld that was killed takes a script that has just ended for one that
    runs, until it has asked the node."""
    command = ["squeue", "-h", "--states=PENDING,RUNNING", f"--user={user}", "-o", "%i"]
    return cluster.run([*command, f"--name={name}"]).stdout.split()


@pytest.mark.promise(
    "bad-input-25", "The scheduler of a Slurm node is killed and starts again: no kernel is lost"
)
def test_the_scheduler_of_a_node_restarts(cluster: SlurmCluster, observed: ObservedKernels) -> None:
    """In the middle of cells: they end well, their memory is as it was, and both kernels are the
    tenants that they were. With the unit's capabilities, it waits for just those who are there."""
    before = {t["id"]: t["owner"] for t in cluster.tenants("n1")}
    observed.begin()
    sent = [
        (number, observed.submit(number, gpu_cells.fill_and_check(8, 20.0, 20)))
        for number in (0, 1)
    ]
    cluster.end("scheduler-n1", signal.SIGKILL)
    cluster.start_scheduler("n1")
    for number, cell in sent:
        observed.collect(number, cell).ok()
    assert {t["id"]: t["owner"] for t in cluster.tenants("n1")} == before
    for number in (0, 1):
        cell = observed.submit(number, gpu_cells.keep_and_check(number + 1, WORDS))
        observed.collect(number, cell).ok()
    assert cluster.machines["n1"].computing_overlaps() == []
    log = (cluster.folder / "log" / "scheduler-n1.out").read_text()
    expected = sorted(kernel.pid for kernel in observed.kernels)
    assert f"or until processes {expected} are back" in log


@pytest.mark.promise("bad-input-26", "slurmctld restarts: servers, kernels and turns go on")
def test_slurmctld_restarts(
    cluster: SlurmCluster, hub: SlurmHub, observed: ObservedKernels
) -> None:
    """While it is away, notebooks take turns, and the hub, which cannot ask for its jobs, ends
    none; when it is back, Slurm knows the jobs, and starts new ones."""
    jobs = {name: _jobs(cluster, name) for name in USERS}
    asked = hub.log.count("Unable to contact slurm controller")
    cluster.end("slurmctld", signal.SIGKILL)
    observed.begin()
    observed.play_until_served(gpu_cells.fill_and_check(3, 10.0, 6), 2)
    assert overlaps(observed.works(computing_only=True)) == 0
    hub.wait_until(
        lambda: hub.log.count("Unable to contact slurm controller") > asked, "the hub has asked"
    )
    cluster.start_controller()
    cluster.wait_until(lambda: len(cluster.states()) == len(NODES), "slurmctld is back")
    assert {name: _jobs(cluster, name) for name in USERS} == jobs
    cluster.run(["srun", "--mem=100", "true"], user="alice")
    observed.play(gpu_cells.fill_and_check(4, 5.0, 4), 1)


@pytest.mark.promise(
    "bad-input-27", "slurmd of a node is killed and starts again: no kernel is lost"
)
def test_slurmd_restarts(cluster: SlurmCluster, observed: ObservedKernels) -> None:
    """Notebooks take turns without it; when it is back, it knows their jobs."""
    jobs = {name: _jobs(cluster, name) for name in USERS}
    cluster.end("slurmd-n1", signal.SIGKILL)
    observed.play(gpu_cells.fill_and_check(4, 5.0, 4), 2)
    cluster.start_slurmd("n1")
    cluster.run(["srun", "--nodelist=n1", "--mem=100", "true"], user="alice")
    assert {name: _jobs(cluster, name) for name in USERS} == jobs
    observed.play(gpu_cells.fill_and_check(4, 5.0, 4), 1)


@pytest.mark.promise(
    "bad-input-28", "A suspended Slurm job that has the turn: it is told, and goes on"
)
def test_a_suspended_job(cluster: SlurmCluster, observed: ObservedKernels) -> None:
    """Bob's job is suspended in the middle of a cell: its tenant counts as frozen. After it is
    resumed, both users' cells end well."""
    (job,) = _jobs(cluster, "bob")
    observed.begin()
    busy = observed.submit(1, gpu_cells.fill_and_check(7, 5.0, 1500))
    cluster.wait_until(lambda: _holders(cluster) == {"bob"}, "bob has the turn")
    state = Path(f"/proc/{observed.kernels[1].pid}/status")
    cluster.run(["scontrol", "suspend", job])
    cluster.wait_until(lambda: "State:\tT" in state.read_text(), "Slurm has stopped the kernel")
    waiting = observed.submit(0, gpu_cells.fill_and_check(8, 5.0, 2))

    def frozen() -> set[str]:
        tenants = cluster.tenants("n1")
        return {t["owner"] for t in tenants if any(c.get("frozen") for c in t["clients"])}

    cluster.wait_until(lambda: frozen() == {"bob"}, "the scheduler has seen that bob is frozen")
    cluster.run(["scontrol", "resume", job])
    for number, cell in ((0, waiting), (1, busy)):
        observed.collect(number, cell).ok()
    cluster.wait_until(lambda: not frozen(), "nobody is frozen any more")
    assert overlaps(observed.works(computing_only=True)) == 0


@pytest.mark.promise("bad-input-29", "A hub that restarts finds the servers that are jobs of Slurm")
def test_the_hub_restarts(
    cluster: SlurmCluster, hub: SlurmHub, notebooks: dict[str, HubKernel]
) -> None:
    """Jobs, kernels and tenants are as they were."""
    before = {node: {t["id"] for t in cluster.tenants(node)} for node in NODES}
    jobs = {name: _jobs(cluster, name) for name in USERS}
    hub.stop()
    hub.start()
    for name, kernel in notebooks.items():
        visitor = hub.visitor(name)
        (found,) = visitor.request("GET", "api/kernels").json()
        assert found["id"] == kernel.kernel_id
        kernel.reach_by(visitor)
        kernel.run(gpu_cells.setup()).ok()
        kernel.run(gpu_cells.fill_and_check(4)).ok()
    assert {node: {t["id"] for t in cluster.tenants(node)} for node in NODES} == before
    assert {name: _jobs(cluster, name) for name in USERS} == jobs


@pytest.mark.promise("cli-10")
def test_the_doctor_in_jobs(cluster: SlurmCluster, notebooks: dict[str, HubKernel]) -> None:
    """In a notebook and in a script's job all is found; on a node whose scheduler is gone, it says
    which node, and what to ask for."""
    shown = notebooks["alice"].run("%gpushare doctor").ok().text
    assert "has a shard of a GPU on the node n1" in shown and "JupyterHub answers at" in shown
    assert "PROBLEM" not in shown, shown

    def found() -> dict[str, dict[str, str]]:
        command = [cluster.folder / "opt/bin/jupyter-gpushare", "doctor", "--json"]
        job = ["srun", "--gres=shard:1", "--nodelist=n2", "--mem=400", *command]
        said = cluster.run(job, user="bob", env=cluster.device_env(), check=False).stdout
        return {each["check"]: each for each in json.loads(said)["findings"]}

    assert {found()[check]["level"] for check in ("slurm", "scheduler", "version")} == {"ok"}
    cluster.end("scheduler-n2")
    try:
        assert found()["scheduler"]["remedy"] == (
            "Ask your administrator to run `systemctl start jupyter-gpushare` on the node n2."
        )
    finally:
        cluster.start_scheduler("n2")


GATEWAY = "A kernel where a GPU is free"


@pytest.mark.promise(
    "server-1",
    "A server without a GPU has a kernel on a node, by a gateway, and it takes turns there",
)
def test_a_kernel_where_a_gpu_is_free(
    cluster: SlurmCluster, notebooks: dict[str, HubKernel]
) -> None:
    """By the steps of the page: the job, and a server with --gateway-url that has no device."""
    (script,) = blocks_under(GATEWAY, "bash", PAGE)
    submit, start = commands_under(GATEWAY, PAGE)
    home = cluster.views.accounts["carol"].home
    (home / "gateway.sh").write_text(cluster.as_here(script))
    env = {**cluster.device_env(), "HOME": str(home)}
    cluster.run([*submit.split()[:1], "--nodelist=n2", *submit.split()[1:]], user="carol", env=env)
    log = home / "gateway.log"
    cluster.wait_until(lambda: log.exists() and "is available" in log.read_text(), "the gateway")
    with ServerOfAUser(cluster, "carol", cluster.as_here(start)) as server:
        kernel = HubKernel(server, "there.ipynb", server.new_kernel("there.ipynb"))  # type: ignore[arg-type]
        assert node_of(kernel) == "n2"
        state = server.request("GET", "gpushare/api/state").json()
        assert state["scheduler"] == "down" and "behind the gateway" in state["message"]
        observed = ObservedKernels(cluster.machine("n2"), [notebooks["carol"], kernel])
        observed.set_up()
        # An idle kernel comes back to a scheduler that has started again within seconds.
        cluster.wait_until(
            lambda: [t["owner"] for t in cluster.tenants("n2")] == ["carol"] * 2,
            "both kernels of carol's are tenants",
        )
        assert overlaps(observed.play_until_served(gpu_cells.fill_and_check(3, 10.0, 6), 3)) == 0
        shown = kernel.run("%gpushare").ok().text
        assert "Memory of this kernel" in shown
        kernel.stop()
        cluster.wait_until(lambda: len(cluster.tenants("n2")) == 1, "the kernel is no tenant")
    cluster.run(["scancel", "--user=carol", "--name=gateway.sh"])


@pytest.mark.promise(
    "bad-input-30", "A Slurm job that is cancelled while it has the turn: others get it"
)
def test_a_holder_is_cancelled(
    cluster: SlurmCluster, hub: SlurmHub, observed: ObservedKernels
) -> None:
    """The last of all: alice's job ends in the middle of a cell. Bob's cell goes on, and the
    memory that alice had is free."""
    observed.begin()
    observed.kernels[0].submit("gpu.spin(5, 100000)")
    cluster.wait_until(lambda: _holders(cluster) == {"alice"}, "alice has the turn")
    waiting = observed.submit(1, gpu_cells.keep_and_check(2, WORDS))
    (job,) = _jobs(cluster, "alice")
    cluster.run(["scancel", job])
    observed.collect(1, waiting).ok()
    assert {t["owner"] for t in cluster.tenants("n1")} == {"bob"}
    (device,) = cluster.scheduler("n1").status()["devices"]
    assert 4 * WORDS <= device["bytes_allocated"] < 5 * WORDS


def _holders(cluster: SlurmCluster) -> set[str]:
    status = cluster.scheduler("n1").status()
    owners = {t["id"]: t["owner"] for t in status["tenants"]}
    return {owners[h["tenant"]] for device in status["devices"] for h in device["holders"]}
