"""Names of users and groups in settings that nobody has seen: they may come later, or be mistakes.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..settings import ENTRIES, SchedulerSettings
from ..shares.entries import GROUP_SIGN, TENANT_SIGN, is_tenant, parse_entries


def unseen(
    settings: SchedulerSettings,
    *,
    is_user: Callable[[str], bool],
    is_group: Callable[[str], bool],
) -> dict[str, list[str]]:
    """By setting, the names of its entries that are of no user and no group. A notebook counts as
    its user does."""
    found = {}
    for setting in ENTRIES:
        text = getattr(settings, setting)
        names = parse_entries(text, what="entry", example="", read=lambda name, value: value)
        unknown = [name for name in names if not _is_known(name, is_user, is_group)]
        if unknown:
            found[setting] = unknown
    return found


def _is_known(name: str, is_user: Callable[[str], bool], is_group: Callable[[str], bool]) -> bool:
    if name.startswith(GROUP_SIGN):
        return is_group(name.removeprefix(GROUP_SIGN))
    return is_user(name) or (is_tenant(name) and is_user(name.partition(TENANT_SIGN)[0]))


def unseen_told(found: Mapping[str, Sequence[str]]) -> str:
    """In a sentence; empty where there are none."""
    if not found:
        return ""
    of = "; ".join(f"{', '.join(names)} ({setting})" for setting, names in found.items())
    return f"Nobody has seen these users and groups yet, and the entries wait for them: {of}."
