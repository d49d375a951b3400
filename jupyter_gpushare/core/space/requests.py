"""Requests for space that no budget covers.

A request that nobody can be asked for is answered by what the device shows, and the client tries
once more what the driver has refused. If the client asks again at once, the driver has refused it
again: then the device was misjudged. What one takes for foreign may be wrong until nobody's memory
has changed for a moment (ledger.py). So such a request is answered only by a look at that time: it
corrects the budgets first, and the client waits, or is refused, by these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ids import ClientId, Seconds

if TYPE_CHECKING:
    from ..records import Obstacle


GRACE_S = 0.5
"""The device's samples and the clients' reports are not of one moment (needs.py)."""
MISJUDGED_S_MAX = 2.0
"""Where somebody's memory changes all the time, no look is certain. Nobody waits longer for one."""


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
    misjudged_until_s: Seconds | None = None
    """The device was misjudged: no look before a certain one counts, until then at most."""

    def shows_misjudged(self, now_s: Seconds) -> bool:
        """The client asks again: whether the answer to this one, by a look, was wrong."""
        answered_s, was_released = self.made_at_s, self.bytes_released >= self.bytes_wanted
        return answered_s is not None and not was_released and now_s < answered_s + GRACE_S

    def may_be_denied(self, now_s: Seconds) -> bool:
        """Or be answered by a look at all. A request that may wait is not denied for what is
        believed in its first moment."""
        return now_s >= self._looks_count_from_s()

    def due_s(self, now_s: Seconds, late_s: Seconds) -> Seconds:
        """When it is looked at again, if nothing happens before."""
        return late_s if self.may_be_denied(now_s) else min(late_s, self._looks_count_from_s())

    def _looks_count_from_s(self) -> Seconds:
        from_s = self.asked_at_s
        if self.waits_until_s is not None:
            from_s += GRACE_S
        return from_s if self.misjudged_until_s is None else max(from_s, self.misjudged_until_s)

    def begins_again(self, now_s: Seconds, bytes_used: int) -> None:
        """Others can make the space now."""
        self.obstacle = None
        self.asked_at_s, self.bytes_used_before = now_s, bytes_used
        self.bytes_released, self.looks_awaited = 0, 1

    def stood_still(self, for_s: Seconds, spared_s: Seconds) -> None:
        """The scheduler did: nobody has waited meanwhile. A moment more is given once."""
        if self.waits_until_s is not None:
            self.waits_until_s += for_s + (0.0 if self.spared else spared_s)
        self.spared = True
