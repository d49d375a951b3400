"""Traces: workloads in a file of JSON lines, read as it streams by, with a bound on its size.

    {"trace": 1, "title": "Monday", "devices": 2, "weights": {"ann": 2}}
    {"notebook": "train.ipynb", "owner": "ann", "bytes": 21474836480}
    {"cell": "train.ipynb", "at_s": 12.5, "work_s": 30}

The head comes first, a notebook before its cells, and cells in the order of their times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from jupyter_gpushare.core.shares.entries import (
    WEIGHT_MAX,
    WEIGHT_MIN,
    EntryError,
    parse_weights,
)

from .base.errors import SimulationError
from .base.workload import GIB, Cell, Notebook, Workload

FORMAT = 1
CELLS_MAX = 1_000_000
NOTEBOOKS_MAX = 100_000
DEVICES_MAX = 10_000
LINE_CHARACTERS_MAX = 1 << 20
TIME_S_MAX = 366 * 86_400.0
_BURST_S_MIN = 1e-6
_BYTES_MAX = 2**62
_NOTEBOOK_FIELDS = {
    "notebook",
    "owner",
    "groups",
    "bytes",
    "opens_s",
    "closes_s",
    "device",
    "program",
    "burst_s",
    "gap_s",
}


def objects_of(
    path: Path, progress: Callable[[int], None] = lambda characters: None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered lines of a file, each a JSON object; raises SimulationError. The last line of a
    journal may be cut off by a crash, and is left out then. `progress` hears how many more
    characters have been read."""
    is_journal = False
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_CHARACTERS_MAX), ""), 1):
                progress(len(line))
                if len(line) >= LINE_CHARACTERS_MAX:
                    raise _wrong(number, f"has more than {LINE_CHARACTERS_MAX:,} characters")
                if not line.strip() or (is_journal and not line.endswith("\n")):
                    continue
                value = _object(number, line)
                is_journal = is_journal or "journal" in value
                yield number, value
    except OSError as error:
        raise SimulationError(f"{path} cannot be read: {error.strerror}. Name a trace.") from error
    except UnicodeDecodeError as error:
        raise SimulationError(
            f"{path} is not a text in UTF-8. Name a trace, or a journal of the scheduler."
        ) from error


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(number, "is not JSON") from error
    if not isinstance(value, dict):
        raise _wrong(number, "is not a JSON object")
    return value


def read_trace(lines: Iterable[tuple[int, dict[str, Any]]]) -> Workload:
    """The workload of a trace; raises SimulationError with the number of the line."""
    reader = _TraceReader()
    for number, line in lines:
        reader.take(number, line)
    return reader.workload()


def _wrong(
    number: int, what: str, todo: str = "Correct it; docs/scheduling.md has the format."
) -> SimulationError:
    return SimulationError(f"Line {number} of the trace {what}. {todo}")


