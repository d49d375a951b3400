"""Classes of tenants: when a tenant is served. How much it gets is for shares (accounts.py).

`realtime` is served before new cells, and ends the turns of others at once. `interactive` is what a
tenant is that asks for nothing. `batch` is served when nobody else wants the device.

A class goes before others as long as its owner is within its share: the owner has had no more of
the device than the others by now, weighted. Beyond that, tenants of all classes are equal. Batch
tenants that have waited for `starvation_s` are served before all but `realtime`.

An admin says which is the highest class of a user or a group (`ann=realtime, @guests=batch`). Who
is not named has `interactive`. The lower ones are free for everybody.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping

from .entries import EntryError, parse_entries, value_of


class TenantClass(enum.Enum):
    """When a tenant is served, the last first."""

    BATCH = "batch"
    INTERACTIVE = "interactive"
    REALTIME = "realtime"


CLASSES = {each.value: number for number, each in enumerate(TenantClass)}
"""By name, the rank of each."""
_NAMES = tuple(CLASSES)
DEFAULT = TenantClass.INTERACTIVE


@functools.lru_cache(maxsize=16)
def parse(text: str) -> Mapping[str, int]:
    """The highest class by user name, and by `@` and the name of a group. Raises EntryError."""
    return parse_entries(text, what="class", example="ann=realtime or @guests=batch", read=_rank)


def _rank(name: str, text: str) -> int:
    if text not in CLASSES:
        names = ", ".join(_NAMES)
        raise EntryError(f"The class of {name} is {text[:20]!r}. Give one of: {names}.")
    return CLASSES[text]


def highest(classes: Mapping[str, int], owner: str, groups: Iterable[str]) -> TenantClass:
    """The highest class of a user who is in these groups."""
    found = value_of(classes, owner, groups)
    return DEFAULT if found is None else TenantClass(_NAMES[found])


def runs_as(asked: str, most: TenantClass) -> TenantClass:
    """The class of a tenant that asks for this one, by its name; an empty name asks for none. One
    that there is not, or that its owner may not use, does not count."""
    wanted = TenantClass(asked) if asked in CLASSES else DEFAULT
    if CLASSES[wanted.value] <= CLASSES[most.value]:
        return wanted
    return min(DEFAULT, most, key=lambda each: CLASSES[each.value])


# ---- the order in a line ---------------------------------------------------------------------

BOOSTED, URGENT, STARVED, FIRST, GUARANTEED, ORDINARY, LAST, OVER, BLOCKED = range(9)
"""How soon a tenant of a line is served: an admin has boosted it; it is `realtime` and within its
share; it is `batch` and has waited for long; it has a new cell, and credit; its owner has had less
than was guaranteed; it is any other; it is `batch`, or is beyond its share where others are
`batch`; its owner has had its limit, or its hard limit."""
BY_SHARE = (GUARANTEED, ORDINARY, LAST, OVER)
"""Among these, the owner's share decides; among others, who came first."""


def level(
    runs_as: TenantClass, *, within_share: bool, starved: bool, new_cell: bool, beside_batch: bool
) -> int:
    """Of a tenant that waits."""
    if runs_as is TenantClass.REALTIME and within_share:
        return URGENT
    if runs_as is TenantClass.BATCH:
        return STARVED if starved and within_share else LAST
    if new_cell:
        return FIRST
    return LAST if beside_batch and not within_share else ORDINARY


def ends(waits: int, has: int) -> bool:
    """Whether a turn of the level `has` ends at once for a tenant that waits at the level
    `waits`."""
    if waits >= has:
        return False
    return (
        waits in (URGENT, FIRST)
        or (waits == GUARANTEED and has >= ORDINARY)
        or (waits == ORDINARY and has == LAST)
    )
