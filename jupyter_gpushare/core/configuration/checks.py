"""Whether settings mean what they say. Pure.

Names may be of users and groups that nobody has seen, who may come later, or be mistakes; and of
notebooks where they count no more.

The policy that ends an overdue process may not be kept. A scheduler ends a process by the
descriptor that the process's socket gives. Linux refuses that for a process of a pid namespace that
is neither the scheduler's nor below it. The policy would then promise what cannot be done, so it is
refused where that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..settings import ENTRIES, OverduePolicy, SchedulerSettings
from ..shares.entries import GROUP_SIGN, TENANT_SIGN, is_tenant, parse_entries

_SHARES = ("requests", "limits", "hard_limits")
NOTEBOOKS_REMEDY = "Take them out, and give their users shares, or the notebooks a class."
_REMEDY = (
    "Leave overdue_policy at warn, or let the scheduler see them (hostPID in the chart's values, "
    "the machine's own pid namespace for a hub in a container)."
)


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


def notebooks_with_shares(texts: Mapping[str, object]) -> dict[str, list[str]]:
    """By setting, the notebooks that its text names: an earlier version gave them shares."""
    found = {}
    for setting in _SHARES:
        names = parse_entries(
            str(texts.get(setting, "")), what="entry", example="", read=lambda name, value: value
        )
        if notebooks := [name for name in names if is_tenant(name)]:
            found[setting] = notebooks
    return found


def notebooks_told(found: Mapping[str, Sequence[str]]) -> str:
    """In a sentence; empty where there are none."""
    if not found:
        return ""
    of = "; ".join(f"{', '.join(names)} ({setting})" for setting, names in found.items())
    return f"Notebooks have no shares of their own, so these entries count for nothing: {of}."


def unseen_told(found: Mapping[str, Sequence[str]]) -> str:
    """In a sentence; empty where there are none."""
    if not found:
        return ""
    of = "; ".join(f"{', '.join(names)} ({setting})" for setting, names in found.items())
    return f"Nobody has seen these users and groups yet, and the entries wait for them: {of}."


def why_it_cannot_kill(
    settings: SchedulerSettings,
    before: SchedulerSettings | None,
    *,
    hidden_tenants: bool,
    unseen: int,
) -> str:
    """A sentence, and what to do; empty where these settings may follow on those `before`.

    `hidden_tenants`: whoever started the scheduler says that all of them are out of its sight.
    `unseen`: so many connected processes have no number here. A policy that was taken before
    them stays: other settings must not be refused for it."""
    if settings.overdue_policy is not OverduePolicy.KILL:
        return ""
    if hidden_tenants:
        return (
            f"The overdue policy kill cannot be kept: this scheduler does not see the processes of "
            f"notebooks, so it cannot end them. {_REMEDY}"
        )
    if unseen and (before is None or before.overdue_policy is not OverduePolicy.KILL):
        return (
            f"The overdue policy kill cannot be kept: {unseen} of the processes that are connected "
            f"run out of this scheduler's sight, so it cannot end them. {_REMEDY}"
        )
    return ""
