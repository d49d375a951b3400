"""The tenants of this scheduler: who registered them, whose tokens are worth nothing any more.

A tenant ends when it is removed. One that nobody can remove any more (its registrant's process has
ended) is forgotten instead, a moment after its last client has left: its token stays good, and the
next client that shows it brings the tenant back, as after a restart of the scheduler.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from .tokens import TenantRecord

REMOVED_MAX = 100_000
"""Old tenant ids beyond this many are dropped, oldest first; their processes are long gone."""


@dataclass(slots=True)
class _Entry:
    record: TenantRecord
    kernel_id: str | None
    registrant_lives: bool
    clients: set[int] = field(default_factory=set)
    left_last: int = 0
    """Of its clients."""


class TenantBook:
    """Bookkeeping only: events for the core are made by those who call."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._removed: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, record: TenantRecord, *, kernel_id: str | None = None, registrant_lives: bool
    ) -> bool:
        """Note a tenant; False when it is known already."""
        if record.tenant_id in self._entries:
            return False
        self._entries[record.tenant_id] = _Entry(record, kernel_id, registrant_lives)
        return True

    def get(self, tenant_id: str) -> TenantRecord | None:
        entry = self._entries.get(tenant_id)
        return entry.record if entry else None

    def of(self, owner_key: str) -> int:
        """How many tenants the owner has."""
        return sum(entry.record.owner_key == owner_key for entry in self._entries.values())

    def kernel_id(self, tenant_id: str) -> str | None:
        entry = self._entries.get(tenant_id)
        return entry.kernel_id if entry else None

    def remove(self, tenant_id: str) -> bool:
        """From now on the tenant's token is refused; False when the tenant was not there."""
        self._removed[tenant_id] = None
        if len(self._removed) > REMOVED_MAX:
            self._removed.popitem(last=False)
        return self._entries.pop(tenant_id, None) is not None

    def is_removed(self, tenant_id: str) -> bool:
        return tenant_id in self._removed

    def client_joined(self, tenant_id: str, client: int) -> None:
        self._entries[tenant_id].clients.add(client)

    def client_left(self, tenant_id: str, client: int) -> bool:
        """Note it; True when the tenant is alone now."""
        if entry := self._entries.get(tenant_id):
            entry.clients.discard(client)
            entry.left_last = client
        return self._is_alone(tenant_id)

    def is_back(self, tenant_id: str, client: int) -> bool:
        """Whether the tenant has lost another client after this one."""
        entry = self._entries.get(tenant_id)
        return entry is not None and entry.left_last != client

    def registrant_ended(self, tenant_id: str) -> bool:
        """Nobody is left to remove this tenant; True when it is forgotten for it."""
        if entry := self._entries.get(tenant_id):
            entry.registrant_lives = False
        return self.forget_if_alone(tenant_id)

    def forget_if_alone(self, tenant_id: str) -> bool:
        """True when the tenant is forgotten: it has no client, and nobody is left to remove it."""
        is_alone = self._is_alone(tenant_id)
        if is_alone:
            del self._entries[tenant_id]
        return is_alone

    def _is_alone(self, tenant_id: str) -> bool:
        entry = self._entries.get(tenant_id)
        return entry is not None and not (entry.registrant_lives or entry.clients)
