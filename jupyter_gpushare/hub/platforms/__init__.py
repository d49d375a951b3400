"""What `setup(c)` adds for the place where servers run, by the name in `c.GPUShare.platform`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from traitlets.config import Config

from . import docker

if TYPE_CHECKING:
    from ..options import GPUShare

PLATFORMS: Mapping[str, Callable[[Config, GPUShare], None]] = MappingProxyType(
    {
        "docker": docker.configure,
    }
)
"""Each adds to what is there, once the servers' environment is. `local` needs nothing more."""
