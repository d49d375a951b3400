"""What the doctor sees and says in a container, in a pod, and of servers in them."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from jupyter_gpushare.cli.checkup.facts import (
    APPTAINER,
    DOCKER,
    KUBERNETES,
    CgroupFacts,
    Facts,
    FileFacts,
    HubFacts,
    JobFacts,
    NodeFacts,
    OriginFacts,
    PlaceFacts,
    SchedulerFacts,
)
from jupyter_gpushare.cli.checkup.finding import Finding, Level
from jupyter_gpushare.cli.checkup.findings import findings
from jupyter_gpushare.cli.checkup.library import library_facts
from jupyter_gpushare.cli.checkup.place_environment import place_facts
from jupyter_gpushare.cli.checkup.processes import origins_of
from jupyter_gpushare.cli.checkup.servers import hub_facts
from jupyter_gpushare.hub import setup
from jupyter_gpushare.kubelet.pods import Container, NodeDevices
from jupyter_gpushare.kubelet.seats import RESOURCE
from jupyter_gpushare.version import __version__
from tests.cli.machines import ALICE, GIB, HEALTHY, bad, device, machine_with, status
from tests.support.paths import HOOK_LIBRARY

SERVER = HubFacts(user="alice", uid=ALICE)
NOWHERE = FileFacts(path="/run/jupyter-gpushare")


def inside(container: str, *, is_led: bool = True, facts: Facts = HEALTHY) -> Facts:
    """A server of alice's in a container."""
    return dataclasses.replace(
        facts, place=PlaceFacts(container=container, is_led=is_led), hub=SERVER
    )


def nothing_mounted(facts: Facts) -> Facts:
    runtime = dataclasses.replace(facts.runtime, directory=NOWHERE, sockets=())
    silent = SchedulerFacts(problem="No scheduler serves it. Start one.", own_version="1.0")
    return dataclasses.replace(facts, runtime=runtime, scheduler=silent)


def of_check(facts: Facts, check: str) -> Finding:
    (found,) = [each for each in findings(facts) if each.check == check]
    return found


# ---- where we are ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "file", "container"),
    [
        ({}, "", ""),
        ({}, ".dockerenv", DOCKER),
        ({}, "run/.containerenv", DOCKER),
        ({"container": "podman"}, "", DOCKER),
        ({"container": "lxc"}, "", ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ".dockerenv", KUBERNETES),
        ({"APPTAINER_CONTAINER": "/i.sif", "KUBERNETES_SERVICE_HOST": "1"}, "", APPTAINER),
        ({"SINGULARITY_CONTAINER": "/i.sif"}, "", APPTAINER),
    ],
)
def test_a_container_is_known_from_inside(
    environ: dict[str, str], file: str, container: str, tmp_path: Path
) -> None:
    """By what engines leave there; LXC is a machine."""
    if file:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert place_facts(environ, root=tmp_path) == PlaceFacts(container=container)
    led = place_facts({**environ, "GPUSHARE_RUNTIME_DIR": "/run/x"}, root=tmp_path)
    assert led == PlaceFacts(container=container, is_led=True)


@pytest.mark.promise(
    "cli-6",
    "In a container and in a pod the doctor says what is missing there: the scheduler's sockets, "
    "a seat, a GPU, and who mends it",
)
@pytest.mark.parametrize("container", [DOCKER, KUBERNETES, APPTAINER])
def test_a_container_in_which_all_is_well(container: str) -> None:
    """Nothing is advised."""
    facts = inside(container)
    assert bad(facts) == []
    assert "is in this container" in of_check(facts, "container").what
    assert "container" not in {each.check for each in findings(HEALTHY)}


@pytest.mark.promise("cli-6")
@pytest.mark.parametrize(
    ("container", "remedy"),
    [
        (DOCKER, 'c.GPUShare.platform = "docker" before setup(c)'),
        (KUBERNETES, f"Ask for a seat ({RESOURCE}: 1)"),
        (APPTAINER, "--bind /run/jupyter-gpushare"),
    ],
)
def test_nothing_is_mounted(container: str, remedy: str) -> None:
    """The environment leads to a directory that the container has not. No server starts a scheduler
    there, so none is promised."""
    facts = nothing_mounted(inside(container))
    found = of_check(facts, "container")
    assert (found.level, remedy in found.remedy) == (Level.PROBLEM, True)
    assert "Nothing is mounted at /run/jupyter-gpushare" in found.what
    scheduler = of_check(facts, "scheduler")
    assert scheduler.level is Level.PROBLEM
    assert "Ask your administrator" in scheduler.remedy
    assert "Ask your administrator" in of_check(facts, "runtime-directory").remedy


