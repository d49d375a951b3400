"""TCP ports for servers that are told theirs before they open them."""

from __future__ import annotations

import contextlib
import os
import random
import socket

_BELOW_THE_SYSTEMS_OWN = range(10_100, 32_768)
"""A browser opens all of these: 10080 is the last one that it holds for unsafe. Linux gives a
program that asks for any port one above these. A kernel asks for five, and might otherwise get the
one that a server was told a moment ago."""


_given: set[int] = set()


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Nobody else gets one of these before it is opened: each worker of the tests has ports of its
    own, and gives none twice."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_BELOW_THE_SYSTEMS_OWN[number::workers])
        if port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as sock, contextlib.suppress(OSError):
        sock.bind(("127.0.0.1", port))
        return True
    return False
