"""What the device plugin of a Kubernetes node has found, and how much memory the host has left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_gpushare.kubelet.pods import Mistake
from jupyter_gpushare.kubelet.problems_file import write_problems
from jupyter_gpushare.scheduler.report.found import (
    FRESH_S,
    PluginProblems,
    host_bytes_available,
)
from tests.support.other_user import OTHER_UID, as_root_only

MISTAKES = [Mistake("A pod has no seat.", "Give it one."), Mistake("So.", "Do.")]


@pytest.mark.promise(
    "kubernetes-21", "What is wrong with the pods of a node is told to the view of all nodes"
)
def test_what_the_plugin_writes_is_read(tmp_path: Path) -> None:
    """Sentences, as long as the plugin writes them anew; each file in its time."""
    problems = PluginProblems(tmp_path)
    assert problems.now() == ()
    write_problems(tmp_path, MISTAKES)
    assert problems.now() == ("A pod has no seat. Give it one.", "So. Do.")
    write_problems(tmp_path, [])
    assert problems.now() == ()
    assert (tmp_path / "plugin-problems.json").stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["plugin-problems.json"]


@pytest.mark.promise("kubernetes-21")
def test_what_is_old_counts_for_nothing(tmp_path: Path) -> None:
    """The plugin has ended since."""
    write_problems(tmp_path, MISTAKES)
    later = PluginProblems(tmp_path, wall_clock=lambda: time.time() + FRESH_S + 1)
    assert later.now() == ()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"problems": 5}', '{"problems": [5, null]}', "[" * 100_000],
    ids=["empty", "cut", "list", "number", "others", "deep"],
)
def test_another_content_counts_for_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "plugin-problems.json").write_text(content)
    assert PluginProblems(tmp_path).now() == ()


def test_another_thing_counts_for_nothing(tmp_path: Path) -> None:
    """A pipe, which would never end, and a link that leads elsewhere."""
    path = tmp_path / "plugin-problems.json"
    os.mkfifo(path)
    assert PluginProblems(tmp_path).now() == ()
    path.unlink()
    (tmp_path / "elsewhere").mkdir()
    write_problems(tmp_path / "elsewhere", MISTAKES)
    path.symlink_to(tmp_path / "elsewhere" / "plugin-problems.json")
    assert PluginProblems(tmp_path).now() == ()


@as_root_only
def test_the_file_of_another_account_counts_for_nothing(tmp_path: Path) -> None:
    write_problems(tmp_path, MISTAKES)
    os.chown(tmp_path / "plugin-problems.json", OTHER_UID, OTHER_UID)
    assert PluginProblems(tmp_path).now() == ()


def test_what_is_written_is_bounded(tmp_path: Path) -> None:
    """A thousand pods without a seat are named up to a number, and that fits what is read."""
    write_problems(tmp_path, [Mistake("\N{GRINNING FACE}" * 1000, "Do.")] * 1000)
    assert len(PluginProblems(tmp_path).now()) == 8


def test_the_hosts_memory(tmp_path: Path) -> None:
    """As the kernel says; 0 where it says nothing."""
    assert 0 < host_bytes_available() < 1 << 50
    path = tmp_path / "meminfo"
    assert host_bytes_available(path) == 0
    path.write_text("MemTotal: 5 kB\nMemAvailable:   2048 kB\n")
    assert host_bytes_available(path) == 2 << 20
    path.write_text("MemAvailable: much\n")
    assert host_bytes_available(path) == 0
