"""What may be asked of the GPU-hours, and how spreadsheets read the answer."""

from __future__ import annotations

import csv
import io
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.view.usage_table import BadQuestion, Question, date_of, lines_of, question_of

TODAY = 20_000
"""2024-10-04."""


def test_what_is_asked_where_nothing_is_said() -> None:
    """Owners of the last 30 days together."""
    assert question_of({}, "alice", TODAY) == Question(
        by="owner", per="total", first_day=TODAY - 29, last_day=TODAY, owner="alice"
    )
    asked = {"by": "group", "per": "day", "from": "2024-01-31", "to": "2024-02-29"}
    question = question_of(asked, None, TODAY)
    assert (date_of(question.first_day), date_of(question.last_day)) == ("2024-01-31", "2024-02-29")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"by": "node"}, "by is neither owner nor group. Give one of these."),
        ({"per": "hour"}, "per is neither day nor total. Give one of these."),
        ({"from": "31.1.2026"}, "from is not a date. Write it like 2026-01-31."),
        ({"to": ""}, "to is not a date. Write it like 2026-01-31."),
        (
            {"from": "2024-02-02", "to": "2024-02-01"},
            "The first day (from) is after the last one (to). Exchange them.",
        ),
    ],
)
def test_what_cannot_be_asked(arguments: dict[str, str], sentence: str) -> None:
    """One sentence says what is wrong, another what to do."""
    with pytest.raises(BadQuestion) as raised:
        question_of(arguments, None, TODAY)
    assert str(raised.value) == sentence


names = st.one_of(
    st.text(st.characters(exclude_characters="\x00")), st.text("x;=-@'\" ,|\t\r\n", max_size=8)
)
"""Reports have no such character, and Python 3.10 reads no line with one."""


@pytest.mark.promise(
    "view-22", "GPU-hours of owners and groups are a table that spreadsheets read, and never run"
)
@given(names, names)
def test_every_name_is_read_back(name: str, node: str) -> None:
    """And none is a formula."""
    question = question_of({"per": "day"}, None, TODAY)
    text = "".join(lines_of(question, [(TODAY, TODAY, name, node, 5400.0)]))
    head, row = csv.reader(io.StringIO(text, newline=""))
    assert head == ["from", "to", "owner", "account_on", "gpu_hours"]
    assert row[:2] == ["2024-10-04"] * 2 and row[4] == "1.5000"
    for said, cell in ((name, row[2]), (node, row[3])):
        assert cell.replace("'", "") == said.replace("'", "")
    assert not any(map(is_formula, row))
    for separator in ";\t|":
        for read in csv.QUOTE_MINIMAL, csv.QUOTE_NONE:
            lines = io.StringIO(text, newline="")
            for cells in csv.reader(lines, delimiter=separator, quoting=read):
                assert not any(map(is_formula, cells))


def is_formula(cell: str) -> bool:
    return cell.lstrip(f'{string.whitespace}"').startswith(tuple("=+-@＝＋－＠"))  # noqa: RUF001


@pytest.mark.promise("view-22")
@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", " =1", "＝1"])  # noqa: RUF001
def test_a_name_that_would_be_computed(name: str) -> None:
    """It begins with an apostrophe; others are as they are."""
    question = question_of({}, None, TODAY)
    text = "".join(lines_of(question, [(TODAY, TODAY, name, "a", 0.0)]))
    _, row = csv.reader(io.StringIO(text, newline=""))
    assert row[2:4] == [f"'{name}", "a"]


@pytest.mark.promise("view-22")
@pytest.mark.parametrize(
    ("name", "told"),
    [("x;=1+1", "x;'=1+1"), ('x; "@a', "x; \"'@a"), ("x\n-1", "x\n'-1"), ("x;y-z", "x;y-z")],
)
def test_a_name_that_is_two_cells_elsewhere(name: str, told: str) -> None:
    """A spreadsheet that begins a cell at `;` computes nothing, either."""
    text = "".join(lines_of(question_of({}, None, TODAY), [(TODAY, TODAY, name, "a", 0.0)]))
    _, row = csv.reader(io.StringIO(text, newline=""))
    assert row[2] == told


def test_a_day_that_has_no_date() -> None:
    """The clock of the machine was far off: the table is told all the same."""
    assert date_of(10**9) == "1000000000"
