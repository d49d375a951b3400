"""Slurm's TaskProlog, in shells: what Slurm reads of it, and that it never breaks a job."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SCRIPT = ROOT / "deploy" / "slurm" / "task_prolog.sh"
# zsh is no sh of its own accord.
CANDIDATES = (
    "zsh --emulate sh",
    "sh",
    "dash",
    "bash",
    "bash --posix",
    "busybox sh",
    "ksh",
    "mksh",
    "yash",
)
SHELLS = [each for each in CANDIDATES if shutil.which(each.split()[0])]
SHARD = {"SLURM_SHARDS_ON_NODE": "1", "SLURM_JOB_GPUS": "0", "SLURM_GPUS_ON_NODE": "1"}
WHOLE = {"SLURM_JOB_GPUS": "0", "SLURM_GPUS_ON_NODE": "1"}
HOOK = "/opt/jupyter/lib/libgpushare.so"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return str(request.param).split()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """As on a node whose scheduler serves here."""
    (tmp_path / "run").mkdir()
    copy = tmp_path / "task_prolog.sh"
    copy.write_text(SCRIPT.read_text().replace("/run/jupyter-gpushare", str(tmp_path / "run")))
    return copy


def said(
    shell: list[str], script: Path, env: Mapping[str, str], *options: str
) -> tuple[list[str], str]:
    """The lines that Slurm reads, and what went to stderr. With no more than this environment, not
    even a PATH; the shell, by its path."""
    program = str(shutil.which(shell[0]))
    done = subprocess.run(
        [program, *shell[1:], *options, str(script)],
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, "Slurm would not start the task"
    return done.stdout.splitlines(), done.stderr


@pytest.mark.promise(
    "hub-7",
    "Slurm's TaskProlog leads jobs with shards to the scheduler of their node, preloads nothing, "
    "and leaves other jobs alone, in every shell",
)
def test_a_job_with_a_shard(shell: list[str], script: Path) -> None:
    """It learns where the scheduler of its node is, and that is all."""
    lines = [f"export GPUSHARE_RUNTIME_DIR={script.parent / 'run'}"]
    assert said(shell, script, SHARD) == (lines, "")


@pytest.mark.promise("hub-7")
@pytest.mark.parametrize(
    "env", [WHOLE, {"SLURM_STEP_GPUS": "0"}, {"SLURM_GPUS_ON_NODE": "2"}], ids=["job", "step", "n"]
)
def test_a_job_with_whole_gpus_stays_outside(
    shell: list[str], script: Path, env: dict[str, str]
) -> None:
    """Kernels and `jupyter gpushare run` are told so there; a user's own word counts."""
    lines = ["export GPUSHARE_DISABLE=1", "export GPUSHARE_DISABLED_BY=slurm"]
    assert said(shell, script, env) == (lines, "")
    assert said(shell, script, {**env, "GPUSHARE_DISABLE": "0"}) == ([], "")


@pytest.mark.promise("hub-7")
def test_a_job_without_a_gpu(shell: list[str], script: Path) -> None:
    """Nothing is said."""
    assert said(shell, script, {}) == ([], "")


@pytest.mark.promise("hub-7")
def test_a_node_without_a_scheduler(shell: list[str], script: Path) -> None:
    """There is nothing to lead to."""
    (script.parent / "run").rmdir()
    assert said(shell, script, SHARD) == ([], "")


@pytest.mark.promise("hub-7")
def test_a_job_that_a_job_with_whole_gpus_submits(shell: list[str], script: Path) -> None:
    """Only what Slurm's own prolog has said is taken back: a user's word is theirs, everywhere."""
    handed_on = {"GPUSHARE_DISABLE": "1", "GPUSHARE_DISABLED_BY": "slurm"}
    back = ["unset GPUSHARE_DISABLE", "unset GPUSHARE_DISABLED_BY"]
    led = [f"export GPUSHARE_RUNTIME_DIR={script.parent / 'run'}"]
    assert said(shell, script, {**SHARD, **handed_on})[0] == back + led
    assert said(shell, script, handed_on)[0] == back
    assert said(shell, script, {**WHOLE, **handed_on})[0] == []
    assert said(shell, script, {**SHARD, "GPUSHARE_DISABLE": "1"})[0] == led


def test_what_is_set_stays(shell: list[str], script: Path) -> None:
    """The spawner's or the user's own directory goes before the node's."""
    assert said(shell, script, {**SHARD, "GPUSHARE_RUNTIME_DIR": "/theirs"}) == ([], "")


def test_a_scheduler_of_another_account(shell: list[str], script: Path) -> None:
    """A site says its uid in the script."""
    text = script.read_text().replace("scheduler_uid= ", "scheduler_uid=990 ")
    script.write_text(text)
    lines, _ = said(shell, script, SHARD)
    assert lines[1:] == ["export GPUSHARE_SCHEDULER_UID=990"]


@pytest.mark.promise(
    "hub-8",
    "A job that a notebook submits does not take the notebook's place along to another node",
)
@pytest.mark.parametrize(
    ("preload", "line"),
    [
        (HOOK, "unset LD_PRELOAD"),
        (f"/a.so:{HOOK}", "export LD_PRELOAD=/a.so"),
        (f"{HOOK} /a.so /b*.so", "export LD_PRELOAD=/a.so:/b*.so"),
        ("libgpushare.so::/a\\n.so", "export LD_PRELOAD=/a\\n.so"),
        (":: ", ""),
        ("/a.so", ""),
        ("/libgpushare.so.bak", "export LD_PRELOAD=/libgpushare.so.bak"),
        (f"{HOOK}\nexport EVIL=1", ""),
    ],
)
def test_submitted_from_a_notebook(shell: list[str], script: Path, preload: str, line: str) -> None:
    """Its token, socket and hook stay behind; what else is preloaded stays, word by word."""
    env = {"GPUSHARE_TOKEN": "t", "GPUSHARE_SOCKET": "/s", "LD_PRELOAD": preload}
    lines, _ = said(shell, script, env)  # the loader itself complains of what is not there
    assert lines == ["unset GPUSHARE_SOCKET", "unset GPUSHARE_TOKEN", *([line] if line else [])]


@pytest.mark.promise("hub-7")
@pytest.mark.parametrize("options", [["-e"], ["-u"], ["-eu"]], ids="".join)
def test_it_never_fails(shell: list[str], script: Path, options: list[str]) -> None:
    """Whatever a site starts shells with, and whatever is missing."""
    for env in ({}, SHARD, WHOLE, {**SHARD, "LD_PRELOAD": HOOK}):
        said(shell, script, env, *options)
    (script.parent / "run").rmdir()
    for env in ({}, SHARD, WHOLE):
        said(shell, script, env, *options)


def test_nobody_reads_it(shell: list[str], script: Path) -> None:
    """Its output is closed: the task starts all the same."""
    program = " ".join([str(shutil.which(shell[0])), *shell[1:]])
    command = f"{program} {script} >&- 2>&-"
    done = subprocess.run(["/bin/sh", "-c", command], env=SHARD, check=False, timeout=120)
    assert done.returncode == 0


@pytest.mark.promise("hub-7")
def test_it_never_preloads(script: Path) -> None:
    """A preloaded library would follow jobs into containers where its path is missing."""
    for env in (SHARD, WHOLE, {}):
        lines, _ = said(["sh"], script, env)
        assert not any("LD_PRELOAD" in line for line in lines)
    assert os.access(SCRIPT, os.X_OK), "Slurm starts it by its path"
