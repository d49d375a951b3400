"""How long cells have been lately, and how often new ones come: what estimates are made of.

A cell's length is the device time of its turns. Lengths are counted in bins, each longer than the
one before by the same factor: of everybody with older ones fading, of an owner and of a tenant the
last few. A tenant whose own cells are few is judged by its owner's, and that one by everybody's.

A tenant may say what it likes about its cells. It moves what is said of itself, and of everybody
by one cell of many; all is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from .ids import DeviceId, Seconds

_SHORTEST_S: Seconds = 0.02
_BINS_PER_DOUBLING = 2
BINS = 48
"""Up to four days."""
TENANT_CELLS = 16
OWNER_CELLS = 32
OWNERS_MAX = 10_000
_FADES_OVER_CELLS = 512
"""So many of everybody's last cells count."""
_RATE_OVER_S: Seconds = 300.0
"""New cells of a device are counted over so long."""
_EVERYBODY_COUNTS = 8.0
_OWNER_COUNTS = 0.5
_UNSEEN = 0.1
"""What of a cell counts in each bin in which none was: so a length that nobody has seen is as
probable as another one of the same number of digits."""

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)
Quantiles = tuple[Seconds, ...]
"""Of something, at `LEVELS`."""

EDGES: tuple[Seconds, ...] = tuple(
    _SHORTEST_S * 2 ** (number / _BINS_PER_DOUBLING) for number in range(BINS + 1)
)


def bin_of(length_s: Seconds) -> int:
    """The bin that counts such a cell."""
    if not length_s > _SHORTEST_S:
        return 0
    return int(min(BINS - 1, _BINS_PER_DOUBLING * math.log2(length_s / _SHORTEST_S)))


@dataclass(slots=True)
class Rate:
    """How often new cells use a device, and what memory comes back for each."""

    count: float = 0.0
    at_s: Seconds = 0.0
    since_s: Seconds = 0.0

    def note(self, now_s: Seconds) -> None:
        """One more."""
        self.count = self.count * math.exp((self.at_s - now_s) / _RATE_OVER_S) + 1
        self.at_s = now_s

    def per_s(self, now_s: Seconds) -> float:
        """In the last minutes, or since the first look."""
        count = self.count * math.exp((self.at_s - now_s) / _RATE_OVER_S)
        return count / (_RATE_OVER_S * -math.expm1(-(now_s - self.since_s + 30) / _RATE_OVER_S))


@dataclass(slots=True)
class Habits:
    """Of all that use the devices of a node."""

    everybody: list[float] = field(default_factory=lambda: [0.0] * BINS)
    of_owner: dict[str, bytes] = field(default_factory=dict)
    """The bins of its last cells. Of too many owners, one is forgotten."""
    rates: dict[DeviceId, Rate] = field(default_factory=dict)

    def cell_ended(
        self,
        owner: str,
        last_cells: bytes,
        used_s: Seconds,
        devices: Iterable[DeviceId],
        now_s: Seconds,
    ) -> bytes:
        """A cell has used these devices for so long; the answer is the tenant's last cells, with
        this one."""
        number = bin_of(used_s)
        self.everybody = [count * (1 - 1 / _FADES_OVER_CELLS) for count in self.everybody]
        self.everybody[number] += 1
        mark = bytes([number])
        self.of_owner[owner] = (self.of_owner.get(owner, b"") + mark)[-OWNER_CELLS:]
        if len(self.of_owner) > OWNERS_MAX:
            del self.of_owner[next(iter(self.of_owner))]
        for device in devices:
            self.rates.setdefault(device, Rate(since_s=now_s)).note(now_s)
        return (last_cells + mark)[-TENANT_CELLS:]

    def new_cells_per_s(self, device: DeviceId, now_s: Seconds) -> float:
        rate = self.rates.get(device)
        return 0.0 if rate is None else rate.per_s(now_s)

    def counts(self, owner: str = "", last_cells: bytes = b"") -> list[float]:
        """In how many cells of each length the next one of such a tenant counts."""
        total = sum(self.everybody) + _UNSEEN * BINS
        part = _EVERYBODY_COUNTS / total
        counts = [(count + _UNSEEN) * part for count in self.everybody]
        for number in self.of_owner.get(owner, b""):
            counts[number] += _OWNER_COUNTS
        for number in last_cells:
            counts[number] += 1
        return counts


UNKNOWN_LENGTHS = [1.0] * BINS
"""Of programs, whose ends nobody sees."""


def remaining(counts: list[float], used_s: Seconds) -> Quantiles:
    """How much longer a cell goes on that has used so much, if lengths are as these counts say."""
    first = bin_of(used_s)
    within = 1.0
    if used_s > EDGES[first]:
        within = max(0.0, 1 - _BINS_PER_DOUBLING * math.log2(used_s / EDGES[first]))
    start_s = max(used_s, EDGES[first]) if within else used_s
    mass = counts[first] * within
    total = mass + sum(counts[first + 1 :])
    found: list[Seconds] = []
    below, number = 0.0, first
    bottom_s = start_s
    for level in LEVELS:
        wanted = level * total
        while number < BINS - 1 and below + mass < wanted:
            below += mass
            number += 1
            mass, bottom_s = counts[number], EDGES[number]
        part = min(1.0, max(0.0, (wanted - below) / mass)) if mass > 0 else 1.0
        top_s = max(bottom_s, EDGES[number + 1])
        found.append(max(0.0, bottom_s * (top_s / bottom_s) ** part - used_s) if bottom_s else 0.0)
    return tuple(found)
