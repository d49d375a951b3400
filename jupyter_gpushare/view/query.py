"""What is asked of the view, read from the arguments of a request. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ROWS_MAX = 100
"""Of one answer; the rest is behind `offset`."""
TEXT_CHARACTERS_MAX = 200
OFFSET_MAX = 10**9
SHOWN = ("nodes", "tenants")
STATES = ("live", "silent", "conflict", "recovering")
FILTERS = ("", *STATES, "problems", "free", "waiting")
SORTS = ("name", "problems", "waiting", "free")


class QueryError(ValueError):
    """A request that cannot be answered: what is wrong, and what may be asked."""


@dataclass(frozen=True, slots=True)
class Query:
    show: str = "nodes"
    find: str = ""
    """Folded, so that capitals do not matter."""
    state: str = ""
    """A state of nodes, or `problems`, `free` or `waiting`: nodes that have such."""
    sort: str = "name"
    owner: str = ""
    node: str = ""
    limit: int = ROWS_MAX
    offset: int = 0
    summary: bool = False
    """Of events: the summary comes with each."""
    open: str = ""
    """Of events: the name of a node whose devices and tenants come with each."""


def query_of(arguments: Mapping[str, str]) -> Query:
    """Raises QueryError. Names that are not known are passed over, as everywhere on the web."""
    return Query(
        show=_one_of("show", arguments.get("show", "nodes"), SHOWN),
        find=_text("find", arguments).casefold(),
        state=_one_of("state", arguments.get("state", ""), FILTERS),
        sort=_one_of("sort", arguments.get("sort", "name"), SORTS),
        owner=_text("owner", arguments),
        node=_text("node", arguments),
        limit=_count("limit", arguments.get("limit", str(ROWS_MAX)), 1, ROWS_MAX),
        offset=_count("offset", arguments.get("offset", "0"), 0, OFFSET_MAX),
        summary=_one_of("summary", arguments.get("summary", "0"), ("0", "1")) == "1",
        open=_text("open", arguments),
    )


def _text(name: str, arguments: Mapping[str, str]) -> str:
    text = arguments.get(name, "").strip()
    if len(text) > TEXT_CHARACTERS_MAX:
        raise QueryError(
            f"{name} has more than {TEXT_CHARACTERS_MAX} characters. Ask for a shorter text."
        )
    return text


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        known = ", ".join(each or "nothing" for each in choices)
        raise QueryError(f"{name} cannot be {value[:40]!r}. It may be one of: {known}.")
    return value


def _count(name: str, value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 12):
        raise QueryError(f"{name} is not a whole number. Give one from {least} to {most}.")
    if not least <= int(value) <= most:
        raise QueryError(f"{name} is out of bounds. Give a number from {least} to {most}.")
    return int(value)