@pytest.mark.promise("cli-6")
def test_a_container_that_nobody_leads() -> None:
    """Its server starts a scheduler of its own, which knows of nobody outside."""
    found = of_check(inside(DOCKER, is_led=False), "container")
    assert (found.level, 'platform = "docker"' in found.remedy) == (Level.WARNING, True)
    by_hand = dataclasses.replace(inside(DOCKER, is_led=False), hub=HubFacts(uid=ALICE))
    assert bad(by_hand) == []


def test_a_directory_that_a_user_has_named() -> None:
    """In a container of their own, where the next server starts a scheduler."""
    elsewhere = FileFacts(path="/home/alice/run")
    facts = nothing_mounted(dataclasses.replace(inside(DOCKER), hub=HubFacts(uid=ALICE)))
    facts = dataclasses.replace(
        facts, runtime=dataclasses.replace(facts.runtime, directory=elsewhere)
    )
    assert "container" not in {each.check for each in findings(facts)}
    assert of_check(facts, "scheduler").remedy == "The next notebook server starts one."


@pytest.mark.promise("cli-6")
def test_a_pod_with_a_gpu_and_no_seat() -> None:
    """It may have the whole GPU, so this is no more than a warning; without a GPU it is none."""
    facts = inside(KUBERNETES, is_led=False)
    found = of_check(facts, "container")
    assert (found.level, f"add {RESOURCE}: 1" in found.remedy) == (Level.WARNING, True)
    without = dataclasses.replace(
        facts, machine=dataclasses.replace(facts.machine, nvml_problem="x", devices=())
    )
    assert "container" not in {each.check for each in findings(without)}


@pytest.mark.promise("cli-6")
@pytest.mark.parametrize(
    ("container", "remedy"),
    [
        (KUBERNETES, "Add nvidia.com/gpu: 1"),
        (APPTAINER, "apptainer exec --nv"),
        (DOCKER, "container access to"),
    ],
)
@pytest.mark.parametrize("changes", [{"devices": ()}, {"nvml_problem": "not found"}])
def test_a_seat_without_a_gpu(container: str, remedy: str, changes: dict[str, Any]) -> None:
    """Where it comes from depends on the place."""
    facts = inside(container, facts=machine_with("machine", **changes))
    (found,) = [each for each in bad(facts) if each.check == "driver"]
    assert (found.level, remedy in found.remedy) == (Level.PROBLEM, True)


def test_a_server_of_a_hub_on_the_machine_itself() -> None:
    """The hub starts the scheduler, and no server does."""
    facts = nothing_mounted(inside("", facts=HEALTHY))
    assert "hub's service `gpushare`" in of_check(facts, "scheduler").remedy


# ---- a hook from the machine -----------------------------------------------------------------


@pytest.mark.promise(
    "cli-7",
    "The doctor of an image says once and with the right remedy that the machine's hook does not "
    "fit: musl, an older glibc, another processor, another interface",
)
@pytest.mark.parametrize(
    ("changes", "words", "remedy"),
    [
        ({"has_glibc": ""}, "is not glibc", "an image with glibc"),
        ({"needs_glibc": "2.38"}, "needs glibc 2.38; this system has 2.36", "a newer image"),
        ({"is_for_this_processor": False}, "another kind of processor", "machine's own kind"),
        ({"api_version": 2}, "has interface 2", "in the version that the machine has"),
    ],
    ids=["musl", "old", "processor", "interface"],
)
def test_a_hook_that_does_not_fit(changes: dict[str, Any], words: str, remedy: str) -> None:
    """The loader complains too; that is the same thing."""
    refused = {"loader_says": "ld.so: cannot be preloaded", "api_version": None}
    told = changes if "api_version" in changes else {**refused, **changes}
    (found,) = bad(inside(DOCKER, facts=machine_with("library", is_mounted=True, **told)))
    assert (found.level, words in found.what, remedy in found.remedy) == (Level.PROBLEM, True, True)


def test_a_library_for_another_processor_is_known(tmp_path: Path) -> None:
    """By its header, which names the machine."""
    image = bytearray(HOOK_LIBRARY.read_bytes())
    struct.pack_into("<H", image, 18, 0xF3)  # e_machine: RISC-V
    other = tmp_path / "libgpushare.so"
    other.write_bytes(image)
    facts = library_facts({"GPUSHARE_LIBRARY": str(other)})
    assert (facts.is_for_this_processor, facts.is_mounted) == (False, True)
    assert not library_facts({}).is_mounted


