"""The processes that are connected, whose they are, and what they may know of others."""

from __future__ import annotations

import os
from collections.abc import Callable

from jupyter_gpushare.core.ids import ClientId, DeviceId, TenantId
from jupyter_gpushare.core.settings import MemoryMode, SchedulerSettings, Visibility

from ..identity.tenants import TenantBook
from ..identity.tokens import TenantRecord, owner_of
from .cut import OTHER, seen_name
from .host_memory import HostMemory
from .kinds import MemoryKinds
from .looks import Look


class Members:
    """`settings` are those in force."""

    def __init__(self, tenants: TenantBook, *, settings: Callable[[], SchedulerSettings]) -> None:
        self._tenants = tenants
        self._settings = settings
        self._tenant_of: dict[ClientId, TenantRecord] = {}
        self._see_everything: set[ClientId] = set()
        self.pids: dict[ClientId, int] = {}
        """Of those whose processes are seen from here."""
        self.kinds = MemoryKinds()
        self.host = HostMemory()

    def __len__(self) -> int:
        return len(self._tenant_of)

    def add(self, client: ClientId, record: TenantRecord, *, administers: bool) -> None:
        """`administers`: the process's account does, from where it lives."""
        self._tenant_of[client] = record
        if administers and not record.hub_user and record.uid in (0, os.getuid()):
            self._see_everything.add(client)

    def remove(self, client: ClientId) -> TenantRecord | None:
        """The tenant that it belonged to."""
        self._see_everything.discard(client)
        self.pids.pop(client, None)
        self.kinds.forget(client)
        self.host.forget(client)
        return self._tenant_of.pop(client, None)

    def shown_name(self, client: ClientId, tenant: TenantId | None, name: str) -> str:
        """A tenant's name as this client's user may read it: who the tenant is decides, for
        anybody may give a notebook the name that they want to know of."""
        viewer = self._tenant_of.get(client)
        if viewer is None or tenant is None:
            return name
        shown = self._tenants.get(tenant)
        if shown is not None and shown.owner_key == viewer.owner_key:
            return name
        sees_all = client in self._see_everything
        visibility = Visibility.EVERYONE if sees_all else self._settings().visibility
        if shown is None:
            return name if visibility is Visibility.EVERYONE else OTHER
        return seen_name(visibility, owner_of(shown), name) or OTHER

    def memory_seen_by(
        self, client: ClientId, device: DeviceId, look: Look
    ) -> tuple[int, int] | None:
        """Bytes in all and in use, as `cuMemGetInfo` tells them in the tenant's processes.

        Where memory follows the turn, what the tenant could not have even alone is in use. Where
        it does not, its own use is, if it has a cap, and else the device's."""
        record, found = self._tenant_of.get(client), look.devices.get(device)
        if record is None or found is None:
            return None
        tenant = look.tenants.get(TenantId(record.tenant_id))
        own = [row for row in (tenant.memory if tenant else ()) if row.device == device]
        used = sum(row.bytes_resident + row.bytes_parked for row in own)
        cap_bytes = record.cap_bytes if tenant is None else tenant.cap_bytes
        total = min(cap_bytes, found.bytes_total) if cap_bytes else found.bytes_total
        if look.snapshot.settings.memory_mode is MemoryMode.SWAP:
            of_others = found.bytes_staying - sum(row.bytes_staying for row in own)
            usable = min(total, max(0, found.bytes_usable - of_others))
            return total, total - max(0, usable - used)
        if not cap_bytes:
            return total, max(found.bytes_used, found.bytes_allocated)
        return total, used
