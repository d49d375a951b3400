"""What `setup(c)` adds for the place where servers run, by the name in `c.GPUShare.platform`.

Each is called last, when all that every hub needs has been added to `c`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from traitlets.config import Config

from ..places import THIS_MACHINE
from .docker import add_docker
from .kubernetes import add_kubernetes
from .slurm import add_slurm

if TYPE_CHECKING:
    from ..options import GPUShare


def _add_nothing(c: Config, options: GPUShare) -> None:
    """Servers are processes on the hub's own machine."""


PLATFORMS: Mapping[str, Callable[[Config, GPUShare], None]] = MappingProxyType(
    {
        THIS_MACHINE: _add_nothing,
        "docker": add_docker,
        "kubernetes": add_kubernetes,
        "slurm": add_slurm,
    }
)
