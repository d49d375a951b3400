"""Who counts how much: what an admin writes of users and groups, as numbers.

A text such as `ann=2, @staff=3` gives the user ann twice, and each member of the group staff three
times, what a user has who is not named. A user's own entry goes before those of groups; of several
groups the largest counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
DEFAULT_WEIGHT = 1.0
GROUP_SIGN = "@"


class WeightError(ValueError):
    """A text that gives no weights; the message says where, and what to write."""


@functools.lru_cache(maxsize=16)
def parse(text: str) -> Mapping[str, float]:
    """Weights by user name, and by `@` and the name of a group, which nobody changes. Raises
    WeightError."""
    weights: dict[str, float] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, sign, number = (part.strip() for part in entry.rpartition("="))
        if not sign or not name.removeprefix(GROUP_SIGN):
            raise WeightError(f"{entry[:60]!r} is not a weight. Write it like ann=2 or @staff=3.")
        if name in weights:
            raise WeightError(f"{name} has two weights. Give it one.")
        weights[name] = _number(name, number)
    return weights


def weight_of(weights: Mapping[str, float], owner: str, groups: Iterable[str]) -> float:
    """The weight of a user who is in these groups. A user whose name is written like a group's is
    none."""
    if owner in weights and not owner.startswith(GROUP_SIGN):
        return weights[owner]
    of_groups = (weights.get(GROUP_SIGN + group) for group in groups)
    return max((each for each in of_groups if each is not None), default=DEFAULT_WEIGHT)


def _number(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise WeightError(
            f"The weight of {name} is {text[:20]!r}. Give a number from {WEIGHT_MIN:g} to "
            f"{WEIGHT_MAX:g}."
        )
    return weight
