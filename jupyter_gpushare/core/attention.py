"""Which clients of a device are to be looked at: an index over their shares.

A share tells of each change of its figures (`note`). So the lists here are always right, and a look
at the device costs what there is to do, not what there is.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .ids import ClientId, Seconds, TenantId

if TYPE_CHECKING:
    from .ledger import Share

_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Attention:
    """The shares of one device by what there is to do about them."""

    asking: dict[ClientId, Share] = field(default_factory=dict)
    """A call waits for bytes or has just been given them, or such a need was refused lately."""
    owing: dict[ClientId, Share] = field(default_factory=dict)
    """They have more, or may believe that they may have more, than they were told last."""
    unused: dict[ClientId, Share] = field(default_factory=dict)
    """They may have more than they have."""
    cannot_park: dict[ClientId, Share] = field(default_factory=dict)
    """Movable memory of them stays, since the host has no space for it."""
    changed: dict[ClientId, Share] = field(default_factory=dict)
    """Their figures have changed since the last look."""
    to_show: dict[TenantId, None] = field(default_factory=dict)
    """Tenants whose figures have changed: the list of `Changes`."""
    _by_last_use: list[tuple[Seconds, int, ClientId]] = field(default_factory=list)
    """Those that could release memory."""

    def note(self, share: Share) -> None:
        """The share's figures have changed."""
        client = share.client
        self.changed[client] = share
        self.to_show[share.tenant] = None
        _list(self.asking, share, share.asked_bytes > 0 or share.shortage is not None)
        _list(self.owing, share, share.owes)
        able = not (share.failed or share.silent)
        _list(self.unused, share, able and share.budget_bytes > share.bytes_resident)
        stays = share.bytes_staying > share.bytes_fixed
        _list(self.cannot_park, share, able and stays)
        place = (share.last_use_s, share.number, client) if share.bytes_movable > 0 else None
        if place != share.place_by_use:
            self._move(share, place)

    def _move(self, share: Share, place: tuple[Seconds, int, ClientId] | None) -> None:
        if share.place_by_use is not None:
            del self._by_last_use[bisect_left(self._by_last_use, share.place_by_use)]
        share.place_by_use = place
        if place is not None:
            insort(self._by_last_use, place)

    def forget(self, share: Share) -> None:
        """The share ends."""
        for listed in (self.asking, self.owing, self.unused, self.cannot_park, self.changed):
            listed.pop(share.client, None)
        self._move(share, None)

    def by_last_use(self) -> Iterator[ClientId]:
        """Those that could release memory, the least recently used tenant's first."""
        return (client for _, _, client in self._by_last_use)


def _list(listed: dict[ClientId, Share], share: Share, belongs: bool) -> None:
    if belongs:
        listed[share.client] = share
    else:
        listed.pop(share.client, None)


@dataclass(slots=True, eq=False)
class News:
    """Clients that were told how much they could have at most, and for which that has changed by
    more than they would not notice.

    What a client could have at most follows a figure of the device, `level`, up to constants of its
    own. So each client is good within a band around the level at which it was looked at, and only
    those whose band the level leaves are looked at again."""

    noticed_bytes: int = 0
    """Smaller changes are not told."""
    outdated: dict[ClientId, Share] = field(default_factory=dict)
    """Found outdated at the last look, and perhaps not told since."""
    _bands: dict[ClientId, tuple[int, int]] = field(default_factory=dict)
    _lows: list[tuple[int, ClientId]] = field(default_factory=list)
    _highs: list[tuple[int, ClientId]] = field(default_factory=list)

    def look(
        self,
        shares: dict[ClientId, Share],
        changed: dict[ClientId, Share],
        level: int,
        usable_bytes_for: Callable[[Share], int],
    ) -> None:
        """Find those that are outdated; `changed` are looked at in any case."""
        left = {client: shares[client] for client in self._left(level) if client in shares}
        for client, share in {**self.outdated, **left, **changed}.items():
            self.outdated.pop(client, None)
            if client not in shares or share.failed:
                continue
            off = abs(usable_bytes_for(share) - share.told_usable_bytes)
            slack = self.noticed_bytes - off
            if share.told_usable_bytes < 0 or slack < 0:
                self.outdated[client] = share
            else:
                self._good_between(client, level - slack, level + slack)

    def _good_between(self, client: ClientId, low: int, high: int) -> None:
        if self._bands.get(client) == (low, high):
            return
        self._bands[client] = (low, high)
        heapq.heappush(self._lows, (-low, client))
        heapq.heappush(self._highs, (high, client))
        if len(self._lows) > 2 * len(self._bands) + _STALE_MAX:
            self._lows = [(-each[0], client) for client, each in self._bands.items()]
            self._highs = [(each[1], client) for client, each in self._bands.items()]
            heapq.heapify(self._lows)
            heapq.heapify(self._highs)

    def _left(self, level: int) -> Iterator[ClientId]:
        """Those whose bands do not reach the level."""
        while self._lows and -self._lows[0][0] > level:
            low, client = heapq.heappop(self._lows)
            if self._bands.get(client, (None, None))[0] == -low:
                del self._bands[client]
                yield client
        while self._highs and self._highs[0][0] < level:
            high, client = heapq.heappop(self._highs)
            if self._bands.get(client, (None, None))[1] == high:
                del self._bands[client]
                yield client

    def forget(self, client: ClientId) -> None:
        """The client has closed the device."""
        self.outdated.pop(client, None)
        self._bands.pop(client, None)
