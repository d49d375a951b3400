"""`%gpushare explain`: why cells waited for the GPU, part by part."""

import html
import sys
import time
from typing import Any
from urllib.parse import quote

from .hook import hook_of
from .scheduler import SchedulerRefused, ask, own_tenant
from .words import Unable

_NOT_FOUND = 404
_LATE_S_MAX = 60.0
_DASH = "\u2013"
_HIDDEN = "another user"
_RESTORED = "restored"
"""The reason of a part in which the cell had the GPU, and its memory came back."""
_NO_WAIT = "This kernel has not waited for the GPU, as far as the scheduler knows."
_OLDER = (
    "This scheduler does not keep why cells waited. A newer jupyter-gpushare does; `%gpushare` "
    "tells why this kernel waits now."
)
_THEN = {
    "served": "Then it got the GPU.",
    "interrupted": "Then the wait was interrupted.",
    "gave_up": "Then its calls waited no longer.",
    "waits": "It still waits.",
}


def explain(notice: str) -> "Explained":
    """What the scheduler has kept, told by the cells of this kernel."""
    hook_of(notice)
    try:
        answer = ask("GET", "/tenants/{}/waits".format(quote(own_tenant(), safe="")))
    except SchedulerRefused as refused:
        if refused.status != _NOT_FOUND:
            raise
        raise Unable(_OLDER) from None
    reporter = getattr(sys.modules.get("gpushare_bootstrap"), "_reporter", None)
    cells = reporter.cells_ago() if reporter is not None else (None, None)
    late_s = answered_before_s(answer, time.monotonic())
    cells = [cell and tuple(each + late_s for each in cell) for cell in cells]
    return Explained(answer, *cells, now_s=time.time() - late_s)


def answered_before_s(answer: Any, now_s: float) -> float:
    """How long ago the answer was made: its times count from then. 0 where that is not known, or
    where the scheduler has another clock."""
    late_s: float = now_s - answer.get("at_s", now_s)
    return late_s if 0 <= late_s < _LATE_S_MAX else 0.0


class Explained:
    """As text, and as a table where there is HTML. `this_cell` and `last_cell` are the seconds
    from now at which they began and ended, as far as that is known; `now_s` is of the clock."""

    def __init__(
        self, answer: Any, this_cell: Any = None, last_cell: Any = None, *, now_s: float
    ) -> None:
        self._now_s = now_s
        self._several = len(_owners(answer["waits"])) > 1
        # Sentences, and tuples of three that are rows.
        self._lines: Any = []
        waits = answer["waits"]
        here = _within(waits, this_cell)
        before = _within([wait for wait in waits if wait not in here], last_cell)
        if here:
            self._tell("This cell has waited {} for the GPU so far.", here)
        if before:
            self._tell("The last cell waited {} for the GPU.", before)
        elif last_cell is not None and not here:
            self._lines.append(
                "The last cell, from {} to {}, did not wait for the GPU.".format(
                    *(self._clock(at_s) for at_s in last_cell)
                )
            )
        if waits and not here and not before:
            self._tell("This kernel waited {} for the GPU before.", waits)
            if answer.get("forgotten"):
                self._lines.append(
                    "The scheduler keeps no more than that of {} earlier waits.".format(
                        answer["forgotten"]
                    )
                )
        if not waits:
            self._lines = [_NO_WAIT]

    def _tell(self, heading: str, waits: Any) -> None:
        waited_s = sum((wait["end_s"] or 0.0) - wait["begin_s"] for wait in waits)
        self._lines.append(heading.format(length(waited_s)))
        for wait in waits:
            parts = wait["intervals"]
            queued = [part for part in parts if part["reason"] != _RESTORED]
            for part in parts:
                said = [self._of(part)]
                if part is parts[0] and wait["is_pause"]:
                    said.insert(0, "Paused after {} of the GPU.".format(length(wait["used_s"])))
                if queued and part is queued[-1]:
                    said.append(_THEN.get(wait["how"], ""))
                span = self._clock(part["begin_s"]) + _DASH + self._clock(part["end_s"])
                lasted = length(part["end_s"] - part["begin_s"]).replace("less than ", "<")
                self._lines.append((span, lasted, " ".join(each for each in said if each)))

    def _of(self, part: Any) -> str:
        """Why, what was in the way, and who had the GPU."""
        had = part["had"]
        names = ["{} ({})".format(self._who(each), length(each["had_s"])) for each in had]
        if len(had) == 1:
            names = [self._who(had[0])]
        if part.get("others"):
            names.append("{} more".format(part["others"]))
        listed = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
        who = listed[:1].upper() + listed[1:] if listed.startswith(_HIDDEN) else listed
        said = [part["why"], part.get("in_the_way"), who and who + " had the GPU."]
        return " ".join(each for each in said if each)

    def _who(self, each: Any) -> str:
        """`ann: train.ipynb` where notebooks of several users are named."""
        name, owner = str(each["name"]), str(each["owner"])
        return f"{owner}: {name}" if self._several and owner not in (name, _HIDDEN) else name

    def _clock(self, at_s: float) -> str:
        """The time of day, with the day where that is not today."""
        then, today = (time.localtime(self._now_s + s) for s in (at_s, 0.0))
        day = "" if then[:3] == today[:3] else "%d %b "
        return time.strftime(day + "%H:%M:%S", then)

    def __repr__(self) -> str:
        rows = [line for line in self._lines if isinstance(line, tuple)]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)] if rows else []
        lines = []
        for line in self._lines:
            if isinstance(line, tuple):
                line = f"  {line[0].ljust(widths[0])}  {line[1].rjust(widths[1])}  {line[2]}"
            lines.append(line)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        parts: Any = []
        rows: Any = []
        for line in [*self._lines, ""]:
            if isinstance(line, tuple):
                rows.append(line)
                continue
            if rows:
                # Jupyter's own style centres tables, and puts cells to the right.
                told = "".join(_html_row(row) for row in rows)
                parts.append(f'<table style="margin-left: 0">{told}</table>')
                rows = []
            if line:
                parts.append(f"<p>{html.escape(line)}</p>")
        return "".join(parts)


def _within(waits: Any, cell: Any) -> Any:
    """Those that began in the cell: the end of one may be heard of after the cell's."""
    if cell is None:
        return []
    began_s, ended_s = cell
    return [wait for wait in waits if began_s <= wait["begin_s"] <= ended_s]


def _owners(waits: Any) -> Any:
    every = (each for wait in waits for part in wait["intervals"] for each in part["had"])
    return {each["owner"] for each in every} - {_HIDDEN}


def _html_row(row: Any) -> str:
    """Times are not broken, so that the reason has what is left of the line."""
    *times, reason = (html.escape(cell) for cell in row)
    style = "text-align: left; vertical-align: top"
    narrow = "".join(f'<td style="{style}; white-space: nowrap">{cell}</td>' for cell in times)
    return f'<tr>{narrow}<td style="{style}">{reason}</td></tr>'


def length(seconds: float) -> str:
    """Short times with a decimal, long ones in two units: 0.3 s, 20 s, 4 min 5 s, 2 h 10 min."""
    if seconds < 0.1:
        return "less than 0.1 s"
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 100:
        return f"{minutes} min {rest_s} s" if rest_s else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
