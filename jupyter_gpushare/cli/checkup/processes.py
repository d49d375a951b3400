"""Where the processes come from that use a device, as far as we may look into them: root on a
machine may, for the servers of its containers too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jupyter_gpushare.kernel.environment import DISABLE, TOKEN

from .facts import OriginFacts

_USER = "JUPYTERHUB_USER"
_OF_A_KERNEL = "JPY_PARENT_PID"
"""Which Jupyter gives to kernels, and not to its terminals."""


def origins_of(pids: Iterable[int], root: Path) -> dict[int, OriginFacts]:
    """Of those whose environment can be read."""
    found = {}
    for pid in pids:
        try:
            entries = (root / "proc" / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        texts = (entry.decode(errors="replace").partition("=") for entry in entries)
        environ = {name: value for name, _, value in texts}
        found[pid] = OriginFacts(
            user=environ.get(_USER, ""),
            is_kernels=_OF_A_KERNEL in environ,
            is_tenants=bool(environ.get(TOKEN)),
            is_switched_off=environ.get(DISABLE) == "1",
        )
    return found
