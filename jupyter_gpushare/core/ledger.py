"""A device's memory: how much there is and whose it is. Bookkeeping only: nothing here decides.

A client is *charged* what it reported to have on the device or the largest budget that it may
still believe in, whichever is more. So whatever is on its way between us and the clients, no more
is ever given out than there is.

Bytes on a device that no client has allocated are *foreign*. They are not seen directly: the device
tells its used bytes, the clients tell theirs, and neither at the same moment. Between two samples a
client had at least the least that it reported, and at most its charge and what is kept for it. So
each sample bounds the foreign bytes from both sides, and the earlier belief stands where it lies
between the bounds. Foreign bytes that grow inside the bounds are seen when the clients rest: when
nobody has reported a change for `SETTLED_S`, the smallest of the samples since then is believed.

A part of them are *contexts*: what the CUDA contexts of clients take, modules and the driver's own
included. No client reports it. The driver says how much each process has there in all, and the
client says how much it has allocated. They say so at different moments, so the difference is
believed when both have been the same for `SETTLED_S`. Until that is so for the first time, the
least that was seen is believed.

A share tells of each change (`Attention.note`): a look costs what there is to do, and no more.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .ids import ClientId, Seconds, TenantId
from .space.requests import SpaceRequest

UNLIMITED_BYTES = 2**64 - 1
"""The budget of everybody while memory stays where it is."""
BELIEVED_MAX = 64
"""Budgets that a client may not have heard are kept one by one up to this many. An honest client is
never so far behind; one that never answers would cost more with each budget."""
SETTLED_S = 0.3
"""Clients report allocations within 0.1 s, so what has been so for this long misses none."""
ENDED_S = 5.0
"""By then the driver has given back what a process had that has ended. Before, nobody can tell that
from what the driver keeps of others."""
_STALE_MAX = 64


@dataclass(slots=True, eq=False)
class Context:
    """What the contexts of one client take."""

    bytes: int = 0
    """As it is believed."""
    bytes_process: int = 0
    """What its process has there in all, as the driver said last."""
    bytes_resident: int = 0
    """What of it the client had reported then."""
    same_since_s: Seconds = math.inf
    """Since when both are so; in the time to come: the driver has said nothing yet."""
    has_settled: bool = False


@dataclass(slots=True, eq=False)
class Copies:
    """What the host has copies of while it is still on its device (decision 0033): of one client's
    memory on one device."""

    bytes: tuple[int, int] = (0, 0)
    """Of what is there and can leave, how much has one; how much more the client would copy."""
    told: bool = False
    """It was told to, and not since that the bus is needed."""

    @property
    def bytes_made(self) -> int:
        return self.bytes[0]


@dataclass(slots=True, eq=False)
class Attention:
    """The shares of one device by what there is to do about them."""

    asking: dict[ClientId, Share] = field(default_factory=dict)
    """A call waits for bytes or has just been given them, or such a need was refused lately."""
    owing: dict[ClientId, Share] = field(default_factory=dict)
    """They have more, or may believe that they may have more, than they were told last."""
    unused: dict[ClientId, Share] = field(default_factory=dict)  # they may have more
    cannot_park: dict[ClientId, Share] = field(default_factory=dict)  # the host has no space for it
    came_ahead: dict[ClientId, Share] = field(default_factory=dict)
    to_copy: dict[ClientId, Share] = field(default_factory=dict)  # to the host, ahead of need
    copying: dict[ClientId, Share] = field(default_factory=dict)  # of these, who was told to
    copied: dict[ClientId, Share] = field(default_factory=dict)  # who has copies, and could park
    in_vain: dict[ClientId, Share] = field(default_factory=dict)  # their tenant waited so
    changed: dict[ClientId, Share] = field(default_factory=dict)  # since the last look
    to_show: dict[TenantId, None] = field(default_factory=dict)  # the list of `Changes`
    _by_last_use: list[tuple[Seconds, int, ClientId]] = field(default_factory=list)  # could park

    def note(self, share: Share) -> None:
        """The share's figures have changed."""
        client = share.client
        self.changed[client] = share
        self.to_show[share.tenant] = None
        asks = share.needed_bytes or share.granted_bytes or share.shortage is not None
        _list(self.asking, share, bool(asks))
        _list(self.owing, share, share.bytes_charged > share.budget_bytes)
        able = not (share.failed or share.silent)
        _list(self.unused, share, able and share.budget_bytes > share.bytes_resident)
        _list(self.came_ahead, share, share.bytes_ahead > 0)
        copied, to_copy = share.copies.bytes
        _list(self.to_copy, share, to_copy > 0 and not share.failed)
        _list(self.copying, share, share.copies.told and client in self.to_copy)
        _list(self.copied, share, min(copied, share.bytes_movable) > 0)
        _list(self.cannot_park, share, able and share.bytes_staying > share.bytes_fixed)
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
        lists = (self.asking, self.owing, self.unused, self.came_ahead, self.cannot_park)
        copies = (self.to_copy, self.copying, self.copied)
        for listed in (*lists, *copies, self.in_vain, self.changed):
            listed.pop(share.client, None)
        self._move(share, None)

    def by_last_use(self) -> Iterator[ClientId]:
        """Those that could release memory, the least recently used tenant's first."""
        return (client for _, _, client in self._by_last_use)


