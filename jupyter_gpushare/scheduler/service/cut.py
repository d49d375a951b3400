"""The status as JSON, cut to what the caller may see. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from jupyter_gpushare.client.news import without_times
from jupyter_gpushare.core.configuration.values import settings_as_json
from jupyter_gpushare.core.ids import TenantId
from jupyter_gpushare.core.settings import Visibility
from jupyter_gpushare.core.snapshot import Snapshot, TenantSnapshot

from ..identity.tenants import TenantBook
from .blocked import blocked_reason, in_the_way, without_what_is_gone
from .host_memory import NOTHING_TOLD, HostMemory
from .noted import class_note, hold_note
from .placed import needed_bytes, placement_sentence
from .waits import MAY_WAIT, EstimatesOf, no_estimates, told

OTHER = "another user"
"""Replaces a name that the caller may not see."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A snapshot as plain data, which many callers' cuts are made from: it is costly, and none of
    them changes it."""

    at_s: float
    recovering: bool
    settings: dict[str, object]
    devices: list[dict[str, Any]]
    tenants: list[dict[str, Any]]
    shares: list[dict[str, Any]]
    made_from: tuple[TenantSnapshot, ...] = ()

    @staticmethod
    def of(snapshot: Snapshot, before: Plain | None = None) -> Plain:
        """A tenant that looks as it did `before` is not made anew: the core shows the same object
        then. One with an obstacle always is: what is told of it depends on others."""
        known: dict[str, tuple[TenantSnapshot, dict[str, Any]]] = {}
        if before is not None:
            pairs = zip(before.made_from, before.tenants, strict=True)
            known = {made_from.id: (made_from, plain) for made_from, plain in pairs}
        tenants = []
        for tenant in snapshot.tenants:
            made_from, plain = known.get(tenant.id, (None, {}))
            same = made_from is tenant and tenant.obstacle is None
            tenants.append(plain if same else _tenant(asdict(tenant)))
        without_what_is_gone(tenants)
        return Plain(
            at_s=snapshot.at_s,
            recovering=snapshot.recovering,
            settings=settings_as_json(snapshot.settings),
            devices=[asdict(device) for device in snapshot.devices],
            tenants=tenants,
            shares=[asdict(share) for share in snapshot.shares],
            made_from=snapshot.tenants,
        )


@dataclass(frozen=True)
class Cut:
    """The status as one caller may see it, made once however often that caller asks."""

    status: dict[str, Any]

    @cached_property
    def text(self) -> str:
        return json.dumps(self.status)

    @cached_property
    def news(self) -> object:
        """It is told again when this has changed."""
        return without_times(self.status, self.status["scheduler"]["uptime_s"])


def _tenant(tenant: dict[str, Any]) -> dict[str, Any]:
    if tenant["obstacle"] is not None:
        tenant["obstacle"]["kind"] = tenant["obstacle"]["kind"].value
    return tenant


KindsOf = Callable[[list[int], str], dict[str, int]]


def no_kinds(clients: list[int], device: str) -> dict[str, int]:
    return {}


def status_of(
    plain: Plain,
    tenants: TenantBook,
    *,
    process: dict[str, Any],
    may_see: Callable[[str], bool],
    visibility: Visibility = Visibility.ANONYMOUS,
    estimates: EstimatesOf = no_estimates,
    kinds: KindsOf = no_kinds,
    host: HostMemory = NOTHING_TOLD,
) -> dict[str, Any]:
    """Everything, with the tenants of owners that `may_see` denies cut to what `visibility` shows:
    nothing, their users, or their own names and what they have had so far too."""
    shown_tenants = []
    hidden: dict[str, str] = {}
    devices = {device["id"]: device for device in plain.devices}
    by_id = {tenant["id"]: tenant for tenant in plain.tenants}
    ways = in_the_way(plain.tenants, devices)

    def is_mine(tenant_id: str) -> bool:
        record = tenants.get(tenant_id)
        return record is not None and may_see(record.owner_key)

    def name_of(tenant_id: str) -> str | None:
        tenant = by_id.get(tenant_id)
        if tenant is None:
            return None
        if is_mine(tenant_id):
            return str(tenant["name"])
        return seen_name(visibility, tenant["owner"], tenant["name"])

    waiting = [each["id"] for each in plain.tenants if each["state"] in MAY_WAIT]
    found = estimates(TenantId(each) for each in waiting if is_mine(each))
    waits = {tenant_id: told(estimate) for tenant_id, estimate in found.items()}

    for with_obstacle in plain.tenants:
        mine = is_mine(with_obstacle["id"])
        reason = blocked_reason(with_obstacle, devices, name_of) if mine else None
        way = ways.get(with_obstacle["id"]) if mine else None
        place = placement_sentence(with_obstacle["placement"], plain.devices) if mine else None
        words = {
            "blocked_reason": reason,
            "in_the_way": way,
            "placement": place,
            "need_bytes": needed_bytes(with_obstacle["placement"]) if mine else 0,
            "class_note": class_note(with_obstacle) if mine else None,
            "hold_note": hold_note(with_obstacle) if mine else None,
            "estimate": waits.get(with_obstacle["id"]),
        }
        tenant = {**with_obstacle, **words}
        for told_in_words in ("obstacle", "asked_class", "hold_refused", "memory_wait_left_s"):
            del tenant[told_in_words]
        if mine:
            clients = [client["id"] for client in tenant["clients"]]
            memory = [
                {**each, "kinds": kinds(clients, each["device"])} for each in tenant["memory"]
            ]
            kernel_id = tenants.kernel_id(tenant["id"])
            own_words = {"kernel_id": kernel_id, "bytes_unpinned": host.unpinned_of(clients)}
            shown_tenants.append({**tenant, "memory": memory, **own_words})
            continue
        alias = hidden[tenant["id"]] = f"other-{len(hidden) + 1}"
        shown_tenants.append({**_without_ids(tenant, alias), **_nameless(tenant, visibility)})

    own = {tenant["owner"] for tenant in plain.tenants if is_mine(tenant["id"])}

    def shown_place(place: dict[str, Any]) -> dict[str, Any]:
        if place["tenant"] not in hidden:
            return place
        name = _nameless(by_id[place["tenant"]], visibility).get("name", place["name"])
        return {**place, "tenant": hidden[place["tenant"]], "name": name}

    return {
        "scheduler": {**process, "recovering": plain.recovering},
        "settings": plain.settings,
        "host": host.machine(),
        "devices": [
            {
                **device,
                "holders": [shown_place(place) for place in device["holders"]],
                "queue": [shown_place(place) for place in device["queue"]],
            }
            for device in plain.devices
        ],
        "tenants": shown_tenants,
        "shares": [share for share in plain.shares if share["owner"] in own],
    }


def seen_name(visibility: Visibility, owner: str, name: str) -> str | None:
    """Another user's tenant in a sentence; None where the reader may not know whose it is."""
    match visibility:
        case Visibility.EVERYONE:
            return f"{owner}: {name}"
        case Visibility.USERS:
            return owner
        case Visibility.ANONYMOUS:
            return None


def _nameless(tenant: dict[str, Any], visibility: Visibility) -> dict[str, Any]:
    """What stands in the place of names and counts that the caller may not see."""
    names = nameless(tenant["owner"], visibility)
    return {**names, "counters": None} if names else {}


def nameless(owner: str, visibility: Visibility) -> dict[str, str]:
    """What stands in the place of another user's names; nothing where they are shown."""
    if visibility is Visibility.EVERYONE:
        return {}
    shown = owner if visibility is Visibility.USERS else OTHER
    return {"name": shown, "owner": shown}


def _without_ids(tenant: dict[str, Any], alias: str) -> dict[str, Any]:
    """Keep what concerns the caller (who is before me, for how long). What one could act on, or
    find in other places, is nobody else's affair."""
    clients = [{**client, "pid": None, "process_name": OTHER} for client in tenant["clients"]]
    return {**tenant, "id": alias, "kernel_id": None, "clients": clients}
