"""Requests for space that no budget covers.

What nobody can be asked for, the device itself may show, and the client tries once more what the
driver has refused. But what is taken for foreign may be wrong until nobody's memory has changed for
a moment (ledger.py), and the budgets with it. So no request for memory is denied before a look is
certain; and if a client asks again at once, the driver has refused it although there seemed to be
space, and only a certain look answers it, or one that shows what others have released since. A
certain look corrects the budgets first. If it has found more than was believed, the client is to
look at its budget: it waits by that, or is refused. A first context has no budget, and takes what
the device shows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..ids import ClientId, DeviceId, Seconds, TenantId

GRACE_S = 0.5
"""The device's samples and the clients' reports are not of one moment (needs.py)."""
REPEATS_MANY = 3
"""The client tries five times in all. A program that asks for a little many times may go on for as
long as others release that, but for the last tries it is to be certain."""
UNCERTAIN_S_MAX = 2.0
"""Where memory changes all the time, no look is certain. Nobody waits longer for one."""


class ObstacleKind(enum.Enum):
    """Why there is no space."""

    ITSELF = "itself"
    """The tenant has more than the device could give it if it were alone."""
    FOREIGN = "foreign"
    """Memory of programs that are not under us, and of the driver."""
    CONTEXTS = "contexts"
    """CUDA contexts of clients; the tenant is the other one whose take most."""
    ENDED = "ended"
    """Memory of processes that have ended, which the driver has not freed yet."""
    FIXED = "fixed"
    """Another tenant's memory cannot be moved."""
    FAILED = "failed"
    """Another tenant's context has failed and keeps its memory until that process ends."""
    SILENT = "silent"
    """Another tenant was asked to release memory and does not."""
    HOST = "host"
    """The host has no space for another tenant's memory."""
    HOLDER = "holder"
    """Another tenant has a turn on the device."""
    NEEDED = "needed"
    """Another tenant's memory could not come back beside one more context."""
    RETRY = "retry"
    """There was no space a moment ago, for an unknown reason; it will be tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """The largest thing in the way, and how many bytes are missing on the device, or on the host
    where that has no space."""

    kind: ObstacleKind
    device: DeviceId
    bytes_in_the_way: int
    bytes_short: int
    tenant: TenantId | None = None


@dataclass(slots=True, eq=False)
class SpaceRequest:
    """Somebody needs bytes on the device that no budget covers (a context, a module)."""

    client: ClientId
    request_id: int
    bytes_wanted: int
    asked_at_s: Seconds
    bytes_used_before: int
    bytes_released: int = 0
    """By others, since the request, by their word or by what the device shows;"""
    bytes_seen: int = 0
    """and by the latter alone."""
    looks_awaited: int = 1
    """Looks until it can be denied: two after a release, since one may be under way."""
    made_at_s: Seconds | None = None
    """When it was told that there is space; the space is kept until it has taken it."""
    is_first: bool = False
    """The client has nothing on the device yet: it is about to open its first context there."""
    waits_until_s: Seconds | None = None
    """If what is in the way is not to be had by asking others to park, it may wait until then."""
    obstacle: Obstacle | None = None
    """What it waits for. Nobody is asked for anything meanwhile."""
    spared: bool = False
    """The scheduler stood still, and the wait got a moment more."""
    is_repeated: bool = False
    """The answer to the one before, by a look, was wrong; or those to several were."""
    repeats: int = 0
    """How many came before it, each soon after the answer to the one before that."""
    was_looked_at: bool = False
    """The device was, since the request."""
    bytes_found: int = 0
    """So much more is foreign by now than was believed."""
    is_certain: bool = False
    """By the last look since the request."""

    @property
    def is_released(self) -> bool:
        """Others have made the space. A call of theirs counts before the driver has answered, so
        what they give up may never have been there: after an answer that was wrong, the device has
        to show it."""
        if self.is_repeated and not self.is_first:
            return self.bytes_seen >= self.bytes_wanted
        return self.bytes_released >= self.bytes_wanted

    def follows(self, before: SpaceRequest | None) -> None:
        """The client has asked before. Where that is not answered yet, this one stands for both:
        another call of the client lacks more. Where its space is still kept, the answer was wrong,
        or another call has followed that has none either."""
        if before is None:
            return
        self.is_repeated, self.repeats = before.is_repeated, before.repeats
        self.bytes_found = before.bytes_found
        if before.made_at_s is not None:
            self.repeats, self.bytes_found = before.repeats + 1, 0
            self.is_repeated = not before.is_released or self.repeats >= REPEATS_MANY
        if self.is_repeated:  # the look under way may show what was before the driver refused
            self.looks_awaited = 2

    def may_be_denied(self, now_s: Seconds) -> bool:
        """A request that may wait is not denied for what is believed in its first moment."""
        return self.waits_until_s is None or now_s >= self.asked_at_s + GRACE_S

    def looked_at(self, bytes_used: int, bytes_found: int, *, is_certain: bool) -> None:
        if self.made_at_s is not None:
            return
        self.looks_awaited -= 1
        self.bytes_found += bytes_found
        if not self.was_looked_at:  # before the request others may have released more
            self.bytes_used_before = min(self.bytes_used_before, bytes_used + self.bytes_released)
        self.was_looked_at, self.is_certain = True, is_certain
        self.bytes_seen = max(self.bytes_seen, self.bytes_used_before - bytes_used)
        self.bytes_released = max(self.bytes_released, self.bytes_seen)

    def shown(
        self, now_s: Seconds, bytes_free: int | None, late_s: Seconds, *, unmet: int, owed: bool
    ) -> bool | None:
        """Whether there is space, by what the device shows; None: that is not known yet, or others
        may make it. `unmet`: what nobody can be asked for; `owed`: somebody has been asked."""
        has_space = bytes_free is not None and bytes_free >= self.bytes_wanted
        if now_s >= late_s:
            return has_space
        nobody_is_asked = unmet > 0 or self.bytes_released >= self.bytes_wanted
        if owed or not nobody_is_asked or not self.may_be_denied(now_s):
            return None
        is_over = self.was_looked_at and now_s >= self.asked_at_s + UNCERTAIN_S_MAX
        if bytes_free is not None and self.looks_awaited > 0 and not is_over:
            return None
        if bytes_free is None or self.is_first or (has_space and not self.is_repeated):
            return has_space
        if not self.is_certain and not is_over:
            return None
        return has_space or self.bytes_found > 0

    def due_s(self, now_s: Seconds, late_s: Seconds) -> Seconds:
        """When it is looked at again, if nothing happens before."""
        moments = (self.asked_at_s + after_s for after_s in (GRACE_S, UNCERTAIN_S_MAX))
        return min(each for each in (*moments, late_s) if each > now_s or each == late_s)

    def begins_again(self, now_s: Seconds, bytes_used: int) -> None:
        """Others can make the space now."""
        self.obstacle = None
        self.asked_at_s, self.bytes_used_before = now_s, bytes_used
        self.bytes_released, self.bytes_seen, self.looks_awaited = 0, 0, 1
        self.was_looked_at = False

    def stood_still(self, for_s: Seconds, spared_s: Seconds) -> None:
        """The scheduler did: nobody has waited meanwhile. A moment more is given once."""
        if self.waits_until_s is not None:
            self.waits_until_s += for_s + (0.0 if self.spared else spared_s)
        self.spared = True
