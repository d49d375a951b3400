"""Turns that their users keep by hand: for how long, and who is told.

A hold is charged in full, as all use of a device. It keeps no turn for an owner that is in debt,
which is ahead of its share by more than `credit_s` while others want the device. Else holds, one
after the other, would give their owner more than its share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .commands import TellHold
from .ids import DeviceId, Seconds
from .policy import admin_wants_another
from .records import Client, Hold, Tenant, Turn
from .state import State
from .told import Outbox

_DEBT_LEAST_S: Seconds = 0.05
"""An owner that would be in debt so soon is in debt: nobody looks again at each microsecond."""
_ALONE_S: Seconds = 0.5
"""Where nobody else wants the device, debts are looked at again after this, at the earliest."""


class Holds:
    """Changes holds; the only one who does."""

    def __init__(self, state: State, outbox: Outbox) -> None:
        self._state = state
        self._outbox = outbox

    def hold(
        self, tenant: Tenant, hold_s: Seconds, now_s: Seconds, *, by_admin: bool = False
    ) -> None:
        """The tenant's user, or an admin, keeps its turn by hand. A user in debt does not: what was
        so before stays."""
        in_debt = not by_admin and self._credit_lasts_s(tenant, tenant.wanted_devices) == 0
        tenant.hold_refused = in_debt and hold_s > 0
        if tenant.hold_refused:
            self._state.changes.of_tenant(tenant)
            self._tell(tenant, now_s)
            return
        tenant.hold_by_admin = by_admin
        self.keep(tenant, hold_s, now_s)

    def turn_begins(self, tenant: Tenant, now_s: Seconds) -> None:
        """Its user may have asked for a hold before."""
        if (hold_s := self._state.holds_to_come.get(tenant.id)) is not None:
            self.keep(tenant, hold_s, now_s)

    def keep(self, tenant: Tenant, hold_s: Seconds, now_s: Seconds) -> None:
        """The tenant's turn is kept by hand; every client is told how long that lasts.

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
            waited_for = tenant.turn is not None and state.others_queue(tenant, tenant.turn.devices)
            began_s = before.began_s if before is not None and waited_for else now_s
            until_s = min(now_s + hold_s, began_s + state.settings.hold_max_s)
            if until_s > now_s:
                state.holds[tenant.id] = Hold(
                    began_s, until_s, math.inf if tenant.hold_by_admin else now_s
                )
        self._state.lines.stir_turn(tenant)
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
                self.keep(self._state.tenants[tenant_id], hold_s, now_s)

    def end(self, tenant: Tenant, now_s: Seconds) -> None:
        """Nobody keeps the tenant's turn any more, nor its next one."""
        self._state.changes.of_tenant(tenant)
        ended = self._state.holds.pop(tenant.id, None)
        if self._state.holds_to_come.pop(tenant.id, None) is not None or ended is not None:
            self._state.lines.stir_turn(tenant)
            self._tell(tenant, now_s)

    def outlasts(self, tenant: Tenant, turn: Turn, now_s: Seconds) -> bool:
        """Whether a hold keeps the turn, whose quantum is over. Where it does not, it ends."""
        hold = self._state.holds.get(tenant.id)
        if hold is None or admin_wants_another(self._state, turn):
            return False
        if hold.counts_until_s > now_s:
            return True
        left_s = self._credit_lasts_s(tenant, turn.devices)
        if left_s > 0:
            hold.counts_until_s = now_s + left_s
            self._state.changes.of_tenant(tenant)
            return True
        self.end(tenant, now_s)
        tenant.hold_refused = True
        return False

    def _credit_lasts_s(self, tenant: Tenant, devices: Iterable[DeviceId]) -> Seconds:
        """For how long the owner could use the devices before it is in debt; 0: it is now."""
        accounts, credit_s = self._state.accounts, self._state.settings.credit_s
        left_s = [math.inf]
        for device in devices:
            self._state.lines.charge(device)
            if accounts.has_alone(device, tenant.owner):
                left_s.append(max(credit_s, _ALONE_S))
            else:
                left_s.append(credit_s - accounts.ahead_s(device, tenant.owner))
        return min(left_s) if min(left_s) >= _DEBT_LEAST_S else 0.0

    def tell_to(self, client: Client, now_s: Seconds) -> None:
        """For how long the turn of the client's tenant is kept by hand: from now, or from the
        beginning of the turn that it does not have yet. A hold may be over that no look has ended
        yet."""
        hold = self._state.holds.get(client.tenant)
        to_come_s = self._state.holds_to_come.get(client.tenant, 0.0)
        left_s = to_come_s if hold is None else max(0.0, hold.until_s - now_s)
        self._outbox.put(TellHold(client=client.id, left_s=left_s))

    def _tell(self, tenant: Tenant, now_s: Seconds) -> None:
        for client in tenant.clients.values():
            self.tell_to(client, now_s)
