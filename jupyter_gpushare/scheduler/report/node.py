"""What is reported of a look at the state, with what the core does not know, or not in words."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from jupyter_gpushare.core.settings import TurnTaking
from jupyter_gpushare.core.snapshot import DeviceSnapshot, TenantSnapshot
from jupyter_gpushare.reports.delta import Now, Whose
from jupyter_gpushare.reports.format import NodeRow
from jupyter_gpushare.reports.problems import problems_of
from jupyter_gpushare.reports.waits import WaitCounter

from ..identity.tenants import TenantBook
from ..identity.tokens import owner_of
from ..service.blocked import blocked_reason, without_what_is_gone
from ..service.looks import Look
from .found import PluginProblems, host_bytes_available

Names = Callable[[str], str | None]


class NodeTeller:
    """`groups_of` tells the groups of a tenant's owner, by the tenant's id and the owner's name.
    `hub`: owners are the hub's users."""

    def __init__(
        self,
        *,
        tenants: TenantBook,
        groups_of: Callable[[str, str], tuple[str, ...]],
        waits: WaitCounter,
        plugin: PluginProblems,
        version: str,
        platform: str,
        hub: bool,
        started_at: float | None = None,
    ) -> None:
        self._tenants = tenants
        self._groups_of = groups_of
        self._waits = waits
        self._plugin = plugin
        self._version, self._platform, self._hub = version, platform, hub
        self._started_at = time.time() if started_at is None else started_at

    def now(self, look: Look) -> Now:
        snapshot = look.snapshot
        node = NodeRow(
            version=self._version,
            owners="hub" if self._hub else "accounts",
            platform=self._platform,
            started_at=self._started_at,
            recovering=snapshot.recovering,
            turns_on=snapshot.settings.turns is TurnTaking.ON,
            bytes_host_available=host_bytes_available(),
            problems=(*problems_of(snapshot), *self._plugin.now()),
            waits=self._waits.counted,
        )
        return Now(snapshot, node, lambda tenant: self._whose(tenant, look))

    def _whose(self, tenant: TenantSnapshot, look: Look) -> Whose:
        record = self._tenants.get(tenant.id)
        owner = tenant.owner if record is None else owner_of(record)
        why = why_it_waits(tenant, look, lambda other: self._name_for(tenant.id, other, look))
        groups = self._groups_of(tenant.id, owner)
        if self._hub and record is not None and not record.hub_user:
            # Not the hub's user of that name, whose groups these are.
            owner, groups = f"{owner} (account of the node)", ()
        return Whose(owner, groups, why)

    def _name_for(self, tenant_id: str, other: str, look: Look) -> str | None:
        """Of another tenant, in a sentence for this one's owner; None: it is somebody else's."""
        mine, theirs = self._tenants.get(tenant_id), self._tenants.get(other)
        if mine is None or theirs is None or mine.owner_key != theirs.owner_key:
            return None
        return theirs.name


def why_it_waits(tenant: TenantSnapshot, look: Look, name_of: Names) -> str:
    """In the words of its status; empty for most tenants, which cost next to nothing here."""
    if tenant.obstacle is None:
        opened = (look.devices.get(each.device) for each in tenant.memory)
        if tenant.state != "waiting" or not any(each and _is_shut(each) for each in opened):
            return ""
    told = _plain(tenant)
    others = [told]
    if tenant.obstacle is not None and tenant.obstacle.tenant is not None:
        in_the_way = look.tenants.get(tenant.obstacle.tenant)
        if in_the_way is not None and in_the_way is not tenant:
            others.append(_plain(in_the_way))
    without_what_is_gone(others)
    devices = {str(each.id): _device(each) for each in look.snapshot.devices}
    return blocked_reason(told, devices, name_of) or ""


def _is_shut(device: DeviceSnapshot) -> bool:
    return device.mode != "open" or any(holder.frozen for holder in device.holders)


def _plain(tenant: TenantSnapshot) -> dict[str, Any]:
    """What sentences are made of."""
    obstacle = tenant.obstacle and asdict(tenant.obstacle)
    if obstacle:
        obstacle["kind"] = obstacle["kind"].value
    return {
        "id": tenant.id,
        "state": tenant.state,
        "obstacle": obstacle,
        "memory": [asdict(each) for each in tenant.memory],
        "memory_wait_left_s": tenant.memory_wait_left_s,
    }


def _device(device: DeviceSnapshot) -> dict[str, Any]:
    return {
        "name": device.name,
        "mode": device.mode,
        "bytes_contexts": device.bytes_contexts,
        "holders": [{"tenant": each.tenant, "frozen": each.frozen} for each in device.holders],
    }
