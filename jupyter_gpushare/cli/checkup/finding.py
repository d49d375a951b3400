"""What the doctor says of one thing that it has looked at. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.Enum):
    """OK; works, but not for all or not as well as it could; does not work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `remedy` is empty where there is nothing to do."""

    check: str
    level: Level
    what: str
    remedy: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(check=check, level=Level.OK, what=what)


def warning(check: str, what: str, remedy: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, what=what, remedy=remedy)


def problem(check: str, what: str, remedy: str) -> Finding:
    return Finding(check=check, level=Level.PROBLEM, what=what, remedy=remedy)
