"""Whether the policy that ends an overdue process can be kept. Pure.

A scheduler ends a process by the descriptor that the process's socket gives. Linux refuses that for
a process of a pid namespace that is neither the scheduler's nor below it. The policy would then
promise what cannot be done, so it is refused where that is known."""

from __future__ import annotations

from ..settings import OverduePolicy, SchedulerSettings

_REMEDY = (
    "Leave overdue_policy at warn, or let the scheduler see them (hostPID in the chart's values, "
    "the machine's own pid namespace for a hub in a container)."
)


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