@pytest.mark.promise(
    "cli-8",
    "The doctor says when package, hook, scheduler and hub are not of one version, each with who "
    "changes it",
)
@pytest.mark.parametrize(
    ("container", "part", "changes", "words", "remedy"),
    [
        (DOCKER, "scheduler", {"own_version": "0.9"}, "this package is 0.9", "image anew with"),
        ("", "scheduler", {"own_version": "0.9"}, "this package is 0.9", "Restart the scheduler"),
        (DOCKER, "library", {"version": "0.9"}, "is of jupyter-gpushare 0.9", "restart the hub"),
        (KUBERNETES, "library", {"version": "0.9"}, "is of jupyter-gpushare 0.9", "have one image"),
        (KUBERNETES, "hub", {"version": "0.9"}, "The hub has jupyter-gpushare 0.9", "one version"),
        (DOCKER, "library", {"version": ""}, "", ""),
        (DOCKER, "library", {"version": "1.0"}, "", ""),
        (KUBERNETES, "hub", {"version": "1.0"}, "", ""),
    ],
)
def test_versions(
    container: str, part: str, changes: dict[str, str], words: str, remedy: str
) -> None:
    """The scheduler is 1.0. A hook that does not tell its version is not accused."""
    facts = inside(container, facts=machine_with("library", is_mounted=True))
    facts = dataclasses.replace(
        facts, **{part: dataclasses.replace(getattr(facts, part), **changes)}
    )
    found = [each for each in findings(facts) if each.check == "version"]
    assert [each.level for each in found] == [Level.WARNING if words else Level.OK]
    assert words in found[0].what and remedy in found[0].remedy


def test_the_hub_tells_its_version_and_the_package_finds_it() -> None:
    """The variable of setup(c) is the one that the doctor reads."""
    c = Config()
    setup(c)
    told = dict(c.Spawner.environment.to_dict()["update"])
    assert hub_facts({"JUPYTERHUB_USER": "alice", **told}).version == __version__


# ---- memory ----------------------------------------------------------------------------------


