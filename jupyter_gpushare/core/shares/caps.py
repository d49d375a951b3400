"""How much device memory users may have: what an admin writes of users and groups, in bytes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from .entries import EntryError, name_of_tenant, parse_entries, value_of

_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(?P<number>\d{1,18}(\.\d{1,6})?)\s*(?P<unit>[kmgt]ib|)", re.ASCII)
_BYTES_MAX = 1 << 62


@functools.lru_cache(maxsize=32)
def parse(text: str) -> Mapping[str, int]:
    """Bytes by user name, and by `@` and the name of a group. Raises EntryError."""
    return parse_entries(text, what="cap", example="ann=20GiB or @guests=8GiB", read=_bytes)


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


def _bytes(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text.lower())
    size = 0 if found is None else int(float(found["number"]) * _UNITS[found["unit"]])
    if not 0 < size <= _BYTES_MAX:
        raise EntryError(f"The cap of {name} is {text[:20]!r}. Give a size such as 20GiB.")
    return size
