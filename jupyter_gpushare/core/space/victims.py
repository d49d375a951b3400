"""Whose memory leaves the device, and in which order (decision 0032).

What came back ahead of a turn leaves first, since the host still has it. Then comes the memory of
tenants that think, the least recently used first. One that has had a turn within the last minute
parks a third of what it has at first, and more only where that is not enough of all of them: nobody
knows which of them will be next, and a third is soon back. Those of whose memory the host has
copies are the first of these (copiers.py). Who waits for a turn is last, whoever is served last
first. Whoever has been asked goes on before others are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ..ids import ClientId, Seconds
from ..ledger import Share
from .ahead import STEP_BYTES
from .figures import Budgets, Figures

VICTIMS_AHEAD_MAX = 4
"""So many park at a time for what comes back ahead: a report of anybody is looked at meanwhile, and
a look costs as much as there are of them."""
AWAY_S: Seconds = 60.0
"""Who has used the device within this time may be back at any moment."""
PART = 3
"""Of what such a tenant's process has, so large a part leaves at first,"""
PART_BYTES_MIN = 1 << 30
"""or so much: it is back in some 20 ms."""


def part_bytes(share: Share) -> int:
    """How much leaves at first of a client that has just been used."""
    return max(share.bytes_allocated // PART, PART_BYTES_MIN)


def bytes_for_one_other(share: Share, others: int, bytes_allocated: int, bytes_beyond: int) -> int:
    """How much of the client's memory would have to leave if one other came back with all that it
    has, and the rest parked their parts. All clients together have allocated `bytes_allocated`, so
    much more than is usable. The other one is taken for one of the same size, or of the size that
    the `others` have on average if that is more."""
    bytes_of_others = bytes_allocated - share.bytes_allocated
    one_other = max(share.bytes_allocated, bytes_of_others // max(1, others))
    parts = max(0, bytes_of_others - one_other) // PART
    movable = share.bytes_allocated - share.bytes_fixed
    return max(0, min(movable, bytes_beyond, max(part_bytes(share), bytes_beyond - parts)))


def _in_order(figures: Figures) -> Iterator[tuple[Share, int | None]]:
    """The clients that can release memory, and how much at most each one releases at that place.
    Nobody looks at more of them than are asked."""
    yield from _asked_already(figures)
    for share in _thinking(figures):
        if not _is_away(figures, share):
            break
        yield share, None
    for share in _with_copies(figures):
        if share.tenant not in figures.ranks and not _is_away(figures, share):
            yield share, _rest_of_part(share)
    for share in _thinking(figures):
        if share.client not in figures.attention.copied and not _is_away(figures, share):
            yield share, _rest_of_part(share)
    for share in _thinking(figures):
        yield share, None
    listed = (figures.shares[client] for client in figures.attention.by_last_use())
    queued = [share for share in listed if share.tenant in figures.ranks]
    queued.sort(key=lambda share: figures.ranks[share.tenant], reverse=True)
    for share in queued:
        yield share, None


def _with_copies(figures: Figures) -> Iterator[Share]:
    """In the same order: they leave at once."""
    copied = figures.attention.copied
    if copied:
        found = (client for client in figures.attention.by_last_use() if client in copied)
        yield from (figures.shares[client] for client in islice(found, len(copied)))


def _thinking(figures: Figures) -> Iterator[Share]:
    """Those that wait for no turn, the least recently used first."""
    for client in figures.attention.by_last_use():
        share = figures.shares[client]
        if share.tenant not in figures.ranks:
            yield share


def _asked_already(figures: Figures) -> Iterator[tuple[Share, int]]:
    """Who has been asked goes on, also when others have more copies meanwhile than it has: else it
    would be told to stop, and another one asked in its place."""
    asked = [share for share in figures.owing if share.tenant not in figures.ranks]
    for share in sorted(asked, key=lambda share: (share.last_use_s, share.number)):
        to_leave = share.bytes_resident - share.budget_bytes
        yield share, to_leave if _is_away(figures, share) else min(to_leave, _rest_of_part(share))


def _is_away(figures: Figures, share: Share) -> bool:
    return figures.now_s - share.last_use_s >= AWAY_S


def _rest_of_part(share: Share) -> int:
    return part_bytes(share) - share.bytes_parked


def victims_are_asked(
    figures: Figures, budgets: Budgets, missing: int, ahead: int
) -> tuple[Budgets, int]:
    """Clients without a turn park what is missing; a client that was asked for more than that is
    told to stop. Answers also with what nobody can give. Who has the next turn is not asked to make
    space for what comes back ahead."""
    to_release = sum(max(0, each.bytes_wanted - each.bytes_released) for each in figures.pending)
    left = 0 if figures.recovering else max(0, missing, to_release)
    holding = {share.client for share in figures.holding}
    spared_tenants = {share.tenant for share in figures.holding}
    spared_clients = {request.client for request in figures.pending}
    given: dict[ClientId, int] = {}

    def ask(share: Share, count: int, most: int | None = None) -> int:
        """Answers with how many of these bytes it releases; `most`: of its own in all."""
        if share.tenant in spared_tenants or share.client in spared_clients:
            return 0
        has = share.bytes_movable if most is None else min(most, share.bytes_movable)
        more = max(0, min(count, has - given.get(share.client, 0)))
        if more:
            given[share.client] = given.get(share.client, 0) + more
        return more

    for client in figures.attention.came_ahead:
        if not left:
            break
        share = figures.shares[client]
        left -= ask(share, min(left, share.bytes_ahead))
    if left:
        for share, most in _in_order(figures):
            left -= ask(share, left, most)
            if not left:
                break
    spared_tenants |= {share.tenant for share in figures.ahead}
    ahead, asked = (0, 0) if left or figures.recovering else (ahead, len(given))
    if ahead:
        for share, most in _in_order(figures):
            ahead -= ask(share, ahead, most)
            if not ahead or len(given) >= asked + VICTIMS_AHEAD_MAX:
                break
    if not figures.recovering:
        given.update((share.client, share.bytes_movable) for share in figures.to_evict)
    keeping = holding | {share.client for share in figures.ahead}
    asked_before = (each.client for each in figures.owing if each.client not in keeping)
    told: dict[ClientId, int] = {}
    for client in {*given, *asked_before}:
        share = figures.shares[client]
        if share.silent or share.failed:
            continue
        budget = share.bytes_resident - given.get(client, 0)
        more = budget - budgets.of(share)
        if more < 0 or more >= STEP_BYTES or (more > 0 and client not in given):
            told[client] = budget
    return budgets.with_told(told), left
