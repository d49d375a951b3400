"""The status as JSON, cut to what the caller may see. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from jupyter_gpushare.core.snapshot import Snapshot

from .config import settings_as_json
from .tenants import TenantBook

OTHER = "another user"
"""What stands in the place of a name that the caller may not see."""


def status_of(
    snapshot: Snapshot,
    tenants: TenantBook,
    *,
    process: dict[str, Any],
    may_see: Callable[[str], bool],
    names_are_shown: bool = False,
) -> dict[str, Any]:
    """Everything, with the tenants of owners that `may_see` denies made anonymous, or nameless
    in all but name and owner where `names_are_shown`."""
    devices = [asdict(device) for device in snapshot.devices]
    shown_tenants = [asdict(tenant) for tenant in snapshot.tenants]
    hidden: dict[str, str] = {}
    for tenant in shown_tenants:
        record = tenants.get(tenant["id"])
        tenant["kernel_id"] = tenants.kernel_id(tenant["id"])
        if record is None or not may_see(record.owner_key):
            hidden[tenant["id"]] = f"other-{len(hidden) + 1}"
            _hide_ids(tenant, hidden[tenant["id"]])
            if not names_are_shown:
                _make_anonymous(tenant)
    for device in devices:
        for place in (*device["holders"], *device["queue"]):
            if place["tenant"] in hidden:
                place.update(tenant=hidden[place["tenant"]])
                if not names_are_shown:
                    place.update(name=OTHER)
    return {
        "scheduler": {**process, "recovering": snapshot.recovering},
        "settings": settings_as_json(snapshot.settings),
        "devices": devices,
        "tenants": shown_tenants,
    }


def _hide_ids(tenant: dict[str, Any], alias: str) -> None:
    """What one could act on, or find in other places, is nobody else's affair."""
    tenant.update(id=alias, kernel_id=None)
    for client in tenant["clients"]:
        client.update(pid=None, process_name=OTHER)


def _make_anonymous(tenant: dict[str, Any]) -> None:
    """Keep what concerns the caller (who is before me, for how long), hide who it is."""
    tenant.update(name=OTHER, owner=OTHER)