def _list(listed: dict[ClientId, Share], share: Share, belongs: bool) -> None:
    if belongs:
        listed[share.client] = share
    elif listed:
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


@dataclass(slots=True, eq=False)
class Shortage:
    """Upper bound on what a client could have had at any time since `since_s`."""

    since_s: Seconds
    most_bytes: int


@dataclass(slots=True)
class Totals:
    """Sums over all shares of a device, kept up to date by the shares themselves."""

    bytes_allocated: int = 0
    bytes_resident: int = 0
    bytes_charged: int = 0
    bytes_staying: int = 0
    bytes_taken: int = 0
    """As resident, but the charges of those that are silent."""
    bytes_kept: int = 0


Counts = tuple[int, int, int, int, int, int]


@dataclass(slots=True, eq=False)
class Share:
    """The memory of one client on one device that it opened, and its budget there."""

    client: ClientId
    tenant: TenantId
    totals: Totals
    attention: Attention
    number: int = 0
    """Counts the shares of the device in the order in which they came."""
    last_use_s: Seconds = 0.0  # when its tenant's last turn ended
    place_by_use: tuple[Seconds, int, ClientId] | None = None
    """Where it stands in `attention`, if it could release memory."""
    bytes_allocated: int = 0
    bytes_parked: int = 0
    bytes_fixed: int = 0
    bytes_parkable: int = 0
    host_limit: int = 0  # whose limit lets no more be parked (space/exchange.py)
    bytes_kept: int = 0  # on the device of what is parked, at most; others may have it at any time
    failed: bool = False
    bytes_resident: int = 0  # allocated and not parked
    bytes_ahead: int = 0  # of these, what came back ahead of a turn
    budget_bytes: int = 0  # the last that it was told
    bytes_charged: int = 0
    needed_bytes: int = 0
    """Bytes that a call of it waits for."""
    need_id: int = 0  # the client's own number for what was needed last
    met_id: int = 0  # and of the last need of this turn that it could have
    bytes_asked_for: int = 0
    """The most that it had to ask for since its last turn, and had then: it may again."""
    granted_bytes: int = 0
    """What it needed and may have now, until it reports it; if its turn ends, it needs it again."""
    need_short_since_s: Seconds | None = None  # others keep it from what it needs
    lacked_s: Seconds = 0.0
    room_since_s: Seconds = 0.0
    """For how long they did so in moments before that add up, and since when they do not."""
    shortage: Shortage | None = None
    """How long others have kept it from what it needs; kept after a need was refused."""
    progress_at_s: Seconds = 0.0
    """When it last did what its budget asks of it, or was first asked."""
    silent: bool = False
    """It owes memory, and has made no progress for `park_timeout_s`."""
    bytes_movable: int = 0  # they would leave the device if the client were asked,
    bytes_staying: int = 0  # and these would not
    context: Context = field(default_factory=Context)
    copies: Copies = field(default_factory=Copies)
    told_usable_bytes: int = -1
    told_hint_bytes: int = 0
    told_at_s: Seconds = 0.0
    _counted: Counts = (0, 0, 0, 0, 0, 0)
    """What this share has added to the totals."""
    _believed: deque[tuple[int, int]] = field(default_factory=lambda: deque([(0, 0)]))
    """Serials and budgets; it has heard the first, and may have heard any of the others."""

    @property
    def owes(self) -> bool:
        """It has more, or may believe that it may have more, than it was told last."""
        return self.bytes_charged > self.budget_bytes

    @property
    def bytes_own(self) -> int:
        """Its resident bytes when all that can come back has come back."""
        return self.bytes_resident if self.failed else self.bytes_allocated

    @property
    def asked_bytes(self) -> int:
        """Bytes that a call of it asked for, whether or not it may have them yet."""
        return self.needed_bytes or self.granted_bytes

    @property
    def has_heard(self) -> bool:
        """It has answered the last that it was told."""
        return len(self._believed) == 1

    def is_awaited(self, *, holds: bool) -> bool:
        """It is to release memory, or to say that it has heard of a smaller budget. With a turn it
        keeps what it has, and only the hearing is awaited."""
        if self.silent or self.failed or not self.owes:
            return False
        return not self.has_heard or not holds

    def told(self, serial: int, budget_bytes: int) -> None:
        self._believed.append((serial, budget_bytes))
        if len(self._believed) > BELIEVED_MAX:  # the two oldest that it may hear become one
            _, budget = self._believed[1]
            del self._believed[1]
            self._believed[1] = (self._believed[1][0], max(budget, self._believed[1][1]))
        self.budget_bytes = budget_bytes
        self._count()

    def reported(
        self, *, allocated: int, parked: int, fixed: int, parkable: int, serial: int, kept: int = 0
    ) -> None:
        """It has this, and has heard the budget with this serial."""
        if allocated - self.bytes_allocated >= self.granted_bytes:
            self.granted_bytes = 0
        self.bytes_allocated = allocated
        self.bytes_parked = min(parked, allocated)
        self.bytes_resident = allocated - self.bytes_parked
        self.bytes_fixed = min(fixed, self.bytes_resident)
        self.bytes_parkable, self.bytes_kept = parkable, min(kept, self.bytes_parked)
        if serial <= self._believed[-1][0]:  # else it speaks of a connection before this one
            while len(self._believed) > 1 and self._believed[1][0] <= serial:
                self._believed.popleft()
        if self.failed:
            self._gets_no_more()
        self._count()

    def came_ahead(self, count: int) -> None:
        """So many bytes have come back without a turn, or have left again (negative)."""
        self.bytes_ahead = max(0, min(self.bytes_ahead + count, self.bytes_resident))
        self.attention.note(self)

    @property
    def heard_serial(self) -> int:
        """Of the last budget that it has answered."""
        return self._believed[0][0]

    def note_need(self, count: int, need_id: int = 0) -> None:
        """A call waits for `count` more bytes; 0: no longer."""
        if count != self.needed_bytes:
            self.need_short_since_s = None
        if (need_id, count) != (self.need_id, self.needed_bytes):
            self.lacked_s = 0.0
        self.need_id = need_id if count else self.need_id
        self.needed_bytes, self.granted_bytes = count, 0
        self.attention.note(self)

    def grant_need(self) -> None:
        """It was told that it may have what it needs. It says whether it takes it, or only says the
        same need once more."""
        if self.asked_bytes and not 0 < self.need_id == self.met_id:
            self.met_id, asked = self.need_id, self.bytes_allocated + self.asked_bytes
            self.bytes_asked_for = max(self.bytes_asked_for, asked)
        self.granted_bytes, self.needed_bytes = self.asked_bytes, 0
        self.need_short_since_s = None
        self.attention.note(self)

    def note_shortage(self, shortage: Shortage | None) -> None:
        """For how long others have kept it from what it needs; None: they do not."""
        if shortage is None:
            self.need_short_since_s = None
        self.shortage = shortage
        self.attention.note(self)

    def used_until(self, at_s: Seconds) -> None:
        """Its tenant's turn has ended."""
        self.last_use_s = at_s
        self.attention.note(self)

    def need_anew(self) -> None:
        """It needs once more what it was granted and has not reported."""
        self.needed_bytes, self.granted_bytes = self.asked_bytes, 0
        self.attention.note(self)

    def dropped(self) -> None:
        """It gave its turn back: what it had heard has become what it has. It may hear more."""
        self.need_anew()
        serial, _ = self._believed[0]
        self._believed[0] = (serial, self.bytes_resident)
        self.budget_bytes = self._believed[-1][1]
        self.bytes_ahead = self.bytes_asked_for = self.met_id = 0
        self.copies.told = False  # as the client takes it
        self._count()

    def fail(self) -> None:
        """Its context is gone, and it creates nothing there any more. A call that waits is told."""
        self.failed = True
        self.need_anew()
        self._gets_no_more()
        self._count()

    def _gets_no_more(self) -> None:
        self._believed = deque([(self._believed[-1][0], self.bytes_resident)])
        self.budget_bytes = self.bytes_resident

    def falls_silent(self, silent: bool) -> None:
        self.silent = silent
        self._count()

    def _count(self) -> None:
        charged = resident = self.bytes_resident
        for _, budget in self._believed:
            charged = max(charged, budget)
        self.bytes_charged = charged
        self.silent = self.silent and self.owes
        taken = charged if self.silent else resident
        stays = self.failed or self.silent
        movable = 0 if stays else min(resident - self.bytes_fixed, self.bytes_parkable)
        self.bytes_movable, self.bytes_staying = movable, taken - movable
        counts = (self.bytes_allocated, resident, charged, self.bytes_staying, taken)
        self._count_in((*counts, self.bytes_kept))
        self.attention.note(self)

    def leave_totals(self) -> None:
        """The share ends."""
        self._count_in((0, 0, 0, 0, 0, 0))
        self.attention.forget(self)

    def _count_in(self, counts: Counts) -> None:
        totals, before = self.totals, self._counted
        totals.bytes_allocated += counts[0] - before[0]
        totals.bytes_resident += counts[1] - before[1]
        totals.bytes_charged += counts[2] - before[2]
        totals.bytes_staying += counts[3] - before[3]
        totals.bytes_taken += counts[4] - before[4]
        totals.bytes_kept += counts[5] - before[5]
        self._counted = counts


