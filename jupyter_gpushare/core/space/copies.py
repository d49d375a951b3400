"""What the host has copies of while it is still on its device (decision 0033)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Copies:
    """Of one client's memory on one device."""

    bytes: tuple[int, int] = (0, 0)
    """Of what is there and can leave, how much has one; how much more the client would copy."""
    told: bool = False
    """It was told to, and not since that the bus is needed."""

    @property
    def bytes_made(self) -> int:
        return self.bytes[0]
