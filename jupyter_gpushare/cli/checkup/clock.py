"""Whether this machine's clock and the hub's agree. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts
from .finding import Finding, ok, warning

SKEW_S_MAX = 30.0
_CHECK = "clock"


def check_clock(facts: Facts) -> Iterator[Finding]:
    ahead_s = facts.hub.clock_ahead_s
    if ahead_s is None:
        return
    if abs(ahead_s) <= SKEW_S_MAX:
        yield ok(_CHECK, "The clocks of this machine and of the hub agree.")
        return
    where = "ahead of" if ahead_s > 0 else "behind"
    yield warning(
        _CHECK,
        f"The clock of this machine is {abs(ahead_s):.0f} s {where} the hub's, and the times of "
        f"tokens, certificates and reports depend on it.",
        "Let both machines keep time by NTP, such as with `timedatectl set-ntp true`.",
    )
