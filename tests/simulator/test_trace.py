"""Traces: what they say, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.simulator import journal_trace, trace
from jupyter_gpushare.simulator.base.errors import SimulationError
from jupyter_gpushare.simulator.base.workload import GIB, Cell
from jupyter_gpushare.simulator.load import of_files, of_preset
from tests.simulator.test_journal_trace import SCENE, journalled

HEAD = {"trace": 1, "title": "Monday", "devices": 2, "weights": {"ann": 2}}
TRAIN = {"notebook": "train", "owner": "ann", "bytes": GIB}
CELL = {"cell": "train", "at_s": 12.5, "work_s": 30}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "trace.json"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))
    return path


def test_a_trace_is_read(tmp_path: Path) -> None:
    """Head, notebooks and cells."""
    notebook = {**TRAIN, "opens_s": 5, "closes_s": 60, "device": 1, "program": True}
    notebook["groups"] = ["staff"]
    holds = {"cell": "held", "at_s": 14, "work_s": 1, "hold_s": 60}
    other = {"notebook": "held", "owner": "ben"}
    workload = of_files([written(tmp_path, HEAD, notebook, "", CELL, other, holds)])
    assert (workload.title, workload.devices) == ("Monday", 2)
    assert workload.settings == {"weights": "ann=2.0"}
    train, _ = workload.notebooks
    assert (train.name, train.owner, train.bytes_used, train.device) == ("train", "ann", GIB, 1)
    assert train.groups == ("staff",)
    assert (train.opens_s, train.closes_s, train.is_program) == (5.0, 60.0, True)
    assert workload.cells == [Cell(0, 12.5, 30.0), Cell(1, 14.0, 1.0, hold_s=60.0)]


WRONG = {
    "not JSON": ([HEAD, TRAIN, "{"], "Line 3 of the trace is not JSON"),
    "not an object": ([HEAD, "[1]"], "Line 2 of the trace is not a JSON object"),
    "no head": ([TRAIN, CELL], 'does not begin with {"trace": 1'),
    "another version": ([{"trace": 2}], "does not begin with"),
    "nothing": ([], "The trace is empty"),
    "no cells": ([HEAD, TRAIN], "no cells"),
    "neither": ([HEAD, {"at_s": 1}], "Line 2 of the trace has neither a cell nor a notebook"),
    "unknown field": ([HEAD, {**TRAIN, "gpu": 1}], "Line 2 of the trace has an unknown 'gpu'"),
    "twice": ([HEAD, TRAIN, TRAIN], "Line 3 of the trace has the notebook 'train' again"),
    "unknown notebook": ([HEAD, CELL], "Line 2 of the trace has a cell of 'train', which"),
    "negative time": ([HEAD, TRAIN, {**CELL, "at_s": -1}], "Line 3 of the trace has at_s -1"),
    "no time": ([HEAD, TRAIN, {"cell": "train", "work_s": 1}], "no number as at_s"),
    "NaN": ([HEAD, TRAIN, '{"cell": "train", "at_s": NaN, "work_s": 1}'], "has at_s nan"),
    "endless": ([HEAD, TRAIN, '{"cell": "train", "at_s": 1, "work_s": Infinity}'], "work_s inf"),
    "huge": ([HEAD, TRAIN, {**CELL, "at_s": 10**400}], "Line 3 of the trace has at_s 1000"),
    "huge bytes": ([HEAD, {**TRAIN, "bytes": 10**400}], "Line 2 of the trace has bytes 1000"),
    "no work": ([HEAD, TRAIN, {**CELL, "work_s": 0}], "Line 3 of the trace has work_s 0"),
    "true": ([HEAD, TRAIN, {**CELL, "work_s": True}], "no number as work_s"),
    "back in time": (
        [HEAD, TRAIN, CELL, {**CELL, "at_s": 12}],
        "Line 4 of the trace goes back in time, from 12.5 s to 12 s",
    ),
    "after its end": ([HEAD, {**TRAIN, "closes_s": 12}, CELL], "while that notebook is not open"),
    "closes before": ([HEAD, {**TRAIN, "opens_s": 9, "closes_s": 8}], "has closes_s 8"),
    "negative bytes": ([HEAD, {**TRAIN, "bytes": -1}], "Line 2 of the trace has bytes -1"),
    "no owner": ([HEAD, {"notebook": "train"}], "no printable text as owner"),
    "weight 0": ([{**HEAD, "weights": {"ann": 0}}], "Line 1 of the trace has ann 0"),
    "weights": ([{**HEAD, "weights": [1]}], "has weights that are not an object"),
    "weight of two": ([{**HEAD, "weights": {"a,b": 2}}], "a name that has a comma"),
    "groups": ([HEAD, {**TRAIN, "groups": "staff"}], "has groups that are not a list of names"),
    "no devices": ([{**HEAD, "devices": 0}], "Line 1 of the trace has devices 0"),
    "half a device": ([{**HEAD, "devices": 1.5}], "no whole number as devices"),
    "program that holds": (
        [HEAD, {**TRAIN, "program": True}, {**CELL, "hold_s": 9}],
        "Line 3 of the trace has a hold_s, and 'train' is a program",
    ),
    "gap": ([HEAD, {**TRAIN, "gap_s": 1}], "has a gap_s and no burst_s"),
    "tiny burst": ([HEAD, {**TRAIN, "burst_s": 1e-9}], "has burst_s 1e-09"),
    "a year later": ([HEAD, TRAIN, {**CELL, "at_s": 4e7}], "has at_s 40000000.0"),
    "program": ([HEAD, {**TRAIN, "program": 1}], "has a program of 1"),
    "deep": ([HEAD, "[" * 100_000], "Line 2 of the trace is not JSON"),
    "long": ([HEAD, " " * (1 << 20)], "Line 2 of the trace has more than 1,048,576 characters"),
}


@pytest.mark.promise(
    "simulator-10",
    "A trace that is wrong is refused with the number of its line, and so is one that is too long",
)
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused(tmp_path: Path, case: str) -> None:
    """One sentence with the line, and one on what to do."""
    lines, words = WRONG[case]
    with pytest.raises(SimulationError) as refused:
        of_files([written(tmp_path, *lines)])
    assert words in str(refused.value)
    assert str(refused.value).endswith(".") and str(refused.value).count(". ") >= 1


@pytest.mark.promise("simulator-10")
def test_a_trace_that_is_too_long_is_refused_where_it_is(tmp_path: Path) -> None:
    """No line is read beyond the bound, however many there are."""
    read = 0

    def endless() -> object:
        nonlocal read
        yield 1, HEAD
        yield 2, TRAIN
        for number in range(3, 10_000_000):
            read += 1
            yield number, CELL

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "CELLS_MAX", 1000)
        with pytest.raises(SimulationError, match="more than 1,000 cells"):
            trace.read_trace(endless())  # type: ignore[arg-type]
    assert read == 1001


class Line(dict[str, object]):
    """Of a file, counted while somebody keeps it."""

    kept = 0

    def __init__(self, said: dict[str, object]) -> None:
        super().__init__(said)
        Line.kept += 1

    def __del__(self) -> None:
        Line.kept -= 1


@pytest.mark.promise(
    "simulator-11",
    "However many events a file has, it is read as it streams by: no line is kept, and the "
    "terminal shows how far it is",
)
@pytest.mark.parametrize("is_journal", [False, True])
def test_no_line_is_kept(tmp_path: Path, is_journal: bool) -> None:
    """What is kept is a cell for each cell, and nothing for the other events of a journal."""
    most = 0

    def trace_lines() -> Iterator[dict[str, object]]:
        yield from (HEAD, TRAIN)
        yield from (CELL for _ in range(5000))

    def journal_lines() -> Iterator[dict[str, object]]:
        path = journalled(tmp_path / "journal", SCENE)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        reports = [each for each in lines if each.get("event", {}).get("type") == "CellBegan"]
        yield from lines
        for _ in range(5000):
            yield {**reports[-1], "at_s": lines[-1]["at_s"], "commands": []}

    def counted() -> Iterator[tuple[int, dict[str, object]]]:
        nonlocal most
        for number, said in enumerate(journal_lines() if is_journal else trace_lines(), 1):
            yield number, Line(said)
            most = max(most, Line.kept)

    read = journal_trace.read_journal if is_journal else trace.read_trace
    workload = read(counted())
    assert len(workload.cells) == (len(SCENE.cells) if is_journal else 5000)
    assert 0 < most <= 3


def test_reading_tells_how_far_it_is(tmp_path: Path) -> None:
    path, told = written(tmp_path, HEAD, TRAIN, CELL), list[int]()
    of_files([path], told.append)
    assert (len(told), sum(told)) == (3, path.stat().st_size)


def test_files_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    """One that is not there, a folder, and bytes."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, words in (
        ("missing", "No such file"),
        (".", "Is a directory"),
        ("bytes", "not a text in UTF-8"),
    ):
        with pytest.raises(SimulationError, match=words):
            of_files([tmp_path / name])


def test_two_traces_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD, TRAIN, CELL)
    with pytest.raises(SimulationError, match="Several files are read only as journals"):
        of_files([path, path])


def test_an_unknown_preset_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SimulationError, match=r"'clasroom'\. Did you mean classroom\?"):
        of_preset("clasroom", 1)
