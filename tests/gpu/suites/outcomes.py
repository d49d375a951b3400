"""What the tests of a suite did, and what was lost beside others. Pure: lines in, tables out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

BARE, ALONE, BESIDE = "bare", "alone", "beside"
COMPANIES = (BARE, ALONE, BESIDE)
"""Without the hook; with it and nobody else; with it beside a rival that wants all memory."""

BEGUN, PASSED, FAILED, SKIPPED, DIED = "begun", "passed", "failed", "skipped", "died"


@dataclass
class Outcomes:
    """How each test of a run ended, by its name. One that has begun and has no end took its
    process with it, or was cut off."""

    by_test: dict[str, str] = field(default_factory=dict)

    def note(self, test: str, outcome: str) -> None:
        """The worst of a test's parts stands: a fixture may fail after the test has passed."""
        worst = (BEGUN, SKIPPED, PASSED, FAILED, DIED)
        before = self.by_test.get(test, BEGUN)
        self.by_test[test] = max(before, outcome, key=worst.index)

    def named(self, outcome: str) -> set[str]:
        return {test for test, its in self.by_test.items() if its == outcome}

    def process_died(self) -> None:
        """What was under way was it."""
        for test in self.named(BEGUN):
            self.by_test[test] = DIED


def read(lines: Iterable[str]) -> Outcomes:
    """Lines `OUTCOME TEST`, in the order in which they happened; a torn last line is left out."""
    outcomes = Outcomes()
    for line in lines:
        outcome, _, test = line.rstrip("\n").partition(" ")
        if line.endswith("\n") and test:
            outcomes.note(test, outcome)
    return outcomes


def lost(bare: Outcomes, other: Outcomes) -> dict[str, str]:
    """What passes without the hook, and was run and did not pass with it: how it ended."""
    return {
        test: other.by_test[test]
        for test in sorted(bare.named(PASSED) & other.by_test.keys())
        if other.by_test[test] not in (PASSED, BEGUN)
    }


def as_json(runs: Mapping[str, Mapping[str, Outcomes]]) -> dict[str, Any]:
    """By suite and company: how many ended in each way, and what was lost."""
    return {
        suite: {
            company: {
                **{kind: len(its.named(kind)) for kind in (PASSED, FAILED, SKIPPED, DIED)},
                "cut_off": len(its.named(BEGUN)),
                "lost": lost(companies[BARE], its),
            }
            for company, its in companies.items()
        }
        for suite, companies in runs.items()
    }


def as_text(runs: Mapping[str, Mapping[str, Outcomes]]) -> str:
    """A table, and below it what was lost."""
    head = f"{'suite':<10} {'company':<8} {'passed':>7} {'failed':>7} {'skipped':>8} {'died':>5}"
    rows, below = [f"{head} {'lost':>5}"], []
    for suite, companies in as_json(runs).items():
        for company, its in companies.items():
            counts = f"{its[PASSED]:>7} {its[FAILED]:>7} {its[SKIPPED]:>8} {its[DIED]:>5}"
            rows.append(f"{suite:<10} {company:<8} {counts} {len(its['lost']):>5}")
            below += [f"{company}: {test} {how}" for test, how in its["lost"].items()]
    return "\n".join([*rows, *([""] if below else []), *below])