@dataclass(slots=True, eq=False)
class Contexts:
    """The contexts of all clients of one device."""

    bytes_total: int = 0
    known: int = 0
    """Of so many clients it is known what their contexts take."""
    heard: dict[ClientId, int] = field(default_factory=dict)
    """The driver's word of clients that have not said yet that they opened the device."""
    unsettled: dict[ClientId, Share] = field(default_factory=dict)
    """Those about which something has changed since it was believed last."""

    @property
    def bytes_each(self) -> int:
        """What one client's take, on the average; 0: that is not known."""
        return self.bytes_total // self.known if self.known else 0

    def moved(self, share: Share) -> None:
        """The client has reported another amount."""
        if share.context.same_since_s < math.inf:
            self.unsettled[share.client] = share

    def measured(
        self,
        shares: Mapping[ClientId, Share],
        told: Iterable[tuple[ClientId, int]],
        now_s: Seconds,
    ) -> None:
        """The driver was asked. `told` are those processes of which its word is another one."""
        for client, count in (*self.heard.items(), *told):
            share = shares.get(ClientId(client))
            if share is None:
                self.heard[ClientId(client)] = count
                continue
            if count != share.context.bytes_process:
                share.context.bytes_process, share.context.same_since_s = count, now_s
                share.context.bytes_resident = share.bytes_resident
                self.unsettled[share.client] = share
        if self.heard:
            heard = self.heard.items()
            self.heard = {each: count for each, count in heard if count and each not in shares}
        for share in list(self.unsettled.values()):
            self._look(share, now_s)

    def forget(self, share: Share) -> None:
        """The client has no context there any more."""
        self.unsettled.pop(share.client, None)
        self._believe(share, 0)

    def _look(self, share: Share, now_s: Seconds) -> None:
        context = share.context
        beyond = max(0, context.bytes_process - share.bytes_resident)
        if share.bytes_resident != context.bytes_resident:
            context.bytes_resident, context.same_since_s = share.bytes_resident, now_s
        if now_s >= context.same_since_s + SETTLED_S:
            context.has_settled = True
            del self.unsettled[share.client]
            self._believe(share, beyond)
        elif not context.has_settled:
            self._believe(share, min(context.bytes, beyond) if context.bytes else beyond)

    def _believe(self, share: Share, count: int) -> None:
        before, share.context.bytes = share.context.bytes, count
        if count != before:
            self.bytes_total += count - before
            self.known += (count > 0) - (before > 0)
            share.attention.to_show[share.tenant] = None


