"""How much of a device an owner has had within a window that slides with time. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

_SAME_RATE = 1e-9
STEPS = 500
"""What lies within such a part of the window counts as spread evenly: so a window of a day costs no
more than one of a minute."""


@dataclass(slots=True)
class Span:
    """So much device time, spread evenly over this time."""

    begin_s: float
    end_s: float
    used_s: float

    @property
    def rate(self) -> float:
        return self.used_s / (self.end_s - self.begin_s)


@dataclass(slots=True)
class Usage:
    """Of one owner on one device, the oldest first."""

    spans: deque[Span] = field(default_factory=deque)

    def add(self, begin_s: float, end_s: float, used_s: float, window_s: float) -> None:
        """What lies before the window is forgotten."""
        new = Span(begin_s, end_s, used_s)
        last = self.spans[-1] if self.spans else None
        goes_on = last and last.end_s == begin_s and abs(last.rate - new.rate) < _SAME_RATE
        if last and (goes_on or end_s - last.begin_s < window_s / STEPS):
            last.end_s, last.used_s = end_s, last.used_s + used_s
        else:
            self.spans.append(new)
        while self.spans[0].end_s <= end_s - window_s:
            self.spans.popleft()

    def used_s(self, now_s: float, window_s: float) -> float:
        """Within the window that ends now."""
        from_s = now_s - window_s
        return sum(
            span.used_s if span.begin_s >= from_s else span.rate * max(0.0, span.end_s - from_s)
            for span in self.spans
        )

    def falls_to_s(self, most_s: float, now_s: float, window_s: float) -> float:
        """When it is no more than this, if nothing is used until then."""
        surplus_s = self.used_s(now_s, window_s) - most_s
        if surplus_s <= 0:
            return now_s
        for span in self._within(now_s, window_s):
            if span.used_s >= surplus_s:
                return span.begin_s + surplus_s / span.rate + window_s
            surplus_s -= span.used_s
        return now_s + window_s

    def _within(self, now_s: float, window_s: float) -> Iterator[Span]:
        from_s = now_s - window_s
        for span in self.spans:
            if span.end_s > from_s:
                begin_s = max(span.begin_s, from_s)
                yield Span(begin_s, span.end_s, span.rate * (span.end_s - begin_s))
