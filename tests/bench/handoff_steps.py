"""Where the time of a hand-over goes, step by step: from the device's word, the cells' own times,
the hooks' logs and the scheduler's journal, which all have the machine's monotonic clock. Pure."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.timeline import Cell, HandOver, percentile

_LINE = re.compile(r"gpushare: (\d+)\.(\d{3}) ms pid (\d+) debug: (\w+)")
STEPS = (
    ("work_to_cell_end", "the thread sees the end of its work, and ends the cell's code"),
    ("cell_end_to_shut", "the kernel tells the hook, whose agent wakes and shuts the gate"),
    ("shut_to_drop", "the agent drains, and writes the drop"),
    ("drop_to_scheduler", "the scheduler wakes and reads"),
    ("scheduler_to_grant", "it handles the drop and sends the grant; the other agent wakes"),
    ("grant_to_open", "the agent opens the gate"),
    ("open_to_work", "the waiting thread wakes and launches; the work starts"),
)
"""Each step's name in the report, and what happens in it."""


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """Something that a hook or the scheduler noted; `who` is a process, 0 the scheduler."""

    at_ns: int
    who: int
    what: str


def hook_moments(log: Path) -> list[Moment]:
    """What hooks have written with GPUSHARE_LOG=debug."""
    return [
        Moment(int(ms) * 1_000_000 + int(us) * 1_000, int(pid), what)
        for ms, us, pid, what in _LINE.findall(log.read_text(errors="replace"))
    ]


def journal_moments(journal: Path) -> list[Moment]:
    """When the scheduler began to handle each event; `what` is its type."""
    entries = (json.loads(line) for line in journal.read_text().splitlines()[1:])
    return [Moment(int(entry["at_s"] * 1e9), 0, entry["event"]["type"]) for entry in entries]


def steps_ms(
    found: Iterable[HandOver],
    *,
    cells: Sequence[Cell],
    moments: Iterable[Moment],
    pids: Sequence[int],
) -> dict[str, list[float]]:
    """Each step of each hand-over whose moments are all there, in order."""
    steps: dict[str, list[float]] = {name: [] for name, _ in STEPS}
    ordered = sorted(moments)
    for hand_over in found:
        marks = _marks(hand_over, cells, ordered, pids)
        if marks is not None:
            for (name, _), begin, end in zip(STEPS, marks, marks[1:], strict=False):
                steps[name].append((end - begin) / 1e6)
    return steps


def _marks(
    hand_over: HandOver, cells: Sequence[Cell], ordered: Sequence[Moment], pids: Sequence[int]
) -> list[int] | None:
    """The ends of all steps, the first one's beginning before them."""
    first = bisect_left(ordered, Moment(hand_over.ended_ns, -1, ""))
    last = bisect_left(ordered, Moment(hand_over.started_ns, -1, ""))
    between = ordered[first:last]
    giver, taker = pids[hand_over.giver], pids[hand_over.taker]

    def when(who: int, what: str) -> int | None:
        return next((m.at_ns for m in between if m.who == who and m.what == what), None)

    marks = [
        hand_over.ended_ns,
        min((c.ended_ns for c in cells if c.ended_ns >= hand_over.ended_ns), default=None),
        when(giver, "shut"),
        when(giver, "drop"),
        when(0, "TurnDropped"),
        when(taker, "grant"),
        when(taker, "open"),
        hand_over.started_ns,
    ]
    known = [mark for mark in marks if mark is not None]
    return known if len(known) == len(marks) else None


def table(steps: dict[str, list[float]]) -> list[str]:
    """A line for each step."""
    lines = []
    for name, what in STEPS:
        p50, p99 = (percentile(steps[name], percent) for percent in (50, 99))
        lines.append(f"  {name:<24}{p50:>8.3f}{p99:>9.3f} ms  {what}")
    return lines
