"""The table of GPU-hours: what may be asked of it, and its text as CSV. Pure.

Columns: `from` and `to` (days in UTC, both included), `owner` or `group`, `account_on` (empty for
users of the hub; else the node whose account it is) and `gpu_hours`.

A tenant that holds two devices for an hour has two GPU-hours. Those of an owner in several groups
count once in the table of owners, and for each of these groups in the table of groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

DAYS_BY_DEFAULT = 30
_EPOCH = date(1970, 1, 1)
_FORMULA = (*"=+-@\t\r", *"\uff1d\uff0b\uff0d\uff20")
"""A spreadsheet takes a cell that begins so for something to compute, or to run. The last four are
the wide forms of the first four."""
_SIGN = f"[{re.escape(''.join(_FORMULA))}]"
_FIRST = re.compile(rf"[\s\"]*{_SIGN}")
_WITHIN = re.compile(rf"([;|\t\v\f\r\n][\s\"]*)({_SIGN})")
"""One that begins within a text: where decimals have a comma, `;` separates cells. Quotes do not
hold such a text together, for they are not at the beginning of a cell there."""


class BadQuestion(ValueError):
    """One sentence on what is wrong, and one on what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`owner` is None for whoever may see all; else what is told is of this user of the hub."""

    by: str
    per: str
    first_day: int
    last_day: int
    owner: str | None


Row = tuple[int, int, str, str, float]
"""First and last day, name, node of an account, seconds."""


def question_of(arguments: Mapping[str, str], owner: str | None, today: int) -> Question:
    """Raises BadQuestion. Without dates: the last 30 days, today included."""
    by = _one_of("by", arguments.get("by", "owner"), ("owner", "group"))
    per = _one_of("per", arguments.get("per", "total"), ("day", "total"))
    last = _day("to", arguments["to"]) if "to" in arguments else today
    first = _day("from", arguments["from"]) if "from" in arguments else last - DAYS_BY_DEFAULT + 1
    if first > last:
        raise BadQuestion("The first day (from) is after the last one (to). Exchange them.")
    return Question(by=by, per=per, first_day=first, last_day=last, owner=owner)


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BadQuestion(f"{name} is neither {' nor '.join(known)}. Give one of these.")
    return value


def _day(name: str, value: str) -> int:
    try:
        return (date.fromisoformat(value) - _EPOCH).days
    except ValueError:
        raise BadQuestion(f"{name} is not a date. Write it like 2026-01-31.") from None


def date_of(day: int) -> str:
    try:
        return (_EPOCH + timedelta(days=day)).isoformat()
    except OverflowError:
        return str(day)


def lines_of(question: Question, rows: Iterable[Row]) -> Iterator[str]:
    """Each with its end, the head first."""
    yield f"from,to,{question.by},account_on,gpu_hours\r\n"
    for first, last, name, node, seconds in rows:
        yield (
            f"{date_of(first)},{date_of(last)},{_cell(name)},{_cell(node)},{seconds / 3600:.4f}\r\n"
        )


def _cell(text: str) -> str:
    """As RFC 4180 has it. A text that a spreadsheet would compute begins with an apostrophe, also
    behind a `;`."""
    if _FIRST.match(text):
        text = f"'{text}"
    text = _WITHIN.sub(r"\1'\2", text)
    if any(each in text for each in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
