"""Who is one of us: processes of our own user and pid namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.identity import namespaces
from jupyter_gpushare.scheduler.identity.namespaces import in_our_namespaces
from tests.support.paths import ROOT
from tests.support.scheduler_process import SchedulerUnderTest, environment

OURS = {"pid": "pid:[1]", "user": "user:[1]"}
OPEN_TO_ALL = "Name:\tx\nNSpid:\t7\n"


def process(
    proc: Path, name: str, links: dict[str, str], *, status: str = OPEN_TO_ALL, uids: str = "0 0 9"
) -> None:
    """A process as /proc shows it."""
    (proc / name / "ns").mkdir(parents=True)
    for kind, link in links.items():
        (proc / name / "ns" / kind).symlink_to(link)
    (proc / name / "status").write_text(status)
    (proc / name / "uid_map").write_text(f"   {uids}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    process(tmp_path, "self", OURS)
    return tmp_path


def test_ourselves() -> None:
    """On this machine, and not by a number that nobody has."""
    assert in_our_namespaces(os.getpid())
    assert not in_our_namespaces(0)
    assert not in_our_namespaces(1 << 30)


@pytest.mark.parametrize("other", ["pid", "user"])
def test_each_namespace_counts(proc: Path, other: str) -> None:
    """A process that has one namespace of its own is not one of us."""
    process(proc, "7", OURS)
    process(proc, "8", {**OURS, other: f"{other}:[2]"})
    assert in_our_namespaces(7, proc=proc)
    assert not in_our_namespaces(8, proc=proc)


@pytest.mark.parametrize(
    ("status", "uids", "ours"),
    [
        (OPEN_TO_ALL, "0 0 9", True),
        ("NSpid:\t7\t1\n", "0 0 9", False),
        (OPEN_TO_ALL, "0 5 1", False),
        ("Name:\tx\n", "0 0 9", False),
    ],
    ids=["ours", "pid", "user", "older kernel"],
)
def test_an_account_whose_namespaces_we_may_not_read(
    proc: Path, monkeypatch: pytest.MonkeyPatch, status: str, uids: str, ours: bool
) -> None:
    """As root's where we are not root: what /proc shows to everybody tells."""

    def forbidden(process: Path, name: str) -> str:
        raise PermissionError

    monkeypatch.setattr(namespaces, "_link", forbidden)
    process(proc, "7", OURS, status=status, uids=uids)
    assert in_our_namespaces(7, proc=proc) == ours


SET = "import sys; from jupyter_gpushare.cli.main import main; sys.exit(main())"
CONTAINERS = {
    "pid namespace": ["--pid", "--fork", "--map-root-user"],
    "user namespace": ["--map-root-user"],
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_settings_from_inside_a_container(scheduler: SchedulerUnderTest, container: str) -> None:
    """Its root is not the machine's: it is refused with a sentence, and the same command without a
    container is not."""
    unshare = shutil.which("unshare")
    inside = [str(unshare), *CONTAINERS[container]]
    if unshare is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("unshare does not work here")
    command = [sys.executable, "-c", SET, "set", f"--runtime-dir={scheduler.directory}"]

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, env=environment({}), cwd=ROOT, capture_output=True, text=True
        )

    refused = ran(*inside, *command, "quantum_s", "7s")
    assert refused.returncode != 0 and "changed by root" in refused.stderr
    done = ran(*command, "quantum_s", "8s")
    assert done.returncode == 0, done.stderr
    assert scheduler.status()["settings"]["quantum_s"] == 8
