"""What outlives a scheduler: what its owners owe, their credits, and what their tenants have had of
late. Virtual times do not (decision 0014, "Over a restart")."""

from __future__ import annotations

from .events import OwnerRemembered
from .ids import Seconds
from .state import State


def remember(state: State, event: OwnerRemembered) -> None:
    """Of a scheduler before this one."""
    state.note_owner(event.owner, None)
    state.accounts.remember(event.owner, event.credit_s, dict(event.debts))
    used = {(tenant, device): used_s for tenant, device, used_s in event.used}
    state.accounts.recent.remember(event.owner, used, state.accounts.now_s)


def to_remember(state: State, now_s: Seconds) -> list[OwnerRemembered]:
    """Of the owners that owe something at this time, have not all of their credit, or have had
    something of late. Nothing is changed."""
    accounts, most_s = state.lines.accounts_at(now_s), state.settings.credit_s
    debts = accounts.debts()
    used = accounts.recent.to_remember(now_s)
    found = []
    for name in accounts.owners:
        accounts.fill_credit(name, state.devices, most_s)
        left_s, owed = accounts.owners[name].credit_s, debts.get(name, {})
        if owed or left_s < most_s or name in used:
            had = tuple((*who, used_s) for who, used_s in used.get(name, {}).items())
            debt = tuple(owed.items())
            found.append(OwnerRemembered(owner=name, credit_s=left_s, debts=debt, used=had))
    return found
