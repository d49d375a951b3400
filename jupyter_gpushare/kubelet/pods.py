"""What a node's kubelet says about who has which devices, and what is wrong with it. Pure.

A container shares a GPU by two resources: NVIDIA's, which gives it the GPU, and a seat, with which
it takes turns there. One without the other is a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .seats import RESOURCE

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
"""Where a kubelet answers. The chart mounts it there also where the kubelet's directory is another
one on the node."""
NVIDIA = "nvidia.com/"
REPLICA = "::"
"""NVIDIA's device plugin writes it between a device's name and the replica's number."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container with devices: the names of them by resource."""

    namespace: str
    pod: str
    name: str
    devices: Mapping[str, tuple[str, ...]]

    @property
    def has_seat(self) -> bool:
        return bool(self.devices.get(RESOURCE))

    @property
    def has_replica(self) -> bool:
        return any(REPLICA in name for name in self._nvidias)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Names of GPUs and MIG devices as CUDA shows them."""
        return tuple(sorted({name.partition(REPLICA)[0] for name in self._nvidias}))

    @property
    def _nvidias(self) -> list[str]:
        return [n for resource, each in self.devices.items() if is_nvidias(resource) for n in each]


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """`allocatable` has the healthy devices of the node by resource; None where this kubelet does
    not tell them (before Kubernetes 1.23)."""

    containers: tuple[Container, ...] = ()
    allocatable: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """In a sentence, and what to do in another one."""

    what: str
    remedy: str


def mistakes(node: NodeDevices) -> list[Mistake]:
    """The worst ones first."""
    return [*_without_seat(node), *_no_seats(node), *_no_replicas(node), *_without_gpu(node)]


def without_notebooks(node: NodeDevices, owners: Collection[str]) -> list[Container]:
    """Containers with a seat whose pods have the name of none of these users. Whoever is in doubt
    counts as known."""
    slugs = [slug for slug in map(_slug, owners) if slug]
    return [
        each
        for each in node.containers
        if each.has_seat and not any(f"-{slug}-" in f"-{each.pod}-" for slug in slugs)
    ]


def _slug(user: str) -> str:
    """As KubeSpawner names a pod after a user: jupyter-ann-smith---1a2b3c for Ann.Smith."""
    return re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")


def is_nvidias(resource: str) -> bool:
    """A GPU or a MIG device, time-sliced or not."""
    return resource.startswith(NVIDIA)


def _without_seat(node: NodeDevices) -> Iterator[Mistake]:
    """A container that has a whole GPU shares it with nobody, and needs no seat."""
    for each in node.containers:
        if each.has_replica and not each.has_seat:
            yield Mistake(
                f"{_called(each)} has a share of {each.gpus[0]} and no seat, so its programs run "
                f"beside those that take turns there.",
                f"Add {RESOURCE}: 1 to its resource limits. The chart's admission policy refuses "
                f"such pods.",
            )


def _no_seats(node: NodeDevices) -> Iterator[Mistake]:
    if node.allocatable is not None and not node.allocatable.get(RESOURCE):
        yield Mistake(
            f"The kubelet of this node has no healthy {RESOURCE}, so no new pod gets a seat here.",
            "Look into the logs of the node's plugin and of its scheduler.",
        )


def _no_replicas(node: NodeDevices) -> Iterator[Mistake]:
    """Told where there are seats: others have no use for replicas."""
    names = {
        name
        for devices in (node.allocatable or {}, *(each.devices for each in node.containers))
        for resource, each in devices.items()
        if is_nvidias(resource)
        for name in each
    }
    seats = bool((node.allocatable or {}).get(RESOURCE)) or any(
        each.has_seat for each in node.containers
    )
    whole = sorted(name for name in names if REPLICA not in name)
    if seats and whole:
        yield Mistake(
            f"NVIDIA's device plugin gives {whole[0]} to one pod alone, because it makes no "
            f"replicas of it.",
            "Set timeSlicing.resources.replicas in the configuration of NVIDIA's device plugin.",
        )


def _without_gpu(node: NodeDevices) -> Iterator[Mistake]:
    for each in node.containers:
        if each.has_seat and not each.gpus:
            yield Mistake(
                f"{_called(each)} has a seat and no GPU of NVIDIA's, so it keeps a seat from "
                f"others.",
                "Add nvidia.com/gpu: 1 to its resource limits, or take its seat away.",
            )


def _called(container: Container) -> str:
    return f"The container {container.name} of the pod {container.namespace}/{container.pod}"
