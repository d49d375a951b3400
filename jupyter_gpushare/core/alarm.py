"""The next moment at which something happens by itself: a heap of deadlines."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from .ids import Seconds

Owner = tuple[str, str]
"""What kind of thing it is, and its name."""
_STALE_MAX = 64


@dataclass(slots=True)
class Alarm:
    """One deadline for each tenant and each device that has any.

    A deadline that has moved leaves its old entry on the heap, which is skipped when it comes up;
    when most entries are such, the heap is made anew."""

    _at_s: dict[Owner, Seconds] = field(default_factory=dict)
    _heap: list[tuple[Seconds, Owner]] = field(default_factory=list)

    def set(self, owner: Owner, at_s: Seconds | None) -> None:
        """The owner's deadline; None: it has none."""
        before_s = self._at_s.pop(owner, None)
        if at_s is None:
            return
        self._at_s[owner] = at_s
        if at_s == before_s:
            return
        heapq.heappush(self._heap, (at_s, owner))
        if len(self._heap) > 2 * len(self._at_s) + _STALE_MAX:
            self._heap = [(each_s, each) for each, each_s in self._at_s.items()]
            heapq.heapify(self._heap)

    def next_s(self) -> Seconds | None:
        """The earliest deadline."""
        while self._heap:
            at_s, owner = self._heap[0]
            if self._at_s.get(owner) == at_s:
                return at_s
            heapq.heappop(self._heap)
        return None

    def due(self, now_s: Seconds) -> Iterator[Owner]:
        """The owners whose deadlines have come; each has to set another one."""
        while (at_s := self.next_s()) is not None and at_s <= now_s:
            _, owner = heapq.heappop(self._heap)
            del self._at_s[owner]
            yield owner
