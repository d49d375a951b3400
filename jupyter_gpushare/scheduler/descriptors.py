"""How many files and sockets a process may have open, here and in the view of all nodes."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> None:
    """As far as the account may. The usual soft limit of 1024 is too low for a scheduler with two
    for each client (socket and process), and for a view of a thousand nodes and who looks at
    them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
