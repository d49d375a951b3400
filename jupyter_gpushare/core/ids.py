"""Names of the things the scheduler core reasons about. Pure: no import beyond typing."""

from __future__ import annotations

from typing import NewType

TenantId = NewType("TenantId", str)
"""A notebook kernel (or a `run` command) and every process it started."""

ClientId = NewType("ClientId", int)
"""One connection of one process that has the hook; never used twice."""

DeviceId = NewType("DeviceId", str)
"""A GPU or MIG instance, as 32 lower-case hexadecimal digits of its UUID."""

TurnId = NewType("TurnId", int)
"""One grant of a turn to a tenant; counts up, never 0 on the wire (0 means none)."""

ProcessId = tuple[TenantId, int]
"""A client, whatever connection it has: its tenant and its pid."""

Seconds = float
"""Monotonic time in seconds. The core never reads a clock; it is told."""
