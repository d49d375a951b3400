"""What the doctor says of a node of Kubernetes: who has a GPU there, and who has a seat. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpushare.kubelet.pods import mistakes
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
        free = "" if node.devices.allocatable is None else _of_all(facts)
        yield ok(_CHECK, f"{seated}{free} seats of this node are taken, each with a GPU.")


def _of_all(facts: Facts) -> str:
    return f" of {len((facts.node.devices.allocatable or {}).get(RESOURCE, ()))}"
