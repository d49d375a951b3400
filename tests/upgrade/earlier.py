"""An earlier version, built from git's history: its scheduler, its hook and its command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.packaging.environments import clean_env, only, run
from tests.support.environments import FOLDER, made_once
from tests.support.nursery import ForkedProcess
from tests.support.paths import ROOT
from tests.support.scheduler_process import SchedulerUnderTest

COMMIT = "579a699c"
"""The state that all versions since have to meet."""


def is_in_history() -> bool:
    """A shallow clone, or a source without git, has it not."""
    ask = ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return subprocess.run(ask, cwd=ROOT, check=False, capture_output=True).returncode == 0


def packages() -> Path:
    """A folder with the earlier package; what it needs is what this environment has."""
    folder = FOLDER / f"earlier-{COMMIT}"
    with made_once(folder, COMMIT) as is_there:
        if not is_there:
            shutil.rmtree(folder, ignore_errors=True)
            source, wheel = folder / "source", folder / "wheel"
            source.mkdir(parents=True)
            wheel.mkdir()
            archive = subprocess.run(
                ["git", "archive", COMMIT], cwd=ROOT, check=True, stdout=subprocess.PIPE
            ).stdout
            subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
            build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
            env = clean_env({"GPUSHARE_BUILD_PANEL": "no"})
            run([*build, "--outdir", wheel, source], cwd=wheel, env=env)
            target = ["--no-deps", "--no-compile", "--target", folder / "packages"]
            install = [sys.executable, "-m", "pip", "install", "--quiet", *target]
            run([*install, only(wheel, "*.whl")], cwd=folder)
    return folder / "packages"


def hook() -> Path:
    return packages() / "jupyter_gpushare" / "lib" / "libgpushare.so"


def command(*words: object) -> list[str]:
    """The earlier `jupyter gpushare …`."""
    main = "import sys; from jupyter_gpushare.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", main, *map(str, words)]


def environment(env: dict[str, str]) -> dict[str, str]:
    """In which Python imports the earlier package."""
    return {**env, "PYTHONPATH": str(packages()), "PYTHONSAFEPATH": "1"}


class EarlierScheduler(SchedulerUnderTest):
    """Of that version, in a Python of its own."""

    def _start(
        self, arguments: list[str], env: dict[str, str], log: int, tell: int
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        return subprocess.Popen(
            command(*arguments),
            pass_fds=[tell],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(env),
            cwd=os.sep,
        )
