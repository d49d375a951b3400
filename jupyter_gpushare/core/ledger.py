"""A device's memory: how much there is and whose it is. Bookkeeping only: nothing here decides.

A client is *charged* what it reported to have on the device or the largest budget that it may
still believe in, whichever is more. So whatever is on its way between us and the clients, no more
is ever given out than there is.

Bytes on a device that are under no client are *foreign*. They are not seen directly: the device
tells its used bytes, the clients tell theirs, and neither at the same moment. Between two samples a
client had at least the least that it reported and at most its charge. So each sample bounds the
foreign bytes from both sides, and the earlier belief stands where it lies between the bounds.
Foreign bytes that grow inside the bounds are seen when the clients rest: when nobody has reported a
change for `SETTLED_S`, the smallest of the samples since then is believed.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from .attention import Attention, News
from .ids import ClientId, Seconds, TenantId

UNLIMITED_BYTES = 2**64 - 1
"""The budget of everybody while memory stays where it is."""
SETTLED_S = 0.3
"""Clients report allocations within 0.1 s. A sample that holds for this long does not come from an
allocation that nobody has reported yet."""

BELIEVED_MAX = 64
"""Budgets that a client may not have heard are kept one by one up to this many. An honest client is
never so far behind; one that never answers would cost more with each budget."""


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


Counts = tuple[int, int, int, int, int]


@dataclass(slots=True, eq=False)
class Share:
    """The memory of one client on one device that it opened, and its budget there."""

    client: ClientId
    tenant: TenantId
    totals: Totals
    attention: Attention
    number: int = 0
    """Counts the shares of the device in the order in which they came."""
    last_use_s: Seconds = 0.0
    """When its tenant's last turn ended."""
    place_by_use: tuple[Seconds, int, ClientId] | None = None
    """Where it stands in `attention`, if it could release memory."""
    bytes_allocated: int = 0
    bytes_parked: int = 0
    bytes_fixed: int = 0
    bytes_parkable: int = 0
    failed: bool = False
    bytes_resident: int = 0
    """Allocated and not parked."""
    budget_bytes: int = 0
    """The last budget that it was told."""
    bytes_charged: int = 0
    needed_bytes: int = 0
    """Bytes that a call of it waits for."""
    need_id: int = 0
    """The client's own number for what was needed last."""
    granted_bytes: int = 0
    """Bytes that a call of it needed and may have now, until it reports them. If its turn ends
    before that, it needs them again."""
    need_short_since_s: Seconds | None = None
    """Since when others keep it from what it needs."""
    shortage: Shortage | None = None
    """How long others have kept it from what it needs; kept after a need was refused."""
    progress_at_s: Seconds = 0.0
    """When it last did what its budget asks of it, or was first asked."""
    silent: bool = False
    """It owes memory, and has made no progress for `park_timeout_s`."""
    bytes_movable: int = 0
    """Bytes that would leave the device if the client were asked."""
    bytes_staying: int = 0
    """Bytes that stay on the device, even if the client is asked."""
    told_usable_bytes: int = -1
    told_hint_bytes: int = 0
    told_at_s: Seconds = 0.0
    _counted: Counts = (0, 0, 0, 0, 0)
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
        self, *, allocated: int, parked: int, fixed: int, parkable: int, serial: int
    ) -> None:
        """It has this, and has heard the budget with this serial."""
        if allocated - self.bytes_allocated >= self.granted_bytes:
            self.granted_bytes = 0
        self.bytes_allocated = allocated
        self.bytes_parked = min(parked, allocated)
        self.bytes_resident = allocated - self.bytes_parked
        self.bytes_fixed = min(fixed, self.bytes_resident)
        self.bytes_parkable = parkable
        if serial <= self._believed[-1][0]:  # else it speaks of a connection before this one
            while len(self._believed) > 1 and self._believed[1][0] <= serial:
                self._believed.popleft()
        if self.failed:
            self._gets_no_more()
        self._count()

    @property
    def heard_serial(self) -> int:
        """Of the last budget that it has answered."""
        return self._believed[0][0]

    def needs(self, count: int, need_id: int = 0) -> None:
        """A call waits for `count` more bytes; 0: no longer."""
        if count:
            self.need_id = need_id
        if count != self.needed_bytes:
            self.need_short_since_s = None
        self.needed_bytes, self.granted_bytes = count, 0
        self.attention.note(self)

    def may_have_what_it_needs(self) -> None:
        """It was told so; whether it takes it, it will say."""
        self.granted_bytes, self.needed_bytes = self.asked_bytes, 0
        self.need_short_since_s = None
        self.attention.note(self)

    def is_short(self, shortage: Shortage | None) -> None:
        """For how long others have kept it from what it needs; None: they do not."""
        if shortage is None:
            self.need_short_since_s = None
        self.shortage = shortage
        self.attention.note(self)

    def used_until(self, at_s: Seconds) -> None:
        """Its tenant's turn has ended."""
        self.last_use_s = at_s
        self.attention.note(self)

    def needs_again(self) -> None:
        """The bytes that it needed are taken back before it has reported them."""
        self.needed_bytes, self.granted_bytes = self.asked_bytes, 0
        self.attention.note(self)

    def dropped(self) -> None:
        """It gave its turn back: what it had heard by then has become what it has. It may still
        hear more."""
        self.needs_again()
        serial, _ = self._believed[0]
        self._believed[0] = (serial, self.bytes_resident)
        self.budget_bytes = self._believed[-1][1]
        self._count()

    def fail(self) -> None:
        """Its context is gone for good, and it creates nothing there any more. A call that waits
        for memory there still has to be told so."""
        self.failed = True
        self.needs_again()
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
        if self.silent:
            self.bytes_movable, self.bytes_staying = 0, charged
        else:
            movable = 0 if self.failed else min(resident - self.bytes_fixed, self.bytes_parkable)
            self.bytes_movable, self.bytes_staying = movable, resident - movable
        taken = charged if self.silent else resident
        self._count_in((self.bytes_allocated, resident, charged, self.bytes_staying, taken))
        self.attention.note(self)

    def leave_totals(self) -> None:
        """The share ends."""
        self._count_in((0, 0, 0, 0, 0))
        self.attention.forget(self)

    def _count_in(self, counts: Counts) -> None:
        totals, before = self.totals, self._counted
        totals.bytes_allocated += counts[0] - before[0]
        totals.bytes_resident += counts[1] - before[1]
        totals.bytes_charged += counts[2] - before[2]
        totals.bytes_staying += counts[3] - before[3]
        totals.bytes_taken += counts[4] - before[4]
        self._counted = counts


