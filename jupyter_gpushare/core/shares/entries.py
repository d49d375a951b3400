"""What an admin writes of users and groups in one line, such as `ann=2, @staff=3`; of notebooks
too, where that means something (`ann:train.ipynb=8GiB`).

A user's own entry goes before those of groups; of several groups the largest value counts. Weights
say who counts how much, caps how much device memory users may have.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

GROUP_SIGN = "@"
TENANT_SIGN = ":"
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
DEFAULT_WEIGHT = 1.0
_SHOWN_MAX = 60
_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(?P<number>\d{1,18}(\.\d{1,6})?)\s*(?P<unit>[kmgt]ib|)", re.ASCII)
_BYTES_MAX = 1 << 62

V = TypeVar("V", int, float, str)


class EntryError(ValueError):
    """A text that cannot be read; the message says where, and what to write."""


def parse_entries(
    text: str, *, what: str, example: str, read: Callable[[str, str], V]
) -> dict[str, V]:
    """Values by user name, and by `@` and the name of a group. `read` makes a value of a name and a
    text. Raises EntryError."""
    values: dict[str, V] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = (part.strip() for part in entry.rpartition("="))
        if not sign or not name.removeprefix(GROUP_SIGN):
            raise EntryError(f"{entry[:_SHOWN_MAX]!r} is not a {what}. Write it like {example}.")
        if is_tenant(name) and TENANT_SIGN in (name[0], name[-1]):
            raise EntryError(f"{name[:_SHOWN_MAX]!r} names no notebook. Write it like ann:a.ipynb.")
        if name in values:
            raise EntryError(f"{name} is there twice. Give it one {what}.")
        values[name] = read(name, value)
    return values


def with_entries(text: str, changes: Mapping[str, object]) -> str:
    """The text with these entries, each in place of the one of the same name; None takes it away.
    Raises EntryError."""
    kept = parse_entries(text, what="entry", example="ann=2", read=lambda name, value: value)
    for name, value in changes.items():
        if value is None:
            kept.pop(name, None)
        elif not isinstance(value, str) or any(sign in f"{name}{value}" for sign in ",\n"):
            shown = f"{name}={value}"[:_SHOWN_MAX]
            raise EntryError(f"{shown!r} is no entry. Send a name and a text, without commas.")
        else:
            kept[name] = value
    return ", ".join(f"{name}={value}" for name, value in kept.items())


def value_of(values: Mapping[str, V], owner: str, groups: Iterable[str]) -> V | None:
    """Of a user who is in these groups; None where nobody has said anything. A user whose name is
    written like a group's is none."""
    if owner in values and not owner.startswith(GROUP_SIGN):
        return values[owner]
    of_groups = (values.get(GROUP_SIGN + group) for group in groups)
    return max((each for each in of_groups if each is not None), default=None)


def name_of_tenant(owner: str, name: str) -> str:
    """Of the entry of a user's notebook; all of the same name share it."""
    return f"{owner}{TENANT_SIGN}{name}"


def is_tenant(name: str) -> bool:
    """Whether an entry of this name is a notebook's."""
    return TENANT_SIGN in name and not name.startswith(GROUP_SIGN)


# ---- weights --------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def parse_weights(text: str) -> Mapping[str, float]:
    """Weights by user name, and by `@` and the name of a group, which nobody changes. Raises
    EntryError."""
    return parse_entries(text, what="weight", example="ann=2 or @staff=3", read=_weight)


def weight_of(weights: Mapping[str, float], owner: str, groups: Iterable[str]) -> float:
    """The weight of a user who is in these groups."""
    found = value_of(weights, owner, groups)
    return DEFAULT_WEIGHT if found is None else found


def _weight(name: str, text: str) -> float:
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


# ---- caps -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def parse_caps(text: str) -> Mapping[str, int]:
    """Bytes by user name, and by `@` and the name of a group. Raises EntryError."""
    return parse_entries(text, what="cap", example="ann=20GiB or @guests=8GiB", read=_cap)


def cap_of(caps: Mapping[str, int], owner: str, groups: Iterable[str]) -> int:
    """Of a user who is in these groups; 0: none."""
    return value_of(caps, owner, groups) or 0


def cap_of_tenant(caps: Mapping[str, int], owner: str, groups: Iterable[str], name: str) -> int:
    """Of a notebook. Its own entry goes before those of its user and of groups."""
    own = value_of(caps, name_of_tenant(owner, name), ())
    return cap_of(caps, owner, groups) if own is None else own


def tighter(*caps: int) -> int:
    """The least of these; 0 is none."""
    return min(filter(None, caps), default=0)


def _cap(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.lower())
    size = 0 if found is None else int(float(found["number"]) * _UNITS[found["unit"]])
    if not 0 < size <= _BYTES_MAX:
        raise EntryError(f"The cap of {name} is {text[:20]!r}. Give a size such as 20GiB.")
    return size
