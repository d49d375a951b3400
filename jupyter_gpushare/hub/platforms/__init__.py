"""What `setup(c)` adds for the place where the spawner puts the servers: a table of functions.

Each is called last, when all that every hub needs has been added to `c`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from traitlets.config import Config

from .kubernetes import add_kubernetes

if TYPE_CHECKING:
    from ..options import GPUShare

THIS_MACHINE = "machine"


def _add_nothing(c: Config, options: GPUShare) -> None:
    """Servers are processes on the hub's own machine."""


PLATFORMS: Mapping[str, Callable[[Config, GPUShare], None]] = {
    THIS_MACHINE: _add_nothing,
    "kubernetes": add_kubernetes,
}
SCHEDULERS_ELSEWHERE = frozenset({"kubernetes"})
"""There each node has a scheduler of its own, which the hub does not start."""
