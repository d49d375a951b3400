"""What there is of a device's memory and whose it is. Bookkeeping only: nothing here decides.

A client is *charged* what it reported to have on the device or the largest budget that it may
still believe in, whichever is more. So whatever is on its way between us and the clients, no more
is ever given out than there is.

What is on a device and under no client is *foreign*. It is not seen directly: the device tells
its used bytes, the clients tell theirs, and neither at the same moment. Between two samples a
client had at least the least that it reported and at most its charge; so each sample bounds the
foreign bytes from both sides. A client that has just grown, and has not said so yet, raises the
upper bound for a moment; therefore the smaller one of the latest is believed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .ids import ClientId, Seconds, TenantId

UNLIMITED_BYTES = 2**64 - 1
"""The budget of everybody while memory stays where it is."""
SETTLED_S = 0.3
"""Clients report what they have allocated within 0.1 s; an upper bound that has held for so long
does not come from what they have not told yet."""


@dataclass(slots=True, eq=False)
class OpenedDevice:
    """What a client has on a device that it opened, and what it may have there."""

    client: ClientId
    tenant: TenantId
    bytes_allocated: int = 0
    bytes_parked: int = 0
    bytes_fixed: int = 0
    bytes_host_room: int = 0
    failed: bool = False
    bytes_resident: int = 0
    """Allocated and not parked."""
    budget_bytes: int = 0
    """What it was told last."""
    bytes_charged: int = 0
    needed_bytes: int = 0
    """A call of it waits for so much more."""
    progress_at_s: Seconds = 0.0
    """When it last did what its budget asks of it, or was first asked."""
    silent: bool = False
    """It was to release memory, and has not for `park_timeout_s`."""
    told_usable_bytes: int = -1
    told_hint_bytes: int = 0
    told_at_s: Seconds = 0.0
    _believed: deque[tuple[int, int]] = field(default_factory=lambda: deque([(0, 0)]))
    """Serials and budgets; it has heard the first, and may have heard any of the others."""

    @property
    def owes(self) -> bool:
        """It has more, or may believe that it may have more, than it was told last."""
        return self.bytes_charged > self.budget_bytes

    @property
    def has_heard(self) -> bool:
        """It has answered the last that it was told."""
        return len(self._believed) == 1

    @property
    def bytes_movable(self) -> int:
        """What would leave the device if the client were asked."""
        if self.failed or self.silent:
            return 0
        return max(0, min(self.bytes_resident - self.bytes_fixed, self.bytes_host_room))

    @property
    def bytes_staying(self) -> int:
        """What stays on the device, whatever is asked."""
        if self.silent:
            return self.bytes_charged
        return self.bytes_resident - self.bytes_movable

    def told(self, serial: int, budget_bytes: int) -> None:
        self._believed.append((serial, budget_bytes))
        self.budget_bytes = budget_bytes
        self._charge()

    def reported(
        self, *, allocated: int, parked: int, fixed: int, host_room: int, serial: int
    ) -> bool:
        """Whether this brought it nearer to what it was told."""
        before = self.bytes_charged
        heard = self._believed[0][0]
        self.bytes_allocated = allocated
        self.bytes_parked = min(parked, allocated)
        self.bytes_resident = allocated - self.bytes_parked
        self.bytes_fixed = min(fixed, self.bytes_resident)
        self.bytes_host_room = host_room
        if serial <= self._believed[-1][0]:  # else it speaks of a connection before this one
            while len(self._believed) > 1 and self._believed[1][0] <= serial:
                self._believed.popleft()
        self._charge()
        return self.bytes_charged < before or self._believed[0][0] > heard

    def dropped(self) -> None:
        """It gave its turn back: what it had heard by then has become what it has. It may still
        hear more."""
        serial, _ = self._believed[0]
        self._believed[0] = (serial, self.bytes_resident)
        self.budget_bytes = self._believed[-1][1]
        self._charge()

    def fail(self) -> None:
        """Its context is gone for good, and nothing of it will be created there any more."""
        self.failed = True
        self.needed_bytes = 0
        self._believed = deque([(self._believed[-1][0], self.bytes_resident)])
        self.budget_bytes = self.bytes_resident
        self._charge()

    def _charge(self) -> None:
        believed = max(budget for _, budget in self._believed)
        self.bytes_charged = max(believed, self.bytes_resident)


@dataclass(slots=True, eq=False)
class RoomWanted:
    """Somebody needs bytes on the device that no budget covers (a context, a module)."""

    client: ClientId
    bytes_wanted: int
    asked_at_s: Seconds
    bytes_used_before: int
    bytes_released: int = 0
    """By others since."""
    measured: bool = False
    """The device's used bytes have been looked at since."""
    made_at_s: Seconds | None = None
    """It was told that there is room; until it has taken it, the room is kept."""


@dataclass(slots=True, eq=False)
class DeviceMemory:
    """A device's memory: what is foreign, who has the rest."""

    shares: dict[ClientId, OpenedDevice] = field(default_factory=dict)
    rooms: dict[ClientId, RoomWanted] = field(default_factory=dict)
    bytes_foreign: int = 0
    bytes_ghost: int = 0
    """Of clients that are gone, and may not be gone from the device yet."""
    ghost_since_s: Seconds = 0.0
    ghost_confirmed: bool = True
    """The device has been looked at since the last client was lost."""
    is_measured: bool = False
    releases: int = 0
    """Counts what may make room for somebody."""
    measure_at_s: Seconds | None = None
    """When the device is to be looked at again, because somebody is short."""
    due_s: Seconds | None = None
    """When something happens here by itself."""
    _upper_bounds: deque[tuple[Seconds, int]] = field(default_factory=deque)
    _resident_least: int = 0
    """Since the last sample."""
    _charged_most: int = 0

    def measured(self, bytes_used: int, now_s: Seconds) -> None:
        """The device has so many used bytes, some time between the last sample and now."""
        self.note()
        least = max(0, bytes_used - self._charged_most)
        most = max(0, bytes_used - self._resident_least)
        bounds = self._upper_bounds
        bounds.append((now_s, most))
        while len(bounds) > 1 and bounds[1][0] <= now_s - SETTLED_S:
            bounds.popleft()
        before = self.bytes_foreign + self.bytes_ghost
        self.bytes_foreign = max(least, min(bound for _, bound in bounds))
        self.bytes_ghost = max(0, min(self.bytes_ghost, most - self.bytes_foreign))
        self.ghost_confirmed = self.is_measured = True
        if self.bytes_foreign + self.bytes_ghost < before:
            self.releases += 1
        self._resident_least = self.bytes_resident
        self._charged_most = self.bytes_charged

    def note(self) -> None:
        """A client's memory has changed."""
        self._resident_least = min(self._resident_least, self.bytes_resident)
        self._charged_most = max(self._charged_most, self.bytes_charged)

    def lose(self, share: OpenedDevice, now_s: Seconds) -> None:
        """Its client is gone; its memory, when the device shows it."""
        self.note()
        del self.shares[share.client]
        held = share.bytes_charged if share.bytes_charged < UNLIMITED_BYTES else 0
        self.bytes_ghost += max(share.bytes_resident, held if self.is_measured else 0)
        self.ghost_since_s = now_s
        self.ghost_confirmed = False
        self.note()

    @property
    def bytes_resident(self) -> int:
        return sum(share.bytes_resident for share in self.shares.values())

    @property
    def bytes_charged(self) -> int:
        return sum(share.bytes_charged for share in self.shares.values())

    @property
    def bytes_allocated(self) -> int:
        return sum(share.bytes_allocated for share in self.shares.values())