class _TraceReader:
    """What has been read so far."""

    def __init__(self) -> None:
        self._head: dict[str, Any] | None = None
        self._notebooks: list[Notebook] = []
        self._numbers: dict[str, int] = {}
        self._cells: list[Cell] = []

    def take(self, number: int, line: dict[str, Any]) -> None:
        if self._head is None:
            self._take_head(number, line)
        elif "cell" in line:
            self._take_cell(number, line)
        elif "notebook" in line:
            self._take_notebook(number, line)
        else:
            raise _wrong(number, "has neither a cell nor a notebook")

    def workload(self) -> Workload:
        if self._head is None:
            raise SimulationError("The trace is empty. Write a head, notebooks and cells into it.")
        if not self._cells:
            raise SimulationError("The trace has no cells. Write some into it.")
        return Workload(
            title=self._head["title"],
            notebooks=self._notebooks,
            cells=self._cells,
            devices=self._head["devices"],
            device_bytes=self._head["device_bytes"],
            settings=self._head["settings"],
        )

    def _take_head(self, number: int, line: dict[str, Any]) -> None:
        if line.get("trace") != FORMAT:
            raise SimulationError(
                f'The trace does not begin with {{"trace": {FORMAT}, …}}. Write that head before '
                f"its notebooks; docs/scheduling.md has the format."
            )
        _refuse_unknown(number, line, {"trace", "title", "devices", "device_bytes", "weights"})
        self._head = {
            "title": _text(number, line, "title", "trace"),
            "devices": _whole(number, line, "devices", 1, low=1, high=DEVICES_MAX),
            "device_bytes": _whole(number, line, "device_bytes", 80 * GIB, low=1, high=_BYTES_MAX),
            "settings": {"weights": _weights(number, line.get("weights", {}))},
        }

    def _take_notebook(self, number: int, line: dict[str, Any]) -> None:
        _refuse_unknown(number, line, _NOTEBOOK_FIELDS)
        name = _text(number, line, "notebook", None)
        if name in self._numbers:
            raise _wrong(number, f"has the notebook {name!r} again", "Give each a name of its own.")
        if len(self._notebooks) >= NOTEBOOKS_MAX:
            raise SimulationError(
                f"The trace has more than {NOTEBOOKS_MAX:,} notebooks. Simulate a part of it."
            )
        opens_s = _number(number, line, "opens_s", 0.0, high=TIME_S_MAX)
        closes_s, device = line.get("closes_s"), line.get("device")
        if closes_s is not None:
            closes_s = _number(number, line, "closes_s", 0.0, low=opens_s, high=TIME_S_MAX)
        if device is not None:
            device = _whole(number, line, "device", 0, low=0, high=DEVICES_MAX)
        program = line.get("program", False)
        if not isinstance(program, bool):
            raise _wrong(number, f"has a program of {program!r}", "Give true or false.")
        burst_s, gap_s = (
            _number(number, line, f, 0.0, low=_BURST_S_MIN, high=3600.0) if line.get(f) else 0.0
            for f in ("burst_s", "gap_s")
        )
        if gap_s and not burst_s:
            raise _wrong(number, "has a gap_s and no burst_s", "Give both, or neither.")
        self._numbers[name] = len(self._notebooks)
        self._notebooks.append(
            Notebook(
                name=name,
                owner=_text(number, line, "owner", None),
                groups=_groups(number, line.get("groups", [])),
                bytes_used=_whole(number, line, "bytes", 0, low=0, high=_BYTES_MAX),
                opens_s=opens_s,
                closes_s=closes_s,
                device=device,
                is_program=program,
                burst_s=burst_s,
                gap_s=gap_s,
            )
        )

    def _take_cell(self, number: int, line: dict[str, Any]) -> None:
        _refuse_unknown(number, line, {"cell", "at_s", "work_s", "hold_s"})
        name = _text(number, line, "cell", None)
        if name not in self._numbers:
            raise _wrong(number, f"has a cell of {name!r}, which is no notebook of a line before")
        if len(self._cells) >= CELLS_MAX:
            raise SimulationError(
                f"The trace has more than {CELLS_MAX:,} cells. Simulate a part of it: a day, or "
                f"the notebooks of one node."
            )
        notebook = self._numbers[name]
        at_s = _number(number, line, "at_s", None, high=TIME_S_MAX)
        before_s = self._cells[-1].at_s if self._cells else self._notebooks[notebook].opens_s
        if at_s < before_s:
            raise _wrong(
                number,
                f"goes back in time, from {before_s:g} s to {at_s:g} s",
                "Sort the cells by at_s; a notebook opens before its first cell.",
            )
        self._check_open(number, notebook, at_s)
        work_s = _number(number, line, "work_s", None, above=0.0, high=TIME_S_MAX)
        hold_s = _number(number, line, "hold_s", 0.0, high=TIME_S_MAX)
        if hold_s and self._notebooks[notebook].is_program:
            raise _wrong(
                number,
                f"has a hold_s, and {name!r} is a program",
                "Only notebooks keep turns by hand.",
            )
        self._cells.append(Cell(notebook, at_s, work_s, hold_s))

    def _check_open(self, number: int, notebook: int, at_s: float) -> None:
        found = self._notebooks[notebook]
        closed = found.closes_s is not None and at_s > found.closes_s
        if at_s < found.opens_s or closed:
            raise _wrong(
                number,
                f"has a cell of {found.name!r} while that notebook is not open",
                "Correct its at_s, or opens_s and closes_s of the notebook.",
            )


def _groups(number: int, groups: object) -> tuple[str, ...]:
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        raise _wrong(number, "has groups that are not a list of names")
    return tuple(groups)


def _weights(number: int, weights: object) -> str:
    """As the setting has them."""
    if not isinstance(weights, dict):
        raise _wrong(number, "has weights that are not an object")
    for owner in weights:
        _number(number, weights, owner, None, low=WEIGHT_MIN, high=WEIGHT_MAX)
    text = ", ".join(f"{owner}={float(weight)}" for owner, weight in weights.items())
    try:
        is_read = parse_weights(text) == weights
    except EntryError:
        is_read = False
    if not is_read:
        raise _wrong(
            number,
            "gives a weight to a name that has a comma or a blank at its end",
            "Give that owner another name.",
        )
    return text


def _refuse_unknown(number: int, line: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(line.keys() - known)
    if unknown:
        raise _wrong(number, f"has an unknown {unknown[0]!r}", f"Give {', '.join(sorted(known))}.")


def _text(number: int, line: dict[str, Any], name: str, default: str | None) -> str:
    value = line.get(name, default)
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > 256:
        raise _wrong(number, f"has no printable text as {name}")
    return value


def _number(
    number: int,
    line: dict[str, Any],
    name: str,
    default: float | None,
    *,
    low: float = 0.0,
    above: float | None = None,
    high: float,
) -> float:
    value = line.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(number, f"has no number as {name}")
    high_enough = value > above if above is not None else value >= low
    if not (high_enough and value <= high):  # NaN is neither
        bounds = f"above {above:g}" if above is not None else f"from {low:g}"
        shown = str(value)[:20]
        raise _wrong(number, f"has {name} {shown}", f"Give a number {bounds} to {high:g}.")
    return float(value)


def _whole(
    number: int, line: dict[str, Any], name: str, default: int, *, low: int, high: int
) -> int:
    value = line.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(number, f"has no whole number as {name}")
    if not low <= value <= high:
        raise _wrong(
            number, f"has {name} {str(value)[:20]}", f"Give a whole number from {low} to {high}."
        )
    return value
