"""What a soak has seen. Pure: lines and counts in, verdict, table and JSON out."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

FINDINGS = (
    "bytes_wrong",
    "calls_failed",
    "kernels_lost",
    "overlaps",
    "hangs",
    "tracebacks",
    "slowed",
)
"""Each of them has to be 0."""

GROWTH_PERCENT_MAX = 5.0
SHOWN_MAX = 5
"""Of each finding."""


@dataclass
class Totals:
    """What one tenant has done so far, as it says itself."""

    operations: int = 0
    checks: int = 0
    bytes_checked: int = 0
    refused: int = 0
    cancelled: int = 0

    def more_than(self, other: Totals) -> bool:
        """Whether it has gone on since, and has looked at its memory."""
        return self.operations > other.operations and self.checks > other.checks


@dataclass(frozen=True)
class Line:
    """What a line of a tenant means: one of these is set."""

    totals: Totals | None = None
    answer: str = ""
    """The command that it has done."""
    finding: str = ""
    """One of FINDINGS."""


def meaning_of(line: str) -> Line:
    """Of one line that a tenant has written; nothing for what says nothing to a soak."""
    word, _, rest = line.partition(" ")
    if word == "did":
        return Line(totals=Totals(*map(int, rest.split())))
    if word == "ok":
        return Line(answer=rest)
    return Line(finding={"wrong": "bytes_wrong", "failed": "calls_failed"}.get(word, ""))


def key_of(finding: str, what: str) -> str:
    """The same for the same finding of another tenant."""
    return f"{finding} {re.sub(r'^tenant-[0-9]+:? ', '', what.splitlines()[0])}"


@dataclass
class Score:
    """Of a whole run."""

    seed: int
    device: str = ""
    bare: frozenset[str] = frozenset()
    """The keys of what was found on this device without us: no findings."""
    found_bare: Counter[str] = field(default_factory=Counter)
    tried: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    """By kind of fault: how often it was brought about, and how often its effect was seen."""
    began: list[tuple[int, str]] = field(default_factory=list)
    """Each fault, and when it began, by the clock that the devices' journal has too."""
    found: list[tuple[str, str]] = field(default_factory=list)
    """Each finding, one of FINDINGS, and what is known of it."""
    ended: Totals = field(default_factory=Totals)
    """What tenants had done that are gone."""
    overlaps_at_an_end: int = 0
    """With what a process does once its exit handlers run, and so no finding."""
    heals: int = 0
    rates: list[float] = field(default_factory=list)
    """What tenants did beside a client that makes the core fail, of what they did before."""
    growth: dict[str, float] = field(default_factory=dict)
    """Of a scheduler that was never killed."""

    def grew(self, warm: tuple[int, int], end: tuple[int, int]) -> None:
        """Descriptors and memory, when it was warm and at the end."""
        self.growth = {
            "fds_leaked": max(0, end[0] - warm[0]),
            "rss_growth_percent": round(100 * (end[1] / warm[1] - 1), 1),
        }

    @property
    def leaks(self) -> bool:
        return bool(
            self.growth
            and (
                self.growth["fds_leaked"] or self.growth["rss_growth_percent"] > GROWTH_PERCENT_MAX
            )
        )

    def find(self, finding: str, what: str) -> None:
        if (key := key_of(finding, what)) in self.bare:
            self.found_bare[key] += 1
        else:
            self.found.append((finding, what))

    def faults_before(self, at_ns: int) -> str:
        """The last ones that had begun then, and how long before."""
        last = [(at_ns - began_ns, kind) for began_ns, kind in self.began if began_ns <= at_ns]
        return ", ".join(f"{kind} {ago / 1e9:.2f} s ago" for ago, kind in last[-SHOWN_MAX:])

    def keys(self) -> frozenset[str]:
        return frozenset(key_of(finding, what) for finding, what in self.found)

    def count(self, totals: Totals) -> None:
        for name, value in vars(totals).items():
            setattr(self.ended, name, getattr(self.ended, name) + value)

    @property
    def is_good(self) -> bool:
        return not self.found and not self.leaks

    def as_json(self) -> dict[str, Any]:
        findings = Counter(finding for finding, _ in self.found)
        return {
            "device": self.device,
            "seed": self.seed,
            "faults": self.seen.total(),
            "kinds": len(self.seen),
            "least_of_a_kind": min((self.seen[kind] for kind in self.tried), default=0),
            **{finding: findings[finding] for finding in FINDINGS},
            **vars(self.ended),
            "heals": self.heals,
            "overlaps_at_an_end": self.overlaps_at_an_end,
            "found_bare": self.found_bare.total(),
            "rates": self.rates,
            **self.growth,
        }

    def as_text(self) -> str:
        """A table of the kinds, and below it what was found."""
        rows = [f"{'fault':<28} {'tried':>6} {'seen':>6}"]
        rows += [f"{kind:<28} {self.tried[kind]:>6} {self.seen[kind]:>6}" for kind in self.tried]
        for finding in FINDINGS:
            found = [what for its, what in self.found if its == finding]
            rows += [f"{finding}: {what}" for what in found[:SHOWN_MAX]]
            if len(found) > SHOWN_MAX:
                rows.append(f"{finding}: and {len(found) - SHOWN_MAX} more")
        rows += [f"also without us: {key}: {count}" for key, count in self.found_bare.items()]
        return "\n".join(rows)
