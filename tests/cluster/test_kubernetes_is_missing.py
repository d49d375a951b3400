"""What `make test-cluster` says of Kubernetes on a machine that lacks something. Short."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.kubernetes import PROGRAMS, CannotRun, check_machine


def test_programs_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are missing, and how to get all."""
    for name in PROGRAMS:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    check_machine()
    (tmp_path / "runc").unlink()
    with pytest.raises(CannotRun, match=r"^runc cannot be found. Install .*: apt-get"):
        check_machine()


def test_somebody_else_than_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet needs root."""
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    with pytest.raises(CannotRun, match=r"needs root. Run this test as root"):
        check_machine()
