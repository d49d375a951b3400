"""The hub's proxy: a Node program, which npm puts into the build folder when it is first needed."""

from __future__ import annotations

from tests.support.node import MODULES, NoProgram, node_command, npm_install

PROGRAM = MODULES / "configurable-http-proxy" / "bin" / "configurable-http-proxy"
PACKAGE = "configurable-http-proxy@5"


class NoProxy(Exception):
    """The proxy cannot be had here; the message says why."""


def proxy_command() -> list[str]:
    """How to start the proxy; raises NoProxy."""
    try:
        npm_install(PACKAGE, PROGRAM)
        return [node_command(), str(PROGRAM)]
    except NoProgram as problem:
        raise NoProxy(f"JupyterHub needs its proxy, and {problem}") from problem
