"""How the reporting goes, for the log and the status, and when it is tried again. Pure but for the
log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

FIRST_S = 0.5
LONGEST_S = 30.0
QUIET_S = 3600.0
"""After so long without a failure, one of a kind that was told before is told again."""


class Failure(Exception):
    """The connection cannot be had, or has ended. The message says what is wrong, and what to do;
    failures of one kind are logged once."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class Reporting:
    """`since` and what is given as `wall_s` are seconds since 1970."""

    url: str
    since: float
    ok: bool = False
    why: str = "The view has not answered yet. Wait a moment."
    """While it is not ok."""
    _told: dict[str, float] = field(default_factory=dict)

    def succeeded(self, wall_s: float) -> None:
        if not self.ok:
            log.info("reports reach %s", self.url)
            self.ok, self.since, self.why = True, wall_s, ""

    def failed(self, failure: Failure, wall_s: float) -> None:
        before_s = self._told.get(failure.kind)
        self._told[failure.kind] = wall_s
        if before_s is None or wall_s - before_s > QUIET_S:
            log.warning("nothing is reported: %s", failure)
        if self.ok:
            self.ok, self.since = False, wall_s
        self.why = str(failure)

    def as_json(self) -> dict[str, Any]:
        return {"to": self.url, "ok": self.ok, "since": round(self.since), "why": self.why}


class Backoff:
    """How long to wait before the next connection. `drawn` is a random number from 0 to 1: a view
    that comes back is not met by all nodes at once."""

    def __init__(self, drawn: Callable[[], float]) -> None:
        self._drawn = drawn
        self._failures = 0

    def next_s(self) -> float:
        most_s = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return most_s * (0.5 + 0.5 * self._drawn())

    def worked(self) -> None:
        self._failures = 0