@dataclass(slots=True, eq=False)
class DeviceMemory:
    """A device's memory: what is foreign, who has the rest."""

    shares: dict[ClientId, Share] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    attention: Attention = field(default_factory=Attention)
    news: News = field(default_factory=News)
    opened: int = 0  # so many shares there have been
    space_requests: dict[ClientId, SpaceRequest] = field(default_factory=dict)
    contexts: Contexts = field(default_factory=Contexts)
    bytes_to_come: int = 0  # for contexts that are to be expected, as of the last sample
    bytes_foreign: int = 0
    bytes_ghost: int = 0
    """Of clients that are gone, and may not be gone from the device yet."""
    ghost_since_s: Seconds = -math.inf
    ghost_confirmed: bool = True  # by a look that began after the last client was lost
    looked_since_loss: bool = True
    ahead_of: tuple[ClientId, ...] = ()
    """Those whose memory may come back ahead of their turn, as of the last look."""
    bus_used_until_s: Seconds | None = None
    """Whoever has the turn copies much between host and device, and may do so until then."""
    is_measured: bool = False
    measured_at_s: Seconds = -math.inf
    releases: int = 0  # events that may make space for somebody
    measure_at_s: Seconds | None = None
    """When the device is to be looked at again, because somebody is short."""
    due_s: Seconds | None = None  # when something happens here by itself
    drift_left: int = 0
    """While nobody lacks or owes anything here: by how much memory may change without a look."""
    _quiet: deque[tuple[Seconds, int]] = field(default_factory=deque)
    """Samples in a row between which nobody's memory changed, and what was foreign by them."""
    _resident_least: int = 0  # since the last sample
    _resident_most: int = 0
    _explained_most: int = 0  # charged or kept, likewise

    @property
    def somebody_is_short(self) -> bool:
        """A client needs bytes here, or its last need was refused."""
        return any(share.needed_bytes or share.shortage for share in self.attention.asking.values())

    def ask_for_look(self, at_s: Seconds) -> None:
        """The device has to be looked at then, if not before."""
        self.due_s = at_s if self.due_s is None else min(self.due_s, at_s)

    def measured(self, bytes_used: int, now_s: Seconds) -> None:
        """The device has so many used bytes, some time between the last sample and now."""
        if not self.is_measured:
            self._resident_least = self.bytes_resident
        self.note()
        least = max(0, bytes_used - self._explained_most)
        most = max(0, bytes_used - self._resident_least)
        before = self.bytes_foreign + self.bytes_ghost
        self.bytes_foreign = max(least, min(self.bytes_foreign, most))
        if self._resident_least == self._resident_most:
            self._quiet.append((now_s, max(0, most - self.totals.bytes_kept)))
        else:
            self._quiet.clear()
        while len(self._quiet) > 1 and self._quiet[1][0] <= now_s - SETTLED_S:
            self._quiet.popleft()
        if not self.is_measured:
            self.bytes_foreign = max(0, most - self.totals.bytes_kept)
        elif self._quiet and self._quiet[0][0] <= now_s - SETTLED_S:
            self.bytes_foreign = max(self.bytes_foreign, min(bound for _, bound in self._quiet))
        if self.looked_since_loss:  # the look before may have begun before the loss
            self.ghost_confirmed = True
            if self.ghost_since_s <= now_s - ENDED_S:  # what is kept is not theirs
                most -= self.totals.bytes_kept
            self.bytes_ghost = max(0, min(self.bytes_ghost, most - self.bytes_foreign))
        self.looked_since_loss = True
        self.is_measured = True
        self.measured_at_s = now_s
        if self.bytes_foreign + self.bytes_ghost < before:
            self.releases += 1
        self._resident_least = self._resident_most = self.bytes_resident
        self._explained_most = self.bytes_charged + self.totals.bytes_kept

    @property
    def is_certain(self) -> bool:
        """The last look is all explained, and nobody's memory had changed for `SETTLED_S`."""
        quiet, before_s = self._quiet, self.measured_at_s - SETTLED_S
        return bool(quiet) and quiet[0][0] <= before_s and self.bytes_foreign >= quiet[-1][1]

    def is_unseen_since(self, since_s: Seconds) -> bool:
        """It can be looked at, and has not been since then."""
        return self.is_measured and self.measured_at_s <= since_s

    def own_up(self, bytes_found: int) -> None:
        """A client had these bytes before it or we connected: they were taken for foreign."""
        self.bytes_foreign = max(0, self.bytes_foreign - bytes_found)
        self._quiet.clear()

    def note(self) -> None:
        """A client's memory has changed."""
        self._resident_least = min(self._resident_least, self.bytes_resident)
        self._resident_most = max(self._resident_most, self.bytes_resident)
        explained = self.bytes_charged + self.totals.bytes_kept
        self._explained_most = max(self._explained_most, explained)

    def open(self, client: ClientId, tenant: TenantId, last_use_s: Seconds = 0.0) -> Share:
        """A client begins with nothing, and may have nothing."""
        self.opened += 1
        share = Share(client, tenant, self.totals, self.attention, self.opened, last_use_s)
        self.shares[client] = share
        self.attention.note(share)
        return share

    def look_at_all(self) -> None:
        """What concerns everybody has changed."""
        self.attention.changed.update(self.shares)

    def close(self, share: Share) -> None:
        """The driver has freed all that the client had."""
        self.note()
        self._remove(share)
        self.note()
        self.releases += 1

    def _remove(self, share: Share) -> None:
        del self.shares[share.client]
        self.contexts.forget(share)
        share.leave_totals()
        self.news.forget(share.client)

    def lose(self, share: Share, now_s: Seconds) -> None:
        """Its client is gone; its memory, when the device shows it."""
        self.note()
        self._remove(share)
        unlimited = share.bytes_charged >= UNLIMITED_BYTES
        self.bytes_ghost += share.bytes_resident if unlimited else share.bytes_charged
        if share.bytes_charged:
            self.ghost_since_s = now_s
            self.ghost_confirmed = self.looked_since_loss = False
        self.note()

    @property
    def bytes_of_contexts(self) -> int:
        """Of the foreign bytes, what belongs to contexts of clients."""
        return min(self.contexts.bytes_total, self.bytes_foreign)

    @property
    def bytes_of_strangers(self) -> int:
        """The rest of them: of programs that are not under us, and of the driver."""
        return self.bytes_foreign - self.bytes_of_contexts

    @property
    def bytes_resident(self) -> int:
        return self.totals.bytes_resident

    @property
    def bytes_charged(self) -> int:
        return self.totals.bytes_charged

    @property
    def bytes_allocated(self) -> int:
        return self.totals.bytes_allocated
