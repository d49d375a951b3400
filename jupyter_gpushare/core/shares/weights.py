"""Who counts how much: what an admin writes of users and groups, as numbers.

A text such as `ann=2, @staff=3` gives the user ann twice, and each member of the group staff three
times, what a user has who is not named.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

from .entries import EntryError, parse_entries, value_of

WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
DEFAULT_WEIGHT = 1.0


@functools.lru_cache(maxsize=16)
def parse(text: str) -> Mapping[str, float]:
    """Weights by user name, and by `@` and the name of a group, which nobody changes. Raises
    EntryError."""
    return parse_entries(text, what="weight", example="ann=2 or @staff=3", read=_number)


def weight_of(weights: Mapping[str, float], owner: str, groups: Iterable[str]) -> float:
    """The weight of a user who is in these groups."""
    found = value_of(weights, owner, groups)
    return DEFAULT_WEIGHT if found is None else found


def _number(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise EntryError(
            f"The weight of {name} is {text[:20]!r}. Give a number from {WEIGHT_MIN:g} to "
            f"{WEIGHT_MAX:g}."
        )
    return weight
