"""How much of a device is kept free for what no budget covers.

The setting says the least. Notebooks that run and have opened no device yet may each open a context
there next. What these contexts will take is kept free, too, as the contexts that are there tell: so
memory that is allocated now does not stand where they will be. Memory that was there before may
come back into all that is kept beyond the least.
"""

from __future__ import annotations

from ..settings import RESERVE_BY_SIZE

_LEAST_BYTES_MIN = 1 << 30
_LEAST_SHARE = 50
_LEAST_SHARE_MAX = 8
_FOLLOWS_SHARE_MAX = 16
"""For contexts to come no more than this part of the device is kept."""


def least_bytes(setting: int, total_bytes: int) -> int:
    """What the setting says, or what suits the device's size."""
    if setting != RESERVE_BY_SIZE:
        return min(setting, total_bytes)
    by_size = max(_LEAST_BYTES_MIN, total_bytes // _LEAST_SHARE)
    return min(by_size, total_bytes // _LEAST_SHARE_MAX)


def reserve_bytes(least: int, to_come: int, total_bytes: int) -> int:
    """The least, or as much as the contexts to come will take."""
    return max(least, min(to_come, total_bytes // _FOLLOWS_SHARE_MAX))
