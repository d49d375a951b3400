"""Whose memory leaves a device for somebody else's, and how much of it (decision 0025).

A little memory comes back unseen while another tenant computes; all of a notebook's memory takes
long. So tenants that are about equally likely to come next give a part each. Who has been idle for
longer is less likely to come next, and gives more: what is parked of each is to grow with the
square of its idle time and `IDLE_AT_LEAST_S`. Idle times count up to the last end of a turn here,
so that the parts do not change while they leave.

The parts follow from what each has parked already. So they stay the same while some release their
parts before others, and nobody is asked for more because it was fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..ahead import STEP_BYTES
from ..ids import ClientId, Seconds
from ..ledger import Share

if TYPE_CHECKING:
    from ..budgets import Budgets, Figures

VICTIMS_MAX = 8
"""So many share what is short, those that have been idle for longest. A report of anybody is looked
at meanwhile, and a look costs as much as there are of them."""
IDLE_AT_LEAST_S: Seconds = 6.0
"""Who has just been served may think for as long as anybody."""
_CRUMB_SHARE = 32
"""On a small device nobody is asked anew for less than this part of it."""
_GRANULE_SHARE = 32
"""Of that; parts are rounded to it, so that a look that finds almost the same changes nothing."""


class Victim(NamedTuple):
    """A client that could release memory. Its parked bytes are to be in proportion to `weight`."""

    weight: float
    bytes_parked: int
    bytes_movable: int
    is_asked: bool
    """It parks already."""


# ---- how much of each -----------------------------------------------------------------------


def parts(victims: Sequence[Victim], lack: int, crumb: int) -> list[int]:
    """What each of them parks of `lack`, at most what it can. Nobody is asked anew for less than
    `crumb`, where others can give it. What is short beyond that, others give."""
    granule = max(1, crumb // _GRANULE_SHARE)
    found = _filled(victims, lack, granule)
    keeps = [
        part >= crumb or (victim.is_asked and part > 0)
        for victim, part in zip(victims, found, strict=True)
    ]
    if not any(keeps):
        largest = sorted(range(len(victims)), key=lambda place: -found[place])
        chosen = largest[: max(1, lack // max(1, crumb))]
        keeps = [place in chosen for place in range(len(victims))]
    kept = [victim for victim, keep in zip(victims, keeps, strict=True) if keep]
    if len(kept) < sum(part > 0 for part in found):
        again = iter(_filled(kept, lack, granule))
        found = [next(again) if keep else 0 for keep in keeps]
    return found


def _filled(victims: Sequence[Victim], lack: int, granule: int) -> list[int]:
    """As water rises in vessels: each is as wide as its weight, filled with what it has parked, and
    as high as what it can park beyond that. `lack` is poured in."""
    if lack >= sum(victim.bytes_movable for victim in victims):
        return [victim.bytes_movable for victim in victims]
    level, left = _level(victims, lack), lack
    found = []
    for victim in victims:
        found.append(min(left, _part(victim, level, granule)))
        left -= found[-1]
    return found


def _level(victims: Sequence[Victim], lack: int) -> float:
    """How high the water stands then. They have room for it."""
    edges: list[tuple[float, float]] = []
    for weight, parked, movable, _ in victims:
        edges.append((parked / weight, weight))
        edges.append(((parked + movable) / weight, -weight))
    level, width, left = 0.0, 0.0, float(lack)
    for height, more in sorted(edges):
        if width > 0 and left <= (height - level) * width:
            return level + left / width
        left -= (height - level) * width
        level, width = height, width + more
    return level


def _part(victim: Victim, level: float, granule: int) -> int:
    """What it has parked then is rounded up, so that all together give enough."""
    wanted = level * victim.weight
    if wanted <= victim.bytes_parked:
        return 0
    parked = math.ceil(wanted / granule) * granule
    return min(parked - victim.bytes_parked, victim.bytes_movable)


# ---- who is asked ---------------------------------------------------------------------------


def victims_are_asked(
    figures: Figures, budgets: Budgets, missing: int, ahead: int
) -> tuple[Budgets, int]:
    """Clients without a turn park what is missing; a client that was asked for more than that is
    told to stop. Answers also with what nobody can give. What came back ahead leaves first, since
    the host still has it, and is not asked to make space for what else comes back ahead."""
    to_release = sum(each.bytes_wanted - each.bytes_released for each in figures.pending)
    left = 0 if figures.recovering else max(0, missing, to_release)
    holding = {share.client for share in figures.holding}
    spared_tenants = {share.tenant for share in figures.holding}
    spared_clients = {request.client for request in figures.pending}
    given: dict[ClientId, int] = {}

    def could_give(share: Share) -> int:
        if share.tenant in spared_tenants or share.client in spared_clients:
            return 0
        return share.bytes_movable - given.get(share.client, 0)

    def ask(share: Share, count: int) -> int:
        more = min(count, could_give(share))
        if more > 0:
            given[share.client] = given.get(share.client, 0) + more
        return max(0, more)

    def share_out(lack: int) -> int:
        able = islice(
            (each for each in _longest_idle(figures) if could_give(each) > 0), VICTIMS_MAX
        )
        return _shared_out(figures, list(able), lack, given, ask) if lack else 0

    for client in figures.attention.came_ahead:
        if not left:
            break
        left -= ask(figures.shares[client], min(left, figures.shares[client].bytes_ahead))
    left -= share_out(left)
    for share in _longest_idle(figures):
        if not left:
            break
        left -= ask(share, left)
    spared_tenants |= {share.tenant for share in figures.ahead}
    if not left and not figures.recovering:
        share_out(ahead)
    if not figures.recovering:
        given.update((share.client, share.bytes_movable) for share in figures.to_evict)
    told: dict[ClientId, int] = {}
    keeping = holding | {share.client for share in figures.ahead}
    asked_before = (each.client for each in figures.owing if each.client not in keeping)
    for client in {*given, *asked_before}:
        share = figures.shares[client]
        if share.silent or share.failed:
            continue
        budget = share.bytes_resident - given.get(client, 0)
        more = budget - budgets.of(share)
        if more < 0 or more >= STEP_BYTES or (more > 0 and client not in given):
            told[client] = budget
    return budgets.with_told(told), left


def _longest_idle(figures: Figures) -> Iterator[Share]:
    """Those that could release memory, in this order."""
    return (figures.shares[client] for _, _, client in figures.attention.by_last_use())


def _shared_out(
    figures: Figures,
    shares: Sequence[Share],
    lack: int,
    given: dict[ClientId, int],
    ask: Callable[[Share, int], int],
) -> int:
    """These are asked for their parts of what is short; how much of it they give."""
    if not shares:
        return 0
    latest_s, _, _ = figures.attention.by_last_use()[-1]
    victims = [
        Victim(
            (latest_s - share.last_use_s + IDLE_AT_LEAST_S) ** 2,
            share.bytes_parked + given.get(share.client, 0),
            share.bytes_movable - given.get(share.client, 0),
            share.client in figures.attention.owing,
        )
        for share in shares
    ]
    crumb = min(STEP_BYTES, figures.bytes_usable // _CRUMB_SHARE)
    asked = parts(victims, lack, crumb)
    return sum(ask(share, part) for share, part in zip(shares, asked, strict=True))
