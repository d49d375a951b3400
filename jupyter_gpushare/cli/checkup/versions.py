"""Whether package, hook, scheduler and hub are of versions that were meant for each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .facts import DOCKER, KUBERNETES, Facts
from .finding import Finding, ok, warning
from .jobs import who_updates_it

_CHECK = "version"


def check_versions(facts: Facts) -> Iterator[Finding]:
    """Those of different versions understand each other, or one refuses the other with a sentence:
    what is newer in one is missing all the same."""
    if facts.scheduler.status is None:
        return
    scheduler = str(facts.scheduler.status["scheduler"]["version"])
    package, hook, hub = facts.scheduler.own_version, facts.library.version, facts.hub.version
    differ = [*_package(facts, scheduler, package)]
    if facts.library.is_mounted and hook and hook != scheduler:
        differ.append(
            warning(
                _CHECK,
                f"The hook {facts.library.path} is of jupyter-gpushare {hook}, and the scheduler "
                f"is {scheduler}.",
                _who_exchanges_the_hook(facts),
            )
        )
    if hub and hub != scheduler:
        differ.append(
            warning(
                _CHECK,
                f"The hub has jupyter-gpushare {hub}, and the scheduler here is {scheduler}.",
                "Ask your administrator to install one version for the hub and for the schedulers, "
                "and to restart both.",
            )
        )
    yield from differ
    if not differ:
        yield ok(_CHECK, f"Scheduler and package are both {package}.")


def _package(facts: Facts, scheduler: str, package: str) -> Iterator[Finding]:
    if package == scheduler:
        return
    remedy = (
        "Restart the scheduler when no cell runs; kernels connect to the new one by themselves."
    )
    if facts.place.container and facts.place.is_led:
        remedy = (
            f"Build the image anew with jupyter-gpushare {scheduler}; until then kernels share the "
            f"GPU, without what is new in the newer one of the two."
        )
    yield warning(
        _CHECK,
        f"The scheduler is jupyter-gpushare {scheduler}, and this package is {package}.",
        who_updates_it(facts.job) or remedy,
    )


def _who_exchanges_the_hook(facts: Facts) -> str:
    if facts.place.container == KUBERNETES:
        return (
            "Ask your administrator whether both containers of the node's gpushare pod have one "
            "image; the plugin exchanges the hook when it starts."
        )
    if facts.place.container == DOCKER:
        return "Ask your administrator to restart the hub; setup(c) exchanges the hook."
    return "Unset GPUSHARE_LIBRARY, or name the library of the scheduler's version there."
