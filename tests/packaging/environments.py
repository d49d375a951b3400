"""Distributions of this checkout, and new virtual environments to install them into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

PANEL_IN_PREFIX = "share/jupyter/labextensions/@jupyter-gpushare/labextension"
SERVER_CONFIG_IN_PREFIX = "etc/jupyter/jupyter_server_config.d/jupyter_gpushare.json"
LIBRARY_IN_WHEEL = "jupyter_gpushare/lib/libgpushare.so"
PYTHON_OLDEST = "3.10"
INHERITED_BY_ACCIDENT = ("PYTHON", "VIRTUAL_ENV", "GPUSHARE_", "JUPYTER", "LD_PRELOAD", "MAKE")


def clean_env(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The machine's environment without what would lead to this checkout or its interpreter."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(INHERITED_BY_ACCIDENT)}
    own = str(Path(sys.executable).parent)
    env["PATH"] = os.pathsep.join(p for p in env["PATH"].split(os.pathsep) if p != own)
    return {**env, **(extra or {})}


def run(command: list[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path) -> str:
    """What a command that has to succeed prints."""
    return completed(command, env=env, cwd=cwd).stdout


def completed(
    command: list[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """A command that has to succeed, and did."""
    done = subprocess.run(
        command, cwd=cwd, env=dict(env or clean_env()), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    return done


@dataclass(frozen=True)
class Distributions:
    """An sdist, and the wheel that was built from it."""

    sdist: Path
    wheel: Path


def build_both(into: Path) -> Distributions:
    """As a release does it: an sdist, in an isolated environment, and the wheel from that. The
    wheel is made by pip, with a C compiler and no Node: `pip install` of the sdist does the same,
    and then installs the wheel."""
    run([sys.executable, "-m", "build", "--sdist", "--outdir", into, ROOT], cwd=into)
    sdist = only(into, "*.tar.gz")
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", into]
    run([*wheel, sdist], cwd=into, env=clean_env({"PATH": tools_without_node(into / "tools")}))
    return Distributions(sdist=sdist, wheel=only(into, "*.whl"))


def build_wheel_without_panel(into: Path) -> Path:
    """With the build requirements of this environment, so that nothing is downloaded."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    run([*build, "--outdir", into, ROOT], cwd=into, env=clean_env({"GPUSHARE_BUILD_PANEL": "no"}))
    return only(into, "*.whl")


def tools_without_node(folder: Path) -> str:
    """A PATH on which there is what compiles C, and nothing else."""
    folder.mkdir()
    for name in ("as", "cc", "gcc", "ld", "make", "mkdir", "mv", "rm", "sh", "touch"):
        program = shutil.which(name)
        assert program is not None, name
        (folder / name).symlink_to(program)
    return str(folder)


def only(folder: Path, pattern: str) -> Path:
    """The one file that fits."""
    (found,) = folder.glob(pattern)
    return found


def paths_of_the_machine(*scratch: Path) -> list[bytes]:
    """What no file that leaves this machine may name."""
    folders = {ROOT, Path.home(), Path(sys.prefix), *scratch}
    temporary = Path(tempfile.gettempdir())
    begun = [temporary / name for name in ("gpushare-wheel-", "build-env-", "pip-")]
    named = [f"{folder}/" for folder in folders if len(folder.parts) > 1]
    return sorted(text.encode() for text in [*named, *map(str, begun)])


class Environment:
    """A new virtual environment, into which the pip of this one installs."""

    def __init__(self, folder: Path, interpreter: str | Path) -> None:
        self.folder = folder
        run([interpreter, "-m", "venv", "--without-pip", folder], cwd=folder.parent)

    @classmethod
    def copy_of(cls, python: Path, folder: Path) -> Environment:
        """Of the environment with this interpreter: whatever is installed into the copy, that one
        stays as it is."""
        original = python.parent.parent
        shutil.copytree(original, folder, symlinks=True)
        for program in (folder / "bin").iterdir():
            if program.is_file() and not program.is_symlink():
                text = program.read_bytes()
                program.write_bytes(text.replace(bytes(original), bytes(folder)))
        copy = cls.__new__(cls)
        copy.folder = folder
        return copy

    def install(self, *requirements: str | Path, path: str | None = None) -> None:
        """With another PATH where the tools that pip may use are to be few."""
        env = clean_env({"PATH": path} if path is not None else {})
        self.pip("install", "--quiet", "--no-compile", *requirements, env=env)

    def pip(self, *arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
        """What it prints."""
        command = [sys.executable, "-m", "pip", "--python", self.python]
        return run([*command, *arguments], cwd=self.folder, env=env)

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """As after `source bin/activate`."""
        env = clean_env({"VIRTUAL_ENV": str(self.folder), **(extra or {})})
        return {**env, "PATH": f"{self.bin}{os.pathsep}{env['PATH']}"}

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None) -> str:
        """What a program of this environment prints, with nothing of the checkout in reach."""
        return self.completed(*command, env=env).stdout

    def completed(
        self, *command: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = self.bin / command[0]
        return completed([program, *command[1:]], env=self.env(env), cwd=self.folder)
