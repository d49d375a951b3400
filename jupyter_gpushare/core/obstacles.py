"""Why a tenant gets no turn although its devices are free: somebody's memory is in the way."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from .ids import DeviceId, TenantId


class ObstacleKind(enum.Enum):
    """Why there is no space."""

    ITSELF = "itself"
    """The tenant has more than the device could give it if it were alone."""
    FOREIGN = "foreign"
    """Memory under no client of ours."""
    ENDED = "ended"
    """Memory of processes that have ended, which the driver has not freed yet."""
    FIXED = "fixed"
    """Another tenant's memory cannot be moved."""
    FAILED = "failed"
    """Another tenant's context has failed and keeps its memory until that process ends."""
    SILENT = "silent"
    """Another tenant was asked to release memory and does not."""
    HOST = "host"
    """The host has no space for another tenant's memory."""
    HOLDER = "holder"
    """Another tenant has a turn on the device."""
    RETRY = "retry"
    """There was no space a moment ago, for an unknown reason; it will be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The largest thing in the way, and how many bytes are missing."""

    kind: ObstacleKind
    device: DeviceId
    bytes_in_the_way: int
    bytes_short: int
    tenant: TenantId | None = None
