"""Guarantees and limits: how much of a device an owner has at least, and at most.

Both are parts of each device's time within a window that slides (`share_window_s`): `Usage`.

- `requests`: who has had less, and waits, is served before all others but new cells, and ends the
  turns of others that are beyond theirs at once. New cells go first as far as the requests of
  others leave time for them.
- `limits`: who has had more is served after all others; what nobody else wants is free.
- `hard_limits`: who has had more waits, also on an idle device.

Three presets say all of it in one word. `best-effort`: as above; without entries, weights alone
count. `equal`: weights do not count, and each of n users who have a device open has 1/n of it, also
while the others are idle. `fixed`: each user has what `requests` says, no more and no less, also on
an idle device; who is not named has what the requests leave.
"""

from __future__ import annotations

import enum
import functools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .entries import EntryError, is_tenant, parse_entries, value_of

_SUM_MAX = 1 + 1e-9
_LEAST_S = 1e-6
"""Sums of floats."""
_SAME_RATE = 1e-9
STEPS = 500
"""What lies within such a part of the window counts as spread evenly: so a window of a day costs no
more than one of a minute."""


class Preset(enum.Enum):
    """What requests and limits mean together."""

    BEST_EFFORT = "best-effort"
    EQUAL = "equal"
    FIXED = "fixed"


class Standing(enum.Enum):
    """How an owner stands to what it may have."""

    FREE = "free"
    GUARANTEED = "guaranteed"
    """It has had less than its request."""
    OVER = "over"
    """It has had its limit."""
    BLOCKED = "blocked"
    """It has had its hard limit."""


@functools.lru_cache(maxsize=32)
def parse(text: str) -> Mapping[str, float]:
    """Parts of a device by user name, and by `@` and the name of a group. Entries of notebooks,
    which an earlier version took, count for nothing. Raises EntryError."""
    found = parse_entries(text, what="share", example="ann=0.25 or @staff=0.5", read=_part)
    return {name: part for name, part in found.items() if not is_tenant(name)}


def _part(name: str, text: str) -> float:
    try:
        part = float(text)
    except ValueError:
        part = math.nan
    if not 0 < part <= 1:
        raise EntryError(
            f"The share of {name} is {text[:20]!r}. Give a number above 0, and no more than 1."
        )
    return part


def check(requests: str, limits: str, hard_limits: str, preset: Preset) -> None:
    """Raises EntryError for what cannot be kept. A group counts once, however many are in it."""
    wanted = parse(requests)
    total = sum(wanted.values())
    if total > _SUM_MAX:
        raise EntryError(f"requests add up to {total:.3g}. Give requests of 1 together at most.")
    for kind, text in (("requests", requests), ("limits", limits), ("hard_limits", hard_limits)):
        most = parse(text)
        for name in wanted.keys() & most.keys():
            if wanted[name] > most[name]:
                raise EntryError(
                    f"{name} requests {wanted[name]:g}, and {kind} allow {most[name]:g}. Give a "
                    f"request that is not above the limit."
                )
    if preset is Preset.FIXED and not requests.strip(" ,"):
        raise EntryError("sharing is fixed, but requests are empty. Give requests first.")


@dataclass(frozen=True, slots=True)
class Entitlement:
    """Of one owner on one device, as parts of it."""

    request: float = 0.0
    limit: float = 1.0
    hard_limit: float = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say."""

    requests: Mapping[str, float]
    limits: Mapping[str, float]
    hard_limits: Mapping[str, float]
    preset: Preset
    window_s: float
    step_s: float
    """Who was blocked goes on when it could have so much."""

    def of(self, owner: str, groups: Iterable[str], owners: int) -> Entitlement:
        """`owners` have the device open."""
        request = value_of(self.requests, owner, groups)
        limit = value_of(self.limits, owner, groups)
        hard = value_of(self.hard_limits, owner, groups)
        if self.preset is Preset.EQUAL:
            hard = 1 / max(1, owners)
        elif self.preset is Preset.FIXED:
            left = max(0.01, 1 - sum(self.requests.values()))
            hard = left if request is None else request
        limit, hard = limit or 1.0, hard or 1.0
        # A user's request may be above the limit of a group.
        return Entitlement(min(request or 0.0, limit, hard), limit, hard)

    def judge(self, to: Entitlement, usage: Usage, now_s: float) -> tuple[Standing, float]:
        """How an owner stands that does not use the device now, and until when that is so."""
        used_s = usage.used_s(now_s, self.window_s)
        for part, standing in ((to.hard_limit, Standing.BLOCKED), (to.limit, Standing.OVER)):
            most_s = self._with_a_step(part)
            if part < 1 and used_s > most_s + _LEAST_S:
                return standing, self._falls_to_s(usage, most_s, now_s)
        if to.request <= 0:
            return Standing.FREE, math.inf
        if used_s < to.request * self.window_s - _LEAST_S:
            return Standing.GUARANTEED, math.inf
        return Standing.FREE, self._falls_to_s(usage, self._with_a_step(to.request), now_s)

    def left_s(self, to: Entitlement, usage: Usage, now_s: float) -> float:
        """For how long it may use the device now, at least."""
        if to.hard_limit >= 1:
            return math.inf
        return to.hard_limit * self.window_s - usage.used_s(now_s, self.window_s)

    def elastic_left_s(self, to: Entitlement, usage: Usage, now_s: float) -> float:
        """For how long it may use the device now while others wait; at least a step."""
        if to.limit >= 1:
            return math.inf
        most_s = to.limit * self.window_s
        return most_s - min(usage.used_s(now_s, self.window_s), self._with_a_step(to.limit))

    def least_s(self, to: Entitlement) -> float:
        """What an owner has at least that wants the device throughout a window. Others keep nothing
        from it that its own limits do."""
        limits_s = (self._with_a_step(part) for part in (to.limit, to.hard_limit) if part < 1)
        return 0.98 * min([to.request * self.window_s, *limits_s])

    def _with_a_step(self, part: float) -> float:
        most_s = part * self.window_s
        return most_s - min(self.step_s, most_s / 2)

    def _falls_to_s(self, usage: Usage, most_s: float, now_s: float) -> float:
        return max(usage.falls_to_s(most_s, now_s, self.window_s), now_s + _LEAST_S)


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
    """What one owner has had of one device within the window, the oldest first."""

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