@pytest.mark.promise("cli-12")
@pytest.mark.parametrize(
    ("container", "how"),
    [(DOCKER, "c.Spawner.mem_limit"), (KUBERNETES, "mem_limit and mem_guarantee")],
)
def test_where_a_limit_is_raised(container: str, how: str) -> None:
    """2 GiB are on the device and 1.5 in use: 3 GiB are too few, and 4 enough."""
    group = CgroupFacts(path="/a", version=2, bytes_max=3 * GIB, bytes_used=3 * GIB // 2)
    narrow = dataclasses.replace(inside(container), cgroup=group)
    (found,) = bad(narrow)
    assert (found.check, how in found.remedy) == ("host-memory", True)
    wide = dataclasses.replace(group, bytes_max=4 * GIB)
    assert bad(dataclasses.replace(narrow, cgroup=wide)) == []


def test_a_nodes_scheduler_parks_nothing() -> None:
    """The limit of its container, in which the doctor of a node runs, says nothing of kernels'."""
    group = CgroupFacts(path="/a", version=2, bytes_max=GIB, bytes_used=GIB // 10)
    on_a_node = dataclasses.replace(HEALTHY, cgroup=group, node=seated("jupyter-alice"))
    assert bad(on_a_node) == []
    assert [each.check for each in bad(dataclasses.replace(HEALTHY, cgroup=group))] == [
        "host-memory"
    ]


# ---- the package is missing in an image ------------------------------------------------------


def stranger(**origin: Any) -> Facts:
    """Process 99 uses the device besides our own, 42."""
    return machine_with(
        "machine", devices=(device(pids=(42, 99)),), origins={99: OriginFacts(**origin)}
    )


@pytest.mark.promise(
    "cli-9",
    "The doctor of a machine or a node says whose notebook server uses a device without taking "
    "turns, as one does whose image lacks the package",
)
def test_a_server_without_the_package() -> None:
    """Its processes have no token of ours, and are named with their user."""
    (found,) = bad(stranger(user="bob", is_kernels=True))
    assert (found.check, found.level) == ("package", Level.WARNING)
    assert found.what.endswith("use GPU 0: 99 (train) of bob's server.")
    assert "Install jupyter-gpushare in the image" in found.remedy


@pytest.mark.promise("cli-9")
@pytest.mark.parametrize(
    "origin",
    [
        {},
        {"user": "bob"},
        {"user": "bob", "is_kernels": True, "is_switched_off": True},
        {"user": "bob", "is_kernels": True, "is_tenants": True},
    ],
    ids=["no-server", "terminal", "switched-off", "has-it"],
)
def test_others_that_take_no_turns(origin: dict[str, Any]) -> None:
    """The package is not what they lack."""
    (found,) = bad(stranger(**origin))
    assert (found.check, "99 (train)" in found.what) == ("foreign-memory", True)
    assert "jupyter gpushare run" in found.remedy


def test_origins_are_read_where_we_may(tmp_path: Path) -> None:
    """Who has ended, or is not ours to look into, has none."""
    for pid, environ in (
        (5, b"JUPYTERHUB_USER=bob\0JPY_PARENT_PID=1\0"),
        (6, b"JUPYTERHUB_USER=ann\0GPUSHARE_TOKEN=t\0GPUSHARE_DISABLE=1\0"),
    ):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/environ").write_bytes(environ)
    assert origins_of([5, 6, 7], tmp_path) == {
        5: OriginFacts(user="bob", is_kernels=True),
        6: OriginFacts(user="ann", is_tenants=True, is_switched_off=True),
    }


def seated(*pods: str) -> NodeFacts:
    gpu = {RESOURCE: ("seat-1",), "nvidia.com/gpu": ("GPU-1::0",)}
    taken = tuple(Container("jhub", pod, "notebook", gpu) for pod in pods)
    free = {RESOURCE: ("seat-1", "seat-2"), "nvidia.com/gpu": ("GPU-1::0",)}
    return NodeFacts(socket="/kubelet.sock", devices=NodeDevices(taken, free))


def node_with(*pods: str, gib_in_use: int, owners: tuple[str, ...] = ("ann",)) -> Facts:
    """A node whose processes cannot be seen (no hostPID), with notebooks of these users."""
    (tenant,) = status()["tenants"]
    told = status(tenants=[{**tenant, "owner": owner} for owner in owners])
    in_use = device(pids=(), bytes_used=gib_in_use * GIB)
    return dataclasses.replace(
        machine_with("machine", devices=(in_use,)),
        scheduler=SchedulerFacts(status=told, own_version="1.0"),
        node=seated(*pods),
        place=PlaceFacts(container=KUBERNETES, is_led=True),
    )


@pytest.mark.promise("cli-9")
def test_a_pod_that_never_registers() -> None:
    """Memory is in use that is nobody's, and the pods whose users have no notebook are named."""
    facts = node_with("jupyter-ann", "jupyter-bob", gib_in_use=9)
    (found,) = bad(facts)
    assert (found.check, found.level) == ("package", Level.WARNING)
    assert found.what.endswith(
        "no notebook of these pods, which have seats, is known: jhub/jupyter-bob."
    )
    assert "kubectl -n jhub exec jupyter-bob -- jupyter-gpushare doctor" in found.remedy


@pytest.mark.promise("cli-9")
def test_an_idle_pod_is_not_accused() -> None:
    """A server without a notebook has not registered either: a line says how many there are."""
    facts = node_with("jupyter-ann", "jupyter-bob", gib_in_use=3)
    assert bad(facts) == []
    line = of_check(facts, "seats").what
    assert line.startswith("2 of 2 seats") and "of 1 of them the scheduler knows no" in line
    known = node_with("jupyter-ann", gib_in_use=3)
    assert of_check(known, "seats").what.endswith("are taken, each with a GPU.")


@pytest.mark.promise("cli-9")
def test_a_stranger_beside_pods_that_are_known() -> None:
    """Then it is some other program's."""
    facts = node_with("jupyter-ann-smith---1a2b3c", gib_in_use=9, owners=("Ann.Smith",))
    (found,) = bad(facts)
    assert (found.check, "nvidia-smi" in found.remedy) == ("foreign-memory", True)


def test_a_job_in_apptainer() -> None:
    """Slurm's own remedies stay, and the container's come beside them."""
    job = JobFacts(id="7", node="n1", has_shard=True, is_led=True)
    facts = dataclasses.replace(nothing_mounted(inside(APPTAINER)), job=job)
    assert "--bind" in of_check(facts, "container").remedy
    assert "systemctl start jupyter-gpushare" in of_check(facts, "scheduler").remedy
