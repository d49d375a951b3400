"""What the doctor says of a node of Kubernetes: who has a GPU there, and who has a seat. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpushare.kubelet.pods import mistakes, without_notebooks
from jupyter_gpushare.kubelet.seats import RESOURCE

from .facts import Facts
from .finding import Finding, ok, warning

_CHECK = "seats"


def check_node(facts: Facts) -> Iterator[Finding]:
    node = facts.node
    if not node.socket:
        return
    if node.problem:
        what, _, remedy = node.problem.partition(". ")
        yield warning(_CHECK, f"{what}.", remedy)
        return
    found = mistakes(node.devices)
    for mistake in found:
        yield warning(_CHECK, mistake.what, mistake.remedy)
    if not found:
        seated = sum(container.has_seat for container in node.devices.containers)
        yield ok(
            _CHECK,
            f"{seated}{_of_all(facts)} seats of this node are taken, each with a GPU"
            f"{_known(facts)}{_untold(facts)}.",
        )


def _of_all(facts: Facts) -> str:
    allocatable = facts.node.devices.allocatable
    return "" if allocatable is None else f" of {len(allocatable.get(RESOURCE, ()))}"


def _untold(facts: Facts) -> str:
    """Before Kubernetes 1.23."""
    if facts.node.devices.allocatable is not None:
        return ""
    return "; this kubelet is too old to tell whether the plugin is registered"


def _known(facts: Facts) -> str:
    """A server without a notebook is one of them, and so is one whose image lacks the package:
    strangers.py tells where it has come to that."""
    if facts.scheduler.status is None:
        return ""
    owners = {str(each.get("owner") or "") for each in facts.scheduler.status["tenants"]}
    silent = len(without_notebooks(facts.node.devices, owners))
    return f"; of {silent} of them the scheduler knows no notebook" if silent else ""
