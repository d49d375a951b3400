"""What `make test-cluster` says on a machine that lacks something. Short: it needs no service."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import prometheus, slurm
from tests.cluster.slurm import CannotRun, check_machine
from tests.cluster.views import closed_parent


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which everything is there; its programs."""
    for name in slurm.PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(slurm, "WHERE", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    answers(monkeypatch, 0, "")
    return tmp_path


def answers(monkeypatch: pytest.MonkeyPatch, status: int, stderr: str) -> None:
    def run(command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, status, "", stderr)

    monkeypatch.setattr(slurm.subprocess, "run", run)


@pytest.mark.promise(
    "demo-2", "The tests of clusters fail where something is missing, and say what to install"
)
def test_programs_that_are_not_installed(complete: Path) -> None:
    """All of them at once, with the package."""
    check_machine()
    (complete / "slurmd").unlink()
    (complete / "munged").unlink()
    with pytest.raises(CannotRun, match=r"^munged, slurmd is not installed. Run `apt-get install"):
        check_machine()


@pytest.mark.promise("demo-2")
def test_a_machine_that_does_not_allow_it(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not root, or no mount namespace."""
    answers(monkeypatch, 1, "unshare: Operation not permitted")
    with pytest.raises(CannotRun, match="No mount namespace can be made: unshare: Operation not"):
        check_machine()
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(CannotRun, match="Run this as root"):
        check_machine()


@pytest.mark.promise("demo-2")
def test_prometheus_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the machine, nor as a package."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(prometheus, "STORE", tmp_path / "store")
    with pytest.raises(prometheus.CannotRun, match="Run `apt-get install prometheus`"):
        prometheus.program("promtool")


def test_a_folder_that_is_closed_to_others(tmp_path: Path) -> None:
    """The first one on the way is the one to open."""
    closed = tmp_path / "closed"
    (closed / "deeper" / "python").mkdir(parents=True)
    (closed / "deeper").chmod(0o700)
    closed.chmod(0o700)
    first = closed_parent(closed / "deeper" / "python")
    assert first is not None and (first == closed or first in closed.parents)
