"""Host copies of memory that is still on its device, so that it leaves without being copied
(decision 0033).

A client that thinks copies ahead of need what would leave at first (`bytes_for_one_other`), into
host memory that it has ready for that. Whoever comes back then has the bus for itself. One client
copies at a time, the least recently used one first, and none while memory moves or the holder
copies: its turn would wait for the bus.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ids import ClientId, Seconds
from ..ledger import Share
from ..transitions import ClientState
from .figures import Budgets, Figures

THINKS_S: Seconds = 0.2
"""Who has used the device within this time may be about to run the next cell of many, which would
make the copy worthless."""


@dataclass(frozen=True, slots=True)
class CopiesNow:
    """Who copies now, and what follows."""

    client: ClientId | None = None
    changed: frozenset[ClientId] = frozenset()
    """They have to be told that they are to copy, or that they are not to any more."""
    due_s: tuple[Seconds, ...] = ()
    """When to look again."""


NO_COPIES = CopiesNow()


def who_copies(figures: Figures, budgets: Budgets, *, may_copy: bool) -> CopiesNow:
    """One client at a time, and none while the bus is needed."""
    chosen, due_s = None, None
    if may_copy and _bus_is_free(figures, budgets):
        chosen, due_s = _first(figures)
    now = frozenset() if chosen is None else frozenset({chosen.client})
    return CopiesNow(
        client=None if chosen is None else chosen.client,
        changed=now ^ figures.attention.copying.keys(),
        due_s=() if due_s is None else (due_s,),
    )


def _first(figures: Figures) -> tuple[Share | None, Seconds | None]:
    """Who copies goes on; then comes the least recently used one. Or when there will be one."""
    attention = figures.attention
    for share in sorted(attention.copying.values(), key=_last_use):
        if _may(figures, share) and _copies_from_s(share) <= figures.now_s:
            return share, None
    for client in attention.by_last_use():
        share = figures.shares[client]
        if client in attention.to_copy and _may(figures, share):
            from_s = _copies_from_s(share)
            return (share, None) if from_s <= figures.now_s else (None, from_s)
    return None, None


def _may(figures: Figures, share: Share) -> bool:
    """It thinks, and has something to copy. Others would wait for one that was stopped."""
    client = figures.tenants[share.tenant].clients[share.client]
    thinks = client.state is ClientState.IDLE and share.tenant not in figures.ranks
    if client.frozen or not thinks:
        return False
    return share.bytes_movable > share.copies.bytes_made


def _copies_from_s(share: Share) -> Seconds:
    return share.last_use_s + THINKS_S


def _last_use(share: Share) -> tuple[Seconds, int]:
    return share.last_use_s, share.number


def _bus_is_free(figures: Figures, budgets: Budgets) -> bool:
    """No memory comes back."""
    if figures.recovering or any(each.bytes_parked for each in figures.holding):
        return False
    return not any(budgets.beyond(share, share.bytes_resident) for share in figures.ahead)
