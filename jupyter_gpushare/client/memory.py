"""Device memory as people are shown it, made from what the status tells of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

_SHOWN = ("device", "bytes_resident", "bytes_parked", "bytes_fixed", "cap_bytes")


def memory_of(tenant: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What a tenant has of each device: on it (resident), of that what cannot be moved (fixed), in
    host memory (parked), and how much it may have (cap; 0: as much as there is)."""
    told = tenant["memory"] if tenant else ()
    return [
        {"kinds": dict(each.get("kinds", {})), **{name: each[name] for name in _SHOWN}}
        for each in told
    ]


_STAYING = {
    "stopped": "used by others",
    "driver_pools": "of the driver's pools",
    "graphs": "of graphs",
    "managed": "managed",
    "arrays": "arrays",
    "other": "other",
}
"""Kinds of memory that cannot be moved, for people, by the names of the status."""


def kinds_that_stay(kinds: Mapping[str, int]) -> list[tuple[str, int]]:
    """The kinds that cannot be moved, with their bytes, the largest first."""
    return _in_words(kinds, _STAYING)


_MOVING = {
    "plain": "plain",
    "mapped": "mapped",
    "pooled": "stream-ordered",
    "prefetched": "managed",
}
"""Likewise kinds that move, but for what of them is used by others."""


def kinds_that_move(kinds: Mapping[str, int]) -> list[tuple[str, int]]:
    """The kinds that can be moved, with their bytes, the largest first; none where all is plain, as
    it is of most programs."""
    moving = _in_words(kinds, _MOVING)
    return moving if any(kind != "plain" for kind, _ in moving) else []


def _in_words(kinds: Mapping[str, int], words: Mapping[str, str]) -> list[tuple[str, int]]:
    found = [(words[kind], count) for kind, count in kinds.items() if kind in words]
    return sorted(found, key=lambda each: -each[1])


def bytes_used(device: Mapping[str, Any], tenants: Collection[Mapping[str, Any]]) -> int:
    """By everybody. NVML is asked now and then; tenants tell of what they take at once."""
    known = bytes_of_tenants(device["id"], tenants) + device["bytes_foreign"]
    used: int = min(device["bytes_total"], max(device["bytes_used"], known))
    return used


def bytes_of_tenants(device_id: str, tenants: Iterable[Mapping[str, Any]]) -> int:
    """What all tenants together have on the device."""
    return sum(
        each["bytes_resident"]
        for tenant in tenants
        for each in memory_of(tenant)
        if each["device"] == device_id
    )
