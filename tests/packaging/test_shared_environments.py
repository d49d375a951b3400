"""Environments that test workers share."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.support import environments
from tests.support.waits import WAIT_S_MAX


@pytest.mark.promise("demo-14", "Test workers that need the same environment make it once")
def test_workers_that_need_the_same_environment_make_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four ask at once: one makes it, and the others wait until it is there."""
    commands: list[list[str]] = []
    begun = Barrier(4)

    def pretend(command: list[Any], **_: Any) -> None:
        commands.append([str(part) for part in command])
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        else:
            installed.touch()

    def ask() -> bool:
        begun.wait(WAIT_S_MAX)
        environments.shared_python("shared", ["something==1.0"])
        return installed.exists()

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(subprocess, "run", pretend)
    installed = tmp_path / "shared" / "installed"
    with ThreadPoolExecutor(4) as workers:
        assert all(asked.result() for asked in [workers.submit(ask) for _ in range(4)])
    assert [command[-1] for command in commands] == [str(tmp_path / "shared"), "something==1.0"]
