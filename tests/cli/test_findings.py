"""What the doctor makes of facts: each thing that can be wrong, alone, on a healthy machine."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jupyter_gpushare.cli.checkup import (
    clock,
    hook_library,
    host_memory,
    jobs,
    node,
    places,
    reports,
    strangers,
    versions,
)
from jupyter_gpushare.cli.checkup import finding as finding_module
from jupyter_gpushare.cli.checkup import findings as findings_module
from jupyter_gpushare.cli.checkup.facts import DeviceFacts, FileFacts, HubFacts, SchedulerFacts
from jupyter_gpushare.cli.checkup.findings import Finding, Level, exit_status, findings
from tests.cli.machines import (
    ALICE,
    BOB,
    DEVICE_ID,
    GIB,
    HEALTHY,
    bad,
    device,
    directory,
    machine_with,
    socket,
    status,
)

OUTDATED = {**status()["scheduler"], "version": "0.9"}
OPENED = {"device": DEVICE_ID, "bytes_allocated": 2 * GIB}
OTHERS = [{"clients": [{"pid": None, "devices": [OPENED]}]}]
PROBLEM, WARNING = Level.PROBLEM, Level.WARNING


def test_a_healthy_machine_has_no_findings_but_ok() -> None:
    """Nothing is reported where nothing is wrong, and there is nothing to do."""
    assert bad(HEALTHY) == []
    assert all(not finding.remedy for finding in findings(HEALTHY))
    assert exit_status(findings(HEALTHY)) == 0


def with_device(**changes: Any) -> dict[str, Any]:
    """A status in which the device differs so."""
    plain = status()
    return {**plain, "devices": [{**device, **changes} for device in plain["devices"]]}


def frozen_kernel(*, holds: bool) -> dict[str, Any]:
    """A status with a kernel that was stopped from outside."""
    plain = status()
    holders = [{"tenant": "1", "frozen": True}] if holds else []
    (tenant,) = plain["tenants"]
    clients = [{**client, "frozen": True} for client in tenant["clients"]]
    return {
        **plain,
        "devices": [{**device, "holders": holders} for device in plain["devices"]],
        "tenants": [{"id": "1", "name": "train.ipynb", "clients": clients}],
    }


VIEW = "wss://hub/services/gpushare-view/api/v1/reports"


def reporting(*, ok: bool) -> dict[str, Any]:
    """A status of a scheduler that reports to a view, or would like to."""
    why = "" if ok else "The view does not know this node's token. Make one."
    reports = {"to": VIEW, "ok": ok, "since": 1_000_000_000, "why": why}
    return status(scheduler={**status()["scheduler"], "reports": reports})


WRONG: list[tuple[str, str, dict[str, Any], Level, str]] = [
    ("library", "library", {"missing": "It is not there. Reinstall."}, PROBLEM, "not there"),
    (
        "reports",
        "scheduler",
        {"status": reporting(ok=False)},
        WARNING,
        "does not know this node's token. Nothing is reported since 2001-09-0",
    ),
    (
        "library",
        "library",
        {"loader_says": "ld.so: version `GLIBC_2.38' not found", "api_version": None},
        PROBLEM,
        "GLIBC_2.38",
    ),
    ("library", "library", {"api_version": None}, PROBLEM, "does not find the hook"),
    ("library", "library", {"api_version": 2}, PROBLEM, "interface 2"),
    ("symbol-versions", "library", {"needs_glibc": "2.38"}, PROBLEM, "needs glibc 2.38"),
    ("symbol-versions", "library", {"has_glibc": ""}, PROBLEM, "not glibc"),
    ("symbol-versions", "library", {"unreadable": "it is no ELF file"}, PROBLEM, "no ELF file"),
    ("runtime-directory", "runtime", {"directory": directory(is_link=True)}, PROBLEM, "link"),
    (
        "runtime-directory",
        "runtime",
        {"directory": directory(uid=BOB, owner="bob")},
        PROBLEM,
        "belongs to bob",
    ),
    ("runtime-directory", "runtime", {"directory": directory(mode=0o777)}, PROBLEM, "0777"),
    (
        "sockets",
        "runtime",
        {"sockets": (socket("hook.sock", uid=BOB, owner="bob"), socket("http.sock"))},
        PROBLEM,
        "bob and not to the scheduler",
    ),
    (
        "sockets",
        "runtime",
        {"sockets": (socket("hook.sock", is_socket=False), socket("http.sock"))},
        PROBLEM,
        "not a socket",
    ),
    (
        "sockets",
        "runtime",
        {"sockets": (socket("hook.sock"), FileFacts(path="/run/x/http.sock"))},
        PROBLEM,
        "http.sock is missing",
    ),
    (
        "other-schedulers",
        "runtime",
        {"others": (FileFacts(path="/tmp/y/hook.sock", owner="bob"),)},
        WARNING,
        "scheduler of bob",
    ),
    (
        "scheduler",
        "scheduler",
        {"status": None, "problem": "It has ended. Start it."},
        PROBLEM,
        "has ended",
    ),
    ("version", "scheduler", {"status": status(scheduler=OUTDATED)}, WARNING, "0.9"),
    (
        "turns",
        "scheduler",
        {"status": status(settings={"turns": "off"})},
        WARNING,
        "all notebooks use the GPU at once",
    ),
    (
        "shares",
        "scheduler",
        {"status": status(settings={"turns": "on", "limits": "ann=0.5, ann:a=0.1"})},
        WARNING,
        "these entries count for nothing: ann:a (limits)",
    ),
    ("provisioner", "jupyter", {"provisioners": frozenset()}, PROBLEM, "does not find"),
    ("provisioner", "jupyter", {"extension_enabled": None}, PROBLEM, "not enabled"),
    ("provisioner", "jupyter", {"default_provisioner": "theirs"}, WARNING, "theirs"),
    (
        "provisioner",
        "jupyter",
        {"default_by_environment": "gpushare-provisioner"},
        WARNING,
        "hides every kernel",
    ),
    ("configuration", "jupyter", {"unreadable": "SyntaxError()"}, WARNING, "cannot be read"),
    (
        "kernelspecs",
        "jupyter",
        {"own_provisioner_kernels": (("spark", "yarn-provisioner"),)},
        WARNING,
        "spark",
    ),
    ("gateway", "jupyter", {"gateway_url": "http://far:8888"}, WARNING, "http://far:8888"),
    ("shared-uid", "hub", {"user": "alice", "other_users": frozenset({"bob"})}, WARNING, "bob"),
    ("driver", "machine", {"nvml_problem": "not found"}, PROBLEM, "does not answer"),
    ("driver", "machine", {"cuda_version": 11040}, WARNING, "CUDA 11.4"),
    ("driver", "machine", {"devices": ()}, PROBLEM, "no device"),
    ("mps", "machine", {"mps": "process 5"}, WARNING, "MPS is on"),
    (
        "compute-mode",
        "machine",
        {"devices": (device(compute_mode="exclusive"),)},
        PROBLEM,
        "exclusive compute mode",
    ),
    ("foreign-memory", "machine", {"devices": (device(pids=(42, 99)),)}, WARNING, "99 (train)"),
    (
        "foreign-memory",
        "machine",
        {"devices": (device(pids=(5, 6), bytes_used=20 * GIB),)},
        WARNING,
        "16.0 GiB",
    ),
    (
        "host-memory",
        "cgroup",
        {"path": "/a", "version": 2, "bytes_max": 4 * GIB, "bytes_used": 4 * GIB - 1},
        WARNING,
        "may be killed",
    ),
    (
        "host-memory",
        "cgroup",
        {"path": "/a", "version": 2, "bytes_max": 4 * GIB, "bytes_used": 4 * GIB - 1},
        WARNING,
        "cannot be parked there",
    ),
    (
        "hub",
        "hub",
        {"user": "alice", "address": "http://h/hub/api", "unreachable": "Connection refused"},
        PROBLEM,
        "http://h/hub/api from this machine: Connection refused",
    ),
    ("slurm", "job", {"id": "7", "node": "n1"}, WARNING, "7 has no GPU and no shard"),
    (
        "slurm",
        "job",
        {"id": "7", "node": "n1", "has_shard": True},
        WARNING,
        "Nothing tells the Slurm job 7 where the scheduler of the node n1 is",
    ),
    ("paused", "scheduler", {"status": with_device(mode="drained")}, WARNING, "drained GPU 0"),
    ("frozen", "scheduler", {"status": frozen_kernel(holds=False)}, WARNING, "gets no turn until"),
    ("frozen", "scheduler", {"status": frozen_kernel(holds=True)}, WARNING, "keeps the GPU from"),
]


@pytest.mark.promise(
    "cli-12",
    "The doctor says when a server's memory limit is too small for what its notebooks have on "
    "GPUs, and how large it has to be",
)
@pytest.mark.parametrize(
    ("limit", "used", "room", "needed"),
    [(3 * GIB, 3 * GIB // 2, "1.2", 4), (40 * GIB, 37 * GIB, "1.0", 42)],
    ids=["small", "large"],
)
def test_a_limit_too_small_to_park(limit: int, used: int, room: str, needed: int) -> None:
    """2 GiB are on the device; a reserve of the limit stays free. On a machine of one's own, the
    limit of this terminal need not be that of a server."""
    group = {"path": "/a", "version": 1, "bytes_max": limit, "bytes_used": used}
    facts = machine_with("cgroup", **group)
    assert bad(facts) == []
    (finding,) = bad(dataclasses.replace(facts, hub=HubFacts(user="alice", uid=ALICE)))
    assert (finding.check, finding.level) == ("host-memory", WARNING)
    assert f"leaves {room} GiB for parked GPU memory" in finding.what
    assert "notebooks of this server have 2.0 GiB on GPUs" in finding.what
    assert finding.remedy.endswith(f"For what it has now, it needs {needed} GiB.")
    enough = machine_with("cgroup", **{**group, "bytes_max": needed * GIB})
    assert bad(dataclasses.replace(enough, hub=HubFacts(user="alice", uid=ALICE))) == []


@pytest.mark.promise(
    "cli-13",
    "`jupyter gpushare doctor` finds each thing that can be wrong, with what to do, exit status "
    "and JSON",
)
@pytest.mark.parametrize(
    ("check", "part", "changes", "level", "words"),
    WRONG,
    ids=[f"{check}-{words.replace(' ', '-')}" for check, _, _, _, words in WRONG],
)
def test_each_fault_is_found_alone(
    check: str, part: str, changes: dict[str, Any], level: Level, words: str
) -> None:
    """One fault gives one finding of its check, with a sentence on it and one on what to do."""
    (finding,) = [each for each in bad(machine_with(part, **changes)) if each.check == check]
    assert finding.level is level
    assert words in finding.what
    assert finding.remedy.endswith(".")
    assert finding.what != finding.remedy


def test_a_view_that_is_told_is_named() -> None:
    """A scheduler without a view says nothing of one."""
    found = findings(machine_with("scheduler", status=reporting(ok=True)))
    (reports,) = [each for each in found if each.check == "reports"]
    assert reports.level is Level.OK and VIEW in reports.what
    assert not [each for each in findings(HEALTHY) if each.check == "reports"]


@pytest.mark.promise("cli-13")
def test_a_scheduler_without_notebooks_disturbs_nobody() -> None:
    """The server that started it is gone; it ends by itself."""
    left = FileFacts(path="/tmp/y/hook.sock", owner="ann")
    other = FileFacts(path="/tmp/z/hook.sock", owner="bob")
    facts = machine_with("runtime", others=(left, other), idle_others=frozenset({left.path}))
    (finding,) = [each for each in bad(facts) if each.check == "other-schedulers"]
    assert "/tmp/z/hook.sock" in finding.what


@pytest.mark.promise("cli-13")
def test_what_is_switched_off_misses_nothing() -> None:
    """Somebody wants it so: no scheduler is asked for, and nothing is advised."""
    facts = machine_with("jupyter", switched_off="Your administrator has switched it off.")
    facts = dataclasses.replace(
        facts, scheduler=SchedulerFacts(problem="None answers. Start it.", own_version="0")
    )
    switch, *driver = findings_module.findings(facts)
    assert (switch.level, switch.remedy) == (Level.OK, "")
    assert switch.what == (
        "Your administrator has switched it off. Kernels use the GPU like any other program."
    )
    assert {finding.check for finding in driver} == {"driver"}


@pytest.mark.promise("cli-4")
def test_parked_memory_hides_no_stranger() -> None:
    """What a kernel has parked is not on the device: as much there is of somebody else."""
    opened = {"device": DEVICE_ID, "bytes_allocated": 62 * GIB, "bytes_parked": 60 * GIB}
    told = status(
        devices=[{"id": DEVICE_ID, "name": "GPU 0", "bytes_allocated": 62 * GIB}],
        tenants=[{"clients": [{"pid": None, "devices": [opened]}]}],
    )
    healthy = machine_with("scheduler", status=told)
    stranger = dataclasses.replace(
        healthy.machine, devices=(device(pids=(99,), bytes_used=40 * GIB),)
    )
    assert not bad(healthy)
    (finding,) = bad(dataclasses.replace(healthy, machine=stranger))
    assert (finding.check, "36.0 GiB" in finding.what) == ("foreign-memory", True)


@pytest.mark.parametrize(
    "module",
    [
        *(findings_module, finding_module, clock, hook_library, host_memory, jobs, node, places),
        *(reports, strangers, versions),
    ],
)
def test_the_checks_are_pure(module: ModuleType) -> None:
    """What is judged was gathered before: what judges imports nothing that looks for itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    imported = {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    } | {name.name for n in ast.walk(tree) if isinstance(n, ast.Import) for name in n.names}
    pure = {"__future__", "enum", "collections.abc", "dataclasses", "typing"}
    ours = {"facts", "finding", "clock", "hook_library", "host_memory", "jobs", "node", "places"}
    ours |= {"reports", "strangers", "text", "versions", "jupyter_gpushare.kernel.elf_versions"}
    ours |= {"jupyter_gpushare.kubelet.pods", "jupyter_gpushare.kubelet.seats"}
    ours |= {"jupyter_gpushare.client.paths"}  # names alone
    ours |= {"jupyter_gpushare.core.configuration.checks"}  # pure, too
    assert imported - pure <= ours


