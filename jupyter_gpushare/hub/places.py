"""Where servers of a hub may run: the names of `c.GPUShare.platform`, what they have in common."""

from __future__ import annotations

THIS_MACHINE = "machine"
PLACES = ("docker", "kubernetes", THIS_MACHINE, "slurm")
SCHEDULERS_ELSEWHERE = frozenset({"kubernetes", "slurm"})
"""There each node has a scheduler of its own, which the hub does not start."""
LED_BY_THE_NODE = frozenset({"kubernetes"})
"""There a server hears from its node where the sockets are."""
