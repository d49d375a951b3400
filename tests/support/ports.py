"""TCP ports for servers that are told theirs before they open them."""

from __future__ import annotations

import contextlib
import random
import socket

_BELOW_THE_SYSTEMS_OWN = range(10_100, 32_768)
"""A browser opens all of these: 10080 is the last one that it holds for unsafe. Linux gives a
program that asks for any port one above these. A kernel asks for five, and might otherwise get the
one that a server was told a moment ago."""


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """All open at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(_BELOW_THE_SYSTEMS_OWN)
            sock = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                sock.bind(("127.0.0.1", port))
                found.append(port)
        return found
