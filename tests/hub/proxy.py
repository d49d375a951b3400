"""The hub's proxy: a Node program, which npm puts into the build folder when it is first needed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import BUILD

FOLDER = BUILD / "node"
PROGRAM = FOLDER / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
PACKAGE = "configurable-http-proxy@5"
INSTALL_S_MAX = 180.0


class NoProxy(Exception):
    """The proxy cannot be had here; the message says why."""


def search_path() -> str:
    """The environment of this Python first: a wheel may have put Node there."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def proxy_command() -> list[str]:
    """How to start the proxy; raises NoProxy."""
    node = shutil.which("node", path=search_path())
    if node is None:
        raise NoProxy("JupyterHub's proxy needs Node, which is not here")
    if not PROGRAM.exists():
        _install()
    return [node, str(PROGRAM)]


def _install() -> None:
    """Once, however many test processes ask for it at the same time."""
    npm = shutil.which("npm", path=search_path())
    if npm is None:
        raise NoProxy("JupyterHub's proxy is installed by npm, which is not here")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PROGRAM.exists():
            return
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), PACKAGE]
        try:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                timeout=INSTALL_S_MAX,
                env={**os.environ, "PATH": search_path()},
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise NoProxy(f"npm cannot install {PACKAGE}: {error}") from error
