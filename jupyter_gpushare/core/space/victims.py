"""Whose memory leaves a device for others, and how much of each (decision 0025).

Some of a restore comes back while another cell computes, so a small one costs nothing and a large
one a wait: a part of everybody's memory costs less than all of somebody's. Whoever has been idle
for longer is less likely to be next. So those who could be next park in proportion to how long ago
they had a turn, up to all that they have; who has been idle for hours parks all before others park
much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ..ids import Seconds

if TYPE_CHECKING:
    from ..ledger import Share

TOGETHER_MAX = 8
"""So many park for one need, unless they have too little: a look costs as much as there are of
them."""
AS_IF_IDLE_S = 10.0
"""Whoever had the last turn of them counts as idle for so long. A notebook in use comes back within
some such time."""
PART_BYTES_LEAST = 64 << 20
"""Nobody is asked for less, where others can give it."""
_PART_SHARE = 64
"""On a small device this part of it is the least."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Somebody without a turn: the end of its last one, what it has parked, and what it could."""

    last_use_s: Seconds
    bytes_parked: int
    bytes_able: int


def parts(candidates: Sequence[Candidate], count: int, least: int) -> list[int]:
    """How many bytes of each are to leave, so that `count` do, or all that can. The least recently
    used come first. Nobody is asked for less than `least` where the others have enough."""
    asked = list(range(len(candidates)))
    while True:
        found = _in_proportion([candidates[i] for i in asked], count)
        small = [i for i, part in zip(asked, found, strict=True) if 0 < part < least]
        if not small or sum(candidates[i].bytes_able for i in asked if i != small[-1]) < count:
            break
        asked.remove(small[-1])
    by_place = dict(zip(asked, found, strict=True))
    return [by_place.get(i, 0) for i in range(len(candidates))]


def _in_proportion(candidates: Sequence[Candidate], count: int) -> list[int]:
    """All have parked as many bytes for each second since their last use, then, as far as they
    could; who has parked more already parks no more."""
    newest_s = max((each.last_use_s for each in candidates), default=0.0)
    weights = [newest_s - each.last_use_s + AS_IF_IDLE_S for each in candidates]
    if sum(each.bytes_able for each in candidates) <= count:
        return [each.bytes_able for each in candidates]
    pairs = list(zip(candidates, weights, strict=True))

    def given(level: float) -> list[float]:
        """With so many bytes parked for each second."""
        return [
            min(max(level * weight - each.bytes_parked, 0.0), float(each.bytes_able))
            for each, weight in pairs
        ]

    turns = sorted(
        level
        for each, weight in pairs
        for level in (each.bytes_parked / weight, (each.bytes_parked + each.bytes_able) / weight)
    )
    low = high = turns[0]
    for level in turns:
        low, high = high, level
        if sum(given(level)) >= count:
            break
    at_low, at_high = sum(given(low)), sum(given(high))
    part = (count - at_low) / (at_high - at_low) if at_high > at_low else 1.0
    found = [int(bytes_) for bytes_ in given(low + (high - low) * part)]
    lacking = count - sum(found)  # of rounding
    for place, each in enumerate(candidates):
        more = min(max(lacking, -found[place]), each.bytes_able - found[place])
        found[place] += more
        lacking -= more
    return found


def leaving(
    shares: Iterable[Share], able: Callable[[Share], int], count: int, bytes_usable: int
) -> Iterator[tuple[Share, int]]:
    """Shares, and how many bytes of each are to leave; `TOGETHER_MAX` of them at a time, until
    `count` bytes are found. The shares come with the least recently used first; `able` says what
    one could release."""
    least = min(PART_BYTES_LEAST, bytes_usable // _PART_SHARE)
    movable = ((share, most) for share in shares if (most := able(share)) > 0)
    while count > 0 and (batch := list(islice(movable, TOGETHER_MAX))):
        candidates = [Candidate(s.last_use_s, s.bytes_parked, most) for s, most in batch]
        for (share, _), part in zip(batch, parts(candidates, count, least), strict=True):
            if part:
                count -= part
                yield share, part
