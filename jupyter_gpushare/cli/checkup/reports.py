"""Whether the view of all nodes hears of this one. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..text import moment
from .facts import Facts
from .finding import Finding, ok, warning


def check_reports(facts: Facts) -> Iterator[Finding]:
    """An older scheduler tells nothing of it, and one without a view has nothing to tell."""
    status = facts.scheduler.status
    reports = status["scheduler"].get("reports") if status is not None else None
    if reports is None:
        return
    if reports["ok"]:
        yield ok("reports", f"Reports reach {reports['to']} since {moment(reports['since'])}.")
        return
    what, _, remedy = reports["why"].partition(". ")
    yield warning(
        "reports",
        f"{what}. Nothing is reported since {moment(reports['since'])}.",
        remedy or "Look into the scheduler's log.",
    )