@pytest.mark.promise("cli-13")
def test_problems_decide_the_exit_status() -> None:
    """Warnings alone leave it 0; one problem makes it 1."""
    warned = findings(machine_with("machine", mps="process 5"))
    assert exit_status(warned) == 0
    assert exit_status([*warned, Finding(check="x", level=PROBLEM, what="y", remedy="z")]) == 1


def test_no_scheduler_yet_is_no_problem_where_servers_start_it() -> None:
    """Before the first server has run, a missing scheduler is a warning."""
    facts = machine_with("runtime", directory=FileFacts(path="/run/x"), sockets=())
    facts = dataclasses.replace(
        facts,
        scheduler=dataclasses.replace(facts.scheduler, status=None, problem="None. Start one."),
    )
    assert {finding.level for finding in bad(facts)} == {WARNING}


def test_the_environment_beats_the_extension() -> None:
    """With our provisioner in the configuration, the extension need not be enabled."""
    facts = machine_with(
        "jupyter", default_provisioner="gpushare-provisioner", extension_enabled=None
    )
    assert bad(facts) == []


@pytest.mark.promise("cli-5")
@pytest.mark.parametrize(
    "devices",
    [
        pytest.param((device(pids=(5, 6)),), id="another pid namespace"),
        pytest.param((device(uuid="GPU-other", bytes_used=70 * GIB),), id="not served here"),
    ],
)
def test_numbers_that_say_nothing_accuse_nobody(devices: tuple[DeviceFacts, ...]) -> None:
    """Process ids of another namespace, and devices that the scheduler does not serve, are no
    ground for a finding."""
    assert bad(machine_with("machine", devices=devices)) == []


@pytest.mark.promise("cli-5")
def test_hidden_processes_of_others_are_not_foreign() -> None:
    """Where other users' processes are hidden, only bytes can tell."""
    facts = machine_with("scheduler", status=status(tenants=OTHERS))
    facts = dataclasses.replace(
        facts, machine=dataclasses.replace(facts.machine, devices=(device(pids=(99,)),))
    )
    assert bad(facts) == []
