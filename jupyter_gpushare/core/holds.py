"""Turns that their users keep by hand: for how long, and who is told."""

from __future__ import annotations

from .commands import TellHold
from .ids import Seconds
from .state import Client, Hold, State, Tenant
from .tell import Outbox


class Holds:
    """Changes holds; the only one who does."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def hold(self, tenant: Tenant, hold_s: Seconds, now_s: Seconds) -> None:
        """The tenant's user keeps its turn by hand; every client is told how long that lasts.

        A hold of a tenant without a turn begins with its next one. While others wait, asking again
        prolongs nothing beyond the longest hold from the first."""
        state = self._state
        state.changes.of_tenant(tenant)
        before = state.holds.pop(tenant.id, None)
        state.holds_to_come.pop(tenant.id, None)
        hold_s = min(hold_s, state.settings.hold_max_s)
        if hold_s > 0 and tenant.turn is None:
            state.holds_to_come[tenant.id] = hold_s
        elif hold_s > 0:
            contended = tenant.turn is not None and tenant.turn.contended_since_s is not None
            began_s = before.began_s if before is not None and contended else now_s
            until_s = min(now_s + hold_s, began_s + state.settings.hold_max_s)
            if until_s > now_s:
                state.holds[tenant.id] = Hold(began_s, until_s)
        self._tell(tenant, now_s)

    def shorten(self, now_s: Seconds) -> None:
        """`hold_max_s` has changed: nobody keeps a turn for longer."""
        for tenant_id, hold in self._state.holds.items():
            until_s = min(hold.until_s, hold.began_s + self._state.settings.hold_max_s)
            if until_s < hold.until_s:
                hold.until_s = max(until_s, now_s)
                self._state.changes.of_tenant(self._state.tenants[tenant_id])
                self._tell(self._state.tenants[tenant_id], now_s)
        for tenant_id, hold_s in list(self._state.holds_to_come.items()):
            if hold_s > self._state.settings.hold_max_s:
                self.hold(self._state.tenants[tenant_id], hold_s, now_s)

    def end(self, tenant: Tenant, now_s: Seconds) -> None:
        """Nobody keeps the tenant's turn any more, nor its next one."""
        self._state.changes.of_tenant(tenant)
        ended = self._state.holds.pop(tenant.id, None)
        if self._state.holds_to_come.pop(tenant.id, None) is not None or ended is not None:
            self._tell(tenant, now_s)

    def tell_to(self, client: Client, now_s: Seconds) -> None:
        """For how long the turn of the client's tenant is kept by hand: from now, or from the
        beginning of the turn that it does not have yet."""
        hold = self._state.holds.get(client.tenant)
        to_come_s = self._state.holds_to_come.get(client.tenant, 0.0)
        left_s = to_come_s if hold is None else hold.until_s - now_s
        self._outbox.put(TellHold(client=client.id, left_s=left_s))

    def _tell(self, tenant: Tenant, now_s: Seconds) -> None:
        for client in tenant.clients.values():
            self.tell_to(client, now_s)
