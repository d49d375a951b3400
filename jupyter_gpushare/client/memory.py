"""Device memory as people are shown it, made from what the status tells of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

_AMOUNTS = ("bytes_resident", "bytes_parked", "bytes_fixed", "cap_bytes")


def memory_of(tenant: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What a tenant has of each device: on it (resident), of that what cannot be moved (fixed), in
    host memory (parked), and how much it may have (cap; 0: as much as there is)."""
    if tenant is None:
        return []
    told = tenant.get("memory")
    if told is None:
        return _as_an_older_scheduler_tells(tenant)
    return [
        {"device": each["device"], **{name: each.get(name, 0) for name in _AMOUNTS}}
        for each in told
    ]


def bytes_used(device: Mapping[str, Any], tenants: Collection[Mapping[str, Any]]) -> int:
    """By everybody. NVML is asked now and then; tenants tell of what they take at once."""
    known = bytes_of_tenants(device["id"], tenants) + device.get("bytes_foreign", 0)
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


def _as_an_older_scheduler_tells(tenant: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One that moves no memory: all that is allocated is on the device."""
    memory: dict[str, dict[str, Any]] = {}
    for client in tenant["clients"]:
        for opened in client["devices"]:
            cap_bytes = tenant.get("cap_bytes", 0)
            blank = {"device": opened["device"], **dict.fromkeys(_AMOUNTS, 0)}
            sums = memory.setdefault(opened["device"], {**blank, "cap_bytes": cap_bytes})
            sums["bytes_resident"] += opened["bytes_allocated"]
            sums["bytes_fixed"] += opened["bytes_fixed"]
    return list(memory.values())