@dataclass(slots=True, eq=False)
class SpaceRequest:
    """Somebody needs bytes on the device that no budget covers (a context, a module)."""

    client: ClientId
    request_id: int
    bytes_wanted: int
    asked_at_s: Seconds
    bytes_used_before: int
    bytes_released: int = 0
    """By others, since the request."""
    looks_awaited: int = 1
    """How many looks at the device are needed before the request can be denied. After a release it
    takes two: the first look may have begun before the release."""
    made_at_s: Seconds | None = None
    """When it was told that there is space; the space is kept until it has taken it."""


@dataclass(slots=True, eq=False)
class DeviceMemory:
    """A device's memory: what is foreign, who has the rest."""

    shares: dict[ClientId, Share] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    attention: Attention = field(default_factory=Attention)
    news: News = field(default_factory=News)
    opened: int = 0
    """How many shares there have been."""
    space_requests: dict[ClientId, SpaceRequest] = field(default_factory=dict)
    bytes_foreign: int = 0
    bytes_ghost: int = 0
    """Of clients that are gone, and may not be gone from the device yet."""
    ghost_since_s: Seconds = -math.inf
    ghost_confirmed: bool = True
    """The device was looked at, and the look began after the last client was lost."""
    looked_since_loss: bool = True
    is_measured: bool = False
    measured_at_s: Seconds = -math.inf
    releases: int = 0
    """Counts the events that may make space for somebody."""
    measure_at_s: Seconds | None = None
    """When the device is to be looked at again, because somebody is short."""
    due_s: Seconds | None = None
    """When something happens here by itself."""
    drift_left: int = 0
    """While nobody lacks or owes anything here: by how much memory may change before somebody has
    to be told. Set whenever the device is looked at."""
    _quiet: deque[tuple[Seconds, int]] = field(default_factory=deque)
    """Samples in a row between which nobody's memory changed, and what was foreign by them."""
    _resident_least: int = 0
    """Since the last sample."""
    _resident_most: int = 0
    _charged_most: int = 0

    @property
    def somebody_is_short(self) -> bool:
        """A client needs bytes here, or a need of it was refused not long ago."""
        asking = self.attention.asking.values()
        return any(share.needed_bytes or share.shortage for share in asking)

    def is_due_at(self, at_s: Seconds) -> None:
        """The device has to be looked at then, if not before."""
        self.due_s = at_s if self.due_s is None else min(self.due_s, at_s)

    def measured(self, bytes_used: int, now_s: Seconds) -> None:
        """The device has so many used bytes, some time between the last sample and now."""
        if not self.is_measured:
            self._resident_least = self.bytes_resident
        self.note()
        least = max(0, bytes_used - self._charged_most)
        most = max(0, bytes_used - self._resident_least)
        before = self.bytes_foreign + self.bytes_ghost
        self.bytes_foreign = max(least, min(self.bytes_foreign, most))
        if self._resident_least == self._resident_most:
            self._quiet.append((now_s, most))
        else:
            self._quiet.clear()
        while len(self._quiet) > 1 and self._quiet[1][0] <= now_s - SETTLED_S:
            self._quiet.popleft()
        if not self.is_measured:
            self.bytes_foreign = most
        elif self._quiet and self._quiet[0][0] <= now_s - SETTLED_S:
            self.bytes_foreign = max(self.bytes_foreign, min(bound for _, bound in self._quiet))
        if self.looked_since_loss:  # the look before may have begun before the loss
            self.ghost_confirmed = True
            self.bytes_ghost = max(0, min(self.bytes_ghost, most - self.bytes_foreign))
        self.looked_since_loss = True
        self.is_measured = True
        self.measured_at_s = now_s
        if self.bytes_foreign + self.bytes_ghost < before:
            self.releases += 1
        self._resident_least = self._resident_most = self.bytes_resident
        self._charged_most = self.bytes_charged

    def is_unseen_since(self, since_s: Seconds) -> bool:
        """It can be looked at, and has not been since then."""
        return self.is_measured and self.measured_at_s <= since_s

    def own_up(self, bytes_found: int) -> None:
        """A client reports more than it was given. It had these bytes before it connected, or
        before this scheduler started, and they were taken for foreign."""
        self.bytes_foreign = max(0, self.bytes_foreign - bytes_found)
        self._quiet.clear()

    def note(self) -> None:
        """A client's memory has changed."""
        resident = self.bytes_resident
        self._resident_least = min(self._resident_least, resident)
        self._resident_most = max(self._resident_most, resident)
        self._charged_most = max(self._charged_most, self.bytes_charged)

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
    def bytes_resident(self) -> int:
        return self.totals.bytes_resident

    @property
    def bytes_charged(self) -> int:
        return self.totals.bytes_charged

    @property
    def bytes_allocated(self) -> int:
        return self.totals.bytes_allocated
